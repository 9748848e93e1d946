// starved.h - goroutines for whose stacks there is no memory, and the stacks that processors keep meanwhile.
//
// Guarantee  S1  While a goroutine is starved, an idle processor keeps no stack, and one where a goroutine ends keeps
//                that goroutine's only: it stands on it until it has switched away. One that is dead never keeps any.
//            S2  A starved goroutine tries again when a stack is put back, when a processor that kept some becomes
//                idle, and in each round of the monitor, which does not sleep for long while there is one.
//            S3  No deadlock is concluded while there is memory for a stack.
// Protocol   starve() gives the stacks of idle processors to the arena, put_idle_processor() those of the one that
//            becomes idle: both under the scheduler lock, which also guards the list, so one of them sees the other's.
//            pool.cpp (put_stack) does it with its own. From the arena the next take_stack() has them, on whichever
//            processor.
// Tests      sched/starved, crash/hostile (little address space, 8 processors)
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// There is no memory for the stack of g, which was about to run: g waits until one is free. Said once on stderr.
void starve(goroutine* g) noexcept;

inline bool anybody_starves() noexcept { return the_scheduler.starved_size.load(std::memory_order_relaxed) != 0; }

// A stack has become free, or memory may have: one starved goroutine may try again. False: there is none.
bool feed_starved() noexcept;

// By p's owner, or under the scheduler lock where p has none: gives p's stacks to the arena, except for the `keep`
// youngest. False: p has no more than those.
bool give_stacks_to_arena(processor* p, std::uint32_t keep) noexcept;

// Under the scheduler lock: p is about to be idle.
void leave_stacks_to_starved(processor* p) noexcept;

// Whether memory for a stack could be had now, from the kernel too.
bool memory_for_a_stack() noexcept;

}  // namespace dunlin::sched
