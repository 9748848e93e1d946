// processor_time.h - where the time of processors went: idle, stopped with the world, or busy (the rest).
//
// Data       idle_since_ns and idle_ns of each processor; scheduler::time (counters.h).
// Cost       One reading of the clock when a processor becomes idle, and one when it gets work.
// Source     Go's /cpu/classes and /sched/pauses (go1.24, src/runtime/metrics/description.go).
// Tests      tests/runtime/metrics_test.cpp
#pragma once

#include <cstdint>

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// All of these under the scheduler lock. p enters the idle list, or leaves it.
void begin_idle(processor* p) noexcept;
void end_idle(processor* p) noexcept;
// Up to now: how long p has been idle; the sum over all processors of the time for which they have existed, and of the
// time for which they were stopped with the world.
std::int64_t idle_time_ns(const processor* p, std::int64_t now) noexcept;
std::int64_t all_time_ns(std::int64_t now) noexcept;
std::int64_t stopped_time_ns(std::int64_t now) noexcept;
// max_procs is about to be changed, while the world is stopped.
void note_time_of_procs(std::int64_t now) noexcept;

// Called by the thread that stops the world and holds the world's lock: when it requests the stop, when all processors
// are stopped, and when they go on (the last one under the scheduler lock, too).
void note_stop_wanted() noexcept;
void note_stopped() noexcept;
void note_started() noexcept;

}  // namespace dunlin::sched
