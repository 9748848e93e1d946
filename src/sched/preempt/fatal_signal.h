// fatal_signal.h - the signals that end a process: they are reported, then the process dies.
//
// Signals    SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT of a goroutine are reported; std::terminate, assert and
//            abort() end in SIGABRT. Then the process dies from the signal, as it would without dunlin: with the same
//            status, and a core file that shows the faulting instruction. Signals that a goroutine raises itself are
//            treated in the same way. Signals from other processes, and those of the program's own threads, are not
//            reported.
// Precedence A handler that the program installed before the runtime started is called as if dunlin were not there,
//            with its arguments, mask and flags. Nothing is printed for its signal, not even for a stack overflow (for
//            which the kernel does not call it without SA_ONSTACK). A handler that is installed later replaces ours.
//            SIG_IGN is honoured for signals that are sent; a fault ends the process all the same, with a report.
#pragma once

namespace dunlin::inline v0_1::sched {

// Called once, at the start.
void install_crash_handlers() noexcept;
// True: the handlers for SIGSEGV and SIGBUS are still the runtime's, not the program's.
bool crash_handlers_in_force() noexcept;
// Called by the only thread in the child of a fork(). Whether it ran a goroutine or not, it is a plain thread from here
// on.
void leave_runtime_in_child() noexcept;

}  // namespace dunlin::sched
