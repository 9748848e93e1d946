// semaphore.cpp - a number of permits that are taken and given back.
//
// Data       permits_: how many are available. Waiters are in the parking lot.
// Protocol   release                                          acquire
//            R1  there are waiters in the bucket: lock it,    A1  CAS permits n -> n - 1, n > 0: have it
//                give permits straight to the first ones;     A2  lock the bucket, announce()
//                what is left: permits +=; unlock, wake:      A3  A1 again: retract(), unlock
//                done. Is that too many: see settle()
//            R2  permits += n (seq_cst)                       A4  queue, unlock, wait; woken: have it
//            R3  no waiters in the bucket: done
//            R4  lock it; while a waiter queues here for a semaphore, the object is alive: A1 for the waiter, take it
//                off; unlock, wake
// Proof      R2, R3, A2 and A3 are those of park/parking_lot.h. R1 is for the order: with a queue, permits never become
//            visible to callers that did not queue.
// Lifetime   The raise in R1 and R2 is the last access to the object by a release that has not found a waiter, and the
//            unlock of the bucket by one that has.
// Tests      tests/sync/semaphore_test.cpp
#include <dunlin/semaphore.hpp>

#include <stdexcept>
#include <string>

#include "sync/lot_wait.h"

namespace dunlin::inline v0_1::detail {

using park::lot_kind;
using park::lot_node;

wait_outcome semaphore_core::acquire(const wait_limit* limit, const std::source_location& where) {
    pass_simulation();
    if (try_acquire()) return wait_outcome::ok;
    if (cancelled_already(limit)) return wait_outcome::cancelled;
    if (is_past(limit)) return wait_outcome::timed_out;
    park::waiter w;
    lot_node n(&w, this, lot_kind::semaphore, limit != nullptr);
    park::lot_bucket& b = park::bucket_of(this);
    w.enter();
    b.lock.lock();
    b.announce();
    // Sequentially consistent, the load included.
    if (permits_.load(std::memory_order_seq_cst) > 0 && try_acquire()) {
        b.retract();
        b.lock.unlock();
        w.leave();
        return wait_outcome::ok;
    }
    w.prepare(sched::wait_reason::semacquire, where);
    b.push_back(&n);
    b.lock.unlock();
    return wait_in_lot(b, n, w, limit);
}

bool semaphore_core::try_raise(std::ptrdiff_t n, std::ptrdiff_t most) noexcept {
    std::ptrdiff_t have = permits_.load(std::memory_order_relaxed);
    do {
        if (have > most - n) return false;
    } while (!permits_.compare_exchange_weak(have, have + n, std::memory_order_seq_cst, std::memory_order_relaxed));
    return true;
}

// Of the object it knows what the caller has read: a waiter that has been woken by now may have destroyed it.
void semaphore_core::throw_too_many(std::ptrdiff_t n, std::ptrdiff_t most, std::ptrdiff_t have) {
    if (n < 0) throw std::invalid_argument("dunlin::counting_semaphore::release: " + std::to_string(n) + " permits");
    throw std::overflow_error("dunlin::counting_semaphore::release: " + std::to_string(have) + " permits and " +
                              std::to_string(n) + " more are more than max(), " + std::to_string(most));
}

void semaphore_core::release(std::ptrdiff_t n, std::ptrdiff_t most) {
    if (n < 0 || n > most) throw_too_many(n, most, permits_.load(std::memory_order_relaxed));
    park::lot_bucket& b = park::bucket_of(this);
    if (b.waiting.load(std::memory_order_relaxed) != 0) return release_to_waiters(b, n, most);
    if (!try_raise(n, most)) throw_too_many(n, most, permits_.load(std::memory_order_relaxed));  // R2
    if (b.waiting.load(std::memory_order_seq_cst) != 0) hand_out(this);  // R3
}

// R1. Not inlined: it saves registers that the path without waiters does not need.
[[gnu::noinline]] void semaphore_core::release_to_waiters(park::lot_bucket& b, std::ptrdiff_t n, std::ptrdiff_t most) {
    if (n == 1) {
        if (!release_one(b, most)) throw_too_many(n, most, permits_.load(std::memory_order_relaxed));
        return;
    }
    park::runtime_section inside;
    park::wake_chain chain;
    std::ptrdiff_t given = 0, have = 0;
    b.lock.lock();
    while (n != 0) {
        lot_node* const first = b.pop_claimed(this);
        if (first == nullptr) break;
        chain.add(first);
        --n;
        ++given;
    }
    const bool fits = n == 0 || settle(n, given, most, have);
    b.lock.unlock();
    park::wake_all(chain.first());
    if (!fits) throw_too_many(n + given, most, have);
}

// R1 for one permit, which is the common release: one waiter, woken without a chain, inside the runtime all the way.
// False: too many.
bool semaphore_core::release_one(park::lot_bucket& b, std::ptrdiff_t most) noexcept {
    park::runtime_section inside;
    b.lock.lock();
    lot_node* const first = b.pop_claimed(this);
    std::ptrdiff_t have = 0;
    const bool fits = first != nullptr || settle(1, 0, most, have);
    b.lock.unlock();
    if (first != nullptr) first->owner->wake_from(inside.machine());
    return fits;
}

// Under the bucket's lock: `given` permits of this release have gone to waiters, `left` more become visible to all.
// False: that would be too many, because another release has just raised the permits and has not found these waiters
// yet (it is between its R2 and R3). Then the waiters have their permits from that release, as if by its R4, and this
// release has changed nothing. `have`: how many there were.
bool semaphore_core::settle(
    std::ptrdiff_t left, std::ptrdiff_t given, std::ptrdiff_t most, std::ptrdiff_t& have) noexcept {
    have = permits_.load(std::memory_order_relaxed);
    for (;;) {
        const bool fits = have <= most - left;
        // Sequentially consistent as in R2: a waiter that queues afterwards sees it in A3.
        if (permits_.compare_exchange_weak(have, fits ? have + left : have - given, std::memory_order_seq_cst,
            std::memory_order_relaxed)) {
            return fits;
        }
    }
}

// R4. By now there may be another object at this address, or none.
void semaphore_core::hand_out(const void* address) noexcept {
    park::runtime_section inside;
    park::lot_bucket& b = park::bucket_of(address);
    park::wake_chain chain;
    b.lock.lock();
    for (;;) {
        const lot_node* const first = b.front(address);
        if (first == nullptr || first->kind != lot_kind::semaphore) break;
        auto* core = static_cast<semaphore_core*>(const_cast<void*>(address));
        if (!core->try_acquire()) break;
        if (lot_node* const n = b.pop_claimed(address)) {
            chain.add(n);
        } else {
            core->permits_.fetch_add(1, std::memory_order_seq_cst);  // all waiters have given up
            break;
        }
    }
    b.lock.unlock();
    park::wake_all(chain.first());
}

semaphore_core::~semaphore_core() {
    park::check_no_waiters(this, "a semaphore is destroyed while goroutines wait for it");
}

void check_permits(std::ptrdiff_t desired, std::ptrdiff_t most) {
    throw std::invalid_argument("dunlin::counting_semaphore: " + std::to_string(desired)
        + " permits are not between 0 and max(), " + std::to_string(most));
}

}  // namespace dunlin::detail
