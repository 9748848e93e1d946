// once.hpp - do something once: the first caller does it.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <concepts>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <type_traits>
#include <utility>

#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/caught.hpp>
#include <dunlin/detail/one_shot.hpp>
#include <dunlin/detail/simulated_point.hpp>
#include <dunlin/detail/spawn.hpp>
#include <dunlin/mutex.hpp>
#include <dunlin/task.hpp>

namespace dunlin::inline v0_1 {

/// Whether something has been done. For call_once().
class once_flag {
public:
    constexpr once_flag() noexcept = default;
    once_flag(const once_flag&) = delete;
    once_flag& operator=(const once_flag&) = delete;

private:
    template <class F, class... Args>
    friend void call_once(once_flag& flag, F&& f, Args&&... args);
    detail::one_shot done_;
};

/// Calls f(args...) if this is the first call with `flag`. Callers that come while f runs wait until it has ended.
///
/// DIFFERS FROM std::call_once: when f throws, the exception goes to that first caller only; f COUNTS AS DONE AND IS
/// NOT TRIED AGAIN. An f that ended by exit_goroutine() counts as done, too. once_value() keeps the exception for all
/// callers.
/// Blocks    The goroutine, never its thread; on a plain thread, that thread. A call from inside f with the same flag
///           blocks for ever.
/// Order     What f does happens before the return of every call_once() with the flag.
/// Cost      A load, when it is done.
/// Source    sync.Once.
template <class F, class... Args>
void call_once(once_flag& flag, F&& f, Args&&... args) {
    if (flag.done_.is_set()) return;
    detail::pass_simulation();
    if (!flag.done_.begin()) {
        flag.done_.wait(detail::once_reason, nullptr, std::source_location::current());
        return;
    }
    struct ending {
        detail::one_shot& done;
        ~ending() { done.set(); }
    } guard{flag.done_};
    static_assert(detail::fits_here<F, Args...>, DUNLIN_DOES_NOT_FIT_HERE);
    if constexpr (detail::fits_here<F, Args...>) std::invoke(std::forward<F>(f), std::forward<Args>(args)...);
}

/// Whether something that may fail has been done; after a failure it is tried again, as with std::once_flag. A function
/// that throws, or ends by exit_goroutine(), leaves it undone; the next caller, or the next waiter, tries.
///
/// From goroutines and plain threads, in any mix.
/// Blocks    While another caller's function runs: the goroutine, never its thread (on a plain thread, that thread). A
///           call from inside the function with the same flag ends the process with a report; with a limit it waits for
///           that.
/// Order     What the function that succeeded does happens before the return of every call() that returns, and of every
///           other call that returns true.
/// Cost      A load, when it is done.
class retry_once_flag {
public:
    constexpr retry_once_flag() noexcept = default;
    retry_once_flag(const retry_once_flag&) = delete;
    retry_once_flag& operator=(const retry_once_flag&) = delete;

    /// Whether a function has succeeded.
    bool done() const noexcept { return done_.load(std::memory_order_acquire); }

    /// Calls f() unless a function has succeeded; waits for one that runs. Only the caller whose f was called gets what
    /// f throws.
    template <std::invocable F>
    void call(F&& f, std::source_location where = std::source_location::current()) {
        if (done()) return;
        mutex_.lock(where);
        finish(std::forward<F>(f));
    }
    /// The same; the wait for another caller's function ends when `ctx` is done, with context_cancelled. f itself is
    /// not stopped.
    template <std::invocable F>
    void call(F&& f, const context& ctx, std::source_location where = std::source_location::current()) {
        if (done()) return;
        mutex_.lock(ctx, where);
        finish(std::forward<F>(f));
    }
    /// The same; the wait ends after `d`. Then it returns false: whether that function will succeed is not known.
    template <std::invocable F, class Rep, class Period>
    bool call_for(const std::chrono::duration<Rep, Period>& d, F&& f,
                  std::source_location where = std::source_location::current()) {
        if (done()) return true;
        if (!mutex_.try_lock_for(d, where)) return done();
        finish(std::forward<F>(f));
        return true;
    }
    /// The same; the wait ends at `t`.
    template <std::invocable F, class Clock, class Duration>
    bool call_until(const std::chrono::time_point<Clock, Duration>& t, F&& f,
                    std::source_location where = std::source_location::current()) {
        if (done()) return true;
        if (!mutex_.try_lock_until(t, where)) return done();
        finish(std::forward<F>(f));
        return true;
    }

private:
    // Called with the lock, which it releases.
    template <class F>
    void finish(F&& f) {
        const std::lock_guard guard(mutex_, std::adopt_lock);
        if (done_.load(std::memory_order_relaxed)) return;
        static_cast<void>(std::invoke(std::forward<F>(f)));
        done_.store(true, std::memory_order_release);  // pairs with the acquire in done()
    }

    mutex mutex_;  // held while a function runs
    platform::atomic<bool> done_{false};
};

/// retry_once_flag::call() with the interface of std::call_once.
template <class F, class... Args>
void call_once(retry_once_flag& flag, F&& f, Args&&... args) {
    flag.call([&] { static_cast<void>(std::invoke(std::forward<F>(f), std::forward<Args>(args)...)); });
}

namespace detail {

template <class F>
struct once_call {
    using result = std::invoke_result_t<F&>;
    using stored = std::conditional_t<std::is_void_v<result>, char,
        std::conditional_t<std::is_reference_v<result>, std::remove_reference_t<result>*, result>>;

    explicit once_call(F&& f) : function(std::move(f)) {}
    explicit once_call(const F& f) : function(f) {}

    void run() {
        call_once(flag, [this] {
            try {
                if constexpr (std::is_void_v<result>) {
                    std::invoke(*function);
                    value.emplace();
                } else if constexpr (std::is_reference_v<result>) {
                    value.emplace(std::addressof(std::invoke(*function)));
                } else {
                    value.emplace(std::invoke(*function));
                }
            } catch (...) {
                keep_caught(error);
            }
            function.reset();
        });
        if (error) std::rethrow_exception(error);
    }

    once_flag flag;
    std::optional<F> function;
    std::optional<stored> value;
    std::exception_ptr error;
};

}  // namespace detail

/// Returns a function that calls f the first time, and does nothing later. Its copies share the one call of f. If f
/// throws, each call throws the same exception.
/// Throws    What f threw; goroutine_exited if f ended by exit_goroutine(); std::future_error: broken_promise if it
///           ended with its plain thread (pthread_exit). Source: sync.OnceFunc.
template <class F>
    requires std::invocable<std::decay_t<F>&>
auto once_func(F&& f) {
    return [call = std::make_shared<detail::once_call<std::decay_t<F>>>(std::forward<F>(f))] { call->run(); };
}

/// The same, and the function returns what f returned: a constant reference to it, valid as long as a copy of the
/// function lives; or the same reference as f. Source: sync.OnceValue.
template <class F>
    requires std::invocable<std::decay_t<F>&>
auto once_value(F&& f) {
    using call_type = detail::once_call<std::decay_t<F>>;
    static_assert(!std::is_void_v<typename call_type::result>, "f returns nothing: use once_func()");
    return [call = std::make_shared<call_type>(std::forward<F>(f))]() -> decltype(auto) {
        call->run();
        if constexpr (std::is_reference_v<typename call_type::result>) {
            return static_cast<typename call_type::result>(**call->value);
        } else {
            return std::as_const(*call->value);
        }
    };
}

}  // namespace dunlin
