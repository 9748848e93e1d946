// clock.h - the one clock: CLOCK_MONOTONIC in nanoseconds. It does not advance while the machine is suspended.
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>
#include <ctime>

#include "platform/cpu.h"
#include "platform/simulated.h"

namespace dunlin::inline v0_1::platform {

inline constexpr std::int64_t time_max = INT64_MAX;

// Where now_ns() gets the time from: clock_gettime(), or the function of a simulation for users
// (sched/data/steering.h). A call through this pointer costs no more than one through the linker's. Relaxed: for a
// thread that sees a change late, either function is right.
using clock_source = int (*)(clockid_t, timespec*) noexcept;
DUNLIN_HIDDEN extern platform::atomic<clock_source> monotonic_clock;

inline std::int64_t ns_of(clock_source source) noexcept {
    if (simulation* s = simulation_here()) return s->now_ns();
    timespec t;
    source(CLOCK_MONOTONIC, &t);
    return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// Nanoseconds of the monotonic clock, never 0. Costs about 25 ns (vdso).
inline std::int64_t now_ns() noexcept { return ns_of(monotonic_clock.load(std::memory_order_relaxed)); }
// The same, but a simulation for users does not change it: for every wait in the kernel, and for
// measurements that span its beginning or end.
inline std::int64_t real_now_ns() noexcept { return ns_of(clock_gettime); }

// now + d, where an overflow means "never": a sleep of the longest duration must not become a short one.
inline std::int64_t deadline_after(std::int64_t now, std::int64_t duration_ns) noexcept {
    std::int64_t when;
    return __builtin_add_overflow(now, duration_ns, &when) ? time_max : when;
}

}  // namespace dunlin::platform
