// fatal_signal.h - the signals that end a process: reported first, and not survived.
//
// Signals    SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT of a goroutine are reported; std::terminate, assert and
//            abort() end in SIGABRT. Then the process dies by the signal, as it would without dunlin: with the same
//            status, and a core file that shows the faulting instruction. Signals that a goroutine raises itself are
//            treated alike. Signals from other processes, and those of the program's own threads, are not reported.
// Precedence A handler that the program installed before the runtime started is called as if dunlin were not there,
// with
//            its arguments, mask and flags. Nothing is printed for its signal, not even for a stack overflow (without
//            SA_ONSTACK the kernel does not call it for that one). A handler that is installed later replaces ours.
//            SIG_IGN is honoured for signals that are sent; a fault ends the process all the same, with a report.
#pragma once

namespace dunlin::inline v0_1::sched {

// Once, at the start.
void install_crash_handlers() noexcept;
// Whether the handlers for SIGSEGV and SIGBUS are still the runtime's, not the program's.
bool crash_handlers_in_force() noexcept;
// The calling thread is the only one in the child of a fork(). Whether it ran a goroutine or not, it is a plain thread
// from here on.
void leave_runtime_in_child() noexcept;

}  // namespace dunlin::sched
