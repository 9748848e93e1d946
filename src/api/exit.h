// exit.h - the end of the process stops the goroutines before it destroys anything that they use.
#pragma once

namespace dunlin::inline v0_1::api {

// For atexit(): stops everything for good, unless this is the child of a fork().
void stop_at_exit() noexcept;
// Called by a thread that is about to use the runtime. If it is the main thread, its exit() stops the goroutines first
// from here on.
void arm_stopper() noexcept;
// For hooks.h: does the same for each thread that runs goroutines, for as long as it runs them. register_thread() may
// wait for the dynamic linker's lock; exit() on a thread that has not called it stops the goroutines only in the
// atexit() handler.
void register_thread() noexcept;
void machine_thread(bool begins) noexcept;

}  // namespace dunlin::api
