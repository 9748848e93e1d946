// freeze.h - stop threads that compute, for good, from outside: at the end of run() and of the process.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Once, at the start: the signal handler.
void install_freeze_handler() noexcept;

// Stops the condemned machines. Most of them come to the runtime within microseconds, because their goroutines were
// about to end, and can be used again. After a millisecond the others are asked to freeze. Returns when each machine
// has stopped, or blocks in the kernel, or has had some milliseconds and a CPU without stopping; the monitor goes on
// asking those.
void stop_condemned_machines() noexcept;

// By the monitor: asks again the machines that could not be frozen where they were. True: there are such machines.
bool freeze_again() noexcept;

}  // namespace dunlin::sched
