// backend.h - the contract between the netpoller and what tells it that descriptors are ready: epoll today.
//
// Contract   Edges: after a descriptor was added, each change that makes it readable or writable is reported by at
//            least one later event, and its state at the moment of add() by a first one. A needless event is allowed
//            (the reader then finds nothing, and waits again); a missing one is not. One event may report several
//            changes. A tag is the caller's choice; events may still carry the tag of a descriptor that was removed
//            while they were under way.
// Threads    add, remove and interrupt: any thread, at any time. wait() with a deadline: one thread at a time; with
//            do_not_wait: any number beside it.
// Nothing here allocates after the start, touches errno, or knows of goroutines. A second backend (completions of
// io_uring, with a multishot poll for each descriptor) would be another class of these five functions.
#pragma once

#include <cstdint>

#include "sched/data/event_source.h"

namespace dunlin::inline v0_1::netpoll {

// What an event says; bits of sched::polled_event::what.
enum : std::uint32_t {
    readable = 1,     // a read will not block: data, end of file, or an error to fetch
    writable = 2,     // the same for writes
    // end of file or an error may follow what can be read now: a short read is no sign that nothing is left
    peer_closed = 4,
};

class backend {
public:
    virtual ~backend() = default;

    // Returns 0, or errno. EPERM: this kind of file is always ready (regular files), and is not watched.
    virtual int add(int fd, std::uint64_t tag) noexcept = 0;
    // Before the descriptor is closed.
    virtual void remove(int fd) noexcept = 0;

    // Reports at most `capacity` events. Sleeps until there is one, an interrupt, or the deadline (monotonic ns).
    // do_not_wait: never sleeps, and leaves interrupts to the sleeper.
    static constexpr std::int64_t do_not_wait = 0, for_ever = INT64_MAX;
    virtual unsigned wait(sched::polled_event* out, unsigned capacity, std::int64_t deadline_ns) noexcept = 0;

    // Ends the wait under way, or the next one.
    virtual void interrupt() noexcept = 0;
};

}  // namespace dunlin::netpoll
