// task.hpp - goroutines that are waited for: task<T> and task_group.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <dunlin/context.hpp>
#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/caught.hpp>
#include <dunlin/go.hpp>
#include <dunlin/wait_group.hpp>
#include <dunlin/weighted_semaphore.hpp>

namespace dunlin::inline v0_1 {

namespace detail {

// join() until `limit`. Throws std::bad_alloc.
DUNLIN_API wait_outcome join_limited(goroutine_handle* g, const wait_limit& limit, std::source_location where);
// g will not be joined: its end starts `heir`, a goroutine that is made already, at `entry`. False: g has ended
// already.
DUNLIN_API bool leave_to_heir(goroutine_handle* g, new_goroutine heir, void (*entry)(void*)) noexcept;

}  // namespace detail

/// What task<T>::get(), future<T>::get() and their like throw when the goroutine ended by exit_goroutine() and so has
/// no result.
class DUNLIN_API goroutine_exited : public std::runtime_error {
public:
    goroutine_exited() : std::runtime_error("dunlin: no result: the goroutine ended by exit_goroutine()") {}
    ~goroutine_exited() override;
};

namespace detail {

template <class T>
struct task_result {
    std::exception_ptr error;
    std::optional<T> value;

    template <class Call>
    void run(Call& call) {
        value.emplace(call());
    }
    T take() {
        if (error) std::rethrow_exception(std::move(error));
        if (!value) throw goroutine_exited();
        return std::move(*value);
    }
};

template <class T>
struct task_result<T&> {
    std::exception_ptr error;
    T* value = nullptr;

    template <class Call>
    void run(Call& call) {
        value = std::addressof(call());
    }
    T& take() {
        if (error) std::rethrow_exception(std::move(error));
        if (!value) throw goroutine_exited();
        return *value;
    }
};

template <>
struct task_result<void> {
    std::exception_ptr error;

    template <class Call>
    void run(Call& call) {
        static_cast<void>(call());
    }
    void take() {
        if (error) std::rethrow_exception(std::move(error));
    }
};

// In the goroutine's own storage: first the result, which outlives the call.
template <class T, class Call>
struct task_frame {
    task_result<T> result;
    union {
        Call call;
    };

    template <class... Values>
    explicit task_frame(std::in_place_t, Values&&... values) : call(std::in_place, std::forward<Values>(values)...) {}
    ~task_frame() {}  // the goroutine destroys the call; if it never ran, the call stays undestroyed

    static void entry(void* raw) {
        task_frame& frame = *static_cast<task_frame*>(raw);
        destroy_at_exit<Call> guard{std::addressof(frame.call)};
        try {
            frame.result.run(frame.call);
        } catch (...) {
            frame.result.error = caught();
        }
    }
};

}  // namespace detail

/// A goroutine and its result. Move-only; the destructor waits for the goroutine, as std::jthread's does.
///
/// One thread or goroutine at a time may use a task object.
template <class T>
class [[nodiscard("the destructor of a task waits for its goroutine; one that goes on by itself: dunlin::go()")]] task {
public:
    /// Holds nothing.
    task() noexcept = default;
    task(task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), result_(other.result_) {}
    task& operator=(task&& other) noexcept {
        if (this != &other) {
            finish();
            handle_ = std::exchange(other.handle_, nullptr);
            result_ = other.result_;
        }
        return *this;
    }
    /// Waits until the goroutine has ended; a result or exception that was not taken is dropped.
    ~task() { finish(); }

    /// Waits until the goroutine has ended and returns its result or rethrows its exception. Once; the task holds
    /// nothing afterwards.
    ///
    /// Blocks    The goroutine (on a plain thread, that thread). If the child has not begun and is the youngest in
    ///           this processor's queue, it runs right here, on the caller's stack, without a switch.
    /// Order     Everything the goroutine did happens before the return.
    /// Throws    What the goroutine threw; goroutine_exited (not for T = void: there the goroutine has just ended);
    ///           std::logic_error if the task holds nothing.
    T get(std::source_location where = std::source_location::current()) {
        require("get");
        detail::join(handle_, where);
        struct releaser {
            task& t;
            ~releaser() { t.release(); }
        } guard{*this};
        return result_->take();
    }

    /// Waits until the goroutine has ended; the result stays. Throws std::logic_error if the task holds nothing.
    void wait(std::source_location where = std::source_location::current()) const {
        require("wait");
        detail::join(handle_, where);
    }

    /// get() and wait() until `ctx` is done: they throw context_cancelled then, and the task still holds the goroutine.
    /// Nothing runs here. Throws std::bad_alloc as well.
    T get(const context& ctx, std::source_location where = std::source_location::current()) {
        wait(ctx, where);
        return get(where);
    }
    void wait(const context& ctx, std::source_location where = std::source_location::current()) const {
        require("wait");
        const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
        if (detail::join_limited(handle_, limit, where) == detail::wait_outcome::cancelled) {
            detail::throw_cancelled(ctx, "task wait");
        }
    }
    template <class Rep, class Period>
    T get(const std::chrono::duration<Rep, Period>&) {
        static_assert(detail::always_false<Rep>, "dunlin: get(ctx), or wait_for(duration) and then get()");
    }
    template <class Rep, class Period>
    void wait(const std::chrono::duration<Rep, Period>&) const {
        static_assert(detail::always_false<Rep>, "dunlin: wait(ctx), or wait_for(duration)");
    }
    /// wait() for `d` at most. True if the goroutine has ended.
    template <class Rep, class Period>
    bool wait_for(const std::chrono::duration<Rep, Period>& d,
        std::source_location where = std::source_location::current()) const {
        require("wait_for");
        return detail::join_limited(handle_, {detail::deadline_in(d), nullptr}, where) == detail::wait_outcome::ok;
    }
    template <detail::number N>
    bool wait_for(N) const {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return false;
    }
    template <class Clock, class Duration>
    bool wait_until(const std::chrono::time_point<Clock, Duration>& t,
        std::source_location where = std::source_location::current()) const {
        require("wait_until");
        return detail::wait_on_clock(
            t, [&](std::int64_t ns) { return detail::join_limited(handle_, {ns, nullptr},
                where) == detail::wait_outcome::ok; });
    }

    /// Lets go of the goroutine, which goes on by itself; the task holds nothing afterwards. When it ends, a goroutine
    /// made for this drops its result or exception.
    /// Blocks    Nothing.
    /// Throws    std::logic_error if the task holds nothing; std::bad_alloc: then the task still holds the goroutine.
    void detach(std::source_location where = std::source_location::current()) {
        require("detach");
        struct heir {
            detail::goroutine_handle* handle;
            detail::task_result<T>* result;
            static void entry(void* raw) {
                const heir mine = *static_cast<heir*>(raw);
                std::destroy_at(mine.result);
                detail::release(mine.handle);
            }
        };
        const detail::new_goroutine n = detail::make(sizeof(heir), alignof(heir), nullptr, where);
        ::new (n.frame) heir{handle_, result_};
        if (detail::leave_to_heir(handle_, n, heir::entry)) {
            handle_ = nullptr;
        } else {
            detail::discard(n);
            release();
        }
    }

    /// Whether it has ended. Throws std::logic_error if the task holds nothing.
    bool done() const {
        require("done");
        return detail::has_ended(handle_);
    }

    /// Whether it holds a goroutine.
    bool valid() const noexcept { return handle_ != nullptr; }
    bool joinable() const noexcept { return valid(); }
    /// The goroutine's number; 0 if it holds none.
    std::uint64_t id() const noexcept { return handle_ ? detail::id_of(handle_) : 0; }

private:
    template <class R, class F, class... Args>
    friend task<R> detail_spawn(const go_options* options, std::source_location where, F&& f, Args&&... args);

    task(detail::goroutine_handle* handle, detail::task_result<T>* result) noexcept : handle_(handle),
        result_(result) {}

    void require(const char* operation) const {
        if (!handle_) {
            throw std::logic_error(std::string("dunlin::task::") + operation
                + ": the task holds no goroutine (moved from, or get() was called)");
        }
    }
    void release() noexcept {
        std::destroy_at(result_);
        detail::release(std::exchange(handle_, nullptr));
    }
    void finish() noexcept {
        if (!handle_) return;
        detail::join(handle_, std::source_location::current());
        release();
    }

    detail::goroutine_handle* handle_ = nullptr;
    detail::task_result<T>* result_ = nullptr;
};

template <class R, class F, class... Args>
[[gnu::always_inline]] inline task<R> detail_spawn(const go_options* options, std::source_location where, F&& f,
    Args&&... args) {
    using frame = detail::task_frame<R, detail::call_of<F, Args...>>;
    detail::check_function(f, "dunlin::spawn");
    const detail::new_goroutine n =
        detail::launch<frame>(options, where, detail::end_kind::joinable, nullptr, frame::entry, std::in_place,
                                                          std::forward<F>(f), std::forward<Args>(args)...);
    return task<R>(n.g, std::addressof(static_cast<frame*>(n.frame)->result));
}

/// Starts a goroutine that runs f(args...) and whose result can be taken. Otherwise as go(), but an exception goes to
/// the caller of get().
/// Cost      About 10 ns, and 10 more for get() when the child runs in place. Figures: docs/benchmarks.md, spawn-join,
///           fib.
template <detail::not_options F>
auto spawn(F&& f, std::source_location where = std::source_location::current()) {
    static_assert(detail::fits<F>, DUNLIN_DOES_NOT_FIT);
    if constexpr (detail::fits<F>) {
        return detail_spawn<std::invoke_result_t<std::decay_t<F>>>(nullptr, where, std::forward<F>(f));
    } else {
        return task<void>();
    }
}

template <detail::not_options F, class Arg, class... Args>
    requires(!std::same_as<std::decay_t<Arg>, std::source_location>)
[[gnu::always_inline]] inline auto spawn(F&& f, Arg&& arg, Args&&... args) {
    static_assert(detail::fits<F, Arg, Args...>, DUNLIN_DOES_NOT_FIT);
    if constexpr (detail::fits<F, Arg, Args...>) {
        return detail_spawn<std::invoke_result_t<std::decay_t<F>, std::decay_t<Arg>, std::decay_t<Args>...>>(
            nullptr, std::source_location(), std::forward<F>(f), std::forward<Arg>(arg), std::forward<Args>(args)...);
    } else {
        return task<void>();
    }
}

template <class F>
auto spawn(const go_options& options, F&& f, std::source_location where = std::source_location::current()) {
    static_assert(detail::fits<F>, DUNLIN_DOES_NOT_FIT);
    if constexpr (detail::fits<F>) {
        return detail_spawn<std::invoke_result_t<std::decay_t<F>>>(&options, where, std::forward<F>(f));
    } else {
        return task<void>();
    }
}

template <class F, class Arg, class... Args>
    requires(!std::same_as<std::decay_t<Arg>, std::source_location>)
[[gnu::always_inline]] inline auto spawn(const go_options& options, F&& f, Arg&& arg, Args&&... args) {
    static_assert(detail::fits<F, Arg, Args...>, DUNLIN_DOES_NOT_FIT);
    if constexpr (detail::fits<F, Arg, Args...>) {
        return detail_spawn<std::invoke_result_t<std::decay_t<F>, std::decay_t<Arg>, std::decay_t<Args>...>>(
            &options, std::source_location(), std::forward<F>(f), std::forward<Arg>(arg), std::forward<Args>(args)...);
    } else {
        return task<void>();
    }
}

// The name of an overloaded function is ambiguous: pass a lambda that calls it, or a cast. Not defined.
task<void> spawn(detail::overloaded_function, ...);

template <class T>
class task_set;

namespace detail {
template <class F>
concept not_options_nor_context = not_options<F> && !std::convertible_to<F, const context&>;
}

/// Goroutines that belong together: wait() returns when all have ended, and rethrows the first exception that one of
/// them threw.
///
/// The first exception also cancels the group's context, so that members which look at it (`ctx = group.context()`) can
/// stop early. go() may be called from anywhere while wait() waits, above all by the members themselves; cancel() and
/// context() at any time, also during a wait(). Only one wait() or destructor at a time. With set_limit(), go() waits
/// for a place, and wait() for that go() and its member; a member that calls go() of its own group keeps its place
/// meanwhile. For results as the members end, use task_set.
class DUNLIN_API task_group {
public:
    task_group() noexcept = default;
    /// The group's context is derived from `parent`.
    explicit task_group(const dunlin::context& parent);
    template <std::integral N>
    explicit task_group(N) {
        static_assert(detail::always_false<N>, "dunlin::task_group: a limit is set by set_limit(n)");
    }
    task_group(const task_group&) = delete;
    task_group& operator=(const task_group&) = delete;
    /// Waits for all; an exception that no wait() has rethrown is dropped. If an exception leaves the group's scope,
    /// cancels the members first: a scope that is left early needs their results no more.
    ~task_group();

    /// Starts a member. As dunlin::go() otherwise.
    template <detail::not_options_nor_context F, class... Args>
    [[gnu::always_inline]] void go(F&& f, Args&&... args) {
        static_assert(detail::fits<F, Args...>, DUNLIN_DOES_NOT_FIT);
        if constexpr (detail::fits<F, Args...>) start(nullptr, std::forward<F>(f), std::forward<Args>(args)...);
    }
    template <class F, class... Args>
    [[gnu::always_inline]] void go(const go_options& options, F&& f, Args&&... args) {
        static_assert(detail::fits<F, Args...>, DUNLIN_DOES_NOT_FIT);
        if constexpr (detail::fits<F, Args...>) start(&options, std::forward<F>(f), std::forward<Args>(args)...);
    }
    /// Starts n members that run f(0) to f(n - 1), each with its own copy of f: n calls of go(), but counted and
    /// published once, and one thread woken at most. With set_limit() they are started one after the other, as places
    /// become free.
    /// Blocks    Nothing; with a limit the goroutine (on a plain thread, that thread).
    /// Throws    std::bad_alloc, and what copying f throws: then no member has been started (with a limit: those before
    ///           it have been). Whatever go() throws.
    template <class F>
    [[gnu::always_inline]] void go_n(std::size_t n, const F& f) {
        static_assert(detail::fits<const F&, std::size_t>, DUNLIN_DOES_NOT_FIT);
        if constexpr (detail::fits<const F&, std::size_t>) {
            detail::check_function(f, "dunlin::task_group::go_n");
            if (places_ != nullptr) [[unlikely]] {
                for (std::size_t i = 0; i < n; ++i) start(nullptr, f, i);
                return;
            }
            using body = member<detail::call_of<const F&, std::size_t>>;
            static_assert(alignof(body) <= detail::strictest_frame,
                "a goroutine's function may be aligned to 64 bytes at most: put the object behind a std::unique_ptr");
            made_members<body> made;
            for (std::size_t i = 0; i < n; ++i) {
                const detail::new_goroutine g =
                    detail::make(sizeof(body), alignof(body), nullptr, std::source_location());
                try {
                    ::new (g.frame) body(this, f, i);
                } catch (...) {
                    detail::discard(g);
                    throw;
                }
                detail::add_to(made.list, g, body::entry, &members_);
            }
            members_.add_some(static_cast<std::uint32_t>(n));
            detail::start_all(std::exchange(made.list, {}));
        }
    }
    void go(detail::overloaded_function, ...);  // say which one: a lambda that calls it, or a cast; not defined

    /// Starts a member if that is possible without waiting for a place. False: f was not touched.
    template <class F, class... Args>
    bool try_go(F&& f, Args&&... args) {
        static_assert(detail::fits<F, Args...>, DUNLIN_DOES_NOT_FIT);
        counted one(this);
        if (places_ != nullptr && !places_->try_acquire()) return false;
        one.has_place();
        if constexpr (detail::fits<F, Args...>) {
            start_in_place(nullptr, std::forward<F>(f), std::forward<Args>(args)...);
        }
        return true;
    }
    /// go(); the wait for a place ends when `ctx` is done, with context_cancelled; then f was not touched. Throws
    /// std::bad_alloc as well.
    template <class F, class... Args>
    void go(const dunlin::context& ctx, F&& f, Args&&... args) {
        static_assert(detail::fits<F, Args...>, DUNLIN_DOES_NOT_FIT);
        counted one(this);
        if (places_ != nullptr) places_->acquire(ctx);
        one.has_place();
        if constexpr (detail::fits<F, Args...>) {
            start_in_place(nullptr, std::forward<F>(f), std::forward<Args>(args)...);
        }
    }
    /// The same; the wait ends after `d`. Then it returns false, and f was not touched.
    template <class Rep, class Period, class F, class... Args>
    bool try_go_for(const std::chrono::duration<Rep, Period>& d, F&& f, Args&&... args) {
        static_assert(detail::fits<F, Args...>, DUNLIN_DOES_NOT_FIT);
        counted one(this);
        if (places_ != nullptr && !places_->try_acquire_for(d)) return false;
        one.has_place();
        if constexpr (detail::fits<F, Args...>) {
            start_in_place(nullptr, std::forward<F>(f), std::forward<Args>(args)...);
        }
        return true;
    }
    template <detail::number N, class... More>
    bool try_go_for(N, More&&...) {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return false;
    }
    /// The same; the wait ends at `t`.
    template <class Clock, class Duration, class F, class... Args>
    bool try_go_until(const std::chrono::time_point<Clock, Duration>& t, F&& f, Args&&... args) {
        static_assert(detail::fits<F, Args...>, DUNLIN_DOES_NOT_FIT);
        counted one(this);
        if (places_ != nullptr && !places_->try_acquire_until(t)) return false;
        one.has_place();
        if constexpr (detail::fits<F, Args...>) {
            start_in_place(nullptr, std::forward<F>(f), std::forward<Args>(args)...);
        }
        return true;
    }

    /// At most n members at a time: go() waits until one has ended. no_limit: any number.
    /// Throws    std::invalid_argument if n is 0; std::logic_error while the group has members; std::bad_alloc.
    void set_limit(std::size_t n);
    static constexpr std::size_t no_limit = static_cast<std::size_t>(-1);

    /// Waits until every member has ended. Members that have not begun run here, on the caller's stack, when they are
    /// the youngest in the queue.
    /// Blocks    The goroutine (on a plain thread, that thread).
    /// Order     Everything the members did happens before the return.
    /// Throws    The first exception that a member threw, after all have ended. The group can be used again then.
    void wait(std::source_location where = std::source_location::current());

    /// wait() until `ctx` is done: throws context_cancelled then, while members may go on. Nothing runs here. Throws
    /// std::bad_alloc as well.
    void wait(const dunlin::context& ctx, std::source_location where = std::source_location::current());
    template <class Rep, class Period>
    void wait(const std::chrono::duration<Rep, Period>&) {
        static_assert(detail::always_false<Rep>, "dunlin: wait(ctx), with a context of dunlin::with_timeout()");
    }

    /// The group's context: cancelled when a member throws (cause() is its exception), by cancel(), and with the
    /// parent. After a wait() that has rethrown, it is a new context. Declared in dunlin/context.hpp. Throws
    /// std::bad_alloc.
    dunlin::context context() const;
    /// Asks the members to stop.
    void cancel() const;

private:
    template <class T>
    friend class task_set;

    template <class F, class... Args>
    [[gnu::always_inline]] void start(const go_options* options, F&& f, Args&&... args) {
        counted one(this);
        if (places_ != nullptr) [[unlikely]] {
            places_->acquire();
        }
        one.has_place();
        start_in_place(options, std::forward<F>(f), std::forward<Args>(args)...);
    }
    // A member is counted before it asks for its place: wait() must not return past a call that waits for one, since
    // that call uses the group afterwards. If it does not get its place, it counts no more.
    class counted {
    public:
        explicit counted(task_group* g) noexcept : counter_(&g->members_) { counter_->add_one(); }
        counted(const counted&) = delete;
        counted& operator=(const counted&) = delete;
        ~counted() {
            if (counter_ != nullptr) counter_->done();
        }
        void has_place() noexcept { counter_ = nullptr; }

    private:
        detail::group_counter* counter_;
    };
    // Ends a member, after its function and its destructors. If there is a limit, the member has a place.
    struct member_guard {
        task_group* group;
        ~member_guard() {
            if (group->places_ != nullptr) [[unlikely]] {
                group->places_->release();
            }
            group->members_.done();
        }
    };
    // What a member runs. It lies in the goroutine's own storage.
    template <class Call>
    struct member {
        detail::member_mark<task_group> of;  // the group's address is that of members_
        Call run;
        template <class... Values>
        explicit member(task_group* g, Values&&... values) : of(g),
            run(std::in_place, std::forward<Values>(values)...) {}
        static void entry(void* raw) {
            task_group* group = static_cast<member*>(raw)->of.group();
            member_guard leave{group};
            detail::destroy_at_exit<member> guard{static_cast<member*>(raw)};
            try {
                static_cast<void>(static_cast<member*>(raw)->run());
            } catch (...) {
                group->failed(detail::caught());
            }
        }
    };
    // Members that are made and not yet started. Those that are left are destroyed; they never ran.
    template <class Body>
    struct made_members {
        detail::new_goroutines list;
        ~made_members() {
            while (list.count != 0) {
                const detail::new_goroutine n = detail::take_off(list);
                static_cast<Body*>(n.frame)->~Body();
                detail::discard(n);
            }
        }
    };
    // The member has been counted, and has its place.
    template <class F, class... Args>
    [[gnu::always_inline]] void start_in_place(const go_options* options, F&& f, Args&&... args) {
        using body = member<detail::call_of<F, Args...>>;
        try {
            detail::check_function(f, "dunlin::task_group::go");
            detail::launch<body>(options, std::source_location(), detail::end_kind::detached, &members_, body::entry,
                this, std::forward<F>(f),
                                   std::forward<Args>(args)...);
        } catch (...) {
            const member_guard not_started{this};
            throw;
        }
    }
    void failed(std::exception_ptr error) noexcept;
    void rethrow();
    struct locked;

    detail::group_counter members_;
    // lock_ to write; wait() reads it when all members have ended
    platform::atomic<bool> has_error_{false};
    alignas(4) mutable unsigned char lock_[8] = {};          // platform::futex_lock: src/sync/task_group.cpp
    std::exception_ptr error_;                               // lock_: the first
    std::unique_ptr<weighted_semaphore> places_;             // changes while no member is counted; null: no limit
    detail::chan_core* parent_ = nullptr;                    // constant; counted
    mutable detail::chan_core* context_ = nullptr;           // lock_; counted; made when it is asked for
    const int exceptions_ = std::uncaught_exceptions();      // where the group was made
};

}  // namespace dunlin
