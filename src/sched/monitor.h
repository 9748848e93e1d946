// monitor.h - the thread that watches: no processor, no goroutine, never blocked by either.
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

#include "sched/types.h"

namespace dunlin::sched {

// Starts it once; false if there is no thread for it.
bool start_monitor() noexcept;

// While a processor runs. A deadline that is further away it has seen in time.
inline constexpr std::int64_t monitor_sleeps_at_most_ns = 10'000'000;

// 0 or 1: for the deadlock check's arithmetic.
unsigned monitor_threads() noexcept;

// A processor was taken out of "all idle": the monitor must not sleep on. One load when it is awake.
void wake_monitor() noexcept;
DUNLIN_HIDDEN extern platform::atomic<std::uint32_t> monitor_asleep;
inline void wake_monitor_if_asleep() noexcept {
    if (DUNLIN_UNLIKELY(monitor_asleep.load(std::memory_order_seq_cst) != 0)) wake_monitor();
}

// Work was brought from outside: if no processor has come to the scheduler lately, the monitor sees to it at once.
void call_monitor() noexcept;
inline void call_monitor_if_all_stuck() noexcept {
    if (DUNLIN_UNLIKELY(the_scheduler.all_stuck.load(std::memory_order_relaxed)) && !the_scheduler.urgent.load(std::memory_order_relaxed)) call_monitor();
}

// Its next round is now.
void hurry_monitor() noexcept;

// A goroutine was lost after the end of its run(): its state says so, and others may wait for what was its. Also from a
// signal handler.
void call_monitor_for_lost() noexcept;

// What the monitor has printed, by the thread maker: what is behind stderr may be full.
enum report_kind : std::uint32_t {
    report_trace = 1,       // every so many milliseconds: set_trace_period()
    report_dump = 2,        // call_monitor_to_dump()
    report_long_waits = 4,  // goroutines that wait for a mutex have done so a second ago
    report_slow_region = 8, // of a trace
};
// Sets the function that prints. Once, before anything else of this. `print` asks take_reports() what for.
void set_reporter(void (*print)()) noexcept;
std::uint32_t take_reports() noexcept;
// Any thread: the same without the monitor.
void want_report(report_kind what) noexcept;
// 0: never.
void set_trace_period(std::int64_t period_ms) noexcept;
// In a signal handler, too. errno stays as it is.
void call_monitor_to_dump() noexcept;

}  // namespace dunlin::sched
