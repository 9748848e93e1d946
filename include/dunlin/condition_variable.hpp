// condition_variable.hpp - wait until another goroutine or thread says that something has changed.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <source_location>
#include <stop_token>
#include <system_error>
#include <type_traits>
#include <utility>

#include <dunlin/clock.hpp>
#include <dunlin/detail/chan_core.hpp>
#include <dunlin/detail/stop_node.hpp>
#include <dunlin/mutex.hpp>

namespace dunlin::inline v0_1 {

using std::cv_status;

namespace detail {

// One wait: it is in the queue from its construction on, before the user's lock is released.
// src/sync/condition_variable.cpp
class DUNLIN_API condition_wait {
public:
    condition_wait(const void* condition, bool limited) noexcept;
    ~condition_wait();
    condition_wait(const condition_wait&) = delete;
    condition_wait& operator=(const condition_wait&) = delete;

    // Throws std::bad_alloc if there is no memory for a deadline. With `may_go_on` it is still in the queue after
    // timed_out, and can wait again. No notification is lost in between: after one, the next wait() returns ok.
    wait_outcome wait(const wait_limit* limit, const std::source_location& where, bool may_go_on = false);
    // Leaves the queue. False: it was notified before. The caller answers for that notification; if neither this nor
    // wait() has returned, the destructor passes it on to the next waiter.
    bool leave() noexcept;

private:
    alignas(8) unsigned char storage_[208];
};

DUNLIN_API void notify_condition(const void* condition, bool all) noexcept;
DUNLIN_API void destroy_condition(const void* condition) noexcept;

template <class Lock>
struct lock_again {
    Lock& lock;
    ~lock_again() { lock.lock(); }
};

[[noreturn]] DUNLIN_API void throw_lock_not_owned();

template <class Lock>
void check_owned(const Lock& lock) {
    if constexpr (requires { { lock.owns_lock() } -> std::same_as<bool>; }) {
        if (!lock.owns_lock()) throw_lock_not_owned();
    }
}

template <class Lock>
wait_outcome wait_for_condition(const void* condition, Lock& lock, const wait_limit* limit,
    const std::source_location& where) {
    check_owned(lock);
    condition_wait wait(condition, limit != nullptr);
    lock.unlock();  // if it throws, there was no wait
    const lock_again<Lock> guard{lock};
    return wait.wait(limit, where);
}

// The same until a moment of any clock, see wait_on_clock(). Between two waits it neither takes `lock` nor leaves the
// queue.
template <class Lock, class Clock, class Duration>
wait_outcome wait_for_condition_until(const void* condition, Lock& lock,
    const std::chrono::time_point<Clock, Duration>& t, chan_core* done,
    const std::source_location& where) {
    check_owned(lock);
    wait_limit limit{deadline_at(t), done};
    condition_wait wait(condition, true);
    lock.unlock();
    const lock_again<Lock> guard{lock};
    wait_outcome outcome = wait_outcome::timed_out;
    wait_on_clock(t, [&](std::int64_t ns) {
        limit.deadline_ns = ns;
        outcome = wait.wait(&limit, where, !std::is_same_v<Clock, clock>);
        return outcome != wait_outcome::timed_out;
    });
    if (!std::is_same_v<Clock, clock> && outcome == wait_outcome::timed_out && !wait.leave()) return wait_outcome::ok;
    return outcome;
}

template <class Predicate>
// what an if can test: the conversion to bool may be explicit
concept condition = requires(Predicate& p) { static_cast<bool>(std::invoke(p)); };

template <class Lock>
concept not_its_lock = !std::derived_from<Lock, std::unique_lock<mutex>>;
#define DUNLIN_NEEDS_ITS_LOCK \
    "dunlin::condition_variable waits with a std::unique_lock<dunlin::mutex>; condition_variable_any takes any lock"
#define DUNLIN_NEEDS_ARGUMENTS_OF_A_WAIT \
    "dunlin::condition_variable: wait(lock, [ctx], [ready]), wait_for(lock, duration, [ready]), " \
    "wait_until(lock, time, [ready]): ready() gives a bool; condition_variable_any also takes a stop_token"

// Everything that does not depend on the kind of lock.
template <class Self>
class condition_operations {
public:
    condition_operations() noexcept = default;
    ~condition_operations() { destroy_condition(this); }
    condition_operations(const condition_operations&) = delete;
    condition_operations& operator=(const condition_operations&) = delete;

    /// Wakes the waiter that has waited longest. Does nothing if there is none.
    /// Order     What happens before the notification happens before the return of the wait that it ends.
    /// Cost      A load if there is no waiter.
    void notify_one() noexcept { notify_condition(this, false); }
    /// Wakes all waiters.
    void notify_all() noexcept { notify_condition(this, true); }

protected:
    using moment = clock::time_point;
    static constexpr moment never = moment::max();

    static moment after(std::int64_t deadline_ns) noexcept { return moment(clock::duration(deadline_ns)); }

    template <class Lock, class Clock, class Duration>
    cv_status wait_to(Lock& lock, const std::chrono::time_point<Clock, Duration>& t,
        const std::source_location& where) {
        return wait_for_condition_until(this, lock, t, nullptr, where) == wait_outcome::ok ? cv_status::no_timeout
            : cv_status::timeout;
    }
    template <class Lock, class Clock, class Duration, class Predicate>
    bool wait_to(Lock& lock, const std::chrono::time_point<Clock, Duration>& t, Predicate& ready,
        const std::source_location& where) {
        while (!ready()) {
            if (wait_to(lock, t, where) == cv_status::timeout) return static_cast<bool>(ready());
        }
        return true;
    }
    // Throws std::bad_alloc.
    template <class Lock, class Clock, class Duration, class Predicate>
    bool wait_with(Lock& lock, std::stop_token&& token, const std::chrono::time_point<Clock, Duration>& t,
        Predicate& ready,
        const std::source_location& where) {
        if (token.stop_requested()) return static_cast<bool>(ready());
        if (ready()) return true;
        // A std::stop_callback of our own would know only by which thread it is run and destroyed; a context knows
        // goroutines.
        const chan_handle stopped = token.stop_possible() ? make_stop_token_node({}, std::move(token)) : chan_handle();
        do {
            if (wait_for_condition_until(this, lock, t, done_of_node(stopped.core()), where) != wait_outcome::ok) {
                return static_cast<bool>(ready());
            }
        } while (!ready());
        return true;
    }
    template <class Lock>
    void wait_with(Lock& lock, const context& ctx, const std::source_location& where) {
        const wait_limit limit{wait_limit::never, done_channel(ctx)};
        if (wait_for_condition(this, lock, &limit, where) == wait_outcome::cancelled) {
            throw_cancelled(ctx, "condition_variable wait");
        }
    }

private:
    char address_ = 0;  // two condition variables never have the same address
};

}  // namespace detail

/// Works with any lock that has lock() and unlock(): std::mutex, std::unique_lock, dunlin::shared_mutex. From
/// goroutines and plain threads, in any mix.
///
/// It may be destroyed after a notify_all(), or when all waiters have been notified, even before the waits have
/// returned; a context that was given to a wait must live until that wait has returned. There are no spurious wake-ups,
/// except that a wait until a time of another clock than dunlin::clock may return without a time-out when a
/// notification comes as the time does, and that a notification whose waiter gives up before it waits, since
/// lock.unlock() or Clock::now() has thrown, passes to the waiter that has waited longest then. Use a predicate all the
/// same, since a notified waiter does not get the lock at once.
/// Misuse    Destruction while a waiter has not been notified ends the process with a report.
/// Source    sync.Cond for the order, the standard for the interface.
class condition_variable_any : public detail::condition_operations<condition_variable_any> {
public:
    constexpr condition_variable_any() noexcept = default;

    /// Releases `lock`, waits for a notification, and takes the lock again, also when it throws. The waiter is in the
    /// queue before the lock is free: it misses no notification from a party that takes the lock afterwards.
    /// Blocks    The goroutine, never its thread; on a plain thread, that thread. `lock` blocks as its kind does.
    /// Throws    What lock.unlock() throws; then it has not waited. If lock.lock() throws: std::terminate, as in the
    ///           standard.
    template <class Lock>
    void wait(Lock& lock, std::source_location where = std::source_location::current()) {
        detail::wait_for_condition(this, lock, nullptr, where);
    }
    /// Waits until ready() is true; ready() is called with the lock held. Its result is anything that an if can test.
    template <class Lock, class Predicate>
        requires detail::condition<Predicate>
    void wait(Lock& lock, Predicate ready, std::source_location where = std::source_location::current()) {
        while (!ready()) wait(lock, where);
    }
    /// The same until `ctx` is done: throws context_cancelled then, with the lock held. Throws std::bad_alloc.
    template <class Lock>
    void wait(Lock& lock, const context& ctx, std::source_location where = std::source_location::current()) {
        this->wait_with(lock, ctx, where);
    }
    template <class Lock, class Predicate>
        requires detail::condition<Predicate>
    void wait(Lock& lock, const context& ctx, Predicate ready,
        std::source_location where = std::source_location::current()) {
        while (!ready()) this->wait_with(lock, ctx, where);
    }
    /// Waits until `t` at most. Throws std::bad_alloc.
    template <class Lock, class Clock, class Duration>
    cv_status wait_until(Lock& lock, const std::chrono::time_point<Clock, Duration>& t,
        std::source_location where = std::source_location::current()) {
        return this->wait_to(lock, t, where);
    }
    /// The same; returns what ready() returned last.
    template <class Lock, class Clock, class Duration, class Predicate>
        requires detail::condition<Predicate>
    bool wait_until(Lock& lock, const std::chrono::time_point<Clock, Duration>& t, Predicate ready,
        std::source_location where = std::source_location::current()) {
        return this->wait_to(lock, t, ready, where);
    }
    /// Waits for `d` at most. Throws std::bad_alloc.
    template <class Lock, class Rep, class Period>
    cv_status wait_for(Lock& lock, const std::chrono::duration<Rep, Period>& d,
        std::source_location where = std::source_location::current()) {
        return this->wait_to(lock, this->after(detail::deadline_in(d)), where);
    }
    template <class Lock, detail::number N, class... Rest>
    cv_status wait_for(Lock&, N, Rest&&...) {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return {};
    }
    template <class Lock, class Rep, class Period, class Predicate>
        requires detail::condition<Predicate>
    bool wait_for(Lock& lock, const std::chrono::duration<Rep, Period>& d, Predicate ready,
        std::source_location where = std::source_location::current()) {
        return this->wait_to(lock, this->after(detail::deadline_in(d)), ready, where);
    }
    /// Waits until ready() is true, stop is requested, or the time runs out; returns what ready() returned last. Throws
    /// std::bad_alloc.
    template <class Lock, class Predicate>
        requires detail::condition<Predicate>
    bool wait(Lock& lock, std::stop_token token, Predicate ready,
        std::source_location where = std::source_location::current()) {
        return this->wait_with(lock, std::move(token), this->never, ready, where);
    }
    template <class Lock, class Clock, class Duration, class Predicate>
        requires detail::condition<Predicate>
    bool wait_until(Lock& lock, std::stop_token token, const std::chrono::time_point<Clock, Duration>& t,
        Predicate ready,
        std::source_location where = std::source_location::current()) {
        return this->wait_with(lock, std::move(token), t, ready, where);
    }
    template <class Lock, class Rep, class Period, class Predicate>
        requires detail::condition<Predicate>
    bool wait_for(Lock& lock, std::stop_token token, const std::chrono::duration<Rep, Period>& d, Predicate ready,
        std::source_location where = std::source_location::current()) {
        return this->wait_with(lock, std::move(token), this->after(detail::deadline_in(d)), ready, where);
    }
};

/// The same with std::unique_lock<dunlin::mutex> only. Throws std::system_error if the lock is not held.
class condition_variable : public detail::condition_operations<condition_variable> {
public:
    using lock_type = std::unique_lock<mutex>;

    constexpr condition_variable() noexcept = default;

    void wait(lock_type& lock, std::source_location where = std::source_location::current()) {
        detail::wait_for_condition(this, lock, nullptr, where);
    }
    template <detail::condition Predicate>
    void wait(lock_type& lock, Predicate ready, std::source_location where = std::source_location::current()) {
        while (!ready()) wait(lock, where);
    }
    void wait(lock_type& lock, const context& ctx, std::source_location where = std::source_location::current()) {
        wait_with(lock, ctx, where);
    }
    template <detail::condition Predicate>
    void wait(lock_type& lock, const context& ctx, Predicate ready,
        std::source_location where = std::source_location::current()) {
        while (!ready()) wait_with(lock, ctx, where);
    }
    template <class Clock, class Duration>
    cv_status wait_until(lock_type& lock, const std::chrono::time_point<Clock, Duration>& t,
        std::source_location where = std::source_location::current()) {
        return wait_to(lock, t, where);
    }
    template <class Clock, class Duration, detail::condition Predicate>
    bool wait_until(lock_type& lock, const std::chrono::time_point<Clock, Duration>& t, Predicate ready,
        std::source_location where = std::source_location::current()) {
        return wait_to(lock, t, ready, where);
    }
    template <class Rep, class Period>
    cv_status wait_for(lock_type& lock, const std::chrono::duration<Rep, Period>& d,
        std::source_location where = std::source_location::current()) {
        return wait_to(lock, after(detail::deadline_in(d)), where);
    }
    template <detail::number N, class... Rest>
    cv_status wait_for(lock_type&, N, Rest&&...) {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return {};
    }
    template <class Rep, class Period, detail::condition Predicate>
    bool wait_for(lock_type& lock, const std::chrono::duration<Rep, Period>& d, Predicate ready,
        std::source_location where = std::source_location::current()) {
        return wait_to(lock, after(detail::deadline_in(d)), ready, where);
    }

    // Another lock than this one's.
    template <detail::not_its_lock Lock, class... More>
    void wait(Lock&, More&&...) {
        static_assert(detail::always_false<Lock>, DUNLIN_NEEDS_ITS_LOCK);
    }
    template <detail::not_its_lock Lock, class... More>
    cv_status wait_for(Lock&, More&&...) {
        static_assert(detail::always_false<Lock>, DUNLIN_NEEDS_ITS_LOCK);
        return {};
    }
    template <detail::not_its_lock Lock, class... More>
    cv_status wait_until(Lock&, More&&...) {
        static_assert(detail::always_false<Lock>, DUNLIN_NEEDS_ITS_LOCK);
        return {};
    }

    // Other arguments than those of the waits above.
    template <class Never = void>
    void wait(lock_type&, detail::anything, detail::anything = {}, detail::anything = {}) {
        static_assert(detail::always_false<Never>, DUNLIN_NEEDS_ARGUMENTS_OF_A_WAIT);
    }
    template <class Never = void>
    cv_status wait_for(lock_type&, detail::anything, detail::anything = {}, detail::anything = {}) {
        static_assert(detail::always_false<Never>, DUNLIN_NEEDS_ARGUMENTS_OF_A_WAIT);
        return {};
    }
    template <class Never = void>
    cv_status wait_until(lock_type&, detail::anything, detail::anything = {}, detail::anything = {}) {
        static_assert(detail::always_false<Never>, DUNLIN_NEEDS_ARGUMENTS_OF_A_WAIT);
        return {};
    }

    /// As mutex::native_handle().
    void native_handle() = delete;
};

/// When the calling goroutine (on a plain thread, the thread) has ended and its goroutine_local (and thread_local)
/// objects are destroyed, `lock` is released and all waiters of `c` are woken. With the interface of
/// std::notify_all_at_thread_exit. Both `c` and the mutex must live until then.
/// Order     Everything that the goroutine did happens before the return of the waits.
/// Throws    std::system_error if `lock` does not own its mutex; std::bad_alloc. Then the lock is released at once.
DUNLIN_API void notify_all_at_thread_exit(condition_variable& c, std::unique_lock<mutex> lock);

}  // namespace dunlin
