// timer.hpp - timers that send on a channel, or start a goroutine.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <type_traits>
#include <utility>

#include <dunlin/chan.hpp>
#include <dunlin/clock.hpp>
#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/spawn.hpp>

namespace dunlin::inline v0_1 {

namespace detail {

// A one-shot timer is a number until its channel is asked for; only then the channel is made. `period_ns` 0: once.
DUNLIN_API chan_core* make_timer_channel(std::int64_t due_ns, std::int64_t period_ns);
DUNLIN_API bool stop_timer_channel(chan_core* c) noexcept;
DUNLIN_API bool reset_timer_channel(chan_core* c, std::int64_t due_ns, std::int64_t period_ns);

[[noreturn]] DUNLIN_API void throw_uninitialized_timer(const char* operation);
[[noreturn]] DUNLIN_API void throw_non_positive_interval(const char* operation);

// The function that after_func() runs, and its timer; counted.
class DUNLIN_API timed_call {
public:
    virtual ~timed_call();
    virtual void run() = 0;
    // Where the program has asked for the call; line 0: not known.
    virtual std::source_location where() const noexcept { return {}; }

    explicit timed_call(bool ends_with_run = true);
    timed_call(const timed_call&) = delete;
    timed_call& operator=(const timed_call&) = delete;

    void start(std::int64_t due_ns);  // throws std::bad_alloc
    bool stop() noexcept;
    bool reset(std::int64_t due_ns);  // throws std::bad_alloc
    void drop() noexcept;             // releases the timer's own reference
    void reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void release(std::uint32_t n = 1) noexcept {
        // The last holder need not count down. Acquire-release: the last holder, which deletes the object, sees what
        // the others did with it.
        if (references_.load(std::memory_order_acquire) == n ||
            references_.fetch_sub(n, std::memory_order_acq_rel) == n) {
            delete this;
        }
    }

private:
    friend struct timed_call_access;
    platform::atomic<std::uint32_t> references_{1};
    alignas(8) unsigned char entry_[56];  // timer::timer_entry and more; src/chan/timed_call.cpp
};

// f may be called several times, so it is called as an lvalue.
template <class F>
inline constexpr bool can_be_timed = std::is_invocable_v<std::decay_t<F>&> &&
    std::constructible_from<std::decay_t<F>, F>;

template <class F>
class timed_call_of final : public timed_call {
public:
    template <class G>
    explicit timed_call_of(G&& f, std::source_location where) : function_(std::forward<G>(f)), where_(where) {}
    std::source_location where() const noexcept override { return where_; }
    void run() override { static_cast<void>(std::invoke(function_)); }

private:
    F function_;
    std::source_location where_;
};

}  // namespace detail

class timer;
template <class Rep, class Period, class F>
timer after_func(const std::chrono::duration<Rep, Period>& d, F&& f,
                 std::source_location where = std::source_location::current());  // below

/// Sends the time once, after `d` (Go's time.Timer). Starts at once. Movable.
///
/// Go 1.23's rules: after stop() or reset() has returned, no old value is received; a value that was not received
/// counts as pending. The channel has length and capacity 0. Dropping the timer stops it, unless it was made by
/// after_func(). Any number of goroutines and threads may use the channel; only one at a time may use the timer itself.
/// Exact     Never early; in an idle process it is late by the time it takes to wake a thread. The value is the time at
///           which it was due.
/// Cost      A clock reading: nothing else is done until there is a waiter on the channel. after_func(): an entry in a
///           heap of timers.
class timer {
public:
    using time_point = clock::time_point;

    /// Not started: stop() and reset() throw std::logic_error.
    timer() noexcept = default;
    template <class Rep, class Period>
    explicit timer(const std::chrono::duration<Rep, Period>& d) : due_ns_(detail::deadline_in(d)),
        kind_(kind::number) {}
    template <detail::number N>
    explicit timer(N) {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
    }
    template <class Clock, class Duration>
    explicit timer(const std::chrono::time_point<Clock, Duration>&) {
        static_assert(detail::always_false<Clock>, DUNLIN_NEEDS_A_DURATION);
    }

    timer(timer&& other) noexcept
        : channel_(std::move(other.channel_)), call_(std::exchange(other.call_, nullptr)), due_ns_(other.due_ns_),
          kind_(std::exchange(other.kind_, kind::none)), stopped_(other.stopped_) {}
    timer& operator=(timer&& other) noexcept {
        if (this != &other) {
            drop();
            channel_ = std::move(other.channel_);
            call_ = std::exchange(other.call_, nullptr);
            due_ns_ = other.due_ns_;
            kind_ = std::exchange(other.kind_, kind::none);
            stopped_ = other.stopped_;
        }
        return *this;
    }
    ~timer() { drop(); }

    /// Where the time is sent; nil for a timer of after_func(). Nothing is sent when the timer has been dropped: for a
    /// channel that needs no timer use after(). Throws std::bad_alloc.
    receiver<time_point> channel() const {
        if (kind_ == kind::number) {
            channel_ = detail::chan_handle(detail::make_timer_channel(due_ns_, 0));
            if (stopped_) detail::stop_timer_channel(channel_.core());
            kind_ = kind::channel;
        }
        return detail::handle_access::make_receiver<time_point>(channel_);
    }

    /// Stops it. True if it was pending: its value has not been received (its function has not been started) and never
    /// will be. Throws std::logic_error if it was never started.
    bool stop() {
        switch (kind_) {
        case kind::none: detail::throw_uninitialized_timer("stop");
        case kind::number: return !std::exchange(stopped_, true);
        case kind::channel: return detail::stop_timer_channel(channel_.core());
        case kind::call: break;
        }
        return call_->stop();
    }

    /// Starts it anew, to fire `d` from now; zero or negative: at once. True if it was pending before. Throws
    /// std::logic_error if it was never started, std::bad_alloc.
    template <class Rep, class Period>
    bool reset(const std::chrono::duration<Rep, Period>& d) {
        const std::int64_t due = detail::deadline_in(d);
        switch (kind_) {
        case kind::none: detail::throw_uninitialized_timer("reset");
        case kind::number: due_ns_ = due; return !std::exchange(stopped_, false);
        case kind::channel: return detail::reset_timer_channel(channel_.core(), due, 0);
        case kind::call: break;
        }
        return call_->reset(due);
    }
    template <detail::number N>
    bool reset(N) {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return false;
    }

private:
    template <class Rep, class Period, class F>
    friend timer after_func(const std::chrono::duration<Rep, Period>& d, F&& f, std::source_location where);

    enum class kind : unsigned char { none, number, channel, call };

    explicit timer(detail::timed_call* call) noexcept : call_(call), kind_(kind::call) {}

    void drop() noexcept {
        if (kind_ == kind::channel) detail::stop_timer_channel(channel_.core());
        if (kind_ == kind::call) call_->drop();
    }

    mutable detail::chan_handle channel_;
    detail::timed_call* call_ = nullptr;
    std::int64_t due_ns_ = 0;
    mutable kind kind_ = kind::none;
    bool stopped_ = false;  // while kind_ is number
};

/// Sends the time every `period` (Go's time.Ticker). A late receiver finds one tick and misses the others. Dropping it
/// stops it.
class ticker {
public:
    using time_point = clock::time_point;

    /// Throws std::invalid_argument "non-positive interval for NewTicker", std::bad_alloc.
    template <class Rep, class Period>
    explicit ticker(const std::chrono::duration<Rep, Period>& period) {
        const std::int64_t ns = detail::to_nanoseconds(period).count();
        if (ns <= 0) detail::throw_non_positive_interval("NewTicker");
        channel_ = detail::chan_handle(detail::make_timer_channel(detail::deadline_in(std::chrono::nanoseconds(ns)),
            ns));
    }
    template <detail::number N>
    explicit ticker(N) {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
    }
    ticker(ticker&&) noexcept = default;
    ticker& operator=(ticker&& other) noexcept {
        if (this != &other) {
            stop();
            channel_ = std::move(other.channel_);
        }
        return *this;
    }
    ~ticker() { stop(); }

    receiver<time_point> channel() const& noexcept {
        return detail::handle_access::make_receiver<time_point>(channel_);
    }
    // Nothing would ever come: the temporary has stopped the ticks when the channel is used.
    template <class Never = void>
    receiver<time_point> channel() const&& noexcept {
        static_assert(detail::always_false<Never>,
            "dunlin: a ticker that is destroyed ticks no more: give it a name, then name.channel()");
        return detail::handle_access::make_receiver<time_point>(channel_);
    }

    /// No more ticks; an unread one is dropped. True if it was running. The channel is not closed.
    bool stop() noexcept { return channel_.core() != nullptr && detail::stop_timer_channel(channel_.core()); }

    /// Stops it and starts it with this period, after which the next tick comes. True if it was running.
    /// Throws std::invalid_argument "non-positive interval for Ticker.Reset", std::bad_alloc; std::logic_error if it
    /// was moved from.
    template <class Rep, class Period>
    bool reset(const std::chrono::duration<Rep, Period>& period) {
        const std::int64_t ns = detail::to_nanoseconds(period).count();
        if (ns <= 0) detail::throw_non_positive_interval("Ticker.Reset");
        if (channel_.core() == nullptr) detail::throw_uninitialized_timer("reset");
        return detail::reset_timer_channel(channel_.core(), detail::deadline_in(std::chrono::nanoseconds(ns)), ns);
    }
    template <detail::number N>
    bool reset(N) {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return false;
    }

private:
    detail::chan_handle channel_;
};

/// A channel on which the time is sent once, after `d`. Dropping the receiver stops it. Throws std::bad_alloc.
template <class Rep, class Period>
receiver<clock::time_point> after(const std::chrono::duration<Rep, Period>& d) {
    return detail::handle_access::make_receiver<clock::time_point>(
        detail::chan_handle(detail::make_timer_channel(detail::deadline_in(d), 0)));
}
template <detail::number N>
receiver<clock::time_point> after(N) {
    static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
    return {};
}
template <class Clock, class Duration>
receiver<clock::time_point> after(const std::chrono::time_point<Clock, Duration>&) {
    static_assert(detail::always_false<Clock>, DUNLIN_NEEDS_A_DURATION);
    return {};
}

/// Runs f() in a goroutine of its own, after `d`. The timer can stop it before that, and start it again; dropping the
/// timer does not stop it. When run() returns, pending calls are forgotten, as goroutines are: they never run, and f is
/// destroyed when the timer is dropped, or never, if the timer was dropped before. Throws std::invalid_argument if f is
/// null, std::bad_alloc, what copying f throws. An exception that leaves f ends the process, as in go().
template <class Rep, class Period, class F>
timer after_func(const std::chrono::duration<Rep, Period>& d, F&& f, std::source_location where) {
    static_assert(detail::can_be_timed<F>,
        "dunlin::after_func: the function cannot be copied, or cannot be called without arguments");
    if constexpr (detail::can_be_timed<F>) {
        detail::check_function(f, "dunlin::after_func");
        timer t(new detail::timed_call_of<std::decay_t<F>>(std::forward<F>(f), where));
        t.call_->start(detail::deadline_in(d));
        return t;
    } else {
        return {};
    }
}
template <detail::number N, class... F>
timer after_func(N, F&&...) {
    static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
    return {};
}
template <class Never = void>
timer after_func(detail::anything, detail::anything = {}, detail::anything = {}) {
    static_assert(detail::always_false<Never>,
        "dunlin::after_func takes a duration, then a function; for a time: after_func(t - Clock::now(), f); "
        "when a context is done: ctx.after_func(f)");
    return {};
}

}  // namespace dunlin
