// dump.h - reports about goroutines: the dump, the deadlock report, and what the other reports are written with.
#pragma once

#include <cstddef>

#include "platform/text.h"
#include "sched/data/types.h"
#include "sched/preempt/stack_capture.h"

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
    page& to, const sched::goroutine& g, const sched::stack_captures& captures, const more_about_wait& more) noexcept;

// Calls `write` with the world stopped, and prints what it has written to stderr when the world goes on. Not for calls
// from within the runtime. `patience_ms`: as a text_writer's.
void report_later(void (*write)(page& to) noexcept, int patience_ms) noexcept;

// sched::hooks.deadlock: reports and ends the process with status 2. Under the scheduler lock, all machines asleep.
[[noreturn]] void report_deadlock() noexcept;

// Names the goroutines that are left when the main one has ended.
void report_leaks() noexcept;

// A dump to stderr, as runtime::dump().
void dump_to_stderr(bool as_json) noexcept;

}  // namespace dunlin::observe
