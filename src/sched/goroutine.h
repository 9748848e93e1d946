// goroutine.h - the acts of a goroutine's life. The text of each is at its definition, in the order of a life, in goroutine.cpp.
#pragma once

#include "sched/machine.h"
#include "sched/types.h"

namespace dunlin::sched {

// The goroutine that this thread runs, or null. The pointer is good until the goroutine ends; the machine is not good for a moment.
inline goroutine* current_goroutine() noexcept {
    machine* m = current_machine();
    return m ? m->current.load(std::memory_order_relaxed) : nullptr;
}

// Spawn, first half: a descriptor with room for a callable of `bytes`. Throws std::bad_alloc, std::invalid_argument.
goroutine* make_goroutine(std::size_t bytes, std::size_t align, std::size_t stack_bytes, creation_place where);
// Undoes it: the callable could not be constructed.
void discard_goroutine(goroutine* g) noexcept;
// Spawn, second half: g becomes runnable. Any thread.
void start_goroutine(goroutine* g) noexcept;

// Both halves by a machine that is inside the runtime already: a detached goroutine whose frame is one pointer. False: no memory for it.
bool start_inside_runtime(void (*entry)(void*), void* argument) noexcept;

// Waiting -> runnable, by whoever took g's waiter off its queue. Any thread. g may run and end before this returns.
void ready(goroutine* g) noexcept;
// Many at once, linked by `link`: readies them all, then wakes.
void ready_all(goroutine_list& list) noexcept;

// Running -> waiting. First half: after it, and while the caller still holds the lock of what it waits on, others may ready the goroutine.
inline void prepare_to_park(goroutine* self, wait_reason reason, const std::source_location& where) noexcept {
    self->reason.store(reason, std::memory_order_relaxed);
    self->waits_at = where;
    self->waits_since_ns = the_scheduler.coarse_now_ns.load(std::memory_order_relaxed);
    self->saved.store(0, std::memory_order_relaxed);
    transition<goroutine_state::running, goroutine_state::waiting>(self->state);
}
// Second half: gives the thread to another goroutine until readied. The caller is inside the runtime (enter) and holds no lock; on return it
// is outside.
void park(machine* m) noexcept;

// Running -> runnable, at the tail of the global queue.
void yield() noexcept;

// Runs `child`, which the caller has taken off its run queue, on the current goroutine's stack. The caller is inside the runtime; so it is on
// return, perhaps on another machine, which is returned.
machine* run_in_place(machine* m, goroutine* child, const std::source_location& where) noexcept;
// Running children in place goes around find_local(), and whoever does nothing else would starve everybody. True, now and then: it is somebody
// else's turn, park instead.
bool must_look_around(processor* p) noexcept;
// Has nothing but its local queue to look at now, so a goroutine that yields may just take turns with the oldest there. Counts it as a tick.
bool may_rotate(processor* p) noexcept;
// Is there room below for a child that expects a stack of its own?
bool room_for_child(const goroutine* self) noexcept;

// `self`, queued as runnable already, gives its thread to the scheduler's stack. Returns when it runs again, on the machine it runs on then.
machine* leave_queued(machine* m, goroutine* self) noexcept;

// Is it the turn of a preempted goroutine on p (preempt.h)? Then find_local() finds nobody.
inline bool turn_of_preempted(const processor* p) noexcept { return p->slice_over.load(std::memory_order_relaxed) == 3; }

// Ends the current goroutine: destructors run, then it is dead.
[[noreturn]] void exit_goroutine();

// The descriptor of an ended joinable goroutine goes back to the pool. Any thread.
void release_goroutine(goroutine* g) noexcept;

// g's extra part, made when needed, before g starts. Throws std::bad_alloc. What runs changes its own inside the runtime only: dumps look at it.
goroutine_extra& extra_of(goroutine* g);
// The current goroutine's. Throws std::bad_alloc.
void make_extra_of_current();
// In the reverse order of their making, until there are none: their destructors may make others. Outside the runtime.
void destroy_local_values(local_values& list) noexcept;
// Throws std::bad_alloc. Nothing on a plain thread.
void name_current_goroutine(std::string_view name);

// find_work.cpp. Local part: run by goroutines on their way out, must not block.
goroutine* find_local(machine* m, processor* p) noexcept;
// One batch from the global queue, the first of which is returned.
goroutine* take_global(processor* p) noexcept;
// The whole search, on the machine's own stack; sleeps until there is something. On return the machine has a processor. Null: it is to end.
goroutine* find_work(machine* m) noexcept;

// Puts g at the tail of p's queue, half of it and g into the global queue if it is full. p is the caller's.
void push_local(processor* p, goroutine* g) noexcept;
// Puts g into p's run_next, its former occupant at the tail, and wakes a machine if one has nothing to do: S1 to S3 of wake.h.
void push_run_next(processor* p, goroutine* g) noexcept;
// Puts a list at the tail of the global queue, takes the lock.
void push_global(goroutine_list& list) noexcept;
void push_global(goroutine* g) noexcept;

// pool.cpp: descriptors and stacks, per processor.
goroutine* take_descriptor(processor* p);  // p may be null (plain threads). Throws std::bad_alloc
void put_descriptor(processor* p, goroutine* g) noexcept;
stack::slot* take_stack(processor* p) noexcept;  // null: no memory
void put_stack(processor* p, stack::slot* s) noexcept;
void drop_free_stacks(processor* p) noexcept;  // to the arena
std::uint64_t next_goroutine_id(processor* p) noexcept;
std::size_t live_goroutines() noexcept;

// g was to run and there is no memory for its stack: it waits until one is free. pool.cpp says so once.
void starve(goroutine* g) noexcept;
// A stack has become free, or memory may have: one of those may try again.
void feed_starved() noexcept;

}  // namespace dunlin::sched
