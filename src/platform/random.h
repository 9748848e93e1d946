// random.h - one small generator per owner, seeded from one place, so that a run can be repeated.
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::platform {

// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014). Not shared: each owner has
// its own.
class random_source {
public:
    explicit constexpr random_source(std::uint64_t seed = 0) noexcept : state_(seed) {}

    constexpr std::uint64_t next() noexcept {
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

    // Uniform enough below `bound` (> 0): multiplication instead of division (Lemire 2019), bias at most bound / 2^32.
    constexpr std::uint32_t below(std::uint32_t bound) noexcept {
        return static_cast<std::uint32_t>(((next() >> 32) * bound) >> 32);
    }

private:
    std::uint64_t state_;
};

}  // namespace dunlin::platform
