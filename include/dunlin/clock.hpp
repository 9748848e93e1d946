// clock.hpp - the runtime's clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <type_traits>

#include <dunlin/config.hpp>

namespace dunlin {

/// The clock that sleeps and timers go by: steady, in nanoseconds, standing still while the machine is suspended (CLOCK_MONOTONIC).
///
/// A TrivialClock of the standard. Use it rather than std::chrono::steady_clock in code that should also run in virtual time.
/// Cost      about 25 ns.
class DUNLIN_API clock {
public:
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<clock>;
    static constexpr bool is_steady = true;

    static time_point now() noexcept;
};

namespace detail {

// Nanoseconds, rounded up and limited to what fits: a sleep never ends early, and the longest duration is for ever, not short.
template <class Rep, class Period>
std::chrono::nanoseconds to_nanoseconds(const std::chrono::duration<Rep, Period>& d) {
    using std::chrono::nanoseconds;
    const auto approximate = std::chrono::duration<long double, std::nano>(d).count();
    if (approximate >= static_cast<long double>(nanoseconds::max().count())) return nanoseconds::max();
    if (approximate <= static_cast<long double>(nanoseconds::min().count())) return nanoseconds::min();
    return std::chrono::ceil<nanoseconds>(d);
}
template <>
inline std::chrono::nanoseconds to_nanoseconds(const std::chrono::nanoseconds& d) {
    return d;
}

// From `from` to `to`, limited to what fits: the difference of two time points of a coarse clock may overflow its own type.
template <class Clock, class D1, class D2>
std::chrono::nanoseconds nanoseconds_between(const std::chrono::time_point<Clock, D1>& from, const std::chrono::time_point<Clock, D2>& to) {
    using wide = std::chrono::duration<long double, std::nano>;
    return to_nanoseconds(wide(to.time_since_epoch()) - wide(from.time_since_epoch()));
}

// The moment that is `d` from now, in nanoseconds of dunlin::clock; the greatest number if it is beyond it.
template <class Rep, class Period>
std::int64_t deadline_in(const std::chrono::duration<Rep, Period>& d) {
    const std::int64_t ns = to_nanoseconds(d).count(), now = clock::now().time_since_epoch().count();
    return ns > INT64_MAX - now ? INT64_MAX : now + ns;
}

// The moment of dunlin::clock that is `t` of its own clock, as the two stand now.
template <class Clock, class Duration>
std::int64_t deadline_at(const std::chrono::time_point<Clock, Duration>& t) {
    if constexpr (std::is_same_v<Clock, clock>) {
        return to_nanoseconds(t.time_since_epoch()).count();
    } else {
        return deadline_in(nanoseconds_between(Clock::now(), t));
    }
}

}  // namespace detail
}  // namespace dunlin
