// limits.h - the times that a program gives, in nanoseconds.
//
// Rule    They are limited to what fits, and so are their sums: the longest time means for ever, and wraps around
//         nowhere.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include <dunlin/clock.hpp>

namespace dunlin::inline v0_1::nats::detail {

inline std::int64_t ns_of(std::chrono::milliseconds d) { return dunlin::detail::to_nanoseconds(d).count(); }

constexpr std::int64_t later(std::int64_t moment_ns, std::int64_t ns) noexcept {
    std::int64_t sum = 0;
    if (!__builtin_add_overflow(moment_ns, ns, &sum)) return sum;
    return ns > 0 ? INT64_MAX : INT64_MIN;
}

// As libnats takes it: it counts in an int what is left.
constexpr std::int64_t for_libnats(std::chrono::milliseconds d) noexcept {
    return std::clamp<std::int64_t>(d.count(), 1, INT32_MAX);
}

}  // namespace dunlin::nats::detail
