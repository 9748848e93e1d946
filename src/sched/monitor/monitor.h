// monitor.h - the thread that watches: no processor, no goroutine, never blocked by either.
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

#include "sched/data/bells.h"

namespace dunlin::inline v0_1::sched {

// Starts it once; false if there is no thread for it.
bool start_monitor() noexcept;

// What the monitor has printed, by the thread maker: what is behind stderr may be full.
enum report_kind : std::uint32_t {
    report_trace = 1,       // every so many milliseconds: set_trace_period()
    report_dump = 2,        // call_monitor_to_dump()
    report_long_waits = 4,  // goroutines have waited for long for a mutex or for the end of others
    report_slow_region = 8, // of a trace
};
// Sets the function that prints. Once, before anything else of this. `print` asks take_reports() what for.
void set_reporter(void (*print)()) noexcept;
std::uint32_t take_reports() noexcept;
// Any thread: the same without the monitor.
void want_report(report_kind what) noexcept;
// 0: never.
void set_trace_period(std::int64_t period_ms) noexcept;
// What is long for report_long_waits; a second unless it is called.
void set_long_wait(std::int64_t ns) noexcept;
}  // namespace dunlin::sched
