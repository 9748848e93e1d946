// submit.h - puts a runnable goroutine where it will be found. push_run_next() does S1 to S3 of wake.h; push_local()
// and push_global() do S1 only: their callers do the rest, or say why not.
#pragma once

#include "sched/data/types.h"
#include "sched/machines/handshake.h"
#include "sched/machines/wake.h"

namespace dunlin::inline v0_1::sched {

// Puts g at the tail of p's queue; if the queue is full, half of it and g go into the global queue. The caller has p.
void push_local(processor* p, goroutine* g) noexcept;
void push_out_of_run_next(processor* p, goroutine* before) noexcept;  // the rarer half of put_run_next(): run_next was
                                                                      // occupied
// Called first where turns are long, a wait is to be measured, or a trace runs (turns.h, waits.h, trace.h). True: g has
// been put somewhere, and nothing is left to do.
bool push_with_a_look(processor* p, goroutine* g) noexcept;
// Puts g into p's run_next and returns the former occupant. Release publishes *g; it pairs with the acquire in
// steal_run_next() and drain_to_global(), which may be on another thread.
[[gnu::always_inline]] inline goroutine* exchange_run_next(processor* p, goroutine* g) noexcept {
    assert_owner(p);
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
// The same without the look: also for a goroutine that was runnable already.
[[gnu::always_inline]] inline void put_run_next(processor* p, goroutine* g) noexcept {
    if (goroutine* before = exchange_run_next(p, g)) {
        push_out_of_run_next(p, before);
    } else {
        submit_barrier();
        wake_for_run_next(p);
    }
}

// Puts a list at the tail of the global queue; takes the lock.
void push_global(goroutine_list& list) noexcept;
void push_global(goroutine* g) noexcept;

}  // namespace dunlin::sched
