// singleflight.hpp - equal calls at the same time are made once.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include <dunlin/clock.hpp>
#include <dunlin/context.hpp>
#include <dunlin/detail/caught.hpp>
#include <dunlin/detail/helper.hpp>
#include <dunlin/detail/one_shot.hpp>
#include <dunlin/mutex.hpp>
#include <dunlin/task.hpp>

namespace dunlin::inline v0_1 {

namespace detail {

// One call under way, and its result.
template <class T>
struct flight {
    using stored = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

    one_shot landed;
    std::optional<stored> value;  // both: written by the flight's own function before landed.set(), then constant
    std::exception_ptr error;

    // A copy for each waiter.
    T result() const {
        if (error) std::rethrow_exception(error);
        if constexpr (!std::is_void_v<T>) return *value;
    }
};

}  // namespace detail

/// Equal calls at the same time are made once, and all get the result: for a cache that is empty, say, so that a
/// thousand callers with the same key ask the database once. From goroutines and plain threads, in any mix.
///
/// Nothing is kept: the call that begins after the result is there is a new one. A T is copied for each caller.
/// Order     What the function does happens before the return of each call that gets its result.
/// Errors    Each caller gets what the function throws; if it ends by exit_goroutine(), each of the others gets
///           goroutine_exited; if it ends with its plain thread (pthread_exit), std::future_error: broken_promise. A
///           function that calls with its own key is a deadlock.
/// When run() returns, calls that goroutines have begun are stopped with them, and a plain thread that waits for the
/// result of one waits for ever. Those that plain threads have begun go on (unless a goroutine was stopped at the
/// moment at which it looked into the table, whose lock it then keeps).
/// Lifetime  It may be destroyed while calls are under way that it has started in goroutines of their own (see below).
/// Cost      A lock, a look into a hash table and an allocation for a call that is made.
/// Source    golang.org/x/sync/singleflight.
template <class Key, class T, class Hash = std::hash<Key>, class Equal = std::equal_to<Key>>
class singleflight {
    static_assert(std::is_void_v<T> || (std::is_object_v<T> && std::is_copy_constructible_v<T>),
        "dunlin::singleflight: the result is copied for each caller: use a std::shared_ptr for what cannot be copied");

    // Both under the table's lock. The key in the table, not the caller's, which the function may change or destroy;
    // null: it is not there any more.
    struct flight : detail::flight<T> {
        const Key* key = nullptr;
        bool over = false;
    };

public:
    /// Throws std::bad_alloc.
    singleflight() : flights_(std::make_shared<table>()) {}
    singleflight(const singleflight&) = delete;
    singleflight& operator=(const singleflight&) = delete;

    /// Calls f() here and returns its result; or, if a call with this key is under way, waits for that call's result.
    /// Blocks    The goroutine, never its thread; on a plain thread, that thread.
    /// Throws    What f throws; goroutine_exited; std::invalid_argument if f is a null function; std::bad_alloc; what
    ///           copying the key and T throws.
    template <std::invocable F>
    T call(const Key& key, F&& f, std::source_location where = std::source_location::current()) {
        detail::check_function(f, "dunlin::singleflight::call");
        const auto [mine, first] = flights_->join(key);
        if (first) {
            fly(*flights_, mine, std::forward<F>(f));
        } else {
            mine->landed.wait(detail::future_reason, nullptr, where);
        }
        return mine->result();
    }
    /// The same until `ctx` is done: throws context_cancelled then. f runs in a goroutine of its own, and goes on when
    /// callers have given up: so the first caller does not decide for the others. If `ctx` is done already, f is not
    /// started.
    template <class F>
        requires std::invocable<std::decay_t<F>&>
    T call(const Key& key, F&& f, const context& ctx, std::source_location where = std::source_location::current()) {
        const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
        const std::shared_ptr<flight> mine = board(key, std::forward<F>(f), !ctx.is_done());
        if (mine == nullptr || wait(*mine, limit, where) == detail::wait_outcome::cancelled) {
            detail::throw_cancelled(ctx, "singleflight call");
        }
        return mine->result();
    }
    /// The same for `d` at most. False, or nullopt for a T that is not void: the time ran out.
    template <class Rep, class Period, class F>
        requires std::invocable<std::decay_t<F>&>
    auto call_for(const Key& key, const std::chrono::duration<Rep, Period>& d, F&& f,
                  std::source_location where = std::source_location::current()) {
        return call_until(key, clock::time_point(clock::duration(detail::deadline_in(d))), std::forward<F>(f), where);
    }
    template <detail::number N, class... F>
    bool call_for(const Key&, N, F&&...) {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return false;
    }
    // What fits none of the others.
    template <class Never = void>
    T call(const Key&, detail::anything, detail::anything = {}, detail::anything = {}) {
        static_assert(detail::always_false<Never>,
            "dunlin::singleflight::call(key, f), call(key, f, ctx): f() is called without arguments; with a limit: "
            "call_for(key, duration, f)");
        std::abort();
    }
    /// The same until `t`.
    template <class Clock, class Duration, class F>
        requires std::invocable<std::decay_t<F>&>
    auto call_until(const Key& key, const std::chrono::time_point<Clock, Duration>& t, F&& f,
                    std::source_location where = std::source_location::current()) {
        const std::shared_ptr<flight> mine = board(key, std::forward<F>(f), !detail::has_come(t));
        const bool landed = mine != nullptr && detail::wait_on_clock(t, [&](std::int64_t ns) {
            return wait(*mine, {ns, nullptr}, where) == detail::wait_outcome::ok;
        });
        if constexpr (std::is_void_v<T>) {
            if (landed) mine->result();
            return landed;
        } else {
            return landed ? std::optional<T>(mine->result()) : std::nullopt;
        }
    }

    /// The next call with this key calls its function, even if another call is under way. The waiters of that call
    /// still get its result.
    void forget(const Key& key) {
        flights_->forget(key);
    }

private:
    // Shared: calls that have been started may outlive the singleflight.
    struct table {
        mutex lock;
        std::unordered_map<Key, std::shared_ptr<flight>, Hash, Equal> under_way;  // lock

        // The flight with this key, and whether the caller has to make it.
        std::pair<std::shared_ptr<flight>, bool> join(const Key& key) {
            const std::scoped_lock guard(lock);
            auto at = under_way.find(key);
            if (at != under_way.end() && !at->second->over) return {at->second, false};
            auto made = std::make_shared<flight>();
            if (at == under_way.end()) {
                at = under_way.emplace(key, made).first;
            } else {
                at->second->key = nullptr;
                at->second = made;
            }
            made->key = std::addressof(at->first);
            return {made, true};
        }
        std::shared_ptr<flight> find(const Key& key) {
            const std::scoped_lock guard(lock);
            const auto at = under_way.find(key);
            return at != under_way.end() && !at->second->over ? at->second : nullptr;
        }
        void forget(const Key& key) {
            const std::scoped_lock guard(lock);
            const auto at = under_way.find(key);
            if (at == under_way.end()) return;
            at->second->key = nullptr;
            under_way.erase(at);
        }
        void land(const std::shared_ptr<flight>& f) noexcept {
            {
                const std::scoped_lock guard(lock);
                f->over = true;
                try {
                    if (f->key != nullptr) under_way.erase(under_way.find(*f->key));
                } catch (...) {
                    static_cast<void>(detail::caught());  // of the hash: the next call with the key takes its place
                }
            }
            f->landed.set();
        }
    };

    template <class F>
    static void fly(table& flights, const std::shared_ptr<flight>& mine, F&& f) {
        struct landing {
            table& flights;
            const std::shared_ptr<flight>& mine;
            ~landing() { flights.land(mine); }
        } const at_end{flights, mine};
        mine->landed.begin();
        try {
            if constexpr (std::is_void_v<T>) {
                static_cast<void>(std::invoke(f));
                mine->value.emplace();
            } else {
                mine->value.emplace(std::invoke(f));
            }
        } catch (...) {
            detail::keep_caught(mine->error);
        }
    }

    // The flight with this key; if it has to be made, it runs in a goroutine of its own. Null: there is none, and
    // `may_start` is false.
    template <class F>
    std::shared_ptr<flight> board(const Key& key, F&& f, bool may_start) {
        detail::check_function(f, "dunlin::singleflight::call");
        if (!may_start) return flights_->find(key);
        auto [mine, first] = flights_->join(key);
        if (!first) return mine;
        try {
            auto call = [flights = flights_, mine = mine, f = std::decay_t<F>(std::forward<F>(f))]() mutable {
                fly(*flights, mine, f);
            };
            detail::go_for(detail::this_caller(), std::move(call));
        } catch (...) {
            mine->error = std::current_exception();
            flights_->land(mine);
            throw;
        }
        return mine;
    }

    static detail::wait_outcome wait(flight& f, const detail::wait_limit& limit, const std::source_location& where) {
        return f.landed.wait(detail::future_reason, &limit, where);
    }

    std::shared_ptr<table> flights_;
};

}  // namespace dunlin
