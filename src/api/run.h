// run.h - run(): what it shares with the end of its main goroutine and with the start of the runtime.
#pragma once

#include "platform/lock.h"
#include "sched/data/types.h"

namespace dunlin::inline v0_1::api {

// Held at the start of the runtime, and at the beginning and end of run().
DUNLIN_HIDDEN extern platform::ranked_lock<platform::lock_rank::start> start_lock;

// hooks.h: the main goroutine of run() has ended. Inside the runtime.
void main_ended(sched::goroutine* g) noexcept;

}  // namespace dunlin::api
