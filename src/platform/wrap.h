// wrap.h - where counters begin that wrap around.
//
// They are only compared for being the same, so they may; but none does within the life of a test. So in builds that
// check (check.h) they begin some steps before it.
#pragma once

#include <concepts>
#include <limits>

#include "platform/check.h"

namespace dunlin::inline v0_1::platform {

inline constexpr bool counters_wrap_soon = DUNLIN_CHECKING != 0;

// Of a counter with so many bits.
template <std::unsigned_integral T>
constexpr T counter_start(unsigned bits = std::numeric_limits<T>::digits) noexcept {
    constexpr unsigned digits = std::numeric_limits<T>::digits;
    constexpr T steps_before = 40;
    if (!counters_wrap_soon) return 0;
    return static_cast<T>((std::numeric_limits<T>::max() >> (digits - bits)) - steps_before);
}

}  // namespace dunlin::platform
