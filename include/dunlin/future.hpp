// future.hpp - a result that comes later: future, shared_future, promise. For the result of a goroutine, task<T> is
// simpler.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <source_location>
#include <type_traits>
#include <utility>

#include <dunlin/clock.hpp>
#include <dunlin/mutex.hpp>  // before future_state.hpp: a message about a mutex names the files it came through
#include <dunlin/detail/future_state.hpp>

namespace dunlin::inline v0_1 {

using std::future_category;
using std::future_errc;
using std::future_error;
using std::future_status;
using std::make_error_code;
using std::make_error_condition;

template <class T>
class shared_future;

namespace detail {

struct future_access;

// The waits, which do not take the result.
template <class T>
class future_base {
public:
    /// Waits for the result, and does not take it. A deferred function (see async()) is called here, by one of the
    /// waiters.
    void wait(std::source_location where = std::source_location::current()) const { (*handle_).wait(nullptr, where); }
    /// The same until `ctx` is done: throws context_cancelled then. (A deferred function is called all the same.)
    /// Throws std::bad_alloc.
    void wait(const context& ctx, std::source_location where = std::source_location::current()) const {
        const wait_limit limit{wait_limit::never, done_channel(ctx)};
        if ((*handle_).wait(&limit, where) == wait_outcome::cancelled) throw_cancelled(ctx, "future wait");
    }
    /// Waits for `d` at most. Returns future_status::deferred at once if a deferred function has not been called yet.
    /// Throws std::bad_alloc.
    template <class Rep, class Period>
    future_status wait_for(const std::chrono::duration<Rep, Period>& d,
        std::source_location where = std::source_location::current()) const {
        return wait_until_ns(deadline_in(d), where);
    }
    template <number N>
    future_status wait_for(N) const {
        static_assert(has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return {};
    }
    template <class Clock, class Duration>
    future_status wait_until(const std::chrono::time_point<Clock, Duration>& t,
        std::source_location where = std::source_location::current()) const {
        if ((*handle_).is_deferred()) return future_status::deferred;
        const bool ready =
            wait_on_clock(t, [&](std::int64_t ns) { return wait_until_ns(ns, where) == future_status::ready; });
        return ready ? future_status::ready : future_status::timeout;
    }
    /// Whether it holds a state.
    bool valid() const noexcept { return handle_.get() != nullptr; }

protected:
    future_base() noexcept = default;
    explicit future_base(future_handle<T> h) noexcept : handle_(std::move(h)) {}

    future_handle<T> handle_;

private:
    future_status wait_until_ns(std::int64_t deadline_ns, const std::source_location& where) const {
        if ((*handle_).is_deferred()) return future_status::deferred;
        const wait_limit limit{deadline_ns, nullptr};
        return (*handle_).wait(&limit, where) == wait_outcome::ok ? future_status::ready : future_status::timeout;
    }
};

}  // namespace detail

/// Where a result will be available, with the interface of std::future. One thread or goroutine at a time may use it.
///
/// Its destructor does not wait, except for the last future of an async(), which waits until the function has ended.
template <class T>
class [[nodiscard]] future : public detail::future_base<T> {
public:
    /// Holds nothing.
    future() noexcept = default;
    future(future&&) noexcept = default;
    future& operator=(future&&) noexcept = default;

    /// Waits for the result, and returns it or rethrows the exception. Once; the future holds nothing afterwards.
    /// Blocks    The goroutine, never its thread; on a plain thread, that thread.
    /// Order     What happens before the result is set happens before the return.
    /// Throws    What was set; std::future_error: broken_promise if the promise was destroyed and had set nothing,
    ///           no_state if the future holds nothing.
    T get(std::source_location where = std::source_location::current()) {
        this->wait(where);
        return take();
    }
    /// The same until `ctx` is done: throws context_cancelled then, and the future still holds what it held. Throws
    /// std::bad_alloc.
    T get(const context& ctx, std::source_location where = std::source_location::current()) {
        this->wait(ctx, where);
        return take();
    }
    /// Gives the state to a future that can be copied, and holds nothing afterwards.
    shared_future<T> share() noexcept { return shared_future<T>(std::move(*this)); }

private:
    friend struct detail::future_access;
    friend class shared_future<T>;
    explicit future(detail::future_handle<T> h) noexcept : detail::future_base<T>(std::move(h)) {}

    T take() {
        const detail::future_handle<T> mine = std::move(this->handle_);
        return (*mine).take();
    }
};

/// A future that can be copied and read many times, with the interface of std::shared_future. One thread or goroutine
/// at a time may use one object; copies are independent.
template <class T>
class [[nodiscard]] shared_future : public detail::future_base<T> {
public:
    using reference =
        std::conditional_t<std::is_void_v<T> || std::is_reference_v<T>, T, std::add_lvalue_reference_t<const T>>;

    /// Holds nothing.
    shared_future() noexcept = default;
    shared_future(const shared_future&) noexcept = default;
    shared_future(shared_future&&) noexcept = default;
    shared_future& operator=(const shared_future&) noexcept = default;
    shared_future& operator=(shared_future&&) noexcept = default;
    /// What `other` held, which holds nothing afterwards.
    shared_future(future<T>&& other) noexcept : detail::future_base<T>(std::move(other.handle_)) {}

    /// Waits for the result, and returns it (a constant reference to it, valid as long as a copy of this future holds
    /// it) or rethrows the exception. It can be called any number of times.
    /// Blocks    The goroutine, never its thread; on a plain thread, that thread.
    /// Order     What happens before the result is set happens before the return.
    /// Throws    What was set, the same object each time; std::future_error: broken_promise, no_state.
    reference get(std::source_location where = std::source_location::current()) const {
        this->wait(where);
        return (*this->handle_).look();
    }
    /// The same until `ctx` is done: throws context_cancelled then. Throws std::bad_alloc.
    reference get(const context& ctx, std::source_location where = std::source_location::current()) const {
        this->wait(ctx, where);
        return (*this->handle_).look();
    }
};

namespace detail {

// For code in other headers that makes futures.
struct future_access {
    // The state's first reference becomes the future's.
    template <class T>
    static future<T> make(future_state<T>* s) noexcept {
        return future<T>(future_handle<T>(s));
    }
};

// The side that sets the result: it holds one reference, and gives the future out once. If it is destroyed without a
// result, the future gets broken_promise.
template <class T>
class result_source {
public:
    result_source() noexcept = default;
    explicit result_source(future_state<T>* s) noexcept : handle_(s) {}  // takes the caller's reference
    result_source(result_source&& other) noexcept
        : handle_(std::move(other.handle_)), future_taken_(std::exchange(other.future_taken_, false)) {}
    result_source& operator=(result_source&& other) noexcept {
        if (this != &other) {
            abandon();
            handle_ = std::move(other.handle_);
            future_taken_ = std::exchange(other.future_taken_, false);
        }
        return *this;
    }
    ~result_source() { abandon(); }

    future<T> get_future() {
        future_state<T>& s = *handle_;
        if (std::exchange(future_taken_, true)) throw future_error(future_errc::future_already_retrieved);
        s.reference();
        return future_access::make(std::addressof(s));
    }
    bool valid() const noexcept { return handle_.get() != nullptr; }
    // Throws no_state.
    future_state<T>& operator*() const { return *handle_; }
    future_handle<T> handle() const noexcept { return handle_; }
    void swap(result_source& other) noexcept {
        std::swap(handle_, other.handle_);
        std::swap(future_taken_, other.future_taken_);
    }

private:
    void abandon() noexcept {
        if (handle_.get() != nullptr) handle_.get()->abandon();
    }

    future_handle<T> handle_;
    bool future_taken_ = false;
};

// Everything but setting a value.
template <class T>
class promise_base {
public:
    /// Throws std::bad_alloc.
    promise_base() : source_(new future_state<T>) {}
    /// The state's memory comes from `a`, and goes back to a copy of it. Throws what allocating throws.
    template <class Allocator>
    promise_base(std::allocator_arg_t, const Allocator& a) : source_(allocated_state<T, Allocator>::make(a)) {}

    /// Throws std::future_error: future_already_retrieved, no_state.
    future<T> get_future() { return source_.get_future(); }
    /// Sets an exception as the result. Throws std::future_error: promise_already_satisfied, no_state;
    /// std::invalid_argument for a null one.
    void set_exception(std::exception_ptr error) { (*source_).set_exception(false, std::move(error)); }
    /// Sets the exception now, and wakes the waiters when the calling goroutine (on a plain thread, the thread) has
    /// ended and its goroutine_local (and thread_local) objects are destroyed. The promise may be destroyed before
    /// that.
    /// Throws std::bad_alloc as well; then nothing is set.
    void set_exception_at_thread_exit(std::exception_ptr error) { (*source_).set_exception(true, std::move(error)); }

protected:
    template <class... Args>
    void set(bool at_exit, Args&&... args) {
        (*source_).set_value(at_exit, std::forward<Args>(args)...);
    }
    void swap_with(promise_base& other) noexcept { source_.swap(other.source_); }

private:
    result_source<T> source_;
};

// Neither converted to T nor, where only the conversion is missing, copied from a T by an explicit constructor.
template <class U, class T>
concept cannot_be_the_result = !std::is_convertible_v<U, T> &&
    !(std::same_as<std::remove_cvref_t<U>, std::remove_cv_t<T>> && std::is_constructible_v<T, U>);
#define DUNLIN_CANNOT_BE_THE_RESULT \
    "dunlin::promise: the value cannot become the result's type (what cannot be copied: std::move)"

}  // namespace detail

/// Where a result is set, with the interface of std::promise. If it is destroyed without having set anything, the
/// future gets broken_promise.
template <class T>
class promise : public detail::promise_base<T> {
public:
    using detail::promise_base<T>::promise_base;

    /// Sets the result and wakes the waiters. A call beside another one waits until that has set the result, or has
    /// failed. Throws std::future_error: promise_already_satisfied, no_state; what T's constructor throws; then nothing
    /// is set.
    void set_value(const T& value)
        requires(!std::is_reference_v<T> && std::is_copy_constructible_v<T>)
    {
        this->set(false, value);
    }
    void set_value(T&& value)
        requires(!std::is_reference_v<T>)
    {
        this->set(false, std::move(value));
    }
    void set_value(T value)
        requires std::is_lvalue_reference_v<T>
    {
        this->set(false, std::addressof(value));
    }
    template <class U>
        requires detail::cannot_be_the_result<U, T>
    void set_value(U&&) {
        static_assert(std::is_convertible_v<U, T>, DUNLIN_CANNOT_BE_THE_RESULT);
    }
    /// Sets the result now, and wakes the waiters when the calling goroutine has ended: see
    /// set_exception_at_thread_exit().
    /// Throws the same.
    void set_value_at_thread_exit(const T& value)
        requires(!std::is_reference_v<T> && std::is_copy_constructible_v<T>)
    {
        this->set(true, value);
    }
    void set_value_at_thread_exit(T&& value)
        requires(!std::is_reference_v<T>)
    {
        this->set(true, std::move(value));
    }
    void set_value_at_thread_exit(T value)
        requires std::is_lvalue_reference_v<T>
    {
        this->set(true, std::addressof(value));
    }
    template <class U>
        requires detail::cannot_be_the_result<U, T>
    void set_value_at_thread_exit(U&&) {
        static_assert(std::is_convertible_v<U, T>, DUNLIN_CANNOT_BE_THE_RESULT);
    }

    void swap(promise& other) noexcept { this->swap_with(other); }
};

template <>
class promise<void> : public detail::promise_base<void> {
public:
    using detail::promise_base<void>::promise_base;

    void set_value() { set(false); }
    void set_value_at_thread_exit() { set(true); }

    void swap(promise& other) noexcept { swap_with(other); }
};

template <class T>
void swap(promise<T>& a, promise<T>& b) noexcept {
    a.swap(b);
}

}  // namespace dunlin

template <class T, class Allocator>
struct std::uses_allocator<dunlin::promise<T>, Allocator> : std::true_type {};
