// waits.h - how long goroutines that could run wait while a processor has nothing to run: G1 of wake.h, measured.
//
// Data       free_clock: time during which at least one processor was idle or searching. A goroutine is stamped with it
//            when it becomes runnable, and the machine that runs it notes the difference. A goroutine is stamped if it
//            becomes runnable in a long turn (turns.h), or if a plain thread, the poller or a timer readies it. Of
//            those that become runnable in short turns, one is stamped every few hundred turns, and counts for all
//            since the last stamp. waits_since_ns, of a goroutine that is runnable, holds two clocks of 32 bits each,
//            in units of 128 ns. The upper one is free_clock, if the goroutine is stamped. The lower one is the
//            monotonic clock, if the goroutine is measured: one in eight is, while runtime::set_wait_histograms() is on
//            (trace.h, Latency). The clocks wrap after four minutes; no goroutine waits that long.
// Protocol   change of idle_and_spinning     settle: the clock must run exactly while the word is not 0; if it does
//            not, switch it by CAS and check again. Each machine that changes the word settles afterwards. So the last
//            machine to change it sees the last state, and the clock is wrong only between a change and its settling.
#pragma once

#include <array>
#include <cstdint>

#include "sched/machines/turns.h"

namespace dunlin::inline v0_1::sched {

// Called after each change of idle_and_spinning that may have changed it from or to 0.
void settle_free_clock_slow() noexcept;
inline void settle_free_clock() noexcept {
    if (turns_matter()) settle_free_clock_slow();
}
std::int64_t free_time_ns() noexcept;

// Called before g is published as runnable: stamps it. It counts for `weight` goroutines.
void stamp_slow(goroutine* g, std::uint64_t weight) noexcept;
inline void stamp(goroutine* g, std::uint64_t weight) noexcept {
    if (turns_matter()) stamp_slow(g, weight);
}
// Called when a stamped goroutine is about to run on p.
void note_wait(processor* p, goroutine* g) noexcept;

inline constexpr std::uint32_t one_in_measured = 8;
// Called before g is published as runnable: begins its measurement.
void begin_latency(goroutine* g) noexcept;
// Called when a measured goroutine is about to run on p, before note_wait().
void note_latency(processor* p, goroutine* g) noexcept;
// Called by p's owner: notes how long p's queue is when a measured goroutine enters it.
void note_queue_length(processor* p) noexcept;

}  // namespace dunlin::sched
