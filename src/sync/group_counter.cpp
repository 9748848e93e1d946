// group_counter.cpp - the counter of wait_group and task_group.
//
// Data       word_ = references:31 | somebody waits:1 | pending:32; queue_ = a lock and those who wait.
// Protocol   done                                             wait
//            unless it is the last and somebody waits:        1  run members that have not begun, here
//              one RMW on the word                            2  pending == 0: return
//            else: lock, pending -= 1; if that makes 0:       3  lock, set the bit "waits" in the word;
//              take all waiters, clear the bit; unlock;          pending == 0 in the same RMW: clear it, unlock, return
//              wake them                                      4  queue, unlock, park
// Proof      The bit and the count are one word, so the last done() either sees the bit and goes through the lock, or its RMW comes before the one
//            of step 3, which then sees 0.
// Lifetime   A task_group dies as soon as wait() has returned, perhaps while another member's done() is still running: that one was an RMW and touches
//            nothing afterwards. Going through the lock means that a waiter is in the queue, and it returns only when it is woken, which
//            is after the unlock. A wait_group may die before its members: each holds a reference, added and dropped with its count.
#include <mutex>
#include <new>
#include <string>

#include <dunlin/task.hpp>

#include "park/join.h"
#include "park/wait_queue.h"
#include "platform/lock.h"

namespace dunlin {
namespace detail {

namespace {

static_assert(wait_group_reason == static_cast<unsigned char>(sched::wait_reason::wait_group_wait));

struct waiters {
    platform::futex_lock lock;
    park::wait_queue queue;
};

waiters& in(unsigned char* storage) noexcept { return *std::launder(reinterpret_cast<waiters*>(storage)); }

std::uint32_t pending_of(std::uint64_t word) noexcept { return static_cast<std::uint32_t>(word); }

}  // namespace

group_counter::~group_counter() {
    if (!in(queue_).queue.empty()) platform::fatal("a wait_group or task_group is destroyed while goroutines wait for it");
}

group_counter* group_counter::make() { return new group_counter; }

void group_counter::release() noexcept {
    // Acquire-release: whoever deletes it sees what the others did with it.
    if (word_.fetch_sub(one_reference, std::memory_order_acq_rel) >> reference_shift == 1) delete this;
}

void group_counter::add(std::int64_t n) {
    if (n > 0) {
        word_.fetch_add(static_cast<std::uint64_t>(n), std::memory_order_relaxed);
    } else if (n < 0) {
        add_slow(n);
    }
}

void group_counter::add_slow(std::int64_t n) {
    // Release: what happened before this done() happens before the waits that it ends; acquire: the last one sees all of them.
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    for (;;) {
        const std::int64_t left = static_cast<std::int64_t>(pending_of(word)) + n;
        if (left < 0) throw std::logic_error("dunlin::wait_group: negative wait_group counter (" + std::to_string(left) + "): done() more often than add()");
        if (left == 0 && (word & waiting)) {
            if (finish(n)) return;
            word = word_.load(std::memory_order_relaxed);
        } else if (word_.compare_exchange_weak(word, word + static_cast<std::uint64_t>(n), std::memory_order_acq_rel, std::memory_order_relaxed)) {
            return;
        }
    }
}

// To zero, with waiters. False: the count has changed meanwhile.
bool group_counter::finish(std::int64_t n) noexcept {
    sched::machine* m = sched::current_machine();
    if (m != nullptr) m = sched::enter(m);  // with the lock held a goroutine must not lose its processor
    waiters& w = in(queue_);
    w.lock.lock();
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    bool last;
    do {
        last = pending_of(word) + n == 0;
    } while (last && !word_.compare_exchange_weak(word, (word & ~waiting) + static_cast<std::uint64_t>(n), std::memory_order_acq_rel,
        std::memory_order_relaxed));
    park::wait_node* all = last ? w.queue.take_all() : nullptr;
    w.lock.unlock();
    if (all != nullptr) park::wake_all(all);
    if (m != nullptr) sched::leave(m);
    return last;
}

void group_counter::add_member() { word_.fetch_add(one_reference + 1, std::memory_order_relaxed); }

void group_counter::member_done() noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    while (pending_of(word) > 1 || (word & waiting) == 0) {
        if (word_.compare_exchange_weak(word, word - one_reference - 1, std::memory_order_acq_rel, std::memory_order_relaxed)) {
            if (word >> reference_shift == 1) delete this;
            return;
        }
    }
    add_slow(-1);
    release();
}

void group_counter::wait(unsigned char reason, bool in_place, std::source_location where) noexcept {
    if (in_place) park::run_group_in_place(this, where, [this] { return pending() != 0; });
    if (pending() == 0) return;
    park::waiter self;
    self.enter();
    waiters& w = in(queue_);
    w.lock.lock();
    // Acquire pairs with the release of every done().
    if (pending_of(word_.fetch_or(waiting, std::memory_order_acquire)) == 0) {
        if (w.queue.empty()) word_.fetch_and(~waiting, std::memory_order_relaxed);
        w.lock.unlock();
        self.leave();
        return;
    }
    self.prepare(static_cast<sched::wait_reason>(reason), where);
    w.queue.push_back(&self);
    w.lock.unlock();
    self.wait();
}

}  // namespace detail

}  // namespace dunlin
