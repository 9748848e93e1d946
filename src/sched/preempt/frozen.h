// frozen.h - threads whose goroutines stand still for good, in a signal handler, because their run() has returned
// (freeze.h, retire.cpp).
//
// Problem    Each such thread would stay for the life of the process; and what its goroutine holds stays locked, a
//            std::mutex that main wants next among it.
// Threads    The youngest `frozen_kept` threads stay as they are. The others end by the bare system call: no destructor
//            of a thread_local runs, since its object may be half-changed, and a mutex that the goroutine held stays
//            locked. So the last holder that another thread was seen to wait for stays too. Under a sanitizer, which
//            keeps records of threads, all stay.
// Locks      The monitor looks, first after 5 ms, then less and less often, whether the main thread, the thread that
//            was last inside run(), or one that runs a goroutine sleeps for a mutex or a read-write lock of glibc's
//            whose owner (or writer) is one of those kept. If it still does a tenth of a second later, the thread maker
//            says so on stderr and lets the owner go on until it has given the lock back, for two seconds at a time;
//            then the owner is frozen again. From there on the owner has the CPU on which the waiter went to sleep,
//            where the waiter comes first when the lock is given back: an owner that takes it again at once would win
//            each time. Where no other thread wants that CPU, the owner also has the lowest priority; where others do,
//            it would never get as far as the unlock with that. An owner's thread keeps both, so it ends with its
//            goroutine. If there are more than `most_looks` goroutines, each look takes the next ones, so that every
//            one has its turn.
// Orders     A thread that stands still sleeps on resume_word (types.h), as a preempted one does.
// Unnamed    Nothing notes which threads read under a read-write lock, initialise a function-local static or are inside
//            std::call_once(). Where a thread waits for one of those, those kept go on in turn, the youngest first, a
//            tenth of a second of CPU time each, until the wait ends: their CPU and priority stay as they are, and it
//            is said once, after a second. One that waits behind another waiter of a read-write lock is not seen.
// Tests      tests/runtime/ends_test.cpp, tests/runtime/leftovers_test.cpp
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Under the scheduler lock. m, which is condemned, stands still or will not get past its handler.
void keep_frozen(machine* m) noexcept;

// In the signal handler, on m's thread: freezes it. Returns if it need not stop, or is let go.
void freeze_here(machine* m) noexcept;
// The same thread has been ordered to end.
[[noreturn]] void end_frozen_thread(machine* m) noexcept;

// The monitor's look. Returns when to look again; 0: when a thread has been frozen since.
std::int64_t look_at_frozen(std::int64_t now_ns) noexcept;

// By the thread maker: lets go the owner that the monitor has found.
void let_owner_go() noexcept;
// By the thread maker: true while that owner goes on, for two seconds at most. To be called each millisecond.
bool owner_goes_on() noexcept;

}  // namespace dunlin::sched
