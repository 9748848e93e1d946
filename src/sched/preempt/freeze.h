// freeze.h - stop threads that compute, for good, from outside: at the end of run() and of the process.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Once, at the start: the signal handler.
void install_freeze_handler() noexcept;

// Stops the condemned machines. Most come to the runtime by themselves within microseconds (their goroutines were
// ending) and are as good as new; after a millisecond the others are asked to freeze. Returns when all are stopped, or
// block in the kernel, or have had some milliseconds and a CPU without stopping: those the monitor keeps after.
void stop_condemned_machines() noexcept;

// Asks those again that could not be frozen where they were. From the monitor. True: there are such.
bool freeze_again() noexcept;

}  // namespace dunlin::sched
