// lock.h - the mutual exclusion that the runtime itself uses.
//
// Problem    Runtime locks are held for tens of nanoseconds, by threads that the kernel may preempt at any moment. Every yield, park and channel
//            operation takes one, nearly always free: its price is the price of two atomic operations, of which one can be saved.
// Guarantee  Mutual exclusion in eight bytes, constant-initialised; an uncontended pair is one atomic operation and no call; errno is never
//            changed; what one owner wrote the next one sees. No fairness: a newcomer may pass a thread that is just being woken. Not
//            recursive. Unlocking a free lock stops the process.
//
// Data       held_: 0 free, 1 locked        sleepers_: threads that sleep on held_ or are about to
//
// Protocol   lock                                       unlock
//            L1  CAS held 0 -> 1: have it               U1  held = 0 (release)
//            L2  spin a while on L1                     U2  light barrier (membarrier.h: for the compiler only)
//            L3  sleepers += 1                          U3  if sleepers != 0: wake one
//            L4  heavy barrier (every thread fences)
//            L5  held is 1: sleep while it is 1 (the kernel looks again); L1; again from L4
//            L6  have it: sleepers -= 1
//
// Proof      (that a sleeper is woken) Let U be the unlock that ends the ownership because of which L5 found 1. The fence that L4 makes in U's
//            thread falls before U1 or after it. Before: U3 comes after the fence, so it sees L3 and wakes; the wake finds the sleeper, or
//            the sleeper's look in the kernel comes after U1 and it does not sleep. After: U1 is visible to L5, which does not find this
//            ownership any more; if it finds another one, that one began after L3 was visible to its CAS, and its U3 sees L3.
//            A woken thread goes to L1, and if it loses, to L4 with sleepers_ still raised.
// Without    membarrier (old seccomp filters) both barriers are real fences: two atomic operations for a pair, as for any other lock.
// Rejected   One word with 0, 1 and 2 for "locked, and somebody sleeps" (Drepper, "Futexes Are Tricky"): the unlock must be an exchange, 4.3 of 9 ns.
//            Ticket lock: a preempted thread stops all that come after it. Spinning only: with more threads than processors the owner
//            cannot run.
//            (FUTEX_WAKE fences before it looks for sleepers, FUTEX_WAIT looks at the word under the lock of its queue: the kernel's part.)
// Tests      tests/platform/lock_test.cpp, tests/model/lock_model_test.cpp
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/membarrier.h"

namespace dunlin::platform {

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
        if (sleepers_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
            wake_sleeper();                         // U3
        }
    }

    // For assertions only: true says that somebody has the lock, not who.
    bool is_locked() const noexcept { return held_.load(std::memory_order_relaxed) != 0; }

private:
    void lock_slow() noexcept;
    void wake_sleeper() noexcept;
    [[noreturn]] static void not_held() noexcept;

    std::atomic<std::uint32_t> held_{0};      // any thread; see Data
    std::atomic<std::uint32_t> sleepers_{0};  // any thread
};

}  // namespace dunlin::platform
