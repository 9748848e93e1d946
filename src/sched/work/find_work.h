// find_work.h - the whole search of a machine that has nothing to run; its steps are at the head of find_work.cpp.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// The whole search, on the scheduler's stack; sleeps until there is something to run. On return the machine has a
// processor. Null: the machine is to end.
goroutine* find_work(machine* m) noexcept;

// Called by a new machine, which has no processor: takes an idle one if there is work for it; or sleeps in the
// poller, if no other machine does.
void look_for_a_processor(machine* m) noexcept;

// Called by a machine that has given its processor to another for good: sleeps in the poller, if events are waited for
// and no other thread does. It may have a processor afterwards.
void watch_events(machine* m) noexcept;

}  // namespace dunlin::sched
