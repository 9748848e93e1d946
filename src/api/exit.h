// exit.h - the end of the process stops the goroutines before it takes anything away from them.
#pragma once

namespace dunlin::inline v0_1::api {

// For atexit(): stops everything for good, unless this is the child of a fork().
void stop_at_exit() noexcept;
// By a thread that is about to use the runtime: from here on the main thread's exit() stops the goroutines first.
void arm_stopper() noexcept;
// For hooks.h: does the same for each thread that runs goroutines, as long as it does.
void machine_thread(bool begins) noexcept;

}  // namespace dunlin::api
