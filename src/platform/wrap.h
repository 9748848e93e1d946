// wrap.h - where counters begin that wrap around.
//
// They are only compared for being the same, so they may; but none does within the life of a test. So in builds that
// check (check.h, and the simulation's) they begin some steps before it; in the simulation rings are short (small_rings), too.
#pragma once

#include <concepts>
#include <limits>

#include "platform/check.h"

namespace dunlin::inline v0_1::platform {

#if DUNLIN_CHECKING || defined(DUNLIN_SIM)
inline constexpr bool counters_wrap_soon = true;
#else
inline constexpr bool counters_wrap_soon = false;
#endif

#if defined(DUNLIN_SIM)
inline constexpr bool small_rings = true;
#else
inline constexpr bool small_rings = false;
#endif

// Of a counter with so many bits.
template <std::unsigned_integral T>
constexpr T counter_start(unsigned bits = std::numeric_limits<T>::digits) noexcept {
    constexpr T steps_before = 40;
    if (!counters_wrap_soon) return 0;
    return static_cast<T>((std::numeric_limits<T>::max() >> (static_cast<unsigned>(std::numeric_limits<T>::digits) - bits)) - steps_before);
}

}  // namespace dunlin::platform
