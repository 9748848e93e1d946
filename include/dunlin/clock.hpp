// clock.hpp - the runtime's clock.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace dunlin::inline v0_1 {

/// The clock of sleeps and timers: steady, in nanoseconds. It stands still while the computer is suspended
/// (CLOCK_MONOTONIC).
///
/// A TrivialClock of the standard. Use it rather than std::chrono::steady_clock in code that should also run in virtual
/// time.
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

[[noreturn]] DUNLIN_API void throw_not_a_number();  // std::invalid_argument

// A number where a duration is wanted. Calls that are likely to be given one have an overload for it, so that the
// compiler prints one line, not why each overload does not fit.
template <class T>
concept number = std::is_arithmetic_v<T>;
template <class T>
inline constexpr bool has_a_unit = !std::is_arithmetic_v<T>;
// For the static_assert of an overload that exists only to say what is wrong.
template <class...>
inline constexpr bool always_false = false;
// An argument of any type. An overload that is a template and takes these is only chosen where no other one fits.
struct anything {
    anything() = default;
    template <class T>
    constexpr anything(T&&) noexcept {}
};
#define DUNLIN_NEEDS_A_DURATION "dunlin: a duration, not a time: t - dunlin::clock::now()"
#define DUNLIN_NEEDS_A_UNIT "dunlin: a duration has a unit: 100ms, or std::chrono::milliseconds(100)"

// Nanoseconds, rounded up and limited to what fits: a sleep never ends early, and the longest duration means for ever
// instead of wrapping around. Infinite durations become the longest and the shortest one. Throws std::invalid_argument
// for a duration that is not a number: every duration given to a call passes through here.
template <class Rep, class Period>
constexpr std::chrono::nanoseconds to_nanoseconds(const std::chrono::duration<Rep, Period>& d) {
    using std::chrono::nanoseconds;
    if constexpr (std::is_integral_v<Rep> && sizeof(Rep) <= 8) {
        // std's conversion multiplies in 64 bits before it divides.
        using ratio = std::ratio_divide<Period, std::nano>;
        __extension__ typedef __int128 wide;
        const wide parts = static_cast<wide>(d.count()) * ratio::num;
        const wide ns = parts / ratio::den + (parts % ratio::den > 0 ? 1 : 0);
        if (ns >= nanoseconds::max().count()) return nanoseconds::max();
        if (ns <= nanoseconds::min().count()) return nanoseconds::min();
        return nanoseconds(static_cast<nanoseconds::rep>(ns));
    } else {
        const auto exact = std::chrono::duration<long double, std::nano>(d).count();
        if (exact != exact) throw_not_a_number();
        if (exact >= static_cast<long double>(nanoseconds::max().count())) return nanoseconds::max();
        if (exact <= static_cast<long double>(nanoseconds::min().count())) return nanoseconds::min();
        const auto whole = static_cast<nanoseconds::rep>(exact);
        return nanoseconds(whole + (static_cast<long double>(whole) < exact ? 1 : 0));
    }
}
template <>
constexpr std::chrono::nanoseconds to_nanoseconds(const std::chrono::nanoseconds& d) {
    return d;
}

// A duration among options. It converts from any duration as to_nanoseconds() does, not as std's does, which would make
// a negative one of hours::max().
class duration_option : public std::chrono::nanoseconds {
public:
    constexpr duration_option() noexcept : std::chrono::nanoseconds(0) {}
    constexpr duration_option(std::chrono::nanoseconds d) noexcept : std::chrono::nanoseconds(d) {}
    template <class Rep, class Period>
    constexpr duration_option(const std::chrono::duration<Rep, Period>& d)
        : std::chrono::nanoseconds(to_nanoseconds(d)) {}
};

// From `from` to `to`, limited to what fits: the difference of two time points of a coarse clock may overflow its own
// type.
template <class Clock, class D1, class D2>
std::chrono::nanoseconds nanoseconds_between(const std::chrono::time_point<Clock, D1>& from,
    const std::chrono::time_point<Clock, D2>& to) {
    using wide = std::chrono::duration<long double, std::nano>;
    return to_nanoseconds(wide(to.time_since_epoch()) - wide(from.time_since_epoch()));
}

// Whether its clock says that `t` has come. A comparison of the two time points may overflow, too.
template <class Clock, class Duration>
bool has_come(const std::chrono::time_point<Clock, Duration>& t) {
    return nanoseconds_between(Clock::now(), t).count() <= 0;
}

// The moment that is `d` from now, in nanoseconds of dunlin::clock; the greatest number if that is out of range.
template <class Rep, class Period>
std::int64_t deadline_in(const std::chrono::duration<Rep, Period>& d) {
    const std::int64_t ns = to_nanoseconds(d).count(), now = clock::now().time_since_epoch().count();
    return ns > INT64_MAX - now ? INT64_MAX : now + ns;
}

// The moment of dunlin::clock that corresponds to `t` of another clock, as the two clocks stand now.
template <class Clock, class Duration>
std::int64_t deadline_at(const std::chrono::time_point<Clock, Duration>& t) {
    if constexpr (std::is_same_v<Clock, clock>) {
        return to_nanoseconds(t.time_since_epoch()).count();
    } else {
        return deadline_in(nanoseconds_between(Clock::now(), t));
    }
}

// Waits until `t` at most. `t` has not come before Clock::now() says so: another clock may run slower than ours, or be
// set back meanwhile. wait(ns) waits once, until a moment of dunlin::clock, and returns true if it got what it waits
// for; given a moment that is past, it tries once. Every *_until() goes through here; a condition variable's stays in
// its queue between two waits (dunlin/condition_variable.hpp). If another clock is set forward, this is noticed only
// when the current wait ends.
template <class Clock, class Duration, class Wait>
bool wait_on_clock(const std::chrono::time_point<Clock, Duration>& t, Wait wait) {
    if constexpr (std::is_same_v<Clock, clock>) {
        return wait(deadline_at(t));
    } else {
        do {
            if (wait(deadline_at(t))) return true;
        } while (!has_come(t));
        return false;
    }
}

// A moment of another clock, for code that looks at it later and does not know the clock's type.
class DUNLIN_API foreign_moment {
public:
    virtual ~foreign_moment();
    // Whether its own clock says that it has come. That deadline_ns() is past proves nothing: the thread may have stood
    // still since.
    virtual bool has_come() const = 0;
    // The same moment of dunlin::clock, as the two clocks stand now.
    virtual std::int64_t deadline_ns() const = 0;
};

template <class Clock, class Duration>
class moment_of final : public foreign_moment {
public:
    explicit moment_of(const std::chrono::time_point<Clock, Duration>& t) : t_(t) {}
    bool has_come() const override { return detail::has_come(t_); }
    std::int64_t deadline_ns() const override { return deadline_at(t_); }

private:
    std::chrono::time_point<Clock, Duration> t_;
};

}  // namespace detail
}  // namespace dunlin
