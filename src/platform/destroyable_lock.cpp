#include "platform/destroyable_lock.h"

#include <algorithm>

#include "platform/check.h"
#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/futex.h"
#include "platform/simulated.h"
#include "platform/usable.h"

namespace dunlin::inline v0_1::platform {

namespace {

// the first is the futex_lock's (lock.cpp)
constexpr looks first_spin_rounds(100), longest_spin_rounds(1600);
constexpr std::int64_t first_sleep_ns = 20'000;
constexpr std::int64_t longest_sleep_ns = 1'000'000;

}  // namespace

[[gnu::noinline, gnu::cold]] void destroyable_lock::lock_slow() noexcept {
    std::int64_t sleep_ns = first_sleep_ns;
    // Longer each time: where others take the lock again and again, for long, only a waiter that spins sees it free.
    for (int spin_rounds = first_spin_rounds;; spin_rounds = std::min<int>(2 * spin_rounds, longest_spin_rounds)) {
        for (int round = 0; round < spin_rounds; ++round) {
            // The load keeps the cache line shared among the spinners; only a lock that looks free is worth a CAS.
            if (held_.load(std::memory_order_relaxed) == 0 && take()) return;
            pause();
        }
        check_usable();  // in the child of a fork() its owner may be missing
        futex_wait_until(held_, 1, now_ns() + sleep_ns);  // if it is still held; there is no wake
        sleep_ns = std::min(2 * sleep_ns, longest_sleep_ns);
    }
}

[[gnu::noinline, gnu::cold]] void destroyable_lock::not_held() noexcept {
    fatal("a lock of the runtime was unlocked while it was not held");
}

}  // namespace dunlin::platform
