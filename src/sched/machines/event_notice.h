// event_notice.h - what a thread says that brings an event for which a machine may sleep too long: an earlier timer,
// the first waiter for a descriptor. The protocol is sleep_for_events() of work/find_work.cpp.
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::sched {

// The earliest deadline of all processors; 0: none.
std::int64_t earliest_deadline() noexcept;

// To be called after an event with this deadline was added: the machine that sleeps for the events must not sleep past
// it. Inside or outside the runtime.
void timer_added(std::int64_t when_ns) noexcept;

// To be called by a plain thread that has become the first to wait for a descriptor: a machine must sleep in the
// poller.
void waiter_added() noexcept;

}  // namespace dunlin::sched
