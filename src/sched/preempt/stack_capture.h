// stack_capture.h - for reports: where goroutines are whose registers are in a thread, since they compute or were
// preempted.
//
// Problem    Any thread can walk the stack of a parked goroutine. But the stack of a goroutine that computes changes
//            all the time, and the registers of one that was preempted are in a signal frame; yet reports are wanted
//            above all about the goroutine that burns the CPU.
// Protocol   Each thread looks at its own stack when it is asked. The thread that has stopped the world (the asker)
//            asks all at the same time.
//              asker    m.capture.state = asked (release); then         m   in the handler: asked -> taking (acquire;
//                       m computes: the preemption signal                  one of the two wins)
//                       m is preempted: resume_word 0 -> look, wake        frames = ...; state = taken (release)
//                       wait until none is pending, or 4 ms                one less is pending; the last one wakes the
//                       afterwards: asked -> none (one of the two wins)    asker
//            A preempted machine that is thawed meanwhile goes on: resume_word is overwritten, and the machine answers
//            when it leaves the handler. A machine that is `taking` when the time is over writes into its own record,
//            later, and stays pending until then.
// Faults     The thread may be at any instruction, where unwind information may be wrong (functions written in
//            assembly), and then the unwinder may read from addresses that do not exist. The handler of SIGSEGV then
//            ends the look, and the frames found so far count. If the program has replaced that handler, only the
//            innermost frame is noted.
// Signals    None to a thread that sleeps in the kernel, as for preemption (preempt.h), and none without
//            DUNLIN_PREEMPTION=signal.
// Locks      Since glibc 2.35 (_dl_find_object) the unwinder takes no lock of the loader, but it takes one of its own
//            if a program registers frames (run-time compilers do). If a thread was interrupted in the unwinder, or
//            with an older glibc in any library of safe_point.h, only the innermost frame is noted.
// Tests      tests/runtime/dump_test.cpp, tests/soak/
#pragma once

#include <csignal>

#include "platform/thread.h"
#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// While this object lives, of() returns the frames of goroutines that compute or are preempted. The world is stopped
// meanwhile (or no goroutine runs any more), and only one such object exists at a time.
class stack_captures {
public:
    stack_captures() noexcept;  // asks, and waits 4 ms at most
    ~stack_captures();
    stack_captures(const stack_captures&) = delete;
    stack_captures& operator=(const stack_captures&) = delete;

    // Empty if g neither computes nor is preempted; or if it is the caller, inside the runtime (where goroutines that
    // have called it since the world stopped wait), asleep in the kernel, or inside blocking() or no_preempt; or if its
    // thread has not answered in time.
    stack::trace of(const goroutine& g) const noexcept;
};

// The system call in which g's thread sleeps, and where it was made, in libc mostly. Null: it does not sleep, or is
// inside the runtime. Costs 10 us.
platform::sleeping_call asleep_in(const goroutine& g) noexcept;

// Where g's thread sleeps: the call, and the functions that led there, as many as can be found from outside (trace.h).
// None: g is not on its own stack, or the thread has not slept all the while.
stack::trace frames_of_sleeper(const goroutine& g, const platform::sleeping_call& call) noexcept;

// For the handler of a fault: does not return if it was frames_of_sleeper() that read what is not there.
void end_walk_that_faults() noexcept;

// Called on m's own thread: in the handler of the signal, and while it sleeps there, preempted.
void capture_if_asked(machine* m, const void* context) noexcept;
void capture_if_asked_again(machine* m, const void* context) noexcept;

// Called in a handler where all signals are blocked: finds the frames of the code that the signal has interrupted on
// m's thread, at least the innermost. Takes no lock.
void unwind_interrupted(machine* m, const void* context, stack::trace& into) noexcept;

// Called in the handler of a fault. Does not return if m's look at its own stack has faulted.
void end_sample_that_faults(machine* m) noexcept;

}  // namespace dunlin::sched
