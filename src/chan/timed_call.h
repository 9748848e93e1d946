// timed_call.h - what the end of a run() asks about goroutines of timers.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::detail {

// g was started by a timer that a plain thread has set: it does not end with the run().
bool timed_call_outlives_run(const sched::goroutine* g) noexcept;

}  // namespace dunlin::detail
