// monitor.h - the thread that watches: it has no processor and no goroutine, and is never blocked by either.
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

#include "sched/data/bells.h"

namespace dunlin::inline v0_1::sched {

// Starts the monitor, once; false if no thread is available for it.
bool start_monitor() noexcept;

// Returns when the round in progress, if there is one, has ended. Such a round has not seen the simulation that is
// about to begin, and may take the caller's processor meanwhile. Called by the goroutine that begins a simulation,
// outside the runtime, after its store of the_steering. The thread waits: mostly for microseconds, at most for a round.
void wait_for_round_in_progress() noexcept;

// Reports that are printed by the thread maker, not by the monitor: a write to stderr may wait.
enum report_kind : std::uint32_t {
    report_schedtrace = 1,  // at intervals: set_schedtrace_period()
    report_dump = 2,        // call_monitor_to_dump()
    report_long_waits = 4,  // goroutines have waited long for a mutex or for the end of others
    report_slow_region = 8, // of a trace
};
// Sets the function that prints. Called once, before any other function of this file asks for a report. `print` learns
// from take_reports() which reports are wanted.
void set_reporter(void (*print)()) noexcept;
std::uint32_t take_reports() noexcept;
// Any thread: asks for a report.
void want_report(report_kind what) noexcept;
// 0: never.
void set_schedtrace_period(std::int64_t period_ms) noexcept;
// The length of a long wait, for report_long_waits; a second unless this is called.
void set_long_wait(std::int64_t ns) noexcept;
}  // namespace dunlin::sched
