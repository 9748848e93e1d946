// sample.h - where goroutines stand that have their registers on a thread: those that compute, or that were preempted.
// For reports.
//
// Problem    Any thread can walk the stack of a parked goroutine. That of one that computes changes all the time, and
//            of one that was preempted the registers are in the frame of a signal; yet the goroutine that burns the CPU
//            is the one that a report is wanted for.
// Protocol   Each thread looks by itself, when it is asked: all at once, by the thread that has stopped the world (the
//            asker).
//              asker    m.sample.state = asked (release); then         m   in the handler: asked -> taking (acquire;
//                       m computes: the preemption signal                  one of the two wins)
//                       m is preempted: resume_word 0 -> look, wake        frames = ...; state = taken (release)
//                       wait until none is pending, or 4 ms                one less is pending; the last one wakes the
//                       afterwards: asked -> none (one of the two wins)    asker
//            A preempted machine that is thawed meanwhile goes on: resume_word is overwritten, and it answers as it
//            leaves. One that is `taking` when the time is over writes into its own record, later, and stays pending
//            until then.
// Faults     The thread may stand at any instruction, where the unwinder may be told wrong things (functions written in
//            assembly) and read from addresses that do not exist. The handler of SIGSEGV ends the look then, and the
//            frames found until then count. Where the program has replaced that handler only the innermost frame is
//            looked at.
// Signals    None for a thread that sleeps in the kernel, as for preemption (preempt.h), and none without
//            DUNLIN_PREEMPTION=signal.
// Locks      The unwinder takes none of the loader's since glibc 2.35 (_dl_find_object), but one of its own where a
//            program registers frames (compilers at run time do). Of a thread that was interrupted in the unwinder, or
//            with an older glibc in any library of safe_place.h, only the innermost frame is noted.
// Tests      tests/runtime/dump_test.cpp, tests/soak/
#pragma once

#include <csignal>

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// While it lives, of() has the frames of goroutines that compute or are preempted. The world is stopped meanwhile (or
// no goroutine runs any more), and one such object exists at a time.
class samples {
public:
    samples() noexcept;  // asks, and waits 4 ms at most
    ~samples();
    samples(const samples&) = delete;
    samples& operator=(const samples&) = delete;

    // Empty if g neither computes nor is preempted; or is the caller, inside the runtime (where goroutines wait that
    // have called it since the world stopped), asleep in the kernel, inside blocking() or no_preempt; or if its thread
    // has not answered in time.
    stack::trace of(const goroutine& g) const noexcept;
};

// Where g's thread sleeps in a system call: the address in libc or in whatever else made it. Null: it does not sleep,
// or is inside the runtime. 10 us.
const void* asleep_at(const goroutine& g) noexcept;

// On m's own thread: in the handler of the signal, and while it sleeps there, preempted. False: the signal was not one
// of ours.
bool sample_if_asked(machine* m, const siginfo_t* info, void* context) noexcept;
void sample_if_asked_again(machine* m, const void* context) noexcept;

// In a handler where all signals are blocked: the frames of what the signal has interrupted on m's thread, the
// innermost at least. Takes no lock.
void unwind_interrupted(machine* m, const void* context, stack::trace& into) noexcept;

// In the handler of a fault. Does not return if m's look at its own stack has faulted.
void end_sample_that_faults(machine* m) noexcept;

}  // namespace dunlin::sched
