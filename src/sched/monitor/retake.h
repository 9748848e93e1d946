// retake.h - the monitor looks at every processor, and moves those that are of no use where they are.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

inline constexpr std::int64_t shortest_look_ns = 1'000'000;
// CPU time that tells a thread that computes from one that makes calls
inline constexpr std::int64_t computing_ns = 200'000;
// after a stop was refused, at a place where the goroutine must not be stopped
inline constexpr std::int64_t stop_again_ns = 500'000;
// for a thread that sleeps inside the runtime, perhaps for a lock that a preempted goroutine holds
inline constexpr std::int64_t runtime_patience_ns = 10'000'000;

// What the monitor has found in this round.
struct outlook {
    std::int64_t now_ns = 0;
    std::uint32_t runnable = 0;     // goroutines in queues, roughly
    std::uint32_t preempted = 0;
    bool work_waits = false;    // goroutines in queues or preempted, or timers that are due; and no processor is
                                    // idle
    bool urgent = false;            // work was brought from outside, or a poll found some, while all processors were
                                    // stuck
    bool effect = false;            // something was done: the next round comes soon
    bool on_loan = false;           // a processor was lent, and its new machine polls descriptors
    bool turn_is_due = false;       // preempted goroutines' share of the time is due, and no processor was told
    bool stuck = false;             // a processor makes no progress although goroutines wait: the next round comes soon
    bool only_hogs = false;         // no processor makes progress, only preempted goroutines wait for one, and no
                                    // goroutine computes without a processor
    std::int64_t look_again_ns = 0; // when the next slice ends, also a short one, or a deadline comes for which no
                                    // machine sleeps; 0: no such time

    void look_again_at(std::int64_t when_ns) noexcept {
        if (look_again_ns == 0 || when_ns < look_again_ns) look_again_ns = when_ns;
    }
};

// One look at every processor: slices, blocking calls, threads that sleep in the kernel, goroutines that compute.
void look_at_processors(outlook& o) noexcept;

}  // namespace dunlin::sched
