// event_notice.h - called by a thread that adds an event for which a machine may sleep too long: an earlier timer, a
// plain thread's wait for a descriptor. The protocol is sleep_for_events() of work/find_work.cpp.
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::sched {

// The earliest deadline of all processors; 0: none.
std::int64_t earliest_deadline() noexcept;

// Called after an event with this deadline was added, inside or outside the runtime: ensures that no machine sleeps
// past it.
void timer_added(std::int64_t when_ns) noexcept;

// Called by a plain thread that has begun to wait for a descriptor: if no thread sleeps in the poller and a processor
// is idle, wakes a machine, which polls.
void waiter_added() noexcept;

// True: a deadline or a descriptor is waited for, and no thread sleeps in the poller. While a processor is idle, that
// is so only for moments, except that a machine which leaves the poller with events in hand sends no other thread there
// (wake.h, Left out).
bool events_are_unwatched() noexcept;

// R2 and R3 of wake.h, and the wake of a machine that sleeps in the poller, on behalf of a thread that has made a
// processor idle but cannot search or sleep there itself.
void retired_for_another() noexcept;

}  // namespace dunlin::sched
