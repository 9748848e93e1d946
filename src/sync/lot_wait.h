// lot_wait.h - the last step of every wait in the parking lot, with or without a limit.
#pragma once

#include <new>

#include <dunlin/detail/wait.hpp>

#include "chan/limited_wait.h"
#include "park/parking_lot.h"
#include "park/wait_queue.h"

namespace dunlin::inline v0_1::detail {

// Waits: n is queued, w prepared, the bucket unlocked. If the wait ends without success, `given_up` runs under the
// bucket's lock, with n off its queue; it returns a chain of the waiters that have to be woken because of that. Leaves
// the runtime. Throws std::bad_alloc: no memory for the deadline.
template <class GivenUp>
wait_outcome wait_in_lot(park::lot_bucket& b, park::lot_node& n, park::waiter& w, const wait_limit* limit,
    GivenUp given_up) {
    if (limit == nullptr) {
        w.wait();
        return wait_outcome::ok;
    }
    const end_of_wait end = wait_limited(w, *limit);
    if (end == end_of_wait::served) return wait_outcome::ok;
    {
        park::runtime_section inside;
        b.lock.lock();
        if (n.linked) b.remove(&n);
        park::wait_node* const chain = given_up();
        b.lock.unlock();
        park::wake_all(chain);
    }
    if (end == end_of_wait::no_memory) throw std::bad_alloc();
    return end == end_of_wait::cancelled ? wait_outcome::cancelled : wait_outcome::timed_out;
}

inline wait_outcome wait_in_lot(park::lot_bucket& b, park::lot_node& n, park::waiter& w, const wait_limit* limit) {
    return wait_in_lot(b, n, w, limit, []() noexcept -> park::wait_node* { return nullptr; });
}

// For objects whose waiters all wait for the same thing, and whose word says whether it has come. `arrived()` looks at
// the word.
template <class Arrived>
wait_outcome wait_until_arrived(const void* object, park::lot_kind kind, std::uint64_t value, sched::wait_reason reason,
    const wait_limit* limit,
    const std::source_location& where, Arrived arrived) {
    if (arrived()) return wait_outcome::ok;
    if (cancelled_already(limit)) return wait_outcome::cancelled;
    if (is_past(limit)) return wait_outcome::timed_out;
    park::waiter w;
    park::lot_node n(&w, object, kind, limit != nullptr);
    n.value = value;
    park::lot_bucket& b = park::bucket_of(object);
    w.enter();
    b.lock.lock();
    b.announce();
    if (arrived()) {
        b.retract();
        b.lock.unlock();
        w.leave();
        return wait_outcome::ok;
    }
    w.prepare(reason, where);
    b.push_back(&n);
    b.lock.unlock();
    return wait_in_lot(b, n, w, limit);
}

// The waker's side: wakes the waiters in the queue of `object` for which `arrived(node)` is true. Touches the object
// only if there is a waiter of this kind.
template <class Arrived>
void wake_arrived(const void* object, park::lot_kind kind, Arrived arrived) noexcept {
    park::lot_bucket& b = park::bucket_of(object);
    if (b.waiting.load(std::memory_order_seq_cst) == 0) return;
    park::runtime_section inside;
    park::wake_chain chain;
    b.lock.lock();
    for (park::lot_node* n = b.front(object); n != nullptr && n->kind == kind;) {
        park::lot_node* const next = n->after();
        if (arrived(*n)) {
            b.remove(n);
            if (n->claim()) chain.add(n);
        }
        n = next;
    }
    b.lock.unlock();
    park::wake_all(chain.first());
}

}  // namespace dunlin::detail
