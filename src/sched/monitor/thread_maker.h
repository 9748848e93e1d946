// thread_maker.h - the thread that makes all others, and does for the monitor everything that may have to wait.
//
// Creating a thread allocates. A thread that waits for the allocator may wait for a goroutine that is stopped while it
// holds the allocator's lock. So threads are created neither by the monitor nor by a thread that holds a processor: the
// goroutine with the allocator's lock may need that processor. Also, a new thread copies its creator's affinity, name
// and namespaces, which a goroutine that is wired to its thread may have changed. The thread maker's state is that of
// the process when the runtime started, except for its short time slices, which the other threads need as well.
#pragma once

#include "sched/data/bells.h"

namespace dunlin::inline v0_1::sched {

// Called once, at the start; false if no thread is available for it.
bool start_thread_maker() noexcept;

// Called by a thread that starts the runtime or a run(): makes machines before there is work for them, until there are
// two for each processor, but no more than `at_most`; one if there is one processor. Later the thread maker makes the
// missing ones when they are asked for. While it makes one it keeps a CPU busy, so the kernel places the new thread
// behind the goroutine that computes on the other CPU, for a tick; a machine that sleeps is woken on the idle CPU
// (docs/decisions/066-the-first-machines.md).
void make_first_machines(std::uint32_t at_most) noexcept;

// Makes machines until there are `count`, or no thread is available. Called by a thread that is not the thread maker.
void make_machines_ahead(std::uint32_t count) noexcept;

}  // namespace dunlin::sched
