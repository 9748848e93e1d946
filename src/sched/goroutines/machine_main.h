// machine_main.h - the code on the scheduler's stack: what a thread does between the goroutines that it runs. Its
// entry, machine_main(), is declared in machines/machine.h, since machine.cpp calls it.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Switches from the scheduler's stack to that of g, which has a context and whose state is already running. Returns
// when the thread comes back to the scheduler's stack.
void switch_to_goroutine(machine* m, goroutine* g) noexcept;

}  // namespace dunlin::sched
