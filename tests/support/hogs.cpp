// hogs.cpp - the computations of hogs.h that are in registers. Optimised in every build.
#include "support/hogs.h"

#include <bit>
#include <cfenv>

namespace support::hogs {

std::uint64_t compute(std::uint64_t seed, std::uint64_t steps) {
    std::uint64_t state = seed, sum = 0;
    for (std::uint64_t i = 0; i < steps; ++i) sum ^= next_random(state) + std::rotl(sum, 7);
    asm volatile(""
                 : "+r"(sum));  // also when it is not used
    return sum;
}

struct narrow {
    typedef double lanes __attribute__((vector_size(16)));
};
struct wide {
    typedef double lanes __attribute__((vector_size(32)));
};

template <class Shape>
[[gnu::always_inline]] static inline std::uint64_t sum_of_vectors(unsigned seed, int steps) {
    using lanes = typename Shape::lanes;
    constexpr std::size_t width = sizeof(lanes) / sizeof(double), registers = 12;
    lanes sums[registers] = {}, step = {}, rest = {};
    for (std::size_t r = 0; r < registers; ++r) {
        for (std::size_t i = 0; i < width; ++i) {
            sums[r][i] = 1.0 / static_cast<double>(3 + seed % seeds + r * width + i);
            step[i] = 0.999 - 0.001 * static_cast<double>(i);
            // what is wrong once stays; and nothing fades away to denormal numbers, each of which takes 150 cycles on
            // some processors
            rest[i] = 1 - step[i];
        }
    }
    for (int n = 0; n < steps; ++n) {
#pragma GCC unroll 12
        for (std::size_t r = 0; r < registers; ++r) sums[r] = sums[r] * step + sums[(r + 1) % registers] * rest;
    }
    std::uint64_t bits = 0;
    for (const lanes& sum : sums) {
        for (std::size_t i = 0; i < width; ++i)
            bits = std::rotl(bits, 5) ^ std::bit_cast<std::uint64_t>(static_cast<double>(sum[i]));
    }
    return bits;
}

std::uint64_t narrow_vectors_of(unsigned seed) {
    return sum_of_vectors<narrow>(seed, rounds(600'000));
}

#if defined(__x86_64__)
[[gnu::noinline, gnu::target("avx")]] static std::uint64_t avx_vectors_of(unsigned seed) {
    return sum_of_vectors<wide>(seed, rounds(600'000));
}
std::uint64_t wide_vectors_of(unsigned seed) { return __builtin_cpu_supports("avx") ? avx_vectors_of(seed) : 0; }
#else
std::uint64_t wide_vectors_of(unsigned) { return 0; }
#endif

std::uint64_t rounding_of(unsigned seed) {
    const int before = fegetround();
    fesetround(FE_UPWARD);
    volatile double third = 3.0 + seed % seeds;
    double sum = 0;
    for (int i = rounds(1'500'000); i > 0; --i) sum += 1.0 / third;
    if (fegetround() != FE_UPWARD) sum = 0;
    fesetround(before);
    return std::bit_cast<std::uint64_t>(sum);
}

}  // namespace support::hogs
