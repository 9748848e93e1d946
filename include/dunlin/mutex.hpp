// mutex.hpp - mutual exclusion: mutex and recursive_mutex. std::lock_guard, std::unique_lock and std::scoped_lock take
// both.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <source_location>

#include <dunlin/clock.hpp>
#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/wait.hpp>
#include <dunlin/detail/simulated_point.hpp>

namespace dunlin::inline v0_1 {

// std's own types, which work with all locks here: so `dunlin::` can be put for `std::` throughout.
using std::adopt_lock;
using std::adopt_lock_t;
using std::defer_lock;
using std::defer_lock_t;
using std::lock;
using std::lock_guard;
using std::scoped_lock;
using std::try_lock;
using std::try_to_lock;
using std::try_to_lock_t;
using std::unique_lock;

namespace park {
struct lot_node;
class lot_bucket;
class waiter;
}  // namespace park
namespace platform {
class text_writer;
}
namespace detail {
struct mutex_holder;
}

/// A lock that one party at a time can hold, with the interface of std::timed_mutex. From goroutines and plain threads,
/// in any mix.
///
/// It may be destroyed as soon as it is free and has no waiters, even if another party's unlock() has not returned yet.
/// A goroutine other than the one that locked it may unlock it, as in Go.
/// Order     What happens before an unlock happens before the return of the next lock.
/// Fairness  Go's: a caller that is awake may overtake sleeping waiters, until one of them has waited for a
///           millisecond; that one is then handed the lock.
/// Misuse    Ends the process with a report: unlock of an unlocked mutex, lock by its own holder without a
///           limit, destruction while it is locked or waited for (on a plain thread: only if that thread holds it).
/// Cost      To lock a free mutex and unlock it takes one atomic operation and two calls. Figures: docs/benchmarks.md,
///           mutex.
/// Source    sync.Mutex.
class DUNLIN_API mutex {
public:
    constexpr mutex() noexcept = default;
    ~mutex();
    mutex(const mutex&) = delete;
    mutex& operator=(const mutex&) = delete;

    /// Waits until the mutex is free, and takes it.
    /// Blocks    The goroutine, never its thread; on a plain thread, that thread.
    void lock(std::source_location where = std::source_location::current());
    /// The same until `ctx` is done: throws context_cancelled then, and the lock is not taken. Throws std::bad_alloc.
    void lock(const context& ctx, std::source_location where = std::source_location::current()) {
        const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
        if (lock_limited(limit, where) == detail::wait_outcome::cancelled) detail::throw_cancelled(ctx, "mutex lock");
    }
    template <class Rep, class Period>
    void lock(const std::chrono::duration<Rep, Period>&) {
        static_assert(detail::always_false<Rep>, "dunlin: lock(ctx), or try_lock_for(duration)");
    }
    /// Takes it if it is free now.
    bool try_lock() noexcept;
    /// Waits for `d` at most. True if it was taken. Throws std::bad_alloc.
    template <class Rep, class Period>
    bool try_lock_for(
        const std::chrono::duration<Rep, Period>& d, std::source_location where = std::source_location::current()) {
        return lock_if_free() || lock_limited({detail::deadline_in(d), nullptr}, where) == detail::wait_outcome::ok;
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
        return lock_if_free() || detail::wait_on_clock(t, [&](std::int64_t ns) {
            return lock_limited({ns, nullptr}, where) == detail::wait_outcome::ok;
        });
    }
    /// Releases the mutex.
    void unlock();

    /// There is no system handle: waiters stand in the runtime's own queues.
    void native_handle() = delete;

private:
    friend class recursive_mutex;
    friend struct detail::mutex_holder;

    static constexpr std::uint32_t locked = 1, woken = 2;

    bool take() noexcept {
        std::uint32_t word = 0;
        // Acquire pairs with the release of unlock(). On failure as well: see owner_.
        if (word_.compare_exchange_strong(word, locked, std::memory_order_acquire, std::memory_order_acquire)) {
            return true;
        }
        while ((word & locked) == 0) {
            if (word_.compare_exchange_weak(word, word | locked, std::memory_order_acquire,
                std::memory_order_acquire)) {
                return true;
            }
        }
        return false;
    }
    bool take_if_free() noexcept;
    bool lock_if_free() noexcept;
    bool take_as_woken(bool give_up) noexcept;
    bool waiter_is_woken(std::uint32_t word) const noexcept;
    park::lot_node* wake_first(park::lot_bucket& b) noexcept;
    void note_owner(std::uint64_t owner) noexcept;
    bool is_held_by_caller() const noexcept;
    bool spin() noexcept;
    detail::wait_outcome lock_limited(const detail::wait_limit& limit, const std::source_location& where);
    detail::wait_outcome lock_slow(const detail::wait_limit* limit, const std::source_location& where);
    void unlock_watched() noexcept;
    void wait_on_thread(park::waiter& w) const noexcept;
    bool report_lost_holder() const noexcept;
    [[noreturn]] void report_recursion() const noexcept;
    void print_holder(platform::text_writer& out) const noexcept;
    static void look_for_waiters(const void* address) noexcept;

    // locked | a waiter was taken off the queue and told to try, and has not tried yet.
    platform::atomic<std::uint32_t> word_{0};
    platform::atomic<std::uint32_t> woken_in_{0};  // bucket's lock to write: the run in which that was
    // The holder: a goroutine's number, or a plain thread's mark; 0 while the mutex is free. Cleared before the release
    // of word_, so after a failed take() only the holder itself ever reads its own number here.
    platform::atomic<std::uint64_t> owner_{0};
    platform::atomic<std::int64_t> since_ns_{0};  // the holder's; coarse
};

/// std has two types; here every wait for a mutex can have a time limit.
using timed_mutex = mutex;

/// A mutex that its holder may lock again; it is free after as many unlocks. With the interface of
/// std::recursive_timed_mutex. Only the holder may unlock it. Everything else as for mutex.
class DUNLIN_API recursive_mutex {
public:
    constexpr recursive_mutex() noexcept = default;
    recursive_mutex(const recursive_mutex&) = delete;
    recursive_mutex& operator=(const recursive_mutex&) = delete;

    void lock(std::source_location where = std::source_location::current()) {
        if (again()) return;
        mutex_.lock(where);
        depth_ = 1;
    }
    void lock(const context& ctx, std::source_location where = std::source_location::current()) {
        if (again()) return;
        mutex_.lock(ctx, where);
        depth_ = 1;
    }
    bool try_lock() noexcept { return again() || first(mutex_.try_lock()); }
    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period>& d,
        std::source_location where = std::source_location::current()) {
        return again() || first(mutex_.try_lock_for(d, where));
    }
    template <detail::number N>
    bool try_lock_for(N) {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return false;
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration>& t,
        std::source_location where = std::source_location::current()) {
        return again() || first(mutex_.try_lock_until(t, where));
    }
    void unlock();

    /// As mutex::native_handle().
    void native_handle() = delete;

private:
    bool again() noexcept {
        if (!mutex_.is_held_by_caller()) return false;
        ++depth_;
        return true;
    }
    bool first(bool taken) noexcept {
        if (taken) depth_ = 1;
        return taken;
    }

    mutex mutex_;
    std::size_t depth_ = 0;  // the holder's
};

using recursive_timed_mutex = recursive_mutex;

}  // namespace dunlin
