// settings.h - settings in the program's environment, read when the runtime starts.
#pragma once

#include <cstddef>

namespace dunlin::inline v0_1::api {

// DUNLIN_MAXPROCS, GOMAXPROCS; else the CPUs that this process may use.
unsigned default_max_procs();
// DUNLIN_STACK_SIZE; else like the stack of a thread.
unsigned default_stack_class();
void choose_guards();         // DUNLIN_STACK_GUARD
void choose_preemption();     // DUNLIN_PREEMPTION, DUNLIN_PREEMPTION_SIGNAL
// DUNLIN_BARRIERS: complains about an unknown value. The setting itself took effect when the program was loaded
// (platform/membarrier.h).
void check_barriers_setting();

// Throws std::invalid_argument.
void check_stack_size(const char* operation, std::size_t bytes);

}  // namespace dunlin::api
