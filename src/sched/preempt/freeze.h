// freeze.h - stops threads that compute, for good, from outside: at the end of run() and of the process.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Called once, at the start: installs the signal handler.
void install_freeze_handler() noexcept;

// Stops the condemned machines. Most of them come to the runtime within microseconds, because their goroutines were
// about to end, and can be used again. After a millisecond the others are asked to freeze. Returns when each machine
// has stopped, or blocks in the kernel, or has not stopped although it had a few milliseconds and CPU time; the monitor
// goes on asking those.
void stop_condemned_machines() noexcept;

// Called by the monitor: asks the machines again that could not be frozen where they were. True: there are such
// machines.
bool freeze_again() noexcept;

}  // namespace dunlin::sched
