// undisturbed.h - rounds of a test in which nothing took a processor away.
//
// Problem    The kernel may stop a thread at any instruction, for a page fault or because the machine is busy. To the
//            runtime that is a goroutine that blocks or computes: its processor goes to others, as it should. A claim
//            about the order in which goroutines run, or about what stands in a queue while one of them looks at it,
//            then does not hold, and nothing is wrong.
// Protocol   The round changes and asserts nothing but returns what it has found. The runtime counts what it takes,
//            before any thread can see an effect of it. A round in which that count has changed, or in which one time
//            slice may have been over, says nothing: it is made again. What an undisturbed round has found is returned
//            and must be right; that is no second chance for a wrong one.
// Limits     If every round is disturbed the watchdog ends the test.
#pragma once

#include <chrono>
#include <cstdint>
#include <iostream>

#include <dunlin/dunlin.hpp>

#include "sched/data/types.h"

namespace support {

// How often a processor was taken from a thread, since the program began. Not out of stats(), which would walk over all
// goroutines.
inline std::uint64_t processors_taken() {
    const auto& h = dunlin::sched::the_scheduler.hand_offs;
    return h.from_blocking.get() + h.from_blocked.get() + h.from_hogs.get();
}

// On a goroutine. `longest`: 10 ms (the default) if it matters that no slice ends, which lets the queue go before
// run_next.
template <class Round>
auto undisturbed(Round round, std::chrono::nanoseconds longest = std::chrono::milliseconds(10)) {
    for (int disturbed = 0;; ++disturbed) {
        // A new slice begins: the goroutine takes run_next, and this one comes out of the queue.
        dunlin::go([] {});
        const auto begin = dunlin::clock::now();
        dunlin::yield();
        const std::uint64_t taken = processors_taken();
        auto found = round();
        // The clock first: what is taken after the round does not count, what was taken within it has been counted.
        const bool in_time = dunlin::clock::now() - begin < longest;
        if (in_time && processors_taken() == taken) {
            if (disturbed != 0)
                std::cout << "    (" << disturbed << " rounds were disturbed by the machine, and made again)"
                          << std::endl;
            return found;
        }
    }
}

}  // namespace support
