// detached.h - the monitor looks at the machines that run without a processor: those from which it was taken while they
// computed or blocked.
#pragma once

#include "sched/data/types.h"
#include "sched/monitor/retake.h"

namespace dunlin::inline v0_1::sched {

// m has lost its processor: it is looked at from now on, in the next round first.
void note_detached(machine* m) noexcept;

// One look at the threads that run without a processor, and at those on which all the others depend.
void look_at_detached_machines(outlook& o) noexcept;

}  // namespace dunlin::sched
