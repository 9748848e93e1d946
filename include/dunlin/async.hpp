// async.hpp - runs a function as a goroutine, or when its result is first asked for, and returns a future for the
// result.
#pragma once

#include <dunlin/config.hpp>

#include <concepts>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <dunlin/detail/at_exit.hpp>
#include <dunlin/future.hpp>
#include <dunlin/go.hpp>

namespace dunlin::inline v0_1 {

using std::launch;

namespace detail {

// The frame holds no reference to the state: the last future waits until the state is ready, and making it ready is the
// goroutine's last act.
template <class R, class Call>
struct async_frame {
    future_state<R>* state;
    Call call;

    template <class... Values>
    explicit async_frame(future_state<R>* s, Values&&... values)
        : state(s), call(std::in_place, std::forward<Values>(values)...) {}

    static void entry(void* raw) {
        struct ending {
            future_state<R>* state;
            ~ending() {
                call_at_exit_or_now(state, [](void* s) noexcept { static_cast<future_state<R>*>(s)->make_ready(); });
            }
        } last{static_cast<async_frame*>(raw)->state};
        destroy_at_exit<async_frame> guard{static_cast<async_frame*>(raw)};
        last.state->store_result_of([raw]() -> R { return static_cast<async_frame*>(raw)->call(); });
    }
    static void wait_and_destroy(future_state<R>* s) noexcept {
        s->wait(nullptr, std::source_location::current());
        delete s;
    }
};

template <class R, class Call>
class deferred_state final : public future_state<R> {
public:
    template <class... Values>
    explicit deferred_state(std::in_place_t, Values&&... values)
        : future_state<R>(destroy, run), call_(std::in_place, std::in_place, std::forward<Values>(values)...) {}

private:
    static void run(future_state<R>* s) {
        struct ending {
            deferred_state& s;
            ~ending() {
                s.call_.reset();
                s.make_ready();
            }
        } guard{static_cast<deferred_state&>(*s)};
        s->store_result_of([&guard]() -> R { return (*guard.s.call_)(); });
    }
    static void destroy(future_state<R>* s) noexcept { delete static_cast<deferred_state*>(s); }

    std::optional<Call> call_;
};

[[noreturn]] DUNLIN_API void throw_bad_policy(int policy);  // std::invalid_argument

template <class F, class... Args>
struct async_result : std::invoke_result<std::decay_t<F>, std::decay_t<Args>...> {};
template <class F, class... Args>
    requires(!fits<F, Args...>)
struct async_result<F, Args...> : std::type_identity<void> {};  // a static_assert says what is wrong

}  // namespace detail

/// Calls f(args...) and returns a future for its result or exception, with the interface of std::async.
///
/// launch::async      in a goroutine of its own, at once. So also if both policies are given: a goroutine costs little,
///                    so there is no reason to wait.
/// launch::deferred   in the first get() or wait() of the future, on its caller's stack. Without such a call f never
///                    runs.
///
/// f, args   Decay-copied as by std::thread, and destroyed where f ran, before the future is ready. The goroutine_local
///           values are destroyed before that, too.
/// Blocks    Nothing. With launch::async THE LAST FUTURE'S DESTRUCTOR WAITS until f has ended, as that of std::async
///           does: a caller that drops the future waits for f, as if it had called f itself. (If a plain thread has
///           called async(), f goes on whatever run() returns meanwhile, also while static objects are destroyed.) go()
///           starts a goroutine that is not waited for; spawn() is cheaper where the caller waits anyway.
/// Order     Everything before the call happens before f; everything that f does happens before the return of the
///           waits.
/// Throws    std::bad_alloc (std: std::system_error); std::invalid_argument for a policy that is neither of the two, or
///           a null pointer to a function; what copying throws. The future's get() throws std::bad_function_call for
///           an empty std::function, goroutine_exited if f calls exit_goroutine(), and std::future_error,
///           broken_promise, if a deferred f ends its plain thread.
/// Call from Goroutines and plain threads.
//
// The constraint is always true: where `using dunlin::async` stands, a call finds std::async as well, by the policy's
// type, and a constraint makes this one the better of the two.
template <class F, class... Args>
    requires(sizeof...(Args) + 1 > 0)
[[nodiscard, gnu::always_inline]] inline auto async(launch policy, F&& f, Args&&... args)
    -> future<typename detail::async_result<F, Args...>::type> {
    static_assert(detail::fits<F, Args...>, DUNLIN_DOES_NOT_FIT);
    if constexpr (detail::fits<F, Args...>) {
        using result = typename detail::async_result<F, Args...>::type;
        using call = detail::call_of<F, Args...>;
        detail::check_function_as_std(f, "dunlin::async");
        if ((policy & launch::async) == launch::async) {
            using frame = detail::async_frame<result, detail::call_of_any_alignment<call>>;
            auto state = std::make_unique<detail::future_state<result>>(frame::wait_and_destroy);
            detail::launch<frame, true>(nullptr, std::source_location(), detail::end_kind::detached, nullptr,
                frame::entry,
                state.get(), std::forward<F>(f), std::forward<Args>(args)...);
            return detail::future_access::make(state.release());
        }
        if ((policy & launch::deferred) != launch::deferred) detail::throw_bad_policy(static_cast<int>(policy));
        using deferred = detail::deferred_state<result, call>;
        return detail::future_access::make<result>(
            new deferred(std::in_place, std::forward<F>(f), std::forward<Args>(args)...));
    } else {
        return {};
    }
}

/// The same with launch::async.
template <class F, class... Args>
    requires(!std::same_as<std::decay_t<F>, launch>)
[[nodiscard, gnu::always_inline]] inline auto async(F&& f, Args&&... args)
    -> future<typename detail::async_result<F, Args...>::type> {
    static_assert(detail::fits<F, Args...>, DUNLIN_DOES_NOT_FIT);
    if constexpr (detail::fits<F, Args...>) {
        return dunlin::async(launch::async, std::forward<F>(f), std::forward<Args>(args)...);
    } else {
        return {};
    }
}

}  // namespace dunlin
