// end_of_run.h - the end of run(), and of the process: the runtime stops, and the goroutines that are left are
// forgotten.
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::sched {

// Stops all that a run() has left: no goroutine gets past its next call into the runtime, queues and timers are
// emptied, and goroutines that were alive are forgotten. Afterwards the runtime is as after its start. Called by run()
// when main has ended, and at the end of the process; never from inside the runtime.
void end_run() noexcept;

// The number of runs that have ended. An object that outlives a run compares it with the number that it noted when a
// goroutine registered with it: if they differ, the goroutine is gone.
std::uint32_t runs_ended() noexcept;

}  // namespace dunlin::sched
