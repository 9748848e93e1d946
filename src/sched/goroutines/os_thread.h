// os_thread.h - goroutines that are wired to their thread.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Wires the current goroutine and its thread to each other, until unlock_os_thread() has been called as many times.
// Throws std::bad_alloc.
void lock_os_thread();
void unlock_os_thread() noexcept;

// True if the program has wired g (lock_os_thread()); false if g is wired only while it waits for a processor. For
// dumps, while the world stands still.
inline bool is_wired(const goroutine* g) noexcept {
    // One that was frozen while it waited for a processor has given its lent extra part back (dismiss_wired_machines).
    return (g->flags & goroutine::wired) && g->extra != nullptr && g->extra->thread_locks != 0;
}

// Called on the scheduler's stack of a machine whose wired goroutine has left: gives the processor away, sleeps until
// that goroutine is to run again, and returns it. Null: it never will, and the machine ends.
goroutine* wait_for_wired(machine* m) noexcept;

// m has taken g off a queue, but g is wired to another machine: gives m's processor to that machine, which runs g.
void hand_to_its_machine(machine* m, goroutine* g) noexcept;

// Wires `self`, which has come back from a call or has computed without a processor, to its thread until it has a
// processor (reenter.cpp): it may hold locks that belong to the thread. Needs no memory. Under the scheduler lock.
void wire_until_back(machine* m, goroutine* self) noexcept;
// Called by `self` when it has one.
void unwire(machine* m, goroutine* self) noexcept;

// How many machines have been told to end and have not counted their threads as ending yet
// (platform::begin_thread_end()).
std::uint32_t machines_to_end() noexcept;

// m must end (must_end, or wait_for_wired() has returned null): gives the processor away and counts m as ended.
// After a wired goroutine the state of the thread may be anything, so the thread runs nothing else.
void end_machine(machine* m) noexcept;

// Called at the end of run(), under the scheduler lock: tells machines that wait for goroutines of that run() to end.
void dismiss_wired_machines() noexcept;

}  // namespace dunlin::sched
