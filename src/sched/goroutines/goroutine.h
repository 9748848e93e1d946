// goroutine.h - the steps of a goroutine's life. They are defined in goroutine.cpp, in the order of a life (a return
// without a processor in reenter.cpp); the common case of a spawn is inlined here (docs/decisions/025-fork-join.md),
// and joins are in park/join.cpp.
#pragma once

#include "sched/data/types.h"
#include "sched/goroutines/extra.h"
#include "sched/goroutines/pool.h"
#include "sched/machines/machine.h"
#include "sched/machines/processor.h"
#include "sched/machines/wake.h"
#include "sched/work/local_work.h"
#include "sched/work/submit.h"

namespace dunlin::inline v0_1::sched {

// The goroutine that this thread runs, or null. The pointer is valid until that goroutine ends; the goroutine may move
// to another machine at any moment.
inline goroutine* current_goroutine() noexcept {
    machine* m = current_machine();
    return m ? m->current.load(std::memory_order_relaxed) : nullptr;
}

// Spawn, first half: a goroutine struct with room for a callable of `bytes`. Throws std::bad_alloc,
// std::invalid_argument.
goroutine* make_goroutine(std::size_t bytes, std::size_t align, std::size_t stack_bytes, creation_place where);
// Undoes make_goroutine(), if the callable could not be constructed.
void discard_goroutine(goroutine* g) noexcept;
// The same for many goroutines that were started and never began to run, linked by `link`: their callables are not
// destroyed.
void discard_unbegun(goroutine_list& list) noexcept;
void start_goroutine_outside(goroutine* g) noexcept;  // the part for plain threads
// Spawn, second half: g becomes runnable. Any thread.
[[gnu::always_inline]] inline void start_goroutine(goroutine* g) noexcept {
    machine* m = current_machine();
    if (DUNLIN_UNLIKELY(m == nullptr)) {
        start_goroutine_outside(g);
        return;
    }
    m = enter(m);
    // While this machine is inside the runtime the world does not stop: the end of run() finds g either dead or in a
    // queue.
    transition<goroutine_state::dead, goroutine_state::runnable>(g->state);
    processor* p = processor_of(m);
    p->counts.created.add();
    push_run_next(p, g);
    leave(m);
}

// The first half on a machine that is inside the runtime, for a detached goroutine whose frame is one pointer. Null:
// there is no memory for it. If `where` is not known, its place of creation is `entry`.
goroutine* make_detached_inside_runtime(void (*entry)(void*), void* argument, creation_place where = {}) noexcept;
// The second half there, for a goroutine that was made with its entry.
void start_made_inside_runtime(goroutine* g) noexcept;
// Both halves. False: there is no memory for it.
bool start_inside_runtime(void (*entry)(void*), void* argument, creation_place where = {}) noexcept;

// Waiting -> runnable. Called by the thread that took g's waiter off its queue, which may be any thread. g may run and
// end before this returns.
void ready(goroutine* g) noexcept;
// Puts many, linked by `link`, into the global queue, and wakes a machine.
void ready_all(goroutine_list& list, tracing::cause why = tracing::cause::outside) noexcept;

// Readies waiting goroutines: puts them at the tail of this machine's local queue; of the global one without a
// processor, or if the local one is crowded.
void ready_polled(goroutine_list& list) noexcept;

// Running -> waiting. First half, called with the lock of what it waits on held; for a sleep, which has none, before
// the timer is armed. Once the lock is released, or the timer armed, others may ready the goroutine, even before
// park().
inline void prepare_to_park(goroutine* self, wait_reason reason, const std::source_location& where) noexcept {
    self->reason.store(reason, std::memory_order_relaxed);
    self->waits_at = where;
    self->waits_since_ns = the_scheduler.coarse_now_ns.load(std::memory_order_relaxed);
    self->saved.store(0, std::memory_order_relaxed);
    transition<goroutine_state::running, goroutine_state::waiting>(self->state);
}
// Second half: gives the thread to another goroutine until this one is readied. The caller is inside the runtime
// (enter) and holds no lock; on return it is outside.
void park(machine* m) noexcept;

// Runs `child`, which the caller has taken off its run queue, on the current goroutine's stack. The caller is inside
// the runtime, also on return; returns the machine that it is on then, perhaps another one.
machine* run_in_place(machine* m, goroutine* child, const std::source_location& where) noexcept;
// Is there room on this stack for a child that expects a stack of its own?
[[gnu::always_inline]] inline bool room_for_child(const goroutine* self) noexcept {
    if (self->flags & goroutine::wired) return false;  // its thread runs no other goroutine
    // A child may expect a stack of the default size. It gets nearly that, or else runs on a stack of its own. So does
    // a child whose joiner is on a stack that the program has made (makecontext(3), Boost.Context): that is above this
    // one, or below it, where less than nothing is left.
    const std::byte* here = static_cast<const std::byte*>(__builtin_frame_address(0));
    const std::ptrdiff_t left = here - self->stack->low();
    return left >= the_scheduler.least_in_place.load(std::memory_order_relaxed) && here < self->stack->top;
}

// `self`, which is already queued as runnable, gives its thread to the scheduler's stack. Returns when self runs again;
// returns the machine that it is on then.
machine* leave_queued(machine* m, goroutine* self) noexcept;
// The same for a goroutine that is not queued yet: puts it into the global queue, because the world stops or its thread
// is to end.
machine* requeue(machine* m, goroutine* self) noexcept;

// Ends the current goroutine: runs the destructors of its stack, then it is dead.
[[noreturn]] void exit_goroutine();

// Puts the struct of an ended joinable goroutine back into the pool. Any thread.
void release_goroutine(goroutine* g) noexcept;

// The same at the goroutine's own end, if its holder has let it go already (park/join.cpp).
void put_back_inside_runtime(goroutine* g) noexcept;

// ready() on a machine that is inside the runtime and has claimed g's waiter there. g cannot have been frozen since the
// claim: the end of run() stops the world first, and so waits until this machine leaves the runtime.
inline void ready_inside_runtime(machine* m, goroutine* g) noexcept {
    assert_inside(m);
    transition<goroutine_state::waiting, goroutine_state::runnable>(g->state);
    push_run_next(processor_of(m), g);
}

}  // namespace dunlin::sched
