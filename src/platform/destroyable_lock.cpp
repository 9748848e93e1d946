#include "platform/destroyable_lock.h"

#include <algorithm>
#include <utility>

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
// See "Standing back" in the header.
constexpr std::int64_t often_ns = 700;
constexpr std::int64_t stand_back_ns = 1300;
constexpr int stand_back_times = 4;
static_assert(often_ns < stand_back_ns, "a thread would stand back each time");

// When this thread last found a lock held. Initial-exec: reading it calls nothing.
[[gnu::tls_model("initial-exec")]] constinit thread_local std::int64_t found_held_ns = 0;

// Returns the time.
std::int64_t stand_back(std::int64_t now) noexcept {
    const std::int64_t until = now + stand_back_ns;
    do {
        for (int i = 0; i < 8; ++i) pause();
        now = real_now_ns();
    } while (now < until);
    return now;
}

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
        futex_wait_until(held_, 1, real_now_ns() + sleep_ns);  // if it is still held; there is no wake
        sleep_ns = std::min(2 * sleep_ns, longest_sleep_ns);
    }
}

[[gnu::noinline, gnu::cold]] void destroyable_lock::lock_patiently_slow() noexcept {
    // The simulations of our own: standing back allows no order of steps that looking at once does not.
    if constexpr (may_be_simulated) return lock_slow();
    std::int64_t now = real_now_ns();
    if (now - std::exchange(found_held_ns, now) < often_ns) {
        for (int i = 0; i < stand_back_times; ++i) {
            now = stand_back(now);
            const bool looks_free = held_.load(std::memory_order_relaxed) == 0;
            if (looks_free && take()) return;
        }
    }
    lock_slow();
}

[[gnu::noinline, gnu::cold]] void destroyable_lock::not_held() noexcept {
    fatal("a lock of the runtime was unlocked while it was not held");
}

}  // namespace dunlin::platform
