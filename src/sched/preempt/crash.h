// crash.h - reports about a goroutine that ends the process: a fatal signal (fatal_signal.h), stack overflow, uncaught
// exception, misuse.
//
// Once       Only the first crash is reported. A goroutine that crashes meanwhile waits for the end of that report; a
//            crash within the report ends the process at once.
#pragma once

#include "platform/text.h"
#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// The caller becomes the reporter; does not return if another thread is the reporter. The reporter is no longer stopped
// by signals.
void claim_report() noexcept;
// True: the caller has claimed the report before, so this is a fault within the report.
bool reports_itself() noexcept;
// For a thread that is about to end a run or the process: does not return if a report is being written that will end
// the process.
void let_reports_finish() noexcept;

// Called last by the thread that reports, before the process ends.
void tell_of_death() noexcept;

// `goroutine 7 "writer"`
void print_identity(platform::text_writer& out, const goroutine* g) noexcept;
// `main.cpp:12 in main()`, or "an unknown place"
void print_where(platform::text_writer& out, const std::source_location& where) noexcept;
// Not `demangle`: without the heap, with the beginning of a name that would need it.
void print_where(platform::text_writer& out, creation_place where, bool demangle = true) noexcept;

// Reports the misuse of an object and ends the process: `fatal: unlock of unlocked mutex (goroutine 7 "writer", created
// at main.cpp:12 in main())`, a stack, abort().
[[noreturn]] void report_misuse(std::string_view what) noexcept;

[[noreturn]] void report_illegal_transition(const goroutine* g, goroutine_state expected,
    goroutine_state wanted) noexcept;

}  // namespace dunlin::sched
