// starved.h - goroutines that find no memory for their stacks, and the stacks that processors keep meanwhile.
//
// Guarantee  S1  While a goroutine is starved, an idle processor keeps no stack, and a processor where a goroutine ends
//                keeps only that goroutine's stack: the goroutine is on it until it has switched away. A dead processor
//                never keeps any.
//            S2  A starved goroutine tries again when a stack is put back, when a processor that kept stacks becomes
//                idle, and in each round of the monitor, which does not sleep for long while there is a starved
//                goroutine.
//            S3  No deadlock is concluded while there is memory for a stack.
// Protocol   starve() gives the stacks of idle processors to the arena, put_idle_processor() those of the processor
//            that becomes idle: both under the scheduler lock, which also guards the list, so one of them sees what the
//            other has done. put_stack() (pool.cpp) gives those of its own processor. The next take_stack() gets them
//            from the arena, on whichever processor.
// Tests      sched/starved, crash/hostile (little address space, 8 processors)
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// There is no memory for the stack of g, which was about to run: g waits until a stack is free. Reported once on
// stderr.
void starve(goroutine* g) noexcept;

inline bool some_starve() noexcept { return the_scheduler.starved_size.load(std::memory_order_relaxed) != 0; }

// A stack, or perhaps memory, has become free: lets one starved goroutine try again. False: there is none.
bool feed_starved() noexcept;

// Called by p's owner, or under the scheduler lock if p has none: gives p's stacks to the arena, except for the `keep`
// newest. False: p has no more than those.
bool give_stacks_to_arena(processor* p, std::uint32_t keep) noexcept;

// Called under the scheduler lock when p is about to become idle.
void leave_stacks_to_starved(processor* p) noexcept;

// Is there memory for a stack now, perhaps from the kernel?
bool memory_for_a_stack() noexcept;

}  // namespace dunlin::sched
