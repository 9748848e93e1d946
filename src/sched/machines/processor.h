// processor.h - the idle list of processors, their number, and stopping the world.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Under the scheduler lock: `preferred` if it is idle, else the most recently idled processor, or null. Now in state
// running, without an owner. A caller that got one gives the lock back, starts a machine if it means to, and only then
// calls wake_monitor_if_asleep().
processor* take_idle_processor(const processor* preferred = nullptr) noexcept;

// Under the scheduler lock: p has no owner. To the idle list; to the stopper while the world stops; away when it is
// beyond max_procs. `was_spinning`: its machine stops spinning in the same step (R1 of wake.h).
void put_idle_processor(processor* p, bool was_spinning) noexcept;

// Grows or shrinks; 1 <= n <= max_procs_limit. Stops the world for it. What the processors that go away hold is moved,
// order kept, to the head of the global queue. Throws std::bad_alloc.
void set_max_procs(std::uint32_t n);

// True when p is beyond max_procs and its machine must give it up.
inline bool retired(const processor* p) noexcept {
    return p->id >= the_scheduler.max_procs.load(std::memory_order_relaxed);
}

// Under the scheduler lock: moves everything p has to the head of the global queue, order kept.
void drain_to_global(processor* p) noexcept;

// Stops every processor: no goroutine can get past its next call into the runtime, parked ones stay as they are, those
// that compute go on without a processor. For dumps and for the end of run(). Not from inside the runtime.
void stop_world() noexcept;
void start_world() noexcept;

// Goroutines that have been started and have not ended, by the counters of all processors.
std::size_t live_goroutines() noexcept;

}  // namespace dunlin::sched
