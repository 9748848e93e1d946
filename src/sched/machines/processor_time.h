// processor_time.h - what the time of processors went to: idle, stopped with the world, or busy (all that is left).
//
// Data       idle_since_ns and idle_ns of each processor; scheduler::time (counters.h).
// Cost       One reading of the clock when a processor becomes idle, and one when it gets work.
// Source     Go's /cpu/classes and /sched/pauses (go1.24, src/runtime/metrics/description.go).
// Tests      tests/runtime/metrics_test.cpp
#pragma once

#include <cstdint>

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// All of these under the scheduler lock. p enters the idle list, or leaves it:
void begin_idle(processor* p) noexcept;
void end_idle(processor* p) noexcept;
// Up to now: how long p has been idle; the sum of the times for which processors have existed, and of the times for
// which they stood with the world.
std::int64_t idle_time_ns(const processor* p, std::int64_t now) noexcept;
std::int64_t all_time_ns(std::int64_t now) noexcept;
std::int64_t stopped_time_ns(std::int64_t now) noexcept;
// max_procs is about to be changed, while the world is stopped.
void note_time_of_procs(std::int64_t now) noexcept;

// These three by the thread that stops the world and holds its lock: when it wants the stop, when everything stands,
// and when all go on (this last one under the scheduler lock, too).
void note_stop_wanted() noexcept;
void note_stopped() noexcept;
void note_started() noexcept;

}  // namespace dunlin::sched
