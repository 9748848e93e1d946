// frozen.h - threads whose goroutines are stopped for good, in a signal handler, because their run() has returned
// (freeze.h, end_of_run.cpp).
//
// Problem    Each such thread would stay for the life of the process; and what its goroutine holds stays locked,
//            perhaps a std::mutex that main needs next.
// Threads    The `frozen_kept` threads that were frozen last stay as they are. The others end through the bare system
//            call: no destructor of a thread_local runs, since its object may be half-changed, and a mutex that the
//            goroutine held stays locked. So the last holder for which another thread was seen to wait stays too. Under
//            a sanitizer, which keeps records of threads, all stay.
// Locks      The monitor looks, first after 5 ms, then less and less often, whether the main thread, the thread that
//            was last inside run() or has called exit(), or any other that was not left behind sleeps for a mutex or a
//            read-write lock of glibc whose holder (or writer) is one of the kept threads. If that thread still sleeps
//            for it a tenth of a second later, the thread maker reports it on stderr and lets the holder go on until it
//            has released the lock, for two seconds at a time; then the holder is frozen again. From when it is let go,
//            the holder is bound to the CPU on which the waiter went to sleep, where the waiter has precedence when the
//            lock is released: otherwise a holder that takes the lock again at once would win each time. If no other
//            thread wants that CPU, the holder also gets the lowest priority; if others do, it would never reach its
//            unlock with the lowest priority. A holder's thread keeps both, so it ends with its goroutine. If there are
//            more than `most_looks` threads, each look takes the next ones, so that every one has its turn.
// Orders     A frozen thread sleeps on resume_word (types.h), as a preempted one does.
// Unnamed    Nothing records which threads read under a read-write lock, initialise a function-local static or are
//            inside std::call_once(). If a thread waits for one of these, the kept threads go on in turn, the last
//            frozen first, for a tenth of a second of CPU time each, until the wait ends: their CPU and priority stay
//            as they are, and it is reported once, after a second. A thread that waits behind another waiter of a
//            read-write lock is not seen.
// Tests      tests/runtime/ends_test.cpp, tests/runtime/leftovers_test.cpp
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Called under the scheduler lock. m, which is condemned, is stopped or will not get past its handler.
void keep_frozen(machine* m) noexcept;

// Called in the signal handler, on m's thread: freezes it. Returns if it need not stop, or when it is let go.
void freeze_here(machine* m) noexcept;
// Called on the same thread when it has been ordered to end.
[[noreturn]] void end_frozen_thread(machine* m) noexcept;

// The monitor's look. Returns the time of the next look; 0: there has been no frozen thread yet.
std::int64_t look_at_frozen(std::int64_t now_ns) noexcept;

// Called by the thread maker: lets go the holder of a lock that the monitor has found.
void let_lock_holder_go() noexcept;
// Called by the thread maker, each millisecond: true while that holder goes on, for two seconds at most.
bool lock_holder_goes_on() noexcept;

}  // namespace dunlin::sched
