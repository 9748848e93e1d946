// lookup.h - questions to the system's resolver: how many at a time, and which caller waits for which.
//
// Problem    getaddrinfo() blocks its thread while a name server does not answer, for half a minute and more, and
//            cannot be stopped. Callers with a limit give up earlier; their look-ups go on, and must not obstruct later
//            callers.
// Data       Two tables for each run(), for hosts and for ports. A flight is one question that is being asked; it has
//            waiters, and usually a place. A table has `places` places.
// Protocol   caller                                             flight, when its answer is there
//            1  an equal flight: join it, go to 5               1  answer, `done`
//            2  wait for a place, within its limit              2  close `over`
//            3  an equal flight by now: place back, join it     3  off the table; place back
//            4  the flight begins, in a goroutine of its own if the caller has a limit, else here
//            5  wait for `over`, within its limit
//            When its last waiter leaves, a flight gives its place back. It still occupies its thread, so at most
//            `most_unwanted` flights may do this; any further one keeps its place. It can still be joined.
// End of run A flight that a goroutine of the run asks is frozen, and never answers. Plain threads may wait for it:
//            end_of_run() wakes these (`lost`), and they ask again in the next table. A flight that a plain thread
//            asks, or an independent goroutine, goes on.
// Lock       A table's lock is held only within a runtime section, so that no holder is frozen; nothing is allocated or
//            freed under it.
// Source     Go: net/lookup.go (singleflight.Group, merged look-ups), net/cgo_unix.go and net.go (threadLimit, 500 at a
//            time).
// Tests      tests/net/resolve_test.cpp
#pragma once

#include <string>
#include <system_error>
#include <vector>

#include <dunlin/net.hpp>

#include "net/socket.h"

namespace dunlin::inline v0_1::net {

struct question {
    int family, type;
    bool passive;
    std::string host, port;
    int flags = 0;  // AI_NUMERICHOST and the like, in addition to those that the others imply
    friend bool operator==(const question&, const question&) = default;
};

struct answer {
    std::vector<address> addresses;
    std::error_code error;
};

// Blocks the thread.
answer ask_the_system(const question& q);

// Blocks the goroutine. `limit` may be null.
answer look_up(const question& q, const wait_limit* limit);

}  // namespace dunlin::net
