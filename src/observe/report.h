// report.h - what the runtime reports about itself: dumps, the deadlock report, the leak report, schedtrace.
#pragma once

#include <cstddef>

#include "platform/text.h"
#include "sched/data/types.h"
#include "sched/preempt/sample.h"

namespace dunlin::inline v0_1::observe {

class page;

// Writes every goroutine, one paragraph for those that are alike: the current one first, then those with the longest
// waits. Paragraphs beyond `at_most` are only counted. The world must be stopped (or dead).
inline constexpr std::size_t everything = ~std::size_t{0};
// With a filter: only the goroutines that it wants, without the current one.
struct goroutine_filter {
    bool (*wanted)(const sched::goroutine& g, const void* with) noexcept;
    const void* with;
};
void write_goroutines(page& to, std::size_t at_most, const goroutine_filter* filter = nullptr) noexcept;

// One goroutine's paragraph; `more` writes something behind the place where it waits.
struct more_about_wait {
    void (*write)(platform::text_writer& out, const void* with) noexcept;
    const void* with;
};
void write_one(
    page& to, const sched::goroutine& g, const sched::samples& samples, const more_about_wait& more) noexcept;

// Calls `write` with the world stopped, and prints what it has written to stderr when the world goes on. Not for calls
// from within the runtime.
void report_later(void (*write)(page& to) noexcept) noexcept;

// sched::hooks.deadlock: reports and ends the process with status 2. Under the scheduler lock, all machines asleep.
[[noreturn]] void report_deadlock() noexcept;

// In a process that is about to end: writes what the recorder or a trace has not written yet (trace_file.cpp).
// Allocates nothing.
void write_trace_of_death() noexcept;
// Writes the recorder's file that a too slow region has asked for.
void write_trace_of_slow_region() noexcept;
// A thread that runs goroutines begins or ends; called on that thread (cpu_profile.cpp).
void profile_machine_thread(bool begins) noexcept;
// Reads DUNLIN_TRACE.
void read_trace_setting();

// Names the goroutines that are left when the main one has ended.
void report_leaks() noexcept;

// Reads DUNLIN_DEBUG=schedtrace=1000,scheddetail=1,dumpsignal=QUIT,dumpformat=json,deadlock. The thread maker's thread
// prints what these ask for, and what the monitor asks for by itself.
void read_debug_settings();
// The address in DUNLIN_DEBUG=page=ADDRESS; null: there is none.
const char* page_setting() noexcept;

// A dump to stderr, as runtime::dump().
void dump_to_stderr(bool as_json) noexcept;

// Reports goroutines that wait for each other in a circle, for mutexes and for their ends; each circle once
// (wait_graph.h). Stops the world.
void report_circles() noexcept;

// One schedtrace line, and with `detail` one for each P, M and G.
void write_trace(platform::text_writer& out, bool detail) noexcept;

}  // namespace dunlin::observe
