// event_source.h - what the scheduler asks of those who make goroutines ready from outside: timers now, descriptors later.
//
// The scheduler knows nothing of timers and sockets. runtime.cpp wires one object in; simulation will wire another.
#pragma once

#include <cstdint>

namespace dunlin::sched {

struct processor;

struct event_source {
    virtual ~event_source() = default;

    // Makes what this source keeps per processor; called once per processor, before it runs.
    virtual void* make_events() = 0;

    // Readies, on the calling machine's processor, whatever of `p`'s events is due at `now_ns`. Returns how many. The caller is inside the
    // runtime with a processor, which need not be `p`.
    virtual unsigned collect(processor* p, std::int64_t now_ns) noexcept = 0;

    // The earliest deadline among p's events; 0: none. Any thread, no lock; may be stale by one change under way, whose author then
    // looks at who sleeps (timer_added, below).
    virtual std::int64_t next_deadline(const processor* p) const noexcept = 0;

    // `from` goes away: its events are `to`'s from now on. The world is stopped.
    virtual void move(processor* from, processor* to) noexcept = 0;

    // Sleeps until interrupted, an event is there, or the deadline (0: none) has passed. Only one thread at a time; without a processor.
    virtual void wait(std::int64_t deadline_ns) noexcept = 0;
    virtual void interrupt() noexcept = 0;

    // Forgets every event of goroutines of a run() that has returned. The world is stopped.
    virtual void forget_all() noexcept = 0;
};

// The earliest deadline of all processors; 0: none.
std::int64_t earliest_deadline() noexcept;

// To be called after an event with this deadline was added: whoever sleeps for the events must not sleep past it. Inside or outside the runtime.
void timer_added(std::int64_t when_ns) noexcept;

}  // namespace dunlin::sched
