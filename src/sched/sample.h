// sample.h - where a goroutine stands that has its registers on a thread: one that computes, or that was preempted. For reports.
//
// Problem    The stack of a parked goroutine can be walked by anybody. That of one that computes changes all the time, and of one that was preempted the
//            registers are in the frame of a signal; yet the goroutine that burns the CPU is the one for which people ask for a report.
// Protocol   The thread itself looks, when it is asked. One request at a time, by whoever has stopped the world:
//              asker    state = asked (release), for machine m         m   in the handler of a signal: asked -> taking (acquire, one of the two wins)
//                       m computes: the preemption signal                  frames = ...
//                       m is preempted: resume_word 0 -> look, wake        state = taken (release), wake
//                       wait; too long: asked -> none, one of the two wins
//            A preempted machine that is handed a processor, or thawed, meanwhile goes on: resume_word is overwritten, and the request is withdrawn.
// Signals    None for a thread that sleeps in the kernel, as for preemption (preempt.h), and none without DUNLIN_PREEMPTION=signal.
// Locks      The unwinder takes none since glibc 2.35 (_dl_find_object). With an older one nobody is asked who may hold the loader's (safe_place.h).
// Cost       30 to 100 us a goroutine, the most of it until the thread runs.
// Tests      tests/runtime/dump_test.cpp
#pragma once

#include "sched/types.h"
#include "stack/trace.h"

namespace dunlin::sched {

// A sample in resume_word, beside 0 to 2 (types.h).
inline constexpr std::uint32_t resume_to_look = 3;

// The frames of g, which is running or preempted and not the caller. Empty: it is inside the runtime, sleeps in the kernel, or did not answer in time.
// The world is stopped. Waits, 20 ms at most.
stack::trace sample(const goroutine& g) noexcept;

// Where in libc, or in whatever calls the kernel, g's thread sleeps, if it does and is not inside the runtime; else null. 10 us.
const void* asleep_at(const goroutine& g) noexcept;

// On m's own thread, in the handler of the signal; and while it sleeps in there, preempted. False: nobody has asked.
bool sample_if_asked(machine* m, const void* context) noexcept;
bool sample_if_asked_again(machine* m) noexcept;

}  // namespace dunlin::sched
