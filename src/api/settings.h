// settings.h - what a program says of itself in the environment, read when the runtime starts.
#pragma once

#include <cstddef>

namespace dunlin::inline v0_1::api {

// DUNLIN_MAXPROCS, GOMAXPROCS; else the CPUs that this process may use.
unsigned default_max_procs();
// DUNLIN_STACK_SIZE; else as a thread's.
unsigned default_stack_class();
void choose_guards();         // DUNLIN_STACK_GUARD
void choose_preemption();     // DUNLIN_PREEMPTION, DUNLIN_PREEMPTION_SIGNAL
// DUNLIN_BARRIERS: complains of what it does not know. What it says has been done when the program was loaded
// (platform/membarrier.h).
void check_barriers_setting();

// Throws std::invalid_argument.
void check_stack_size(const char* operation, std::size_t bytes);

}  // namespace dunlin::api
