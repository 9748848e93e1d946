// weighted_semaphore.hpp - permits that are taken several at a time, and a semaphore that can be closed.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <system_error>

#include <dunlin/clock.hpp>
#include <dunlin/detail/wait.hpp>
#include <dunlin/error.hpp>

namespace dunlin::inline v0_1 {

/// Thrown by the acquires of a weighted_semaphore that is closed, before or while they wait. code() is errc::closed.
class DUNLIN_API semaphore_closed : public std::system_error {
public:
    semaphore_closed();
    ~semaphore_closed() override;
};

/// Any number of permits, of which an acquire takes several at once: bytes of memory, say, or parts of a quota. From
/// goroutines and plain threads, in any mix.
///
/// It may be destroyed as soon as it has no waiters, even if a release() that ended a wait has not returned yet.
/// Order     What happens before a release() happens before the return of the acquires that get its permits.
/// Fairness  First come, first served: no waiter is overtaken, so callers that want few permits cannot keep one that
///           wants many waiting for ever. While there are waiters, try_acquire() takes nothing, even if permits are
///           free. A waiter whose limit is a moment of another clock goes to the end of the queue if that clock was
///           slower than dunlin::clock.
/// Misuse    Destruction while there are waiters ends the process with a report.
/// Cost      A lock for each call; no allocation but for a deadline. (counting_semaphore, which takes one at a time,
///           has no lock while there are permits.)
/// Source    Go's golang.org/x/sync/semaphore.Weighted; tokio::sync::Semaphore for close().
class DUNLIN_API weighted_semaphore {
public:
    /// Begins with `permits` permits. Throws std::invalid_argument if that is negative.
    explicit weighted_semaphore(std::ptrdiff_t permits);
    ~weighted_semaphore();
    weighted_semaphore(const weighted_semaphore&) = delete;
    weighted_semaphore& operator=(const weighted_semaphore&) = delete;

    /// Takes n permits, all together, waiting until that many are free. None are set aside for it meanwhile, but no
    /// later caller gets any.
    /// Blocks    The goroutine, never its thread; on a plain thread, that thread.
    /// Throws    semaphore_closed; std::invalid_argument if n is negative. No permit was taken then.
    void acquire(std::ptrdiff_t n = 1, std::source_location where = std::source_location::current()) {
        take(n, nullptr, where);
    }
    /// The same until `ctx` is done: throws context_cancelled then. Permits that are there are taken even then.
    /// Throws std::bad_alloc as well.
    void acquire(const context& ctx, std::source_location where = std::source_location::current()) {
        acquire(1, ctx, where);
    }
    void acquire(std::ptrdiff_t n, const context& ctx, std::source_location where = std::source_location::current()) {
        const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
        if (take(n, &limit, where) == detail::wait_outcome::cancelled) {
            detail::throw_cancelled(ctx, "semaphore acquire");
        }
    }
    template <class Rep, class Period>
    void acquire(const std::chrono::duration<Rep, Period>&) {
        static_assert(detail::always_false<Rep>, "dunlin: acquire(ctx), or try_acquire_for(duration)");
    }
    template <class Rep, class Period>
    void acquire(std::ptrdiff_t, const std::chrono::duration<Rep, Period>&) {
        static_assert(detail::always_false<Rep>, "dunlin: acquire(n, ctx), or try_acquire_for(n, duration)");
    }
    /// Takes n permits if they are there and there are no waiters. Also false if it is closed, or n is negative.
    bool try_acquire(std::ptrdiff_t n = 1) noexcept;
    /// acquire() for `d` at most. False: the time ran out, and nothing was taken. Throws as acquire(); std::bad_alloc.
    template <class Rep, class Period>
    bool try_acquire_for(const std::chrono::duration<Rep, Period>& d,
                         std::source_location where = std::source_location::current()) {
        return try_acquire_for(1, d, where);
    }
    template <class Rep, class Period>
    bool try_acquire_for(std::ptrdiff_t n, const std::chrono::duration<Rep, Period>& d,
                         std::source_location where = std::source_location::current()) {
        return take_until(n, detail::deadline_in(d), where);
    }
    template <detail::number... N>
        requires(sizeof...(N) != 0)
    bool try_acquire_for(N...) {
        static_assert(detail::always_false<N...>, DUNLIN_NEEDS_A_UNIT);
        return false;
    }
    /// The same until `t`.
    template <class Clock, class Duration>
    bool try_acquire_until(const std::chrono::time_point<Clock, Duration>& t,
                           std::source_location where = std::source_location::current()) {
        return try_acquire_until(1, t, where);
    }
    template <class Clock, class Duration>
    bool try_acquire_until(std::ptrdiff_t n, const std::chrono::time_point<Clock, Duration>& t,
                           std::source_location where = std::source_location::current()) {
        return detail::wait_on_clock(t, [&](std::int64_t ns) { return take_until(n, ns, where); });
    }

    /// Gives n permits back, or adds them. Does not block. Legal after close().
    /// Throws    std::invalid_argument if n is negative, std::overflow_error if there would be more than a
    ///           std::ptrdiff_t can count; nothing has changed then.
    void release(std::ptrdiff_t n = 1);

    /// No more permits: waiters, and all later acquires, get semaphore_closed. Holders of permits are not affected.
    /// Closing again does nothing.
    void close() noexcept;
    bool closed() const noexcept;
    /// Permits that are free now. (There may be waiters that want more of them.)
    std::ptrdiff_t available() const noexcept;

private:
    bool can_take(std::ptrdiff_t n) const noexcept;
    // ok, timed_out, cancelled. Throws semaphore_closed, std::invalid_argument, std::bad_alloc.
    detail::wait_outcome take(std::ptrdiff_t n, const detail::wait_limit* limit, const std::source_location& where);
    bool take_until(std::ptrdiff_t n, std::int64_t deadline_ns, const std::source_location& where) {
        const detail::wait_limit limit{deadline_ns, nullptr};
        return take(n, &limit, where) == detail::wait_outcome::ok;
    }

    // Both under the lock of the bucket of this address (src/park/parking_lot.h).
    std::ptrdiff_t permits_;
    bool closed_ = false;
};

}  // namespace dunlin
