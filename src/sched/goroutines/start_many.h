// start_many.h - goroutines that are started together: up to 64 of them are published in one step, and whether a
// machine is to be woken is asked once.
//
// They enter the queue in their order and the last enters run_next, as if they had been started one after the other: a
// goroutine that joins them takes the youngest first. While pushes are looked at (turns.h) each is pushed for itself.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// As start_goroutine() for each goroutine of the list, in order; but all that was published is announced once (S2 and
// S3 of wake.h). The list is empty then.
void start_goroutines(goroutine_list& list) noexcept;

}  // namespace dunlin::sched
