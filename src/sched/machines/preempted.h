// preempted.h - the queue of machines whose goroutines stand still in a signal handler (preempt.h): each has a turn
// when a processor is given to it.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

inline constexpr int any_cpu = -2;

// Under the scheduler lock. The first, or the second if that one stopped on `cpu`, which is free. Null: there is none.
machine* pop_preempted(scheduler& s, int cpu) noexcept;
// The same lock: the queue has changed.
inline void preempted_changed(scheduler& s) noexcept {
    s.lock.assert_held();
    s.preempted_size.store(s.preempted.size, std::memory_order_relaxed);
}
// The next preempted machine gets p, which is the caller's alone; null if there is none. `cpu`: the one that has become
// free by that, if known.
const machine* resume_one_with(processor* p, int cpu = any_cpu) noexcept;
// The same with m's own processor, which m has not any more then.
bool give_turn_to_preempted(machine* m) noexcept;

}  // namespace dunlin::sched
