// condition_variable.cpp - wait until a notifier says that something has changed.
//
// Data       The object has no state: everything is in the parking lot, in the queue of its address. A node has a
//            state:
//            0 queued, its waiter is still giving its lock back    1 parked    2 notified    3 the same, with all
// Protocol   wait                                            notify, under the bucket's lock
//            W1  queue the node                              N1  take the first node off
//            W2  give the user's lock back: user code,       N2  state = 2 (exchange). It was 0: done, and the node may
//                outside the runtime                             be gone
//            W3  prepare(); CAS state 0 -> 1; it was 2, 3:   N3  it was 1: claim; false: its deadline was first, take
//                withdraw, out                                   the next; else wake it, after the unlock
//            W4  wait
//            W5  timed out, and will wait again: under the bucket's lock, still queued: state = 0, as after W1; then
//                W3. Not queued: N3 came after its deadline, and a wait that goes on counts as notified
// Given up   User code between W1 and W3, or W5 and W3, may throw: the lock's unlock(), a clock's now(). Then the
//            waiter leaves the queue; if it was notified, and alone, it does N1 to N3 for the next one.
// Proof      (no notify is lost) A notifier after W2 finds the node queued, in whichever state. N2 and W3 are RMWs on
//            one word: one comes first, and the other acts. The oldest waiter is notified even before it has parked.
// Lifetime   A waiter never touches the object after W1. A waiter whose deadline won takes the bucket's lock before it
//            returns, so N3 may look at its node.
// Source     Go 1.24 sync/cond.go, runtime/sema.go notifyList (tickets do there what state 0 does here).
// Tests      tests/sync/condition_variable_test.cpp
#include <dunlin/condition_variable.hpp>
#include <dunlin/detail/at_exit.hpp>

#include <memory>
#include <mutex>
#include <new>
#include <system_error>

#include "sync/lot_wait.h"

namespace dunlin::inline v0_1::detail {

namespace {

constexpr std::uint8_t queued = 0, parked = 1, notified = 2, notified_with_all = 3;

struct wait_in_progress {
    park::waiter waiter;
    park::lot_node node;
    bool given_up = true;  // no wait() answers for a notification that comes now
    wait_in_progress(const void* condition, bool limited) noexcept
        : node(&waiter, condition, park::lot_kind::condition, limited) {}
};

wait_in_progress& in(unsigned char* storage) noexcept {
    return *std::launder(reinterpret_cast<wait_in_progress*>(storage));
}

// N1 to N3. Null: no waiter is to be woken; `done` says whether one was notified.
park::lot_node* notify_first(park::lot_bucket& b, const void* condition, std::uint8_t as, bool& done) noexcept {
    while (park::lot_node* n = b.front(condition)) {
        if (n->kind != park::lot_kind::condition) break;
        b.remove(n);
        // Acquire-release: the waiter sees what we did before, and we see its waiter prepared.
        const std::uint8_t was = n->state.exchange(as, std::memory_order_acq_rel);
        if (was == queued) {
            done = true;
            return nullptr;
        }
        if (n->claim()) {
            done = true;
            return n;
        }
    }
    done = false;
    return nullptr;
}

}  // namespace

condition_wait::condition_wait(const void* condition, bool limited) noexcept {
    static_assert(sizeof(wait_in_progress) <= sizeof(storage_) && alignof(wait_in_progress) <= 8);
    auto* w = ::new (storage_) wait_in_progress(condition, limited);
    park::lot_bucket& b = park::bucket_of(condition);
    park::runtime_section inside;
    b.lock.lock();
    b.announce();
    b.push_back(&w->node);
    b.lock.unlock();
}

// Given up only if the user's code has thrown, or exit_goroutine() passes through.
condition_wait::~condition_wait() {
    if (!in(storage_).given_up || leave()) return;
    park::lot_node& n = in(storage_).node;
    if (n.state.load(std::memory_order_relaxed) == notified) notify_condition(n.address, false);
}

bool condition_wait::leave() noexcept {
    in(storage_).given_up = false;
    park::lot_node& n = in(storage_).node;
    park::lot_bucket& b = park::bucket_of(n.address);
    park::runtime_section inside;
    const std::scoped_lock guard(b.lock);
    if (!n.linked) return false;
    b.remove(&n);
    return true;
}

wait_outcome condition_wait::wait(const wait_limit* limit, const std::source_location& where, bool may_go_on) {
    park::waiter& w = in(storage_).waiter;
    park::lot_node& n = in(storage_).node;
    park::lot_bucket& b = park::bucket_of(n.address);
    w.again();  // the user's unlock may have moved us to another thread; nothing claims the waiter before state 1
    w.enter();
    in(storage_).given_up = false;
    w.prepare(sched::wait_reason::cond_wait, where);
    std::uint8_t was = queued;
    // Release publishes the prepared waiter, acquire gets what the notifier did.
    if (!n.state.compare_exchange_strong(was, parked, std::memory_order_acq_rel, std::memory_order_acquire)) {
        w.withdraw();
        w.leave();
        return wait_outcome::ok;
    }
    if (!may_go_on) return wait_in_lot(b, n, w, limit);
    const end_of_wait end = wait_limited(w, *limit);
    if (end == end_of_wait::served) return wait_outcome::ok;
    bool stays;
    {
        park::runtime_section inside;
        const std::scoped_lock guard(b.lock);
        stays = n.linked && end == end_of_wait::timed_out;
        if (stays) {
            n.state.store(queued, std::memory_order_relaxed);  // under the lock that N1 to N3 need
            in(storage_).given_up = true;
        } else if (n.linked) {
            b.remove(&n);
        }
    }
    if (end == end_of_wait::no_memory) throw std::bad_alloc();
    if (end == end_of_wait::cancelled) return wait_outcome::cancelled;
    return stays ? wait_outcome::timed_out : wait_outcome::ok;  // W5
}

void throw_lock_not_owned() {
    throw std::system_error(std::make_error_code(std::errc::operation_not_permitted),
        "dunlin::condition_variable: wait: the lock does not own its mutex");
}

void notify_condition(const void* condition, bool all) noexcept {
    park::lot_bucket& b = park::bucket_of(condition);
    // A waiter has announced itself before it gave its lock back.
    if (b.waiting.load(std::memory_order_seq_cst) == 0) return;
    park::runtime_section inside;
    park::wake_chain chain;
    bool done = true;
    b.lock.lock();
    do {
        if (park::lot_node* n = notify_first(b, condition, all ? notified_with_all : notified, done)) chain.add(n);
    } while (all && done);
    b.lock.unlock();
    park::wake_all(chain.first());
}

// What a goroutine that ends with notify_all_at_thread_exit() owes.
struct exit_notice {
    exit_notice(condition_variable* c, mutex* m) noexcept : condition(c), held(m) {}

    condition_variable* const condition;
    mutex* const held;

    // The notice comes first: after the unlock a waiter may destroy both.
    static void give(void* raw) noexcept {
        const std::unique_ptr<exit_notice> n(static_cast<exit_notice*>(raw));
        n->condition->notify_all();
        n->held->unlock();
    }
};

void destroy_condition(const void* condition) noexcept {
    park::check_no_waiters(condition, "a condition variable is destroyed while goroutines wait for it");
}

}  // namespace dunlin::detail

namespace dunlin::inline v0_1 {

void notify_all_at_thread_exit(condition_variable& c, std::unique_lock<mutex> lock) {
    if (!lock.owns_lock()) {
        throw std::system_error(std::make_error_code(std::errc::operation_not_permitted),
            "dunlin::notify_all_at_thread_exit: the lock does not own its mutex");
    }
    auto notice = std::make_unique<detail::exit_notice>(&c, lock.mutex());
    detail::call_at_exit(notice.get(), detail::exit_notice::give);
    notice.release();
    lock.release();
}

}  // namespace dunlin
