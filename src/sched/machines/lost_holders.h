// lost_holders.h - goroutines that cannot go on any more, and the thread that a mutex of libc names as its owner if
// such a goroutine holds it. Only the last ones are known.
#pragma once

#include <span>
#include <sys/types.h>

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Called under the scheduler lock: g, null or on the thread `tid`, is lost. The thread ends (`lives_on` is
// null) or goes on serving the machine `lives_on`. The monitor will look for threads that wait for a lock of g's
// (frozen.h).
void note_lost_holder(pid_t tid, const machine* lives_on, const goroutine* g) noexcept;

// The lost goroutine whose thread is one of `owners`. Null: there is none, or that thread runs another goroutine, or
// the program has a thread with that number again: the lock may be theirs.
const goroutine* lost_holder(std::span<const pid_t> owners) noexcept;

}  // namespace dunlin::sched
