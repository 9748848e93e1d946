// processor.h - the idle list of processors, their number, and stopping the world.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Under the scheduler lock: `preferred` if it is idle, else the processor that became idle last; null if none is idle.
// Its state is now running, and it has no owner. The caller releases the lock, starts a machine if it wants one, and
// only then calls wake_monitor_if_asleep().
processor* take_idle_processor(const processor* preferred = nullptr) noexcept;

// Under the scheduler lock: p, which has no owner, goes onto the idle list; while the world stops, to the thread that
// stops it; if it is beyond max_procs, it is dead. `was_spinning`: its machine stops spinning in the same step (R1
// of wake.h).
void put_idle_processor(processor* p, bool was_spinning) noexcept;

// Changes the number of processors; 1 <= n <= max_procs_limit. Stops the world to do so. The goroutines that processors
// beyond n hold go to the head of the global queue, order kept; their timers go to processor 0. Throws std::bad_alloc.
void set_max_procs(std::uint32_t n);

// True when p is beyond max_procs and its machine must give it up.
inline bool is_surplus(const processor* p) noexcept {
    return p->id >= the_scheduler.max_procs.load(std::memory_order_relaxed);
}

// True: there is a goroutine in p's queue or in its run_next.
bool has_local_work(const processor* p) noexcept;

// Under the scheduler lock: moves everything p has to the head of the global queue, order kept.
void drain_to_global(processor* p) noexcept;

// Stops every processor: no goroutine can get past its next call into the runtime, parked goroutines stay as they are,
// those that compute go on without a processor. For dumps and for the end of run(), among others. Must not be called
// inside the runtime.
void stop_world() noexcept;
void start_world() noexcept;

// The number of goroutines that have been started and have not ended, from the counters of all processors.
std::size_t live_goroutines() noexcept;
// Is any goroutine alive that the end of a run() stops? The world stands still; or all machines sleep, and the caller
// holds the scheduler lock.
bool any_ends_with_run() noexcept;

}  // namespace dunlin::sched
