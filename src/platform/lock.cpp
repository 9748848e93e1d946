#include "platform/lock.h"

#include "platform/check.h"
#include "platform/cpu.h"
#include "platform/futex.h"
#include "platform/membarrier.h"

namespace dunlin::platform {

namespace {

// 0.1 to 4 us, depending on the processor: longer than any section that the runtime protects, shorter than a sleep and
// a wake-up.
constexpr int spin_rounds = 100;

}  // namespace

[[gnu::noinline, gnu::cold]] void futex_lock::lock_slow() noexcept {
    for (int round = 0; round < spin_rounds; ++round) {
        // The load keeps the cache line shared among the spinners; only a lock that looks free is worth a CAS. Relaxed:
        // a hint.
        if (held_.load(std::memory_order_relaxed) == 0 && try_lock()) {
            return;
        }
        pause();
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);  // L3
    while (!try_lock()) {
        heavy_barrier();                                // L4
        futex_wait(held_, 1);                           // L5
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);  // L6
}

[[gnu::noinline, gnu::cold]] void futex_lock::wake_sleeper() noexcept { futex_wake(held_, 1); }

[[gnu::noinline, gnu::cold]] void futex_lock::not_held() noexcept {
    fatal("a lock of the runtime was unlocked while nobody held it");
}

}  // namespace dunlin::platform
