// find_work.h - the whole search of a machine that has nothing to run; its steps stand at the head of find_work.cpp.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// The whole search, on the machine's own stack; sleeps until there is something. On return the machine has a processor.
// Null: it is to end.
goroutine* find_work(machine* m) noexcept;

// Takes an idle processor for m, which is new and has none, if there is work for it; or sleeps for the timers, if no
// machine does.
void look_for_a_processor(machine* m) noexcept;

}  // namespace dunlin::sched
