// exit.h - the end of the process stops the goroutines before it takes anything away from them.
#pragma once

namespace dunlin::inline v0_1::api {

// For atexit(): stops everything for good, unless this is the child of a fork().
void stop_at_exit() noexcept;
// Called by a thread that is about to use the runtime: the main thread's exit() stops the goroutines then.
void arm_stopper() noexcept;
// hooks.h: each thread that runs goroutines does so too while it does.
void machine_thread(bool begins) noexcept;

}  // namespace dunlin::api
