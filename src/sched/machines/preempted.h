// preempted.h - the queue of machines whose goroutines are stopped in a signal handler (preempt.h): each has its turn
// when a processor is given to it.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

inline constexpr int any_cpu = -2;

// Under the scheduler lock. Takes the first of the queue; or the second, if only the second stopped on `cpu`, which is
// free. One that owes a slice or more misses its turn: it goes to the end, with a slice less of debt. Null: the queue
// is empty.
machine* pop_preempted(scheduler& s, int cpu) noexcept;
// Called after a change of the queue, under the same lock.
inline void preempted_changed(scheduler& s) noexcept {
    s.lock.assert_held();
    s.preempted_size.store(s.preempted.size, std::memory_order_relaxed);
}
// Gives p, which belongs only to the caller, to the next preempted machine; null if there is none. `cpu`: the one that
// has become free, if known.
const machine* resume_one_with(processor* p, int cpu = any_cpu) noexcept;
// The same with m's own processor. True: m has no processor any more.
bool give_turn_to_preempted(machine* m) noexcept;

}  // namespace dunlin::sched
