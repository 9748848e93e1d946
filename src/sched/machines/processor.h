// processor.h - the idle list of processors, their number, and stopping the world.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Under the scheduler lock: `preferred` if it is idle, else the processor that became idle last; null if none is idle.
// Its state is running now, and it has no owner. The caller releases the lock, starts a machine if it means to, and
// only then calls wake_monitor_if_asleep().
processor* take_idle_processor(const processor* preferred = nullptr) noexcept;

// Under the scheduler lock: p, which has no owner, goes to the idle list; to the stopper while the world stops; away if
// it is beyond max_procs. `was_spinning`: its machine stops spinning in the same step (R1 of wake.h).
void put_idle_processor(processor* p, bool was_spinning) noexcept;

// Changes the number of processors; 1 <= n <= max_procs_limit. Stops the world for it. What processors beyond n hold
// goes to the head of the global queue, order kept. Throws std::bad_alloc.
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
