// preempt_support.h - what the tests of preemption share: computing for a while, and a storm of preemptions.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "support/runtime_test.h"

namespace preempt_support {

using namespace std::chrono_literals;

inline std::uint64_t preemptions() { return dunlin::runtime::stats().hand_offs.preemptions; }

// A clock that needs no call at all.
inline std::uint64_t ticks() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    std::uint64_t t;
    asm volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#endif
}

inline std::uint64_t ticks_per_ms() {
    static const std::uint64_t result = [] {
        const auto begin = std::chrono::steady_clock::now();
        const std::uint64_t from = ticks();
        std::this_thread::sleep_for(20ms);
        const std::uint64_t to = ticks();
        return (to - from) * 1000 / static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begin) / 1us);
    }();
    return result;
}

// Computes that long without a call.
inline void compute_for(std::uint64_t n) {
    for (const std::uint64_t until = ticks() + n; ticks() < until;) {}
}

// Has goroutines do `work(number)` over and over, which returns how many of its results were wrong, while main sleeps
// and wakes all the time. Each waking takes a processor from one of them in the midst of it.
template <class Work>
void storm(unsigned procs, Work work, std::uint64_t stops = support::under_thread ? 0 : 3) {
    const std::uint64_t before = preemptions();
    std::atomic<bool> over{false};
    std::atomic<long> wrong{0}, done_rounds{0};
    dunlin::wait_group done;
    const int workers = static_cast<int>(std::max(6u, procs + 2));
    for (int i = 0; i < workers; ++i) {
        done.go([&, i] {
            do {
                wrong.fetch_add(work(i));
                done_rounds.fetch_add(1);
            } while (!over.load(std::memory_order_relaxed));
        });
    }
    const auto until = dunlin::clock::now() + 100ms;
    const auto enough = [&] { return done_rounds.load() >= workers && preemptions() >= before + stops; };
    while (dunlin::clock::now() < until || !enough()) {
        dunlin::sleep_for(100us);
        dunlin::sleep_for(200us);
    }
    over = true;
    done.wait();
    EXPECT_EQ(wrong.load(), 0) << "of " << done_rounds.load();
}

// How many steps of a kernel last about a millisecond or two: as long as main lets one compute.
inline constexpr long steps = support::sanitized ? 50'000 : 500'000;

// As many as there are registers, and more: the rest is below the stack pointer of a function that calls none.
[[gnu::noinline]] inline std::uint64_t compute_in_integers(int seed) {
    std::uint64_t x[18];
    for (unsigned i = 0; i < 18; ++i) x[i] = static_cast<std::uint64_t>(seed) * 0x9e3779b97f4a7c15u + i;
    for (long i = 0; i < steps / 8; ++i) {
#pragma GCC unroll 18
        for (unsigned k = 0; k < 18; ++k) {
            std::uint64_t sum;
            const bool carry = __builtin_add_overflow(x[k], x[(k + 7) % 18] << 3, &sum);
            x[k] = (sum ^ (sum >> 29)) * 0xbf58476d1ce4e5b9u + carry;
        }
    }
    std::uint64_t hash = 0;
    for (const std::uint64_t v : x) hash = hash * 31 + v;
    asm volatile("" : "+r"(hash));  // not a pure function, whose calls could be left out
    return hash;
}

// As that of errno, the address of a thread_local variable is the thread's: not to be kept over what may change
// threads.
inline constinit thread_local int mine = 0;
[[gnu::noinline]] inline int* mine_now() {
    asm volatile("");
    return &mine;
}

}  // namespace preempt_support
