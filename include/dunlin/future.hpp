// future.hpp - a result that somebody else will have. For the result of a goroutine, task<T> is simpler.
#pragma once

#include <dunlin/config.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <new>
#include <source_location>
#include <type_traits>
#include <utility>

#include <dunlin/clock.hpp>
#include <dunlin/detail/one_shot.hpp>

namespace dunlin {

using std::future_errc;
using std::future_error;
using std::future_status;

namespace detail {

// Shared by a promise and its future; whoever is last deletes it.
template <class T>
class future_state {
public:
    // Not const, also for a const T: what is moved in can be moved out.
    using stored =
        std::conditional_t<std::is_void_v<T>, char, std::conditional_t<std::is_reference_v<T>, std::remove_reference_t<T>*, std::remove_cv_t<T>>>;

    future_state() noexcept {}
    ~future_state() {
        if (has_value_) std::destroy_at(std::addressof(value_));
    }
    future_state(const future_state&) = delete;
    future_state& operator=(const future_state&) = delete;

    void reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept {
        // Acquire-release: whoever deletes it sees what the other did with it.
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

    // Throws what the value's constructor throws; then the promise is still unsatisfied.
    template <class... Args>
    void set_value(Args&&... args) {
        claim();
        try {
            std::construct_at(std::addressof(value_), std::forward<Args>(args)...);
        } catch (...) {
            claimed_.store(false, std::memory_order_release);
            throw;
        }
        has_value_ = true;
        ready_.set();
    }
    void set_exception(std::exception_ptr error) {
        claim();
        error_ = std::move(error);
        ready_.set();
    }
    void abandon() noexcept {
        if (claimed_.exchange(true, std::memory_order_acq_rel)) return;
        error_ = std::make_exception_ptr(future_error(future_errc::broken_promise));
        ready_.set();
    }

    // After ready_ is set.
    T take() {
        if (error_) std::rethrow_exception(error_);
        if constexpr (std::is_reference_v<T>) {
            return static_cast<T>(*value_);
        } else if constexpr (!std::is_void_v<T>) {
            return std::move(value_);
        }
    }

    one_shot ready_;

private:
    void claim() {
        if (claimed_.exchange(true, std::memory_order_acq_rel)) throw future_error(future_errc::promise_already_satisfied);
    }

    std::atomic<std::uint32_t> references_{1};
    std::atomic<bool> claimed_{false};
    bool has_value_ = false;    // whoever has claimed; others after ready_
    std::exception_ptr error_;  // the same
    union {
        stored value_;          // the same
    };
};

// A counted reference.
template <class T>
class future_handle {
public:
    future_handle() noexcept = default;
    explicit future_handle(future_state<T>* s) noexcept : state_(s) {}  // takes the caller's reference
    future_handle(future_handle&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
    future_handle& operator=(future_handle other) noexcept {
        std::swap(state_, other.state_);
        return *this;
    }
    ~future_handle() {
        if (state_ != nullptr) state_->release();
    }
    future_state<T>* get() const noexcept { return state_; }
    future_state<T>& operator*() const {
        if (state_ == nullptr) throw future_error(future_errc::no_state);
        return *state_;
    }

private:
    future_state<T>* state_ = nullptr;
};

}  // namespace detail

namespace detail {
template <class T>
class promise_base;
}

/// The place where the result will be had, with the interface of std::future. One thread or goroutine at a time may use it.
template <class T>
class [[nodiscard]] future {
public:
    /// Holds nothing.
    future() noexcept = default;

    /// Waits for the result, and returns it or rethrows the exception. Once; the future holds nothing afterwards.
    /// Blocks    The goroutine, never its thread (a plain thread on a plain thread).
    /// Order     What happens before the result is set happens before the return.
    /// Throws    What was set; std::future_error: broken_promise if the promise is gone and has set nothing, no_state if the future holds nothing.
    T get(std::source_location where = std::source_location::current()) {
        wait(where);
        return take();
    }
    /// The same until `ctx` is done: throws context_cancelled then, and the future still holds what it held. Throws std::bad_alloc.
    T get(const context& ctx, std::source_location where = std::source_location::current()) {
        wait(ctx, where);
        return take();
    }
    /// Waits for the result; it stays.
    void wait(std::source_location where = std::source_location::current()) const { (*handle_).ready_.wait(detail::future_reason, nullptr, where); }
    void wait(const context& ctx, std::source_location where = std::source_location::current()) const {
        const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
        if ((*handle_).ready_.wait(detail::future_reason, &limit, where) == detail::wait_outcome::cancelled) detail::throw_cancelled(ctx, "future wait");
    }
    /// For `d` at most. Throws std::bad_alloc.
    template <class Rep, class Period>
    future_status wait_for(const std::chrono::duration<Rep, Period>& d, std::source_location where = std::source_location::current()) const {
        return wait_until_ns(detail::deadline_in(d), where);
    }
    template <class Clock, class Duration>
    future_status wait_until(const std::chrono::time_point<Clock, Duration>& t, std::source_location where = std::source_location::current()) const {
        const bool ready = detail::wait_on_clock(t, [&](std::int64_t ns) { return wait_until_ns(ns, where) == future_status::ready; });
        return ready ? future_status::ready : future_status::timeout;
    }
    /// Does it hold a state, whose result was not taken?
    bool valid() const noexcept { return handle_.get() != nullptr; }

private:
    friend class detail::promise_base<T>;
    explicit future(detail::future_handle<T> h) noexcept : handle_(std::move(h)) {}

    T take() {
        const detail::future_handle<T> mine = std::move(handle_);
        return (*mine).take();
    }
    future_status wait_until_ns(std::int64_t deadline_ns, const std::source_location& where) const {
        const detail::wait_limit limit{deadline_ns, nullptr};
        const bool ready = (*handle_).ready_.wait(detail::future_reason, &limit, where) == detail::wait_outcome::ok;
        return ready ? future_status::ready : future_status::timeout;
    }

    detail::future_handle<T> handle_;
};

namespace detail {

// Everything but what is set.
template <class T>
class promise_base {
public:
    /// Throws std::bad_alloc.
    promise_base() : handle_(new future_state<T>) {}
    promise_base(promise_base&& other) noexcept : handle_(std::move(other.handle_)), future_taken_(std::exchange(other.future_taken_, false)) {}
    promise_base& operator=(promise_base&& other) noexcept {
        if (this != &other) {
            abandon();
            handle_ = std::move(other.handle_);
            future_taken_ = std::exchange(other.future_taken_, false);
        }
        return *this;
    }
    ~promise_base() { abandon(); }

    /// Throws std::future_error: future_already_retrieved, no_state.
    future<T> get_future() {
        future_state<T>& s = *handle_;
        if (std::exchange(future_taken_, true)) throw future_error(future_errc::future_already_retrieved);
        s.reference();
        return future<T>(future_handle<T>(std::addressof(s)));
    }
    void set_exception(std::exception_ptr error) { (*handle_).set_exception(std::move(error)); }

protected:
    void swap_with(promise_base& other) noexcept {
        std::swap(handle_, other.handle_);
        std::swap(future_taken_, other.future_taken_);
    }

    future_handle<T> handle_;

private:
    void abandon() noexcept {
        if (handle_.get() != nullptr) handle_.get()->abandon();
    }

    bool future_taken_ = false;
};

}  // namespace detail

/// The place where the result is put, with the interface of std::promise. Destroyed without having set anything: the future gets broken_promise.
template <class T>
class promise : public detail::promise_base<T> {
public:
    /// Sets the result and wakes who waits for it. Throws std::future_error: promise_already_satisfied, no_state; what T's constructor throws.
    void set_value(const T& value)
        requires(!std::is_reference_v<T> && std::is_copy_constructible_v<T>)
    {
        (*this->handle_).set_value(value);
    }
    void set_value(T&& value)
        requires(!std::is_reference_v<T>)
    {
        (*this->handle_).set_value(std::move(value));
    }
    void set_value(T value)
        requires std::is_lvalue_reference_v<T>
    {
        (*this->handle_).set_value(std::addressof(value));
    }

    void swap(promise& other) noexcept { this->swap_with(other); }
    friend void swap(promise& a, promise& b) noexcept { a.swap(b); }
};

template <>
class promise<void> : public detail::promise_base<void> {
public:
    void set_value() { (*handle_).set_value(); }

    void swap(promise& other) noexcept { swap_with(other); }
    friend void swap(promise& a, promise& b) noexcept { a.swap(b); }
};

}  // namespace dunlin
