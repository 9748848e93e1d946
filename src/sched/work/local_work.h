// local_work.h - what runs next, without leaving the current stack: the first four steps of find_work.cpp.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// The next goroutine of p, or null. Called by a goroutine that is about to leave. Never parks, and never sleeps for
// work; takes the scheduler lock for the global queue.
goroutine* find_local(machine* m, processor* p) noexcept;
// Takes a batch from the global queue: returns the first, and puts the others into p's queue.
goroutine* take_global(processor* p) noexcept;
// Fires p's due timers. True: the world stops.
bool look_around(processor* p) noexcept;
inline constexpr std::uint32_t look_at_events_every = 16;  // a power of two
// Running children in place bypasses find_local(), so a goroutine that does nothing else would starve all others.
// Returns true now and then: park instead, because it is the turn of another goroutine. The global queue has its turn
// only at the end of the slice, not at every 61st tick: each turn of a goroutine from there parks the whole chain of
// goroutines that wait for each other on this stack. If that goroutine is another branch of the same tree, its children
// overflow into the global queue, and so on, until most of the tree waits at the same time (a tree of 10^8 took
// gigabytes).
[[gnu::always_inline]] inline bool must_look_around(processor* p) noexcept {
    if (p->slice.load(std::memory_order_relaxed) != slice_state::goes_on) return true;
    const bool look = p->counts.in_place_joins.get() % look_at_events_every == 0 ||
        p->events_due.load(std::memory_order_relaxed);
    return DUNLIN_UNLIKELY(look) && look_around(p);
}
// True: only p's local queue is to be looked at now, so a goroutine that yields may just change places with the oldest
// there. If true, counts a switch and a tick.
bool may_rotate(processor* p) noexcept;
// Is it the turn of a preempted goroutine on p (preempt.h)? Then find_local() finds nothing.
inline bool turn_of_preempted(const processor* p) noexcept {
    return p->slice.load(std::memory_order_relaxed) == slice_state::preempted_turn;
}
// True: something is due that only find_work() does, on the scheduler's stack; find_local() finds nothing although
// there may be a runnable goroutine.
inline bool find_work_is_due(const processor* p) noexcept { return p->poll_first || turn_of_preempted(p); }

// Fires p's due timers. False: the world stops, and the caller must find no work. `chooses`: the caller is about to
// choose what to run.
bool look_at_events(processor* p, bool chooses) noexcept;
// Fires the due timers of `from`, on m, which is about to choose what to run. Returns how many have fired.
unsigned collect_before_choosing(machine* m, processor* from, std::int64_t now) noexcept;

}  // namespace dunlin::sched
