// report.h - what the runtime tells about itself: dumps, the deadlock report, the leak report, schedtrace.
#pragma once

#include "platform/text.h"

namespace dunlin::observe {

class page;

// Every goroutine, one paragraph each, the current one first. The world must be stopped (or dead).
void write_goroutines(page& to) noexcept;

// sched::hooks.deadlock: reports and ends the process with status 2. Under the scheduler lock, all machines asleep.
[[noreturn]] void report_deadlock() noexcept;

// Names the goroutines that are left when the main one has ended.
void report_leaks() noexcept;

// DUNLIN_DEBUG=schedtrace=1000,scheddetail=1
void read_debug_settings();

// One schedtrace line, and with `detail` one for each P, M and G.
void write_trace(platform::text_writer& out, bool detail) noexcept;

}  // namespace dunlin::observe
