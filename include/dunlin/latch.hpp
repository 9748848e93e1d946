// latch.hpp - wait until something has happened a number of times. Once.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <source_location>

#include <dunlin/clock.hpp>
#include <dunlin/wait_group.hpp>

namespace dunlin::inline v0_1 {

/// A count that goes down to zero and stays there, with the interface of std::latch. From goroutines and plain threads,
/// in any mix.
///
/// It may be destroyed as soon as the waits have returned, even if the count_down() that ended them has not returned
/// yet.
/// Order     What happens before a count_down() happens before the return of the waits.
class latch {
public:
    static constexpr std::ptrdiff_t max() noexcept { return UINT32_MAX; }

    /// Throws std::invalid_argument if `expected` is negative or more than max().
    constexpr explicit latch(std::ptrdiff_t expected) : counter_(checked(expected)) {}
    latch(const latch&) = delete;
    latch& operator=(const latch&) = delete;

    /// Throws std::invalid_argument if n is negative; std::logic_error if the count would fall below zero; then it is
    /// unchanged.
    void count_down(std::ptrdiff_t n = 1) {
        detail::check_count("dunlin::latch::count_down", n, max());
        counter_.subtract(n, "dunlin::latch: negative count");
    }
    bool try_wait() const noexcept { return counter_.pending() == 0; }
    /// Waits until the count is zero. Blocks the goroutine, never its thread; on a plain thread, that thread.
    void wait(std::source_location where = std::source_location::current()) const {
        counter_.wait(detail::latch_reason, false, where);
    }
    /// The same until `ctx` is done: throws context_cancelled then. Throws std::bad_alloc.
    void wait(const context& ctx, std::source_location where = std::source_location::current()) const {
        const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
        if (counter_.wait_limited(limit, detail::latch_reason, where) == detail::wait_outcome::cancelled) {
            detail::throw_cancelled(ctx, "latch wait");
        }
    }
    /// Waits for `d` at most. True if the count is zero. Throws std::bad_alloc.
    template <class Rep, class Period>
    bool wait_for(const std::chrono::duration<Rep, Period>& d,
        std::source_location where = std::source_location::current()) const {
        return counter_.wait_limited({detail::deadline_in(d), nullptr}, detail::latch_reason,
            where) == detail::wait_outcome::ok;
    }
    template <detail::number N>
    bool wait_for(N) const {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return false;
    }
    template <class Clock, class Duration>
    bool wait_until(const std::chrono::time_point<Clock, Duration>& t,
        std::source_location where = std::source_location::current()) const {
        return detail::wait_on_clock(
            t, [&](std::int64_t ns) { return counter_.wait_limited({ns, nullptr}, detail::latch_reason,
                where) == detail::wait_outcome::ok; });
    }
    void arrive_and_wait(std::ptrdiff_t n = 1, std::source_location where = std::source_location::current()) {
        count_down(n);
        wait(where);
    }
    /// The same until `ctx` is done: throws context_cancelled then; the arrival counts all the same. Throws
    /// std::bad_alloc.
    void arrive_and_wait(const context& ctx, std::source_location where = std::source_location::current()) {
        arrive_and_wait(1, ctx, where);
    }
    void arrive_and_wait(std::ptrdiff_t n, const context& ctx,
        std::source_location where = std::source_location::current()) {
        count_down(n);
        wait(ctx, where);
    }

private:
    static constexpr std::uint32_t checked(std::ptrdiff_t expected) {
        if (expected < 0 || expected > max()) detail::check_count("dunlin::latch", expected, max());
        return static_cast<std::uint32_t>(expected);
    }

    mutable detail::group_counter counter_;
};

}  // namespace dunlin
