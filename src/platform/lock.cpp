#include "platform/lock.h"

#include "platform/check.h"
#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/futex.h"
#include "platform/membarrier.h"
#include "platform/simulated.h"
#include "platform/thread.h"
#include "platform/usable.h"

namespace dunlin::inline v0_1::platform {

namespace {

// spin_rounds: 0.1 to 4 us, depending on the CPU: longer than any section that the runtime protects, shorter than a
// sleep and a wake-up.
// enough_rounds: if a waiter sleeps already, it is enough to wait for the end of a section that is under way.
constexpr looks spin_rounds(100), enough_rounds(20);
constexpr looks yields_before_sleep(8), sleeps_doubled(8);
constexpr std::int64_t first_sleep_ns = 1'000'000;

}  // namespace

[[gnu::noinline, gnu::cold]] void futex_lock::lock_slow() noexcept {
    for (int round = 0; round < spin_rounds; ++round) {
        // The load keeps the cache line shared among the spinners; only a lock that looks free is worth a CAS. Relaxed:
        // a hint.
        if (held_.load(std::memory_order_relaxed) == 0 && try_lock()) return;
        // A waiter sleeps or is about to, and the lock has not been released since: most likely its owner does not run.
        if (round >= enough_rounds && wants_a_wake(waiters_.load(std::memory_order_relaxed))) break;
        pause();
    }
    check_usable();  // in the child of a fork() the owner may be missing
    waiters_.fetch_add(1, std::memory_order_seq_cst);  // L3
    std::int64_t limit_ns = first_sleep_ns;
    do {
        const std::uint32_t seen = waiters_.fetch_and(~on_the_way, std::memory_order_seq_cst) & ~on_the_way;  // L4
        const bool for_good = limit_ns > sleeps_doubled * first_sleep_ns;
        if (for_good) heavy_barrier();                  // L5
        if (try_lock()) break;                          // L6
        if (for_good) {
            futex_wait(waiters_, seen);                 // L7
        } else if (!futex_wait_until(waiters_, seen, real_now_ns() + limit_ns)) {
            limit_ns *= 2;
        }
    } while (!try_lock());
    std::uint32_t word = waiters_.load(std::memory_order_relaxed);
    while (!waiters_.compare_exchange_weak(word, (word & ~on_the_way) - 1, std::memory_order_relaxed)) {  // L8
    }
}

[[gnu::noinline, gnu::cold]] void futex_lock::lock_in_a_crowd_slow() noexcept {
    for (int yields = 0; yields < yields_before_sleep; ++yields) {
        for (int round = 0; round < enough_rounds; ++round) {
            if (held_.load(std::memory_order_relaxed) == 0 && try_lock()) return;
            pause();
        }
        give_cpu_away();
    }
    lock_slow();
}

[[gnu::noinline, gnu::cold]] void futex_lock::wake_sleeper() noexcept {
    std::uint32_t word = waiters_.load(std::memory_order_relaxed);
    do {  // U4
        if (!wants_a_wake(word)) return;
    } while (!waiters_.compare_exchange_weak(word, (word | on_the_way) + one_woken, std::memory_order_seq_cst));
    futex_wake(waiters_, 1);
}

[[gnu::noinline, gnu::cold]] void futex_lock::not_held() noexcept {
    fatal("a lock of the runtime was unlocked while it was not held");
}

}  // namespace dunlin::platform
