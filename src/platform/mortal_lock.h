// mortal_lock.h - a lock that may be destroyed, with the object that it guards, by whoever has just had it.
//
// Problem    What one thread's unlock lets another see may be the last thing that keeps the object alive: the value that says "all are done" is received, and
//            the channel goes, while the sender is still inside its unlock. The futex_lock (lock.h) looks there once more after it has let go.
// Guarantee  As the futex_lock's, and unlock() does not touch the lock after the step that gives it away. Its price: a second atomic operation for a pair.
//
// Data       One word: held; whether one that was woken is on his way; how many threads sleep or are about to. They sleep on this word.
// Protocol   lock                                            unlock
//            L1  CAS 0 -> held: have it                      U1  CAS held -> 0: done
//            L2  spin a while: CAS not held -> held          U2  CAS: not held; somebody counted and nobody on the way: on the way = 1
//            L3  count += 1                                  U3  set the mark in U2: wake one, by address; nothing is read there
//            L4  not held: CAS -> held, count -= 1, mark 0: have it
//            L5  held: CAS mark -> 0; the word is as after that: sleep; L4
//
// Proof      (that a sleeper is woken) S sleeps on a word that says held, counted and nobody on the way. The next change of "held" is a U2 that sees S counted.
//            Nobody on the way: it wakes one. One on the way: that mark was set by an unlock after S's L5 (it saw none), so that one thread was woken,
//            which will have the lock (L4) or clear the mark, seeing it held (L5); either way an unlock comes that sees S counted and no mark.
//            (that U3 may come after the end of the lock) FUTEX_WAKE reads no memory of the process; whoever sleeps on a word that is there by then is
//            woken for nothing, which futexes allow.
// Tests      tests/platform/lock_test.cpp, tests/model/mortal_lock_model_test.cpp
#pragma once

#include <atomic>
#include <cstdint>

namespace dunlin::platform {

// Meets the standard's Lockable. Never held across a stack switch.
class mortal_lock {
public:
    constexpr mortal_lock() noexcept = default;
    mortal_lock(const mortal_lock&) = delete;
    mortal_lock& operator=(const mortal_lock&) = delete;

    void lock() noexcept {
        if (!try_lock()) [[unlikely]] {
            lock_slow();
        }
    }

    // Fails, besides, while somebody sleeps: he was first.
    bool try_lock() noexcept {
        std::uint32_t expected = 0;
        // Acquire pairs with the release of unlock().
        return word_.compare_exchange_strong(expected, held, std::memory_order_acquire, std::memory_order_relaxed);  // L1
    }

    void unlock() noexcept {
        std::uint32_t expected = held;
        if (!word_.compare_exchange_strong(expected, 0, std::memory_order_release, std::memory_order_relaxed)) [[unlikely]] {  // U1
            unlock_slow(expected);
        }
    }

private:
    static constexpr std::uint32_t held = 1;
    static constexpr std::uint32_t on_the_way = 2;
    static constexpr std::uint32_t one_waiter = 4;

    void lock_slow() noexcept;
    void unlock_slow(std::uint32_t word) noexcept;

    std::atomic<std::uint32_t> word_{0};  // any thread; see Data
};

}  // namespace dunlin::platform
