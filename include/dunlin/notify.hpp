// notify.hpp - tell others that something has happened, without a value.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <source_location>
#include <variant>

#include <dunlin/chan.hpp>

namespace dunlin::inline v0_1 {

namespace detail {

// Gives a value to each receiver that waits on `c`, whose elements are std::monostate; none is stored.
// src/sync/notify.cpp
DUNLIN_API void serve_all_receivers(chan_core* c) noexcept;

}  // namespace detail

/// Tells waiters that something has happened; what it is, they look up themselves. It holds one permit at most, and
/// begins without one. A counted handle: copies refer to the same object. From goroutines and plain threads, in any
/// mix.
///
/// Use       Change the state first, then call notify_one(). The waiter: `while (!ready()) n.wait();`. No change is
///           missed, since a notify_one() that finds no waiter leaves its permit to the next wait(). Several such calls
///           leave one permit: a waiter must look for everything that there is to do.
/// Order     What happens before a notify happens before the return of the waits that it ends.
/// Select    on_recv(n.channel(), handler).
/// Cost      That of a buffered channel: one lock, no allocation.
/// Source    tokio::sync::Notify. Differs: waiting begins with the call of wait(), not when a future is made.
class notify {
public:
    /// Throws std::bad_alloc.
    notify() : permit_(1) {}

    /// Wakes the waiter that has waited longest; if there is none, the permit is stored. Does not block.
    void notify_one() const noexcept { permit_.try_send(std::monostate()); }
    /// Wakes all that wait now. Nothing is stored: a later wait() waits. Does not block.
    void notify_waiters() const noexcept {
        if (detail::chan_core* core = detail::handle_access::core(permit_)) detail::serve_all_receivers(core);
    }

    /// Takes the permit, waiting until there is one, or until it is woken.
    /// Blocks    The goroutine, never its thread; on a plain thread, that thread.
    void wait(std::source_location where = std::source_location::current()) const { permit_.recv(where); }
    /// The same until `ctx` is done: throws context_cancelled then. A permit that is there is taken even then.
    void wait(const context& ctx, std::source_location where = std::source_location::current()) const {
        permit_.recv(ctx, where);
    }
    template <class Rep, class Period>
    void wait(const std::chrono::duration<Rep, Period>&) const {
        static_assert(detail::always_false<Rep>, "dunlin: wait(ctx), or wait_for(duration)");
    }
    /// The same for `d` at most. False: the time ran out, and no permit was taken. Throws std::bad_alloc.
    template <class Rep, class Period>
    bool wait_for(const std::chrono::duration<Rep, Period>& d,
                  std::source_location where = std::source_location::current()) const {
        return permit_.recv_for(d, where).has_value();
    }
    template <detail::number N>
    bool wait_for(N) const {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return false;
    }
    /// The same until `t`.
    template <class Clock, class Duration>
    bool wait_until(const std::chrono::time_point<Clock, Duration>& t,
                    std::source_location where = std::source_location::current()) const {
        return permit_.recv_until(t, where).has_value();
    }
    /// Takes the permit if it is there now.
    bool try_wait() const noexcept { return permit_.try_recv().has_value(); }

    /// The channel that wait() receives from, for select(). A receive from it takes the permit.
    receiver<std::monostate> channel() const noexcept { return permit_; }

    /// Whether both are the same object.
    friend bool operator==(const notify& a, const notify& b) noexcept { return a.permit_ == b.permit_; }

private:
    chan<std::monostate> permit_;
};

}  // namespace dunlin
