// preempt.h - goroutines that compute are stopped where they are, on their own thread, and go on there when their turn
// comes.
//
// Problem    Any C++ code may be interrupted at any instruction: with half a thread_local written, inside a catch
//            block, with a mutex held. Moving it to another thread is out of the question. But it can be stopped.
// Protocol   Two steps, so that the handler of a signal never owns a processor:
//            1  The monitor takes the processor, without the thread's help (handshake.h), marks the machine detached
//               and hands the processor on (retake.h). The thread goes on computing, without a processor. Its next call
//               into the runtime would queue it (enter_slow).
//            2  The monitor sends the thread a signal. If the thread is still detached, and in code where it may stop,
//               the handler queues the machine as preempted and sleeps on resume_word, inside the handler, on the
//               alternate signal stack.
//            When the turn of a preempted machine has come, another machine (find_work) or the monitor (retake) hands
//            it a processor: the handler returns.
//            A signal that comes late, or never (blocked, another handler installed), changes nothing that step 1 has
//            done.
// Where not  Inside the runtime, or with one of its locks held (in_runtime, unstoppable; platform/lock_check.h, K2). In
//            libc, the loader, the unwinder (safe_point.h): the thread is asked again every half millisecond, and
//            stopped there nevertheless after `rejects_max` attempts, because code that throws or allocates all the
//            time is hardly ever anywhere else. The CPU time that it has used meanwhile is a debt: it misses a turn for
//            each slice of that. In a no_preempt scope: never; its processor is not taken either.
// Locks      A stopped thread may hold a lock for which others wait. They wait as blocked threads: their processors are
//            handed on, and preempted goroutines have their turns, including the holder. That needs no memory and no
//            new thread: a preempted machine has its own. A thread that waits inside the runtime (for malloc's lock, to
//            create a thread) keeps its processor: then the monitor lets all preempted goroutines go on without
//            processors (let_preempted_go), which needs neither memory nor a new thread. While the world is stopped
//            there are no turns, and the thread that stopped it may wait for a lock (a dump allocates). If that lasts,
//            all preempted goroutines go on too, and none is stopped meanwhile.
// Spin locks A goroutine that is stopped where it waits in a loop (spins_at) has slices of 0.2 ms from then on, until
//            it has been stopped elsewhere `short_slices_of_spinners` times. The goroutine that it waits for mostly has
//            no processor, and may itself be stopped; with a FIFO lock it is one particular goroutine. Slices are not
//            even shorter, because at 0.05 ms nearly all of the time would go into preemptions.
// Rescuer    All this depends on the monitor, so the monitor must never wait for a stopped goroutine, nor for a thread
//            that waits for one: it takes few locks, each held for moments by threads that cannot be stopped meanwhile
//            and wait for nothing (docs/locks.md), it allocates nothing, and it leaves to the thread maker everything
//            that may take long.
// In calls   No signal is sent to a thread that sleeps in the kernel: its call would end with EINTR. A signal is sent
//            only to a thread that has computed since the monitor's first look, without sleeping once (/proc counts
//            that). It may enter a call in the microseconds between the check and the signal, or compute in one, as
//            one that copies much does: on x86-64 the handler sees that, and the call is made again or goes on
//            (stack/interrupted_call.h).
// Turns      All other goroutines go first, then the preempted ones in order, with two exceptions (pop_preempted): the
//            second goes first if its CPU is the one that is free, and one in debt misses its turn. But when their
//            share of the time is due (retake.cpp, tell_whose_turn) one of them has a turn even if others are always
//            runnable. A goroutine that was stopped early, for one just woken, goes first and gets the rest of its
//            slice.
// Source     Shiina et al., "Lightweight Preemptive User-Level Threads" (PPoPP 2021), KLT-switching;
//            docs/decisions/014-preemption.md.
// Tests      tests/go/preempt_test.cpp, tests/go/preempt_state_test.cpp, tests/sched/hog_stress_test.cpp,
//            tests/sched/spin_test.cpp, tests/model/detached_model_test.cpp, tests/sim/preempt_cases.cpp
#pragma once

#include <csignal>

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// How far preemption goes: DUNLIN_PREEMPTION=signal (both steps), take (the first), off.
enum class preemption : std::uint8_t { off, take, signal };
// DUNLIN_PREEMPTION=anywhere, a setting for tests: goroutines are also stopped inside libraries. So stopped goroutines
// often hold any of the locks outside the runtime.
DUNLIN_HIDDEN extern bool preempt_anywhere;  // constant after the start
DUNLIN_HIDDEN extern preemption preemption_mode;  // constant after the start
DUNLIN_HIDDEN extern int preemption_signal;       // constant after the start; DUNLIN_PREEMPTION_SIGNAL

// Step 2, called by the monitor: sends the signal. m is detached.
void ask_to_stop(machine* m) noexcept;

// Waits, for a moment at most, until m is stopped or has answered that it cannot stop. Then its CPU is free when the
// next machine is woken; otherwise the kernel would put that machine behind another thread on another CPU. Also, no
// more goroutines compute than there are processors.
void wait_until_stopped(machine* m) noexcept;

// True: step 2 may stop the calling thread, since it computes for a goroutine, outside the runtime. For
// platform::set_stoppable().
bool may_be_stopped_here() noexcept;

// Called in the handler when the thread is stopped while it runs g. `spins`: g waited in a loop.
void note_spinning(machine* m, const goroutine* g, bool spins) noexcept;

// Step 2, called in the handler on m's own thread.
void stop_if_asked(machine* m, void* context) noexcept;

// Called by the monitor: lets all preempted goroutines go on, without processors.
void let_preempted_go() noexcept;

// Called at the end of run(), under the scheduler lock: preempted machines that are stopped where they may stay are
// left there for good; the others go on, condemned.
void abandon_preempted() noexcept;

}  // namespace dunlin::sched
