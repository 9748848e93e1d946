// destroyable_lock.h - a lock that may be destroyed, with the object that it guards, by its last holder.
//
// Problem    What an unlock makes visible to another thread may be the last thing that keeps the object alive: the
//            value that says "all are done" is received and the channel is destroyed while the sender is still inside
//            its unlock. The futex_lock (lock.h) would look there for sleepers after it has let go.
// Guarantee  Mutual exclusion in four bytes, constant-initialised; an uncontended pair is one atomic operation and no
//            call; unlock() is one store and does not touch the lock after it. errno is never changed. No fairness. Not
//            recursive. Unlocking a free lock stops the process.
// Waiting    No waiter is woken, because an unlocker must not look for sleepers. A waiter spins for some microseconds,
//            longer than any section lasts. If the owner has lost its CPU meanwhile, the waiter sleeps and spins by
//            turns: it sleeps for 20 us first, and twice as long each time, up to 1 ms; it spins twice as long each
//            time, up to sixteen times as long. Where others take the lock again and again, only a waiter that spins
//            sees it free.
// Standing   A waiter that looks all the time gets the lock at each unlock, so two threads that use one channel without
// back       pause fetch its lock and its buffer from each other for every operation, which costs five times the
//            operation itself. So a thread that finds a lock held for the second time within 0.7 us leaves it alone for
//            1.3 us before each of its first four looks: meanwhile the other thread makes some tens of operations in
//            its own cache. The time counts from when the lock was found held, and standing back takes longer than 0.7
//            us: the next lock that this thread finds held is looked at without pause, so threads that do some work
//            between their operations keep step. Only lock_patiently() stands back: the caller of lock() may hold other
//            locks, for which others would wait as well.
// Rejected   One word that also says whether there are sleepers, released with a compare-and-swap: half as much again
//            for a channel that two processors use at once (43 and 65 ns; docs/decisions/013-lock.md).
// Tests      tests/platform/lock_test.cpp, tests/go/chan_stress_test.cpp (AChannelMayEndAsSoonAsItsLastValueIsThere)
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

#include "platform/lock_check.h"

namespace dunlin::inline v0_1::platform {

// Meets the standard's Lockable. Never held across a stack switch.
class destroyable_lock {
public:
    constexpr destroyable_lock() noexcept = default;
    destroyable_lock(const destroyable_lock&) = delete;
    destroyable_lock& operator=(const destroyable_lock&) = delete;

    void lock() noexcept {
        if (!take()) [[unlikely]] {
            lock_slow();
        }
        note_locked(this, lock_rank::channel);
    }

    // The same, for a caller that holds no other lock: see "Standing back".
    void lock_patiently() noexcept {
        if (!take()) [[unlikely]] {
            lock_patiently_slow();
        }
        note_locked(this, lock_rank::channel);
    }

    bool try_lock() noexcept {
        if (!take()) return false;
        note_locked(this, lock_rank::channel);
        return true;
    }

    // As ranked_lock's (lock.h).
    void assert_held() const noexcept { platform::assert_held(this, lock_rank::channel); }

    void unlock() noexcept {
        if (held_.load(std::memory_order_relaxed) != 1) [[unlikely]] {
            not_held();
        }
        note_unlocked(this);
        held_.store(0, std::memory_order_release);
    }

private:
    bool take() noexcept {
        std::uint32_t expected = 0;
        // Acquire pairs with the release of unlock().
        return held_.compare_exchange_strong(expected, 1, std::memory_order_acquire, std::memory_order_relaxed);
    }

    void lock_slow() noexcept;
    void lock_patiently_slow() noexcept;
    [[noreturn]] static void not_held() noexcept;

    platform::atomic<std::uint32_t> held_{0};  // any thread
};

}  // namespace dunlin::platform
