// cycles.h - the CPU's cycle counter: a third of the price of the clock, where it runs evenly.
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::platform {

// Whether it runs at the same rate on all CPUs, at every frequency and while they sleep, as far as the kernel knows.
bool cycles_are_even() noexcept;

// The CPU may read it some ten nanoseconds early, before loads that stand before it.
inline std::uint64_t cycles() noexcept {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    std::uint64_t t;
    asm volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#else
    return 0;
#endif
}

}  // namespace dunlin::platform
