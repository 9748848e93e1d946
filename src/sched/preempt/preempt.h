// preempt.h - goroutines that compute are stopped where they stand, on their own thread, and go on there when their
// turn comes.
//
// Problem    Any C++ code may be interrupted at any instruction: with half a thread_local written, inside a catch
//            block, with a mutex held. Moving it to another thread is out of the question. But it can stand still.
// Protocol   Two steps, so that the handler of a signal never owns a processor:
//            1  The monitor takes the processor, without the thread's help (handshake.h), marks the machine a stray and
//               hands the processor on (hand_off.h). The thread computes on, without a processor. Its next call into
//               the runtime would queue it (enter_slow).
//            2  The monitor sends the thread a signal. The handler looks whether the thread is still a stray, in code
//               where it may stop, and if so queues the machine as preempted and sleeps on resume_word, inside the
//               handler, on the alternate signal stack.
//            A machine (find_work) or the monitor (hand_off) that finds the turn of a preempted machine come hands it a
//            processor: the handler returns.
//            A signal that comes late, or never (blocked, another handler installed), changes nothing that step 1 has
//            done.
// Where not  Inside the runtime, or with one of its locks held (in_runtime, unstoppable; platform/lock_check.h, K2). In
//            libc, the loader, the unwinder (safe_place.h): it is asked again every half millisecond, and stopped there
//            after `rejects_max` attempts nevertheless, because code that throws or allocates all the time is hardly
//            ever anywhere else. What it has computed meanwhile is a debt: it misses a turn for each slice of that. In
//            a no_preempt scope: never; its processor is not taken either.
// Locks      A thread that stands still may hold a lock for which others wait. They wait as blocked threads: their
//            processors are handed on, and preempted goroutines have their turns, the holder's included. That needs no
//            memory and no new thread: a preempted machine has its own. What waits inside the runtime (for malloc's
//            lock, to create a thread) keeps its processor: then the monitor lets all preempted goroutines go on
//            without processors (thaw_preempted), which needs neither. While the world is stopped there are no turns,
//            and the thread that stopped it may wait for a lock (a dump allocates). If that lasts, all go on too, and
//            none is stopped meanwhile.
// Spin locks A goroutine that is stopped where it waits in a loop (spins_at) has turns of 0.2 ms from then on, until it
//            has been stopped elsewhere `short_turns_of_spinners` times. The goroutine that it waits for mostly has no
//            processor, and may itself be stopped; with a FIFO lock it is one certain goroutine. Turns are not shorter
//            still: at 0.05 ms nearly all of the time would go into preemptions.
// Rescuer    All that rests on the monitor, so the monitor must never wait for a goroutine that stands still, nor for a
//            thread that waits for one: it takes few locks, each held for moments by threads that cannot be stopped
//            meanwhile and wait for nothing (docs/locks.md), it allocates nothing, and leaves to the thread maker
//            everything that may take long.
// In calls   A thread that sleeps in the kernel is not sent a signal: its call would end with EINTR. Only one that has
//            computed since the monitor's first look, without sleeping once (/proc counts that), is. It may enter a
//            call in the microseconds between: on x86-64 the handler sees that and has the call made again
//            (repeat_interrupted_call).
// Turns      All other goroutines first, then the preempted in order (with one exception, see pop_preempted); but after
//            their share of the time (hand_off.cpp, tell_whose_turn) it is the turn of one of them even if others are
//            runnable always. A goroutine that was stopped early, for one just woken, goes first and has the rest of
//            its slice.
// Source     Shiina et al., "Lightweight Preemptive User-Level Threads" (PPoPP 2021), KLT-switching;
//            docs/decisions/014-preemption.md.
// Tests      tests/go/preempt_test.cpp, tests/go/preempt_state_test.cpp, tests/sched/hog_stress_test.cpp,
//            tests/sched/spin_test.cpp, tests/model/stray_model_test.cpp, tests/sim/preempt_cases.cpp
#pragma once

#include <csignal>

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// How far it goes. DUNLIN_PREEMPTION=signal (both steps), take (the first), off.
enum class preemption : std::uint8_t { off, take, signal };
// DUNLIN_PREEMPTION=anywhere, a setting for tests: goroutines are stopped inside libraries, too. So goroutines that
// stand still often hold whatever locks there are outside the runtime.
DUNLIN_HIDDEN extern bool preempt_anywhere;  // constant after the start
DUNLIN_HIDDEN extern preemption preemption_mode;  // constant after the start
DUNLIN_HIDDEN extern int preemption_signal;       // constant after the start; DUNLIN_PREEMPTION_SIGNAL

// Step 2, by the monitor: sends the signal. m is a stray.
void ask_to_stop(machine* m) noexcept;

// Waits, for a moment at most, until m stands still or has answered that it cannot. Then its CPU is free when the next
// machine is woken; otherwise the kernel would put that one behind another thread on another CPU. And no more
// goroutines compute than there are processors.
void wait_until_stopped(machine* m) noexcept;

// Whether step 2 may stop the calling thread: it computes for a goroutine, outside the runtime. For
// platform::set_stoppable().
bool may_be_stopped_here() noexcept;

// In the handler, where the thread is stopped while it runs g. `spins`: g waited in a loop.
void note_spinning(machine* m, const goroutine* g, bool spins) noexcept;

// Step 2, in the handler. False: the signal was not ours.
bool stop_if_asked(const siginfo_t* info, void* context) noexcept;

// By the monitor: all preempted goroutines go on, without processors.
void thaw_preempted() noexcept;

// At the end of run(), under the scheduler lock: preempted machines that stand where they may stay are left there for
// good; the others go on, condemned.
void abandon_preempted() noexcept;

}  // namespace dunlin::sched
