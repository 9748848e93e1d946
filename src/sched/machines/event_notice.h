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

}  // namespace dunlin::sched
