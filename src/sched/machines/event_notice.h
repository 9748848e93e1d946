// event_notice.h - what a thread says that brings an event for which a machine may sleep too long: an earlier timer,
// the first waiter for a descriptor. The protocol is sleep_for_events() of work/find_work.cpp.
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::sched {

// The earliest deadline of all processors; 0: none.
std::int64_t earliest_deadline() noexcept;

// Called after an event with this deadline was added: sees to it that no machine sleeps past it. Inside or outside the
// runtime.
void timer_added(std::int64_t when_ns) noexcept;

// Called by a plain thread that has become the first to wait for a descriptor: sees to it that a machine sleeps in the
// poller.
void waiter_added() noexcept;

}  // namespace dunlin::sched
