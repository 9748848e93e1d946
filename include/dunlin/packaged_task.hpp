// packaged_task.hpp - a function whose result goes to a future.
#pragma once

#include <dunlin/config.hpp>

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <dunlin/detail/spawn.hpp>
#include <dunlin/future.hpp>

namespace dunlin::inline v0_1 {

namespace detail {

// Any function with this signature; it need only be movable.
template <class R, class... Args>
class packaged_function {
public:
    virtual ~packaged_function() = default;
    virtual void run(future_state<R>& to, Args&&... args) = 0;
};

template <class F, class R, class... Args>
class packaged_function_of final : public packaged_function<R, Args...> {
public:
    template <class G>
    explicit packaged_function_of(std::in_place_t, G&& f) : f_(std::forward<G>(f)) {}
    void run(future_state<R>& to, Args&&... args) override {
        to.store_result_of([&]() -> R {
            if constexpr (std::is_void_v<R>) {
                static_cast<void>(std::invoke(f_, std::forward<Args>(args)...));
            } else {
                return std::invoke(f_, std::forward<Args>(args)...);
            }
        });
    }

private:
    F f_;
};

// R(Args...) of an operator() that is not overloaded, for deduction.
template <class MemberFunction>
struct call_signature;
#define DUNLIN_CALL_SIGNATURE(qualifiers)                                               \
    template <class R, class C, class... A>                                             \
    struct call_signature<R (C::*)(A...) qualifiers> : std::type_identity<R(A...)> {};  \
    template <class R, class C, class... A>                                             \
    struct call_signature<R (C::*)(A...) qualifiers noexcept> : std::type_identity<R(A...)> {}
DUNLIN_CALL_SIGNATURE();
DUNLIN_CALL_SIGNATURE(const);
DUNLIN_CALL_SIGNATURE(volatile);
DUNLIN_CALL_SIGNATURE(const volatile);
DUNLIN_CALL_SIGNATURE(&);
DUNLIN_CALL_SIGNATURE(const &);
DUNLIN_CALL_SIGNATURE(volatile &);
DUNLIN_CALL_SIGNATURE(const volatile &);
#undef DUNLIN_CALL_SIGNATURE

}  // namespace detail

template <class Signature>
class packaged_task;

/// A function and the future of its result, with the interface of std::packaged_task. Move-only. One thread or
/// goroutine at a time may use it; it may be destroyed as soon as its future is ready, even while the call has not
/// returned yet. To run a function in a goroutine of its own, spawn() is simpler.
///
/// Throws    Constructor: std::bad_alloc, what copying f throws; std::invalid_argument if f is a null pointer to a
///           function.
template <class R, class... Args>
class packaged_task<R(Args...)> {
public:
    /// Holds nothing.
    packaged_task() noexcept = default;
    /// f is decay-copied.
    template <class F>
        requires(!std::same_as<std::remove_cvref_t<F>, packaged_task> &&
                    std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
    explicit packaged_task(F&& f)
        : function_((detail::check_function_as_std(f, "dunlin::packaged_task"),
              std::make_unique<detail::packaged_function_of<std::decay_t<F>, R, Args...>>(
                  std::in_place, std::forward<F>(f)))),
          result_(new detail::future_state<R>) {}
    packaged_task(packaged_task&&) noexcept = default;
    packaged_task& operator=(packaged_task&&) noexcept = default;

    /// Whether it holds a function.
    bool valid() const noexcept { return result_.valid(); }
    /// Throws std::future_error: future_already_retrieved, no_state.
    future<R> get_future() { return result_.get_future(); }

    /// Calls the function and makes the future ready with what it returns or throws; with goroutine_exited if it calls
    /// exit_goroutine(), which then goes on, and with broken_promise if a plain thread ends in it (pthread_exit,
    /// pthread_cancel). It can be called once, until reset(). Throws std::future_error:
    /// promise_already_satisfied, no_state.
    void operator()(Args... args) {
        const detail::future_handle<R> to = result_.handle();
        (*to).claim();
        struct ending {
            detail::future_state<R>& s;
            ~ending() { s.make_ready(); }
        } guard{*to};
        function_->run(*to, std::forward<Args>(args)...);
    }
    /// Calls the function now, and makes the future ready when the calling goroutine (on a plain thread, the thread)
    /// has ended and its goroutine_local (and thread_local) objects are destroyed. Throws the same, and std::bad_alloc;
    /// then the function was not called.
    void make_ready_at_thread_exit(Args... args) {
        const detail::future_handle<R> to = result_.handle();
        (*to).claim_for_exit();
        function_->run(*to, std::forward<Args>(args)...);
    }
    /// After it the function may be called again, with a new future; the old future, if it is not ready, gets
    /// broken_promise. Throws std::bad_alloc, std::future_error: no_state.
    void reset() {
        static_cast<void>(*result_);
        result_ = detail::result_source<R>(new detail::future_state<R>);
    }

    void swap(packaged_task& other) noexcept {
        function_.swap(other.function_);
        result_.swap(other.result_);
    }

private:
    std::unique_ptr<detail::packaged_function<R, Args...>> function_;
    detail::result_source<R> result_;
};

template <class R, class... Args>
void swap(packaged_task<R(Args...)>& a, packaged_task<R(Args...)>& b) noexcept {
    a.swap(b);
}

template <class R, class... Args>
packaged_task(R (*)(Args...)) -> packaged_task<R(Args...)>;
template <class R, class... Args>
packaged_task(R (*)(Args...) noexcept) -> packaged_task<R(Args...)>;
template <class F>
packaged_task(F) -> packaged_task<typename detail::call_signature<decltype(&F::operator())>::type>;

}  // namespace dunlin
