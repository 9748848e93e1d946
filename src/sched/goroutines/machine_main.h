// machine_main.h - the machine's own stack: what a thread does between the goroutines that it runs. Its beginning,
// machine_main(), is declared in machines/machine.h, which calls it.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// From the scheduler's stack to that of g, which has a context and is running already. Returns when the thread comes
// back to the scheduler's stack.
void switch_to_goroutine(machine* m, goroutine* g) noexcept;

}  // namespace dunlin::sched
