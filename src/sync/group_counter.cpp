// group_counter.cpp - the counter of wait_group and task_group.
//
// Data       word_ = references:31 | there are waiters:1 | pending:32. Waiters are in the parking lot
//            (park/parking_lot.h).
// Protocol   done                                             wait
//            unless it is the last and there are waiters:     1  run members that have not begun, here
//              one RMW on the word                            2  pending == 0: return
//            else: lock the bucket, pending -= 1; if that     3  lock the bucket, set the bit "waits" in the word;
//              makes 0: take all waiters, clear the bit;         pending == 0 in the same RMW: clear it if the queue is
//              unlock; wake them                                 empty, unlock, return
//                                                             4  queue, unlock, park
//                                                             5  given up: lock, off the queue, clear the bit if the
//                                                                queue is empty, unlock
// Proof      The bit and the count are one word, so the last done() either sees the bit and goes through the lock, or
//            its RMW comes before the one of step 3, which then sees 0.
// Lifetime   A task_group or a latch may die as soon as wait() has returned, perhaps while another goroutine's done()
//            is still running: the last access of that done() is its RMW on the word, and the bucket is not the
//            object's. A wait_group may die before its members: each holds a reference, added and dropped with its
//            count.
#include <stdexcept>
#include <string>

#include <dunlin/task.hpp>

#include "park/join.h"
#include "sync/lot_wait.h"

namespace dunlin::inline v0_1 {
namespace detail {

namespace {

static_assert(wait_group_reason == static_cast<unsigned char>(sched::wait_reason::wait_group_wait));
static_assert(latch_reason == static_cast<unsigned char>(sched::wait_reason::latch_wait));

std::uint32_t pending_of(std::uint64_t word) noexcept { return static_cast<std::uint32_t>(word); }

}  // namespace

group_counter::~group_counter() {
    if ((word_.load(std::memory_order_relaxed) & waiting) == 0) return;
    park::check_no_waiters(this, "a wait_group, task_group or latch is destroyed while goroutines wait for it");
}

group_counter* group_counter::make() { return new group_counter; }

void group_counter::release() noexcept {
    // Acquire-release: the last one, which deletes it, sees what the others did with it.
    if (word_.fetch_sub(one_reference, std::memory_order_acq_rel) >> reference_shift == 1) delete this;
}

void group_counter::add(std::int64_t n) {
    if (n > 0) {
        std::uint64_t word = word_.load(std::memory_order_relaxed);
        do {
            if (n > std::int64_t{most_added} - pending_of(word)) {
                throw std::overflow_error("dunlin::wait_group: wait_group counter overflow ("
                    + std::to_string(pending_of(word)) + " and " +
                                          std::to_string(n) + " more)");
            }
            // Relaxed: an add() from zero must happen before the wait() that it concerns, by the program's own order.
        } while (!word_.compare_exchange_weak(word, word + static_cast<std::uint64_t>(n), std::memory_order_relaxed));
    } else if (n < 0) {
        add_slow(n, "dunlin::wait_group: negative wait_group counter");
    }
}

void group_counter::add_slow(std::int64_t n, const char* negative) {
    // Release: what happened before this done() happens before the waits that it ends; acquire: the last one sees all
    // of them.
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    for (;;) {
        const std::int64_t left = static_cast<std::int64_t>(pending_of(word)) + n;
        if (left < 0) {
            throw std::logic_error(negative + (" (" + std::to_string(left) + "): counted down more often than up"));
        }
        if (left == 0 && (word & waiting)) {
            if (finish(n)) return;
            word = word_.load(std::memory_order_relaxed);
        } else if (word_.compare_exchange_weak(word, word + static_cast<std::uint64_t>(n), std::memory_order_acq_rel,
            std::memory_order_relaxed)) {
            return;
        }
    }
}

// Counts down to zero, with waiters. False: the count has changed meanwhile.
bool group_counter::finish(std::int64_t n) noexcept {
    park::runtime_section inside;
    park::lot_bucket& b = park::bucket_of(this);
    b.lock.lock();
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    bool last;
    do {
        last = pending_of(word) + n == 0;
    } while (last && !word_.compare_exchange_weak(word, (word & ~waiting) + static_cast<std::uint64_t>(n),
        std::memory_order_acq_rel,
        std::memory_order_relaxed));
    park::wait_node* const all = last ? b.take_all(this) : nullptr;
    b.lock.unlock();
    park::wake_all(all);
    return last;
}

void group_counter::member_done_slow() noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    while (pending_of(word) > 1 || (pending_of(word) == 1 && (word & waiting) == 0)) {
        if (word_.compare_exchange_weak(word, word - one_reference - 1, std::memory_order_acq_rel,
            std::memory_order_relaxed)) {
            if (word >> reference_shift == 1) delete this;
            return;
        }
    }
    add_slow(-1, "dunlin::wait_group: negative wait_group counter");
    release();
}

void group_counter::wait(unsigned char reason, bool in_place, std::source_location where) noexcept {
    if (in_place) park::run_group_in_place(this, where, [this] { return pending() != 0; });
    if (pending() != 0) wait_in_queue(nullptr, reason, where);
}

wait_outcome group_counter::wait_limited(const wait_limit& limit, unsigned char reason, std::source_location where) {
    if (pending() == 0) return wait_outcome::ok;
    if (cancelled_already(&limit)) return wait_outcome::cancelled;
    if (is_past(&limit)) return wait_outcome::timed_out;
    return wait_in_queue(&limit, reason, where);
}

wait_outcome group_counter::wait_in_queue(const wait_limit* limit, unsigned char reason,
    const std::source_location& where) {
    park::waiter w;
    park::lot_node n(&w, this, park::lot_kind::group, limit != nullptr);
    park::lot_bucket& b = park::bucket_of(this);
    const auto clear_if_empty = [this, &b]() noexcept -> park::wait_node* {
        if (!b.any(this)) word_.fetch_and(~waiting, std::memory_order_relaxed);
        return nullptr;
    };
    w.enter();
    b.lock.lock();
    // Acquire pairs with the release of every done().
    if (pending_of(word_.fetch_or(waiting, std::memory_order_acquire)) == 0) {
        clear_if_empty();
        b.lock.unlock();
        w.leave();
        return wait_outcome::ok;
    }
    b.announce();
    w.prepare(static_cast<sched::wait_reason>(reason), where);
    b.push_back(&n);
    b.lock.unlock();
    return wait_in_lot(b, n, w, limit, clear_if_empty);
}

void check_count(const char* what, std::int64_t n, std::int64_t most) {
    if (n >= 0 && n <= most) return;
    throw std::invalid_argument(std::string(what) + ": a count of " + std::to_string(n)
        + " is not between 0 and max(), " + std::to_string(most));
}

}  // namespace detail

}  // namespace dunlin
