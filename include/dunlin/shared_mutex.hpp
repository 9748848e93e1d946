// shared_mutex.hpp - many readers or one writer.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstdint>
#include <shared_mutex>
#include <source_location>

#include <dunlin/clock.hpp>
#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/wait.hpp>
#include <dunlin/detail/simulated_point.hpp>

namespace dunlin::inline v0_1 {

using std::shared_lock;

/// A lock for many readers or one writer, with the interface of std::shared_timed_mutex. From goroutines and plain
/// threads, in any mix.
///
/// It may be destroyed as soon as it is free and has no waiters, even if another party's unlock has not returned yet.
/// Order     What happens before an unlock() happens before the return of every later lock; what happens before an
///           unlock_shared() happens before the return of every later lock().
/// Fairness  A waiting writer keeps new readers out. When a writer unlocks, all readers waiting at that moment get in
///           before the next writer. So a goroutine that holds it shared must not lock it shared again: with a writer
///           in between, both wait for ever.
/// Misuse    Ends the process with a report: unlocking it when it is not locked in that way, destruction by a
///           goroutine while it is locked or waited for.
/// Cost      One atomic operation for each call while there are no waiters.
/// Source    sync.RWMutex.
class DUNLIN_API shared_mutex {
public:
    constexpr shared_mutex() noexcept = default;
    ~shared_mutex();
    shared_mutex(const shared_mutex&) = delete;
    shared_mutex& operator=(const shared_mutex&) = delete;

    /// Waits until it is free, and takes it. Blocks the goroutine, never its thread; on a plain thread, that thread.
    void lock(std::source_location where = std::source_location::current()) {
        if (!take(detail::free_word())) wait(writer, nullptr, where);
    }
    /// The same until `ctx` is done: throws context_cancelled then. Throws std::bad_alloc.
    void lock(const context& ctx, std::source_location where = std::source_location::current()) {
        const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
        if (wait(writer, &limit, where) == detail::wait_outcome::cancelled) {
            detail::throw_cancelled(ctx, "shared_mutex lock");
        }
    }
    bool try_lock() noexcept { return take(0); }
    /// Waits for `d` at most. True if it was taken. Throws std::bad_alloc.
    template <class Rep, class Period>
    bool try_lock_for(
        const std::chrono::duration<Rep, Period>& d, std::source_location where = std::source_location::current()) {
        return take(detail::free_word()) || wait_until(writer, detail::deadline_in(d), where);
    }
    template <detail::number N>
    bool try_lock_for(N) {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return false;
    }
    /// The same until `t`.
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration>& t,
        std::source_location where = std::source_location::current()) {
        return take(detail::free_word()) ||
               detail::wait_on_clock(t, [&](std::int64_t ns) { return wait_until(writer, ns, where); });
    }
    void unlock() {
        std::uint32_t mine = written;
        if (!word_.compare_exchange_strong(mine, 0, std::memory_order_release, std::memory_order_relaxed)) {
            unlock_slow();
        }
    }

    /// Waits until no writer has it or waits for it, and takes a share. Blocks the goroutine, never its thread; on a
    /// plain thread, that thread.
    void lock_shared(std::source_location where = std::source_location::current()) {
        if (!take_share(detail::most_readers())) wait(reader, nullptr, where);
    }
    /// The same until `ctx` is done: throws context_cancelled then. Throws std::bad_alloc.
    void lock_shared(const context& ctx, std::source_location where = std::source_location::current()) {
        const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
        if (wait(reader, &limit, where) == detail::wait_outcome::cancelled) {
            detail::throw_cancelled(ctx, "shared_mutex lock_shared");
        }
    }
    bool try_lock_shared() noexcept { return take_share(most_readers) || take_share_beside_leftovers(); }
    template <class Rep, class Period>
    bool try_lock_shared_for(
        const std::chrono::duration<Rep, Period>& d, std::source_location where = std::source_location::current()) {
        return take_share(detail::most_readers()) || wait_until(reader, detail::deadline_in(d), where);
    }
    template <detail::number N>
    bool try_lock_shared_for(N) {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return false;
    }
    template <class Clock, class Duration>
    bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration>& t,
        std::source_location where = std::source_location::current()) {
        return take_share(detail::most_readers()) ||
               detail::wait_on_clock(t, [&](std::int64_t ns) { return wait_until(reader, ns, where); });
    }
    void unlock_shared() {
        std::uint32_t word = word_.load(std::memory_order_relaxed);
        // There are no waiters, or other readers remain.
        while ((word & written) == 0 && (word & readers) > ((word & waited) ? 1u : 0u)) {
            if (word_.compare_exchange_weak(word, word - 1, std::memory_order_release, std::memory_order_relaxed)) {
                return;
            }
        }
        unlock_shared_slow();
    }

    /// As mutex::native_handle().
    void native_handle() = delete;

private:
    enum role : bool { reader, writer };

    // word_: a writer has it | there are waiters | how many readers have it
    static constexpr std::uint32_t written = std::uint32_t{1} << 31;
    static constexpr std::uint32_t waited = std::uint32_t{1} << 30;
    static constexpr std::uint32_t readers = waited - 1;
    static constexpr std::uint32_t most_readers = detail::fast_path_bounds{}.most_readers;
    static_assert(most_readers == readers);

    bool take(std::uint32_t free) noexcept {
        return word_.compare_exchange_strong(free, written, std::memory_order_acquire, std::memory_order_relaxed);
    }
    bool take_share(std::uint32_t most) noexcept {
        std::uint32_t word = word_.load(std::memory_order_relaxed);
        while (word < most) {
            if (word_.compare_exchange_weak(word, word + 1, std::memory_order_acquire, std::memory_order_relaxed)) {
                return true;
            }
        }
        return false;
    }
    bool wait_until(role r, std::int64_t deadline_ns, const std::source_location& where) {
        const detail::wait_limit limit{deadline_ns, nullptr};
        return wait(r, &limit, where) == detail::wait_outcome::ok;
    }
    detail::wait_outcome wait(role r, const detail::wait_limit* limit, const std::source_location& where);
    bool take_share_beside_leftovers() noexcept;
    void unlock_slow();
    void unlock_shared_slow();
    struct queue;

    platform::atomic<std::uint32_t> word_{0};
};

using shared_timed_mutex = shared_mutex;

}  // namespace dunlin
