// lifetime.h - the runtime starts at the first use. Its end: end_of_run.h.
#pragma once

namespace dunlin::inline v0_1::sched {

// Makes processors and the monitor at the first call, and returns true; cheap afterwards. Throws std::bad_alloc;
// std::system_error if there is no thread. Called upwards: the one file that knows what there is to start is
// runtime.cpp.
bool start_runtime();

}  // namespace dunlin::sched
