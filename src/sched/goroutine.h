// goroutine.h - the acts of a goroutine's life. The text of each is at its definition, in the order of a life, in
// goroutine.cpp; what spawn and join do in the common case stands here, inlined (docs/decisions/025-fork-join.md).
#pragma once

#include "sched/machine.h"
#include "sched/pool.h"
#include "sched/types.h"
#include "sched/wake.h"

namespace dunlin::sched {

// The goroutine that this thread runs, or null. The pointer is good until the goroutine ends; the machine is not good
// for a moment.
inline goroutine* current_goroutine() noexcept {
    machine* m = current_machine();
    return m ? m->current.load(std::memory_order_relaxed) : nullptr;
}

// Spawn, first half: a descriptor with room for a callable of `bytes`. Throws std::bad_alloc, std::invalid_argument.
goroutine* make_goroutine(std::size_t bytes, std::size_t align, std::size_t stack_bytes, creation_place where);
// The same for the common case, inlined: a machine, no options, no labels, a callable that fits into the descriptor.
// Null: not so, or a list is empty.
[[gnu::always_inline]] inline goroutine* make_plain_goroutine(machine* m, creation_place where) noexcept {
    m = enter(m);
    processor* p = processor_of(m);
    goroutine* g = p->free_goroutines;
    const bool has_labels = m->current.load(std::memory_order_relaxed)->extra != nullptr;
    if (DUNLIN_UNLIKELY(g == nullptr || p->next_id == p->last_id || has_labels)) {
        leave(m);
        return nullptr;
    }
    pop_descriptor(p, g);
    g->id = p->next_id++;
    leave(m);
    g->created_at = where;
    g->flags = 0;
    return g;
}
// Undoes it: the callable could not be constructed.
void discard_goroutine(goroutine* g) noexcept;
// The same for many that were started and never began, linked by `link`: their callables are not destroyed.
void discard_unbegun(goroutine_list& list) noexcept;
// Spawn, second half: g becomes runnable. Any thread.
inline void start_goroutine(goroutine* g) noexcept;
void start_goroutine_outside(goroutine* g) noexcept;  // its half for plain threads

// Both halves by a machine that is inside the runtime already: a detached goroutine whose frame is one pointer. False:
// no memory for it.
bool start_inside_runtime(void (*entry)(void*), void* argument) noexcept;
// The second half by such a machine, for a goroutine that was made with its entry.
void start_made_inside_runtime(goroutine* g) noexcept;

// Waiting -> runnable, by the thread that took g's waiter off its queue. Any thread. g may run and end before this
// returns.
void ready(goroutine* g) noexcept;
// Many at once, linked by `link`: readies them all, then wakes.
void ready_all(goroutine_list& list) noexcept;

// Running -> waiting. First half: after it, and while the caller still holds the lock of what it waits on, others may
// ready the goroutine.
inline void prepare_to_park(goroutine* self, wait_reason reason, const std::source_location& where) noexcept {
    self->reason.store(reason, std::memory_order_relaxed);
    self->waits_at = where;
    self->waits_since_ns = the_scheduler.coarse_now_ns.load(std::memory_order_relaxed);
    self->saved.store(0, std::memory_order_relaxed);
    transition<goroutine_state::running, goroutine_state::waiting>(self->state);
}
// Second half: gives the thread to another goroutine until readied. The caller is inside the runtime (enter) and holds
// no lock; on return it is outside.
void park(machine* m) noexcept;

// Running -> runnable, at the tail of the global queue.
void yield() noexcept;

// Runs `child`, which the caller has taken off its run queue, on the current goroutine's stack. The caller is inside
// the runtime; so it is on return, perhaps on another machine, which is returned.
machine* run_in_place(machine* m, goroutine* child, const std::source_location& where) noexcept;
// Readies what is due here. True: the world stops. find_work.cpp.
bool look_around(processor* p) noexcept;
inline constexpr std::uint32_t look_at_events_every = 16;  // a power of two
// Running children in place goes around find_local(): a goroutine that does nothing else would starve all others. True,
// now and then: it is another one's turn, park instead. For the global queue that is the end of the slice and not the
// 61st tick: each turn of a goroutine from there parks the whole chain of goroutines that wait for each other on this
// stack, and if what comes is another branch of the same tree, its children overflow into the global queue, and so on,
// until most of the tree waits at once (a tree of 10^8 took gigabytes).
[[gnu::always_inline]] inline bool must_look_around(processor* p) noexcept {
    if (p->slice_over.load(std::memory_order_relaxed) != 0) return true;
    const bool look = p->counts.in_place_joins.get() % look_at_events_every == 0 || p->events_due.load(std::memory_order_relaxed);
    return DUNLIN_UNLIKELY(look) && look_around(p);
}
// Has nothing but its local queue to look at now, so a goroutine that yields may just take turns with the oldest there.
// Counts it as a tick.
bool may_rotate(processor* p) noexcept;
// Is there room below for a child that expects a stack of its own?
[[gnu::always_inline]] inline bool room_for_child(const goroutine* self) noexcept {
    if (self->flags & goroutine::locked) return false;  // its thread runs nothing else
    // A child may expect a default stack. It gets three quarters of one, or it runs on its own.
    const std::byte* here = static_cast<const std::byte*>(__builtin_frame_address(0));
    const auto left = static_cast<std::size_t>(here - self->stack->low());
    return left >= stack::slot_bytes(the_scheduler.default_stack_class.load(std::memory_order_relaxed)) / 4 * 3;
}

// From the scheduler's stack to that of g, which has a context and is running already. Returns when its thread comes
// back to the scheduler's stack.
void switch_to_goroutine(machine* m, goroutine* g) noexcept;

// `self`, queued as runnable already, gives its thread to the scheduler's stack. Returns when it runs again, on the
// machine it runs on then.
machine* leave_queued(machine* m, goroutine* self) noexcept;

// Is it the turn of a preempted goroutine on p (preempt.h)? Then find_local() finds nothing.
inline bool turn_of_preempted(const processor* p) noexcept { return p->slice_over.load(std::memory_order_relaxed) == 3; }
// What only find_work() does, on the machine's own stack, is due: find_local() finds nothing although there may be a
// runnable goroutine.
inline bool find_work_is_due(const processor* p) noexcept { return p->poll_first || turn_of_preempted(p); }

// Ends the current goroutine: destructors run, then it is dead.
[[noreturn]] void exit_goroutine();

// The descriptor of an ended joinable goroutine goes back to the pool. Any thread.
void release_goroutine(goroutine* g) noexcept;

// The same by its own end, which finds that its holder has let it go (park/join.cpp).
void put_back_inside_runtime(goroutine* g) noexcept;

// g's extra part, made when needed, before g starts. Throws std::bad_alloc. What runs changes its own inside the
// runtime only: dumps look at it.
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
// The whole search, on the machine's own stack; sleeps until there is something. On return the machine has a processor.
// Null: it is to end.
goroutine* find_work(machine* m) noexcept;

// Puts g at the tail of p's queue, half of it and g into the global queue if it is full. p is the caller's.
void push_local(processor* p, goroutine* g) noexcept;
void push_out_of_run_next(processor* p, goroutine* before) noexcept;  // the rarer half of the next: run_next was full
// What comes first where turns are long or a wait is to be measured (turns.h, waits.h). True: that was all.
bool push_with_a_look(processor* p, goroutine* g) noexcept;
// Returns the former occupant. Release publishes *g to a thief that takes it by the handshake.
[[gnu::always_inline]] inline goroutine* exchange_run_next(processor* p, goroutine* g) noexcept {
    goroutine* before = p->run_next.load(std::memory_order_relaxed);
    p->run_next.store(g, std::memory_order_release);
    p->run_next_count.store(p->run_next_count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return before;
}
inline void put_run_next(processor* p, goroutine* g) noexcept;
// Puts g into p's run_next, its former occupant at the tail, and wakes a machine if one has nothing to do: S1 to S3 of
// wake.h.
[[gnu::always_inline]] inline void push_run_next(processor* p, goroutine* g) noexcept {
    if (DUNLIN_UNLIKELY(p->looks_at_push) && push_with_a_look(p, g)) return;
    put_run_next(p, g);
}
// The same for one that was runnable already.
[[gnu::always_inline]] inline void put_run_next(processor* p, goroutine* g) noexcept {
    if (goroutine* before = exchange_run_next(p, g)) {
        push_out_of_run_next(p, before);
    } else {
        submit_barrier();
        wake_for_run_next(p);
    }
}

// ready() by a machine that is inside the runtime and has claimed g's waiter there: g is not frozen since, because the
// end of run() first stops the world, and so waits until this machine comes out.
inline void ready_inside_runtime(machine* m, goroutine* g) noexcept {
    transition<goroutine_state::waiting, goroutine_state::runnable>(g->state);
    push_run_next(processor_of(m), g);
}
// Puts a list at the tail of the global queue, takes the lock.
void push_global(goroutine_list& list) noexcept;
void push_global(goroutine* g) noexcept;

[[gnu::always_inline]] inline void start_goroutine(goroutine* g) noexcept {
    machine* m = current_machine();
    if (DUNLIN_UNLIKELY(m == nullptr)) {
        start_goroutine_outside(g);
        return;
    }
    m = enter(m);
    // Inside the runtime, where the world does not stop: the end of run() finds a goroutine that is dead, or one that
    // is in a queue.
    transition<goroutine_state::dead, goroutine_state::runnable>(g->state);
    processor* p = processor_of(m);
    p->counts.created.add();
    push_run_next(p, g);
    leave(m);
}

// All of the list, in order, as start_goroutine() for each: but what is published with one step is told of once, S2 and
// S3 of wake.h.
void start_goroutines(goroutine_list& list) noexcept;

// pool.cpp: stacks, per processor; descriptors: pool.h.
stack::slot* take_stack(processor* p) noexcept;  // null: no memory
void put_stack(processor* p, stack::slot* s) noexcept;
void drop_free_stacks(processor* p) noexcept;  // to the arena
std::size_t live_goroutines() noexcept;

// g was to run and there is no memory for its stack: it waits until one is free. pool.cpp says so once.
void starve(goroutine* g) noexcept;
// A stack has become free, or memory may have: one of those may try again.
void feed_starved() noexcept;

}  // namespace dunlin::sched
