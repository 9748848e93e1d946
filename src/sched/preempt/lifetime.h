// lifetime.h - the runtime starts at the first use and is stopped when run() returns or the process exits.
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::sched {

// Makes processors and the monitor at the first call; cheap afterwards. Throws std::bad_alloc; std::system_error if
// there is no thread.
void start_runtime();

// Stops everything for good: no goroutine gets past its next call into the runtime, queues and timers are emptied, what
// was alive is forgotten. Afterwards the runtime is as new. Not from inside the runtime; called by run() when main has
// ended and at exit.
void retire_world() noexcept;

// How often that was. Whatever goroutines have registered with something that lives on can tell by it whether they are
// still there.
std::uint32_t runs_ended() noexcept;

}  // namespace dunlin::sched
