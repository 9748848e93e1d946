// os_thread.h - goroutines that are wired to their thread.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// The current goroutine and its thread belong to each other until as many unlocks. Throws std::bad_alloc.
void lock_os_thread();
void unlock_os_thread() noexcept;

// On the scheduler's stack of a machine that is wired to a goroutine which has left: gives the processor away and
// sleeps until that goroutine is to run again, which is returned; null: it never will (the machine ends).
goroutine* wait_for_locked(machine* m) noexcept;

// g, taken off a queue by m, is wired to another machine: that one gets m's processor and runs it.
void hand_to_its_machine(machine* m, goroutine* g) noexcept;

// m's goroutine ended while wired: the thread's state may be anything, so nothing else shall ever run on it. Gives the
// processor away.
void retire_machine(machine* m) noexcept;

// The world has ended: the machines that wait for goroutines of it end too. Under the scheduler lock.
void dismiss_locked_machines() noexcept;

}  // namespace dunlin::sched
