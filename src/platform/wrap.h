// wrap.h - the values at which counters begin that wrap around.
//
// They are only compared for equality, so they may wrap; but none does within the life of a test. So in checking builds
// (check.h) they begin some steps before the wrap.
#pragma once

#include <concepts>
#include <limits>

#include "platform/check.h"

namespace dunlin::inline v0_1::platform {

inline constexpr bool counters_wrap_soon = DUNLIN_CHECKING != 0;

// For a counter of `bits` bits.
template <std::unsigned_integral T>
constexpr T counter_start(unsigned bits = std::numeric_limits<T>::digits) noexcept {
    constexpr unsigned digits = std::numeric_limits<T>::digits;
    constexpr T steps_before = 40;
    if (!counters_wrap_soon) return 0;
    return static_cast<T>((std::numeric_limits<T>::max() >> (digits - bits)) - steps_before);
}

}  // namespace dunlin::platform
