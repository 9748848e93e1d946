// lock.h - the mutual exclusion that the runtime itself uses.
//
// Problem    Runtime locks are held for tens of nanoseconds, by threads that the kernel may preempt at any moment.
//            Every yield, park and channel operation takes one, nearly always free: its price is the price of two
//            atomic operations, of which one can be saved.
// Guarantee  Mutual exclusion in eight bytes, constant-initialised; an uncontended pair is one atomic operation and no
//            call; errno is never changed; what one owner wrote the next one sees. No fairness: a newcomer may pass a
//            thread that is just being woken. Not recursive. Unlocking a free lock stops the process.
//
// Data       held_: 0 free, 1 locked
//            waiters_, one word: how many threads sleep or are about to; whether one that was woken is on its way; how
//            many have been woken (16 bits, wrapping). They sleep on this word.
//
// Protocol   lock                                       unlock
//            L1  CAS held 0 -> 1: have it               U1  held = 0 (release)
//            L2  spin a while on L1, see below          U2  light barrier (membarrier.h: for the compiler only)
//            L3  count += 1                             U3  no waiter counted, or one is on its way: done
//            L4  on the way = 0, remember the word      U4  CAS: on the way = 1, woken += 1; wake one
//            L5  heavy barrier (every thread fences); not at first, see below
//            L6  CAS held 0 -> 1: have it, L8
//            L7  the word is as remembered: sleep (the kernel looks again); CAS as L6; failed: L4
//            L8  have it: on the way = 0 and count -= 1, in one step
//
// Proof      (that a sleeper is woken) Let S sleep, and let U be the unlock that ends the ownership that made L6 fail.
//            The fence that L5 makes in U's thread falls before U1 or after it. After: U1 is visible to L6, which does
//            not find this ownership any more. Before: U3 sees S counted. If U3 sees no waiter on the way, U4 changes
//            the word: S wakes or, if it did not sleep yet, finds the word changed; or U4 wakes another waiter; or its
//            CAS fails, because another unlocker has done U4. If U3 sees a waiter on the way, the mark was set after
//            S's L4, which cleared it (or S saw the mark in the word, and cleared it then). So the word has changed
//            since S remembered it, and S does not sleep, or has been woken, or another waiter was. That waiter is
//            awake: it gets the lock and wakes the next one in its unlock, or clears the mark itself (L4), with a
//            barrier of its own. Without the mark every unlock would be a system call until the waiter that was woken
//            first gets a CPU. The kernel's part: FUTEX_WAKE fences before it looks for sleepers; FUTEX_WAIT looks at
//            the word under the lock of its queue.
// At first   The barrier is an interrupt on every CPU, 3 to 40 us. If the owner has been preempted and a hundred
//            threads come for the lock, there would be a hundred barriers. So L5 is left out at first and the sleep
//            ends by itself, after 1 ms, then 2, 4 and 8. The next sleep has no limit, and L5 comes before it. An
//            unlock that overlooks a sleeper before that (it must fall within the tens of nanoseconds for which U1 is
//            in its CPU's store buffer) costs the rest of that sleep. If the woken waiter of the proof has no barrier
//            of its own, its sleep has an end: S waits for that. L2 ends early if a waiter sleeps already: the owner
//            has most likely lost its CPU, perhaps to the spinner. lock_in_a_crowd() gives its CPU away (sched_yield)
//            eight times between L2 and L3.
// Without    membarrier (old seccomp filters) both barriers are real fences: two atomic operations for a pair, as for
//            any other lock.
// Rejected   One word with 0, 1 and 2 for "locked, with sleepers" (Drepper, "Futexes Are Tricky"): the unlock must be
//            an exchange, 4.3 of 9 ns. Ticket lock: a preempted thread stops all that come after it. Spinning only:
//            with more threads than processors the owner cannot run.
// Tests      tests/platform/lock_test.cpp, tests/model/lock_model_test.cpp
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

#include "platform/annotations.h"
#include "platform/lock_check.h"
#include "platform/membarrier.h"
#include "platform/wrap.h"

namespace dunlin::inline v0_1::platform {

// Meets the standard's Lockable: std::scoped_lock and std::unique_lock take it. Never held across a stack switch.
class futex_lock {
public:
    constexpr futex_lock() noexcept = default;
    futex_lock(const futex_lock&) = delete;
    futex_lock& operator=(const futex_lock&) = delete;

    void lock() noexcept {
        if (!try_lock()) [[unlikely]] {
            lock_slow();
        }
    }

    // For threads that come in crowds and have nothing to lose: a waiter gives its CPU away a few times before it
    // sleeps. If a hundred threads slept, each would be woken by the one before it, 2 to 50 us later; and the owner
    // most likely waits for its CPU among them.
    void lock_in_a_crowd() noexcept {
        if (!try_lock()) [[unlikely]] {
            lock_in_a_crowd_slow();
        }
    }

    bool try_lock() noexcept {
        std::uint32_t expected = 0;
        // Acquire pairs with the release in unlock(): the new owner sees what the last one wrote. Relaxed on failure:
        // nothing is read.
        return held_.compare_exchange_strong(expected, 1, std::memory_order_acquire, std::memory_order_relaxed);  // L1
    }

    void unlock() noexcept {
        if (held_.load(std::memory_order_relaxed) != 1) [[unlikely]] {
            not_held();
        }
        held_.store(0, std::memory_order_release);  // U1, pairs with the acquire of try_lock()
        light_barrier();                            // U2
        if (wants_a_wake(waiters_.load(std::memory_order_relaxed))) [[unlikely]] {  // U3
            wake_sleeper();
        }
    }

    // For assertions only: true says that a thread has the lock, not which.
    bool is_locked() const noexcept { return held_.load(std::memory_order_relaxed) != 0; }

private:
    // waiters_: count in bits 0 to 14, "one is on its way" in bit 15, how many have been woken above.
    static constexpr std::uint32_t on_the_way = 1u << 15;
    static constexpr std::uint32_t one_woken = 1u << 16;
    static constexpr bool wants_a_wake(std::uint32_t word) noexcept {
        return static_cast<std::uint16_t>(word - 1) < on_the_way - 1;
    }

    void lock_slow() noexcept;
    void lock_in_a_crowd_slow() noexcept;
    void wake_sleeper() noexcept;
    [[noreturn]] static void not_held() noexcept;

    platform::atomic<std::uint32_t> held_{0};     // any thread; see Data
    platform::atomic<std::uint32_t> waiters_{std::uint32_t{counter_start<std::uint16_t>()} << 16};  // any thread
};

// The type of the runtime's locks: a lock with a rank in their order, which checking builds verify (lock_check.h).
template <lock_rank rank>
class DUNLIN_LOCK_TYPE ranked_lock : private futex_lock {
public:
    constexpr ranked_lock() noexcept = default;

    void lock() noexcept DUNLIN_ACQUIRES() {
        futex_lock::lock();
        note_locked(this, rank);
    }
    void lock_in_a_crowd() noexcept DUNLIN_ACQUIRES() {
        futex_lock::lock_in_a_crowd();
        note_locked(this, rank);
    }
    bool try_lock() noexcept DUNLIN_TRY_ACQUIRES(true) {
        if (!futex_lock::try_lock()) return false;
        note_locked(this, rank);
        return true;
    }
    void unlock() noexcept DUNLIN_RELEASES() {
        note_unlocked(this);
        futex_lock::unlock();
    }
    // Fatal, in checking builds, if the calling thread does not hold it.
    void assert_held() const noexcept DUNLIN_ASSERTS_HELD() { platform::assert_held(this, rank); }
    using futex_lock::is_locked;
};

}  // namespace dunlin::platform
