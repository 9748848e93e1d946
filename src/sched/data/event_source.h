// event_source.h - what the scheduler needs from the sources that make goroutines runnable from outside: timers and
// descriptors.
//
// The scheduler knows nothing about timers and sockets: runtime.cpp wires one object in.
// Pollers    A machine that has run out of work, before it steals (poll). Of the machines that go to sleep, the first
//            that finds the poller unclaimed (wait, deliver), so that one thread sleeps for all timers and
//            descriptors. The monitor, if no machine has polled
//            since its last round (poll); and, while every processor is stuck, in place of the machine that would sleep
//            (wait, deliver).
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::sched {

struct processor;

// What the kernel reports about one descriptor: src/poll/.
struct polled_event {
    std::uint64_t tag;
    std::uint32_t what;
};

struct event_batch {
    static constexpr unsigned capacity = 128;
    unsigned count = 0;
    polled_event events[capacity];
};

struct event_source {
    virtual ~event_source() = default;

    // Makes what this source keeps per processor; called once per processor, before it runs.
    virtual void* make_events() = 0;

    // Fires events of `p` that are due at `now_ns`, the earliest first, and not many in one call: next_deadline() tells
    // whether there are more. Goroutines become runnable on the calling machine's processor. Returns how many events
    // have fired. The caller is inside the runtime with a processor, which need not be `p`.
    virtual unsigned collect(processor* p, std::int64_t now_ns) noexcept = 0;

    // The earliest deadline among p's events; 0: none. Any thread, no lock; a change under way may be missing. The
    // thread that makes this change looks afterwards whether a machine sleeps past the deadline (timer_added() of
    // event_notice.h).
    virtual std::int64_t next_deadline(const processor* p) const noexcept = 0;

    // `from` goes away; its events belong to `to` from now on. The world is stopped.
    virtual void move(processor* from, processor* to) noexcept = 0;

    // Is there a waiter for a descriptor? Seq_cst: a thread outside the scheduler that begins to wait looks afterwards
    // whether a machine sleeps in the poller (waiter_added() there).
    virtual bool has_waiters() const noexcept = 0;

    // Readies the goroutines that wait for a descriptor that is ready now: on the calling machine's processor, else
    // (the monitor) in the global queue. Returns how many. Never sleeps.
    virtual unsigned poll() noexcept = 0;

    // Sleeps until interrupted, until a descriptor is ready, or until the deadline (0: none) has passed. One thread at
    // a time, without a processor. The caller passes what it has found to deliver() afterwards, when it may have a
    // processor; deliver() readies the goroutines as poll() does.
    virtual void wait(std::int64_t deadline_ns, event_batch& found) noexcept = 0;
    virtual unsigned deliver(const event_batch& found) noexcept = 0;
    virtual void interrupt() noexcept = 0;

    // Forgets every event of goroutines of a run() that has returned. The world is stopped.
    virtual void forget_all() noexcept = 0;
    // Called by the thread maker, since it may wait and free memory. Goroutines of a run() that has returned were lost
    // only now: they had blocked in the kernel, or were where they must not be stopped. Leaves the fd mutexes of the
    // descriptors where they are in, for which others may wait.
    virtual void forget_lost() noexcept = 0;
};

}  // namespace dunlin::sched
