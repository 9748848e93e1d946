// waits.h - how long goroutines that could run wait while a processor has nothing to run: W1 of wake.h, measured.
//
// Data       free_clock: time during which at least one processor was idle or searching. A goroutine is stamped with it
//            when it becomes runnable, and the machine that runs it notes the difference. Stamped are those that become
//            runnable in a long turn (turns.h), those that plain threads, the poller and timers bring, and of those
//            that become runnable in short turns one at each look; it counts for all of them since the last one.
//            waits_since_ns, of a goroutine that is runnable, holds two clocks of 32 bits each, in units of 128 ns.
//            The upper one is free_clock, if the goroutine is stamped. The lower one is the monotonic clock, if it is
//            measured: while runtime::set_wait_histograms() is on, one in eight is (trace.h, Latency). No goroutine
//            waits for the four minutes after which the clocks wrap.
// Protocol   change of idle_and_spinning     settle: is the clock's state the word's? If not, CAS it, and look again.
//            Each machine that changes the word settles afterwards, so the last one to change it sees the last state,
//            and the clock is wrong for the time between only.
#pragma once

#include <array>
#include <cstdint>

#include "sched/machines/turns.h"

namespace dunlin::inline v0_1::sched {

// After each change of idle_and_spinning that may have been the first or the last.
void settle_free_clock_slow() noexcept;
inline void settle_free_clock() noexcept {
    if (turns_matter()) settle_free_clock_slow();
}
std::int64_t free_time_ns() noexcept;

// g becomes runnable and stands for `weight` of them. Before it is published.
void stamp_slow(goroutine* g, std::uint64_t weight) noexcept;
inline void stamp(goroutine* g, std::uint64_t weight) noexcept {
    if (turns_matter()) stamp_slow(g, weight);
}
// A stamped goroutine is about to run on p.
void note_wait(processor* p, goroutine* g) noexcept;

inline constexpr std::uint32_t one_in_measured = 8;
// g becomes runnable and is measured. Before it is published.
void begin_latency(goroutine* g) noexcept;
// A measured goroutine is about to run on p; before note_wait().
void note_latency(processor* p, goroutine* g) noexcept;
// p's owner: what is measured finds p's queue as it is.
void note_queue_length(processor* p) noexcept;

}  // namespace dunlin::sched
