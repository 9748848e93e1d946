// wait_group.hpp - wait for a number of things to be done.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <utility>

#include <dunlin/clock.hpp>
#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/wait.hpp>
#include <dunlin/go.hpp>

namespace dunlin::inline v0_1 {

namespace detail {

// The counter behind wait_group, task_group and latch. One word holds the number of references, whether there are
// waiters, and the number of things not done. The references keep a shared counter alive while a caller is still in
// done(); counters that stand alone do not use them.
class DUNLIN_API group_counter {
public:
    constexpr group_counter() noexcept = default;
    constexpr explicit group_counter(std::uint32_t pending) noexcept : word_(one_reference + pending) {}
    ~group_counter();
    group_counter(const group_counter&) = delete;
    group_counter& operator=(const group_counter&) = delete;

    // Throws std::overflow_error above most_added, std::logic_error below zero. Adding a member needs no check: the
    // other half of the count's range is kept free for members, and there is not memory for that many.
    static constexpr std::uint32_t most_added = INT32_MAX;
    void add(std::int64_t n);
    void add_one() noexcept { word_.fetch_add(1, std::memory_order_relaxed); }
    void add_some(std::uint32_t n) noexcept { word_.fetch_add(n, std::memory_order_relaxed); }  // members as well
    void done() noexcept {
        // The common case; add_slow() says what it pairs with.
        std::uint64_t word = word_.load(std::memory_order_relaxed);
        if ((word & waiting) != 0 || static_cast<std::uint32_t>(word) == 0 ||
            !word_.compare_exchange_strong(word, word - 1, std::memory_order_acq_rel, std::memory_order_relaxed)) {
            add_slow(-1, "");
        }
    }
    // `negative` begins the text of the std::logic_error that is thrown if the counter would fall below zero.
    void subtract(std::int64_t n, const char* negative) { add_slow(-n, negative); }
    void wait(unsigned char reason, bool in_place, std::source_location where) noexcept;
    // throws std::bad_alloc
    wait_outcome wait_limited(const wait_limit& limit, unsigned char reason, std::source_location where);
    std::uint32_t pending() const noexcept { return static_cast<std::uint32_t>(word_.load(std::memory_order_acquire)); }

    // For a shared counter on the heap.
    static group_counter* make();
    void reference() noexcept { word_.fetch_add(one_reference, std::memory_order_relaxed); }
    void release() noexcept;
    // Adds a member that holds a reference, both in one step.
    void add_member() noexcept { word_.fetch_add(one_reference + 1, std::memory_order_relaxed); }
    void member_done() noexcept {
        // The common case: neither the last thing counted while there are waiters, nor the last reference, nor counted
        // down too often.
        std::uint64_t word = word_.load(std::memory_order_relaxed);
        if ((word & waiting) != 0 || static_cast<std::uint32_t>(word) == 0 || word >> reference_shift == 1 ||
            !word_.compare_exchange_strong(word, word - one_reference - 1, std::memory_order_acq_rel,
                std::memory_order_relaxed)) {
            member_done_slow();
        }
    }

private:
    static constexpr unsigned reference_shift = 33;
    static constexpr std::uint64_t waiting = std::uint64_t{1} << 32;
    static constexpr std::uint64_t one_reference = std::uint64_t{1} << reference_shift;

    void add_slow(std::int64_t n, const char* negative);
    void member_done_slow() noexcept;
    bool finish(std::int64_t n) noexcept;
    wait_outcome wait_in_queue(const wait_limit* limit, unsigned char reason, const std::source_location& where);

    platform::atomic<std::uint64_t> word_{one_reference};
};

// Values of sched::wait_reason; checked in src/sync/group_counter.cpp.
inline constexpr unsigned char wait_group_reason = 5;
inline constexpr unsigned char latch_reason = 19;

DUNLIN_API void check_count(const char* what, std::int64_t n, std::int64_t most);  // throws std::invalid_argument

// The beginning of the storage of a group's member: the address of its group, plus one. No callable of a program begins
// like this, so reports can tell members from other goroutines (src/observe/wait_graph.cpp). The member's end clears
// it, since the storage is used again.
template <class Group>
class member_mark {
public:
    explicit member_mark(Group* g) noexcept : raw_(reinterpret_cast<std::uintptr_t>(g) + 1) {}
    ~member_mark() { raw_.store(0, std::memory_order_relaxed); }
    member_mark(const member_mark&) = delete;
    member_mark& operator=(const member_mark&) = delete;
    Group* group() const noexcept { return reinterpret_cast<Group*>(raw_.load(std::memory_order_relaxed) - 1); }

private:
    platform::atomic<std::uintptr_t> raw_;
};

struct shared_member_guard {
    group_counter* counter;
    ~shared_member_guard() { counter->member_done(); }
};

}  // namespace detail

/// A counter that can be waited for until it is zero (Go's sync.WaitGroup). Copies share the counter and every
/// call is const, so goroutines may capture it by value.
///
/// From goroutines and plain threads, in any mix. An add() from zero must happen before the wait() that it concerns.
class DUNLIN_API wait_group {
public:
    /// Throws std::bad_alloc.
    wait_group() : counter_(detail::group_counter::make()) {}
    wait_group(const wait_group& other) noexcept : counter_(other.counter_) { counter_->reference(); }
    wait_group(wait_group&& other) noexcept : wait_group(static_cast<const wait_group&>(other)) {}
    wait_group& operator=(wait_group other) noexcept {
        std::swap(counter_, other.counter_);
        return *this;
    }
    ~wait_group() { counter_->release(); }

    /// Adds n, which may be negative. Reaching zero wakes all waiters.
    /// Throws std::logic_error "negative wait_group counter" if it would fall below zero, std::overflow_error if it
    /// would pass INT32_MAX (Go's limit); then the counter is unchanged.
    /// Order     What happens before an add that brings the counter to zero happens before the return of the waits that
    ///           it ends.
    void add(int n = 1) const { counter_->add(n); }
    /// add(-1).
    void done() const { counter_->add(-1); }

    /// Waits until the counter is zero. Goroutines started by go() that have not begun run here, on the caller's stack,
    /// when they are the youngest in this processor's queue.
    /// Blocks    The goroutine; on a plain thread, that thread.
    void wait(std::source_location where = std::source_location::current()) const noexcept {
        counter_->wait(detail::wait_group_reason, true, where);
    }
    /// The same until `ctx` is done: throws context_cancelled then. Nothing runs here, so that it can return in time.
    /// Throws std::bad_alloc.
    void wait(const context& ctx, std::source_location where = std::source_location::current()) const {
        const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
        if (counter_->wait_limited(limit, detail::wait_group_reason, where) == detail::wait_outcome::cancelled) {
            detail::throw_cancelled(ctx, "wait_group wait");
        }
    }
    template <class Rep, class Period>
    void wait(const std::chrono::duration<Rep, Period>&) const {
        static_assert(detail::always_false<Rep>, "dunlin: wait(ctx), or wait_for(duration)");
    }
    /// Waits for `d` at most. True if the counter is zero. Throws std::bad_alloc.
    template <class Rep, class Period>
    bool wait_for(const std::chrono::duration<Rep, Period>& d,
        std::source_location where = std::source_location::current()) const {
        return counter_->wait_limited({detail::deadline_in(d), nullptr}, detail::wait_group_reason,
            where) == detail::wait_outcome::ok;
    }
    template <detail::number N>
    bool wait_for(N) const {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return false;
    }
    template <class Clock, class Duration>
    bool wait_until(const std::chrono::time_point<Clock, Duration>& t,
        std::source_location where = std::source_location::current()) const {
        return detail::wait_on_clock(
            t, [&](std::int64_t ns) { return counter_->wait_limited({ns, nullptr}, detail::wait_group_reason,
                where) == detail::wait_outcome::ok; });
    }

    /// Adds one, starts a goroutine that runs f() and then does done(). As dunlin::go() otherwise: an exception that
    /// leaves f ends the process. May be called by a member while another goroutine waits.
    template <detail::not_options F>
    void go(F&& f, std::source_location where = std::source_location::current()) const {
        static_assert(detail::fits<F>, DUNLIN_DOES_NOT_FIT);
        if constexpr (detail::fits<F>) start(nullptr, where, std::forward<F>(f));
    }
    template <class F>
    void go(const go_options& options, F&& f, std::source_location where = std::source_location::current()) const {
        static_assert(detail::fits<F>, DUNLIN_DOES_NOT_FIT);
        if constexpr (detail::fits<F>) start(&options, where, std::forward<F>(f));
    }
    template <detail::not_options F, class Arg, class... Args>
        requires(!std::same_as<std::decay_t<Arg>, std::source_location>)
    [[gnu::always_inline]] void go(F&& f, Arg&& arg, Args&&... args) const {
        static_assert(detail::fits<F, Arg, Args...>, DUNLIN_DOES_NOT_FIT);
        if constexpr (detail::fits<F, Arg, Args...>) {
            start(nullptr, std::source_location(), std::forward<F>(f), std::forward<Arg>(arg),
                std::forward<Args>(args)...);
        }
    }
    template <class F, class Arg, class... Args>
        requires(!std::same_as<std::decay_t<Arg>, std::source_location>)
    [[gnu::always_inline]] void go(const go_options& options, F&& f, Arg&& arg, Args&&... args) const {
        static_assert(detail::fits<F, Arg, Args...>, DUNLIN_DOES_NOT_FIT);
        if constexpr (detail::fits<F, Arg, Args...>) {
            start(&options, std::source_location(), std::forward<F>(f), std::forward<Arg>(arg),
                std::forward<Args>(args)...);
        }
    }
    void go(detail::overloaded_function, ...) const;  // say which one: a lambda that calls it, or a cast; not defined

private:
    template <class F, class... Args>
    [[gnu::always_inline]] void start(
        const go_options* options, std::source_location where, F&& f, Args&&... args) const {
        using call = detail::call_of<F, Args...>;
        struct member {
            detail::member_mark<detail::group_counter> of;
            call run;
            member(detail::group_counter* c, F&& fn, Args&&... values) : of(c),
                run(std::in_place, std::forward<F>(fn), std::forward<Args>(values)...) {}
            static void entry(void* raw) {
                detail::shared_member_guard leave{static_cast<member*>(raw)->of.group()};
                detail::destroy_at_exit<member> guard{static_cast<member*>(raw)};
                static_cast<void>(static_cast<member*>(raw)->run());
            }
        };
        detail::check_function(f, "dunlin::wait_group::go");
        counter_->add_member();
        try {
            detail::launch<member>(options, where, detail::end_kind::detached, counter_, member::entry, counter_,
                std::forward<F>(f),
                                   std::forward<Args>(args)...);
        } catch (...) {
            counter_->member_done();
            throw;
        }
    }

    detail::group_counter* counter_;
};

}  // namespace dunlin
