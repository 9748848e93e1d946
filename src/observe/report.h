// report.h - what the runtime tells about itself: dumps, the deadlock report, the leak report, schedtrace.
#pragma once

#include <cstddef>

#include "platform/text.h"
#include "sched/data/types.h"
#include "sched/preempt/sample.h"

namespace dunlin::inline v0_1::observe {

class page;

// Every goroutine, one paragraph for those that are alike, the current one first, then the longest waits; of more than
// `at_most` paragraphs only how many. The world must be stopped (or dead).
inline constexpr std::size_t everything = ~std::size_t{0};
// With a filter only those that it wants, without the current one.
struct goroutine_filter {
    bool (*wanted)(const sched::goroutine& g, const void* with) noexcept;
    const void* with;
};
void write_goroutines(page& to, std::size_t at_most, const goroutine_filter* filter = nullptr) noexcept;

// One goroutine's paragraph, with something behind the place where it waits.
struct more_about_wait {
    void (*write)(platform::text_writer& out, const void* with) noexcept;
    const void* with;
};
void write_one(
    page& to, const sched::goroutine& g, const sched::samples& samples, const more_about_wait& more) noexcept;

// `write` with the world stopped, and what it has written to stderr when that goes on. Not in the runtime.
void report_later(void (*write)(page& to) noexcept) noexcept;

// sched::hooks.deadlock: reports and ends the process with status 2. Under the scheduler lock, all machines asleep.
[[noreturn]] void report_deadlock() noexcept;

// Of a process that is about to end: what the recorder or a trace has not written yet (trace_file.cpp). Allocates
// nothing.
void write_trace_of_death() noexcept;
// What a region that was too slow has asked for.
void write_trace_of_slow_region() noexcept;
// A thread that runs goroutines begins or ends, on itself (cpu_profile.cpp).
void profile_machine_thread(bool begins) noexcept;
// DUNLIN_TRACE.
void read_trace_setting();

// Names the goroutines that are left when the main one has ended.
void report_leaks() noexcept;

// DUNLIN_DEBUG=schedtrace=1000,scheddetail=1,dumpsignal=QUIT,dumpformat=json,deadlock. What these ask for, and what the
// monitor asks for by itself, is printed by the thread maker's thread.
void read_debug_settings();
// What it said of a page (page=ADDRESS); null: nothing.
const char* page_setting() noexcept;

// A dump to stderr, as runtime::dump().
void dump_to_stderr(bool as_json) noexcept;

// Goroutines that wait for each other in a circle, for mutexes and for their ends, each circle once (wait_graph.h).
// Stops the world.
void report_circles() noexcept;

// One schedtrace line, and with `detail` one for each P, M and G.
void write_trace(platform::text_writer& out, bool detail) noexcept;

}  // namespace dunlin::observe
