// crash.h - reports about a goroutine that ends the process: stack overflow, uncaught exception, misuse.
#pragma once

#include "platform/text.h"
#include "sched/types.h"

namespace dunlin::sched {

// Once: SIGSEGV and SIGBUS are looked at first by us, and passed on to whoever had them when the address is not in a stack's guard.
void install_crash_handlers() noexcept;
// Nobody has put handlers of his own in their place since.
bool crash_handlers_in_force() noexcept;

// A report is being written that will end the process: does not return then. For whoever is about to end a run or the process.
void let_reports_finish() noexcept;

// `goroutine 7 "writer"`
void print_who(platform::text_writer& out, const goroutine* g) noexcept;
// `main.cpp:12 in main()`, or "an unknown place"
void print_where(platform::text_writer& out, const std::source_location& where) noexcept;
void print_where(platform::text_writer& out, creation_place where) noexcept;

// An object was used as it must not be: `fatal: unlock of unlocked mutex (goroutine 7 "writer", created at main.cpp:12 in main())`, a stack, abort().
[[noreturn]] void report_misuse(std::string_view what) noexcept;

[[noreturn]] void report_illegal_transition(const goroutine* g, goroutine_state expected, goroutine_state wanted) noexcept;

}  // namespace dunlin::sched
