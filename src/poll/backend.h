// backend.h - the contract between the netpoller and its source of readiness events: epoll today.
//
// Contract   Edges: after add(), a first event reports the descriptor's state at that moment, and at least one later
//            event reports each change that makes it readable or writable. A needless event is allowed (the reader then
//            finds nothing, and waits again); a missing one is not. One event may report several changes. The caller
//            chooses the tag; an event under way may still carry the tag of a descriptor that has been removed
//            meanwhile.
// Threads    add, remove and interrupt: any thread, at any time. wait() with a deadline: one thread at a time; with
//            do_not_wait: any number besides that one.
// Nothing here allocates after the start, touches errno, or knows of goroutines. A second backend (completions of
// io_uring, with a multishot poll for each descriptor) would be another class with these four functions.
#pragma once

#include <cstdint>

#include "sched/data/event_source.h"

namespace dunlin::inline v0_1::netpoll {

// The meaning of an event: bits of sched::polled_event::what.
enum : std::uint32_t {
    readable = 1,     // a read will not block: data, end of file, or an error to fetch
    writable = 2,     // the same for writes
    // end of file or an error may follow the data: a short read does not prove that nothing is left
    peer_closed = 4,
};

class backend {
public:
    virtual ~backend() = default;

    // Returns 0, or errno. EPERM: this kind of file is always ready (regular files), and is not watched.
    virtual int add(int fd, std::uint64_t tag) noexcept = 0;
    // Called before the descriptor is closed.
    virtual void remove(int fd) noexcept = 0;

    // Reports at most `capacity` events. Sleeps until there is one, an interrupt, or the deadline (monotonic ns).
    // do_not_wait: never sleeps, and leaves interrupts to the sleeper.
    static constexpr std::int64_t do_not_wait = 0, for_ever = INT64_MAX;
    virtual unsigned wait(sched::polled_event* out, unsigned capacity, std::int64_t deadline_ns) noexcept = 0;

    // Ends the wait under way, or the next one.
    virtual void interrupt() noexcept = 0;
};

}  // namespace dunlin::netpoll
