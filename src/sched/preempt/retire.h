// retire.h - the end of run(), and of the process: the runtime stops, and what is left is forgotten.
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::sched {

// Stops the runtime for good: no goroutine gets past its next call into the runtime, queues and timers are emptied, and
// goroutines that were alive are forgotten. Afterwards the runtime is as new. run() calls it when main has ended, and
// so does the end of the process; never from inside the runtime.
void retire_world() noexcept;

// How many runs have ended. An object that outlives a run compares it with the number that it noted when a goroutine
// registered with it: a different one says that the goroutine is gone.
std::uint32_t runs_ended() noexcept;

}  // namespace dunlin::sched
