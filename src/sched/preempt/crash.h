// crash.h - reports about a goroutine that ends the process: a fatal signal, stack overflow, uncaught exception,
// misuse.
//
// Signals    SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT (which is what std::terminate, assert and abort() come to) of
//            a goroutine are reported; then the process dies by the signal, as it would without dunlin: same status,
//            and a core file that shows the faulting instruction. So it is with those that a goroutine raises. What
//            another process sends, and what happens to the program's own threads, is not ours to comment on.
// Precedence A handler that the program had installed before the runtime started has what it would have without us:
//            its arguments, mask and flags. Nothing is printed for its signal, not even for a stack overflow (without
//            SA_ONSTACK the kernel does not call it for that one). One that is installed later replaces ours. SIG_IGN
//            goes for signals that are sent; a fault ends the process all the same, with a report.
// Once       The first report is the only one. A goroutine that crashes meanwhile waits for its end; a crash within the
//            report ends the process there.
#pragma once

#include "platform/text.h"
#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Once.
void install_crash_handlers() noexcept;
// Whether the handlers for SIGSEGV and SIGBUS are still the runtime's, not the program's.
bool crash_handlers_in_force() noexcept;
// The calling thread is the only one of the child of a fork(). Goroutine or not: it is a plain thread from here on.
void leave_runtime_in_child() noexcept;

// The caller is the one that reports, or does not return. It is not stopped any more.
void claim_report() noexcept;
// The caller has claimed it before: this is a fault within its report.
bool reports_itself() noexcept;
// A report is being written that will end the process: does not return then. For a thread that is about to end a run or
// the process.
void let_reports_finish() noexcept;

// The last act of the thread that reports, before the process ends.
void tell_of_death() noexcept;

// `goroutine 7 "writer"`
void print_who(platform::text_writer& out, const goroutine* g) noexcept;
// `main.cpp:12 in main()`, or "an unknown place"
void print_where(platform::text_writer& out, const std::source_location& where) noexcept;
void print_where(platform::text_writer& out, creation_place where) noexcept;

// An object was used as it must not be: `fatal: unlock of unlocked mutex (goroutine 7 "writer", created at main.cpp:12
// in main())`, a stack, abort().
[[noreturn]] void report_misuse(std::string_view what) noexcept;

[[noreturn]] void report_illegal_transition(const goroutine* g, goroutine_state expected,
    goroutine_state wanted) noexcept;

}  // namespace dunlin::sched
