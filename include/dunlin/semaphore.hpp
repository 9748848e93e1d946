// semaphore.hpp - a number of permits that are taken and given back.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <source_location>

#include <dunlin/clock.hpp>
#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/wait.hpp>
#include <dunlin/detail/simulated_point.hpp>

namespace dunlin::inline v0_1 {

namespace park {
class lot_bucket;
}

namespace detail {

// src/sync/semaphore.cpp
class DUNLIN_API semaphore_core {
public:
    constexpr explicit semaphore_core(std::ptrdiff_t permits) noexcept : permits_(permits) {}
    ~semaphore_core();

    // Takes a permit if there are more than `none`, which is 0 or no_permits().
    bool try_acquire(std::ptrdiff_t none = 0) noexcept {
        std::ptrdiff_t n = permits_.load(std::memory_order_relaxed);
        while (n > none) {
            if (permits_.compare_exchange_weak(n, n - 1, std::memory_order_seq_cst, std::memory_order_relaxed)) {
                return true;
            }
        }
        return false;
    }
    wait_outcome acquire(const wait_limit* limit, const std::source_location& where);
    void release(std::ptrdiff_t n, std::ptrdiff_t most);

private:
    void release_to_waiters(park::lot_bucket& b, std::ptrdiff_t n, std::ptrdiff_t most);
    [[noreturn]] static void throw_too_many(std::ptrdiff_t n, std::ptrdiff_t most, std::ptrdiff_t have);
    bool settle(std::ptrdiff_t left, std::ptrdiff_t given, std::ptrdiff_t most, std::ptrdiff_t& have) noexcept;
    bool try_raise(std::ptrdiff_t n, std::ptrdiff_t most) noexcept;
    bool release_one(park::lot_bucket& b, std::ptrdiff_t most) noexcept;
    static void hand_out(const void* address) noexcept;

    platform::atomic<std::ptrdiff_t> permits_;
};

DUNLIN_API void check_permits(std::ptrdiff_t desired, std::ptrdiff_t most);  // throws

}  // namespace detail

/// Up to `LeastMax` permits, with the interface of std::counting_semaphore. From goroutines and plain threads, in any
/// mix.
///
/// It may be destroyed as soon as it has no waiters, even if a release() that ended a wait has not returned yet.
/// Order     What happens before a release() happens before the return of the acquires that get its permits.
/// Fairness  While there are waiters, a release() gives its permits to those that have waited longest; no caller can
///           overtake them.
/// Misuse    Destruction while there are waiters ends the process with a report.
template <std::ptrdiff_t LeastMax = std::numeric_limits<std::ptrdiff_t>::max()>
class counting_semaphore {
    static_assert(LeastMax >= 0);

public:
    static constexpr std::ptrdiff_t max() noexcept { return LeastMax; }

    /// With `desired` permits. Throws std::invalid_argument if that is negative or more than max().
    constexpr explicit counting_semaphore(std::ptrdiff_t desired) : core_(desired) {
        if (desired < 0 || desired > LeastMax) detail::check_permits(desired, LeastMax);
    }
    counting_semaphore(const counting_semaphore&) = delete;
    counting_semaphore& operator=(const counting_semaphore&) = delete;

    /// Gives n permits back. Throws std::invalid_argument if n is negative, std::overflow_error if there would be more
    /// than max(); nothing has changed then.
    void release(std::ptrdiff_t n = 1) { core_.release(n, LeastMax); }
    /// Takes a permit, waiting until there is one. Blocks the goroutine, never its thread; on a plain thread, that
    /// thread.
    void acquire(std::source_location where = std::source_location::current()) {
        if (!core_.try_acquire(detail::no_permits())) core_.acquire(nullptr, where);
    }
    /// The same until `ctx` is done: throws context_cancelled then. Throws std::bad_alloc.
    void acquire(const context& ctx, std::source_location where = std::source_location::current()) {
        const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
        if (core_.acquire(&limit, where) == detail::wait_outcome::cancelled) {
            detail::throw_cancelled(ctx, "semaphore acquire");
        }
    }
    /// Takes one if there is one now.
    bool try_acquire() noexcept { return core_.try_acquire(); }
    /// Waits for `d` at most. Throws std::bad_alloc.
    template <class Rep, class Period>
    bool try_acquire_for(
        const std::chrono::duration<Rep, Period>& d, std::source_location where = std::source_location::current()) {
        return core_.try_acquire(detail::no_permits()) || acquire_until(detail::deadline_in(d), where);
    }
    template <detail::number N>
    bool try_acquire_for(N) {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return false;
    }
    template <class Clock, class Duration>
    bool try_acquire_until(const std::chrono::time_point<Clock, Duration>& t,
        std::source_location where = std::source_location::current()) {
        return core_.try_acquire(detail::no_permits()) ||
               detail::wait_on_clock(t, [&](std::int64_t ns) { return acquire_until(ns, where); });
    }

private:
    bool acquire_until(std::int64_t deadline_ns, const std::source_location& where) {
        const detail::wait_limit limit{deadline_ns, nullptr};
        return core_.acquire(&limit, where) == detail::wait_outcome::ok;
    }

    detail::semaphore_core core_;
};

using binary_semaphore = counting_semaphore<1>;

}  // namespace dunlin
