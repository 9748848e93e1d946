// trace_file.h - the ends of traces and of the recorder.
#pragma once

namespace dunlin::inline v0_1::observe {

// In a process that is about to end: writes what the recorder or a trace has not written yet.
// Allocates nothing.
void write_trace_of_death() noexcept;
// Has the monitor write the recorder's file, because a region was too slow; nothing if the recorder does not run.
void ask_for_trace_of_slow_region() noexcept;
// Writes that file. The monitor's, and the process's at exit.
void write_trace_of_slow_region() noexcept;

// Reads DUNLIN_TRACE.
void read_trace_setting();

}  // namespace dunlin::observe
