// task_set.hpp - goroutines that belong together, and their results as they end.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <dunlin/condition_variable.hpp>
#include <dunlin/context.hpp>
#include <dunlin/mutex.hpp>
#include <dunlin/detail/caught.hpp>
#include <dunlin/task.hpp>

#define DUNLIN_IS_NO_RESULT_OF_THE_SET \
    "dunlin::task_set: what the function returns cannot become the set's result type"

namespace dunlin::inline v0_1 {

/// Goroutines that belong together. Their results come in the order in which they end: the fastest first, and each
/// exception by itself. T may be move-only; task_set<void> gives bool for "one has ended".
///
/// From goroutines and plain threads, all members at any time; several callers may take results, and each gets
/// different ones. The destructor waits for all members, and drops the results that were not taken.
/// Order     What a member's function did happens before the return of the next() that gets its result. What the
///           function has captured, and the member's goroutine_local objects, may be destroyed after that.
/// Errors    An exception of a member comes out of the next() that takes it; it does not stop the others; cancel() does
///           that. (In a task_group the first one cancels.)
/// Cost      That of a task_group's member, an allocation for the result, and a lock.
/// Source    tokio::task::JoinSet.
template <class T>
class task_set {
    using stored = std::conditional_t<std::is_void_v<T>, std::monostate, T>;
    static_assert(std::is_void_v<T> || (std::is_object_v<T> && std::is_move_constructible_v<T>),
        "the result of a task_set's members is void or an object that can be moved: use a pointer for a reference");

public:
    /// What next() returns: the result, or nullopt if there is none; for void a bool.
    using result = std::conditional_t<std::is_void_v<T>, bool, std::optional<stored>>;

    task_set() = default;
    /// The set's context is derived from `parent`.
    explicit task_set(const dunlin::context& parent) : members_(parent) {}
    task_set(const task_set&) = delete;
    task_set& operator=(const task_set&) = delete;
    /// As ~task_group().
    ~task_set() = default;

    /// Starts a member. With a limit it waits for a place, see task_group::set_limit(): members that run hold places;
    /// results that wait to be taken do not.
    template <detail::not_options_nor_context F, class... Args>
    void go(F&& f, Args&&... args) {
        static_assert(detail::fits<F, Args...>, DUNLIN_DOES_NOT_FIT);
        static_assert(has_result<F, Args...>, DUNLIN_IS_NO_RESULT_OF_THE_SET);
        if constexpr (detail::fits<F, Args...> && has_result<F, Args...>) {
            begin([&](auto&& call) { members_.go(std::move(call)); }, std::forward<F>(f), std::forward<Args>(args)...);
        }
    }
    void go(detail::overloaded_function, ...);  // say which one: a lambda that calls it, or a cast; not defined
    /// The same if there is a place now. False: nothing was started, but f and its arguments have been copied or moved
    /// from.
    template <class F, class... Args>
    bool try_go(F&& f, Args&&... args) {
        static_assert(detail::fits<F, Args...>, DUNLIN_DOES_NOT_FIT);
        static_assert(has_result<F, Args...>, DUNLIN_IS_NO_RESULT_OF_THE_SET);
        bool started = false;
        if constexpr (detail::fits<F, Args...> && has_result<F, Args...>) {
            begin([&](auto&& call) { started = members_.try_go(std::move(call)); }, std::forward<F>(f),
                std::forward<Args>(args)...);
        }
        return started;
    }
    /// go(); the wait for a place ends when `ctx` is done, with context_cancelled.
    template <class F, class... Args>
    void go(const dunlin::context& ctx, F&& f, Args&&... args) {
        static_assert(detail::fits<F, Args...>, DUNLIN_DOES_NOT_FIT);
        static_assert(has_result<F, Args...>, DUNLIN_IS_NO_RESULT_OF_THE_SET);
        if constexpr (detail::fits<F, Args...> && has_result<F, Args...>) {
            begin([&](auto&& call) { members_.go(ctx, std::move(call)); }, std::forward<F>(f),
                std::forward<Args>(args)...);
        }
    }
    /// As task_group::set_limit(). Results that have not been taken do not count as members.
    void set_limit(std::size_t n) {
        // Under the lock to its end: a member that begins, or waits for its place, is counted here first.
        std::unique_lock lock(mutex_);
        while (running_ == 0 && members_.members_.pending() != 0) {  // short: they are at their very end
            lock.unlock();
            members_.wait();
            lock.lock();
        }
        if (running_ != 0 && n != 0) {
            throw std::logic_error("dunlin::task_set::set_limit: the set has " + std::to_string(running_) +
                                   " members: call it before go()");
        }
        members_.set_limit(n);
    }

    /// Returns the result of the member that ended first among those whose results have not been taken; waits for one
    /// to end. nullopt (false) when there are neither members nor results.
    /// Blocks    The goroutine, never its thread; on a plain thread, that thread.
    /// Throws    What the member threw; goroutine_exited if it ended by exit_goroutine(). The result is taken then.
    result next(std::source_location where = std::source_location::current()) {
        std::unique_lock lock(mutex_);
        while (!ready()) ended_.wait(lock, where);
        return take(lock);
    }
    /// The same until `ctx` is done: throws context_cancelled then, and no result was taken. A result that is there is
    /// taken even then.
    result next(const dunlin::context& ctx, std::source_location where = std::source_location::current()) {
        std::unique_lock lock(mutex_);
        ended_.wait(lock, ctx, [this] { return ready(); }, where);
        return take(lock);
    }
    template <class Rep, class Period>
    result next(const std::chrono::duration<Rep, Period>&) {
        static_assert(detail::always_false<Rep>, "dunlin: next(ctx), or next_for(duration)");
        return result();
    }
    /// The same for `d` at most. nullopt (false) after that time; empty() says whether there is anything to wait for.
    template <class Rep, class Period>
    result next_for(const std::chrono::duration<Rep, Period>& d,
                    std::source_location where = std::source_location::current()) {
        std::unique_lock lock(mutex_);
        if (!ended_.wait_for(lock, d, [this] { return ready(); }, where)) return result();
        return take(lock);
    }
    template <detail::number N>
    result next_for(N) {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return result();
    }
    /// The same until `t`.
    template <class Clock, class Duration>
    result next_until(const std::chrono::time_point<Clock, Duration>& t,
                      std::source_location where = std::source_location::current()) {
        std::unique_lock lock(mutex_);
        if (!ended_.wait_until(lock, t, [this] { return ready(); }, where)) return result();
        return take(lock);
    }
    /// The same without waiting: only if a member has ended.
    result try_next() {
        std::unique_lock lock(mutex_);
        if (outcomes_.first == nullptr) return result();
        return take(lock);
    }

    /// How many members run and how many results have not been taken, together.
    std::size_t size() const {
        const std::scoped_lock lock(mutex_);
        return running_ + results_;
    }
    bool empty() const { return size() == 0; }

    /// Cancelled by cancel(), and with the parent. Members look at it.
    dunlin::context context() const { return members_.context(); }
    /// Asks the members to stop.
    void cancel() const { members_.cancel(); }

private:
    template <class F, class... Args>
    static constexpr bool has_result = [] {
        if constexpr (!detail::fits<F, Args...>) {
            return true;  // that is said of it first
        } else {
            using returned = std::invoke_result_t<std::decay_t<F>, std::decay_t<Args>...>;
            return std::is_void_v<T> || std::is_constructible_v<stored, returned>;
        }
    }();

    struct outcome {
        std::exception_ptr error;
        std::optional<stored> value;
        std::unique_ptr<outcome> next;
    };
    // Destroyed one by one: each outcome that destroyed the next one would take a frame of the stack.
    struct outcomes {
        std::unique_ptr<outcome> first;

        outcomes() = default;
        outcomes(const outcomes&) = delete;
        outcomes& operator=(const outcomes&) = delete;
        ~outcomes() {
            while (first != nullptr) first = std::move(first->next);
        }
    };

    // Starts a member by start(call). If it throws, there is no member.
    template <class Start, class F, class... Args>
    void begin(Start start, F&& f, Args&&... args) {
        detail::check_function(f, "dunlin::task_set::go");
        struct member {
            task_set* set;
            detail::call_of<F, Args...> run;  // its move may throw: before `mine`, which then stays where it counts
            std::unique_ptr<outcome> mine;

            member(task_set* s, F&& fn, Args&&... values)
                : set(s),
                  run(std::in_place, std::forward<F>(fn), std::forward<Args>(values)...),
                  mine(std::make_unique<outcome>()) {
                set->one_more();
            }
            member(member&& other) : set(other.set), run(std::move(other.run)), mine(std::move(other.mine)) {}
            // It was neither started nor moved on: it counts no more.
            ~member() {
                if (mine != nullptr) set->one_less();
            }
            void operator()() {
                std::unique_ptr<outcome> to = std::move(mine);
                struct ending {
                    task_set* set;
                    std::unique_ptr<outcome>& to;
                    ~ending() { set->one_ended(std::move(to)); }
                } const at_end{set, to};
                try {
                    if constexpr (std::is_void_v<T>) {
                        static_cast<void>(run());
                        to->value.emplace();
                    } else {
                        to->value.emplace(run());
                    }
                } catch (...) {
                    to->error = detail::caught();
                }
            }
        };
        start(member(this, std::forward<F>(f), std::forward<Args>(args)...));
    }

    void one_more() {
        const std::scoped_lock lock(mutex_);
        ++running_;
    }
    void one_less() {
        const std::scoped_lock lock(mutex_);
        if (--running_ == 0) ended_.notify_all();
    }
    void one_ended(std::unique_ptr<outcome> o) {
        const std::scoped_lock lock(mutex_);
        outcome* const last = o.get();
        (last_ != nullptr ? last_->next : outcomes_.first) = std::move(o);
        last_ = last;
        ++results_;
        // The last member also ends the waits of callers that no result is left for.
        --running_ == 0 ? ended_.notify_all() : ended_.notify_one();
    }

    // Under the lock.
    bool ready() const noexcept { return outcomes_.first != nullptr || running_ == 0; }
    result take(std::unique_lock<mutex>& lock) {
        std::unique_ptr<outcome>& first = outcomes_.first;
        if (first == nullptr) return result();
        const std::unique_ptr<outcome> o = std::move(first);
        first = std::move(o->next);
        if (first == nullptr) last_ = nullptr;
        --results_;
        lock.unlock();
        if (o->error) std::rethrow_exception(o->error);
        if (!o->value) throw goroutine_exited();
        if constexpr (std::is_void_v<T>) {
            return true;
        } else {
            return std::move(o->value);
        }
    }

    mutable mutex mutex_;
    condition_variable ended_;
    outcomes outcomes_;               // mutex_: in the order in which the members ended
    outcome* last_ = nullptr;         // mutex_
    std::size_t running_ = 0;         // mutex_
    std::size_t results_ = 0;         // mutex_
    task_group members_;              // last: its destructor waits for the members, which use the rest
};

}  // namespace dunlin
