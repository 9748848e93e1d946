// yield.h - a goroutine lets others run and stays runnable.
#pragma once

namespace dunlin::inline v0_1::sched {

// Running -> runnable: puts the goroutine at the tail of the local queue, now and then of the global one. On a plain
// thread it gives way to other threads.
void yield() noexcept;

}  // namespace dunlin::sched
