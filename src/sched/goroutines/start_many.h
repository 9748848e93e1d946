// start_many.h - starts many goroutines together: up to 64 are published in one step, and only once is it asked whether
// to wake a machine.
//
// They enter the queue in their order and the last enters run_next, as if they had been started one after the other: a
// goroutine that joins them takes the youngest first. While pushes are looked at (turns.h) each is pushed separately.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// As start_goroutine() for each goroutine of the list, in order, but announces all of them together (S2 and S3 of
// wake.h). Empties the list.
void start_goroutines(goroutine_list& list) noexcept;

}  // namespace dunlin::sched
