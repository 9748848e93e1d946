// wake.h - when to wake a machine, and when to let one sleep.
//
// Problem    Work appears on any processor at any moment, and the state is spread out on purpose, so no thread sees all
//            of it. Waking a thread costs its waker some microseconds (wake_cost_ns), and it takes tens until
//            the thread runs: waking too often is as bad as not waking.
// Guarantee  G1: if a goroutine is runnable and a processor is idle, then some machine is spinning (searching), or has
//            yet to re-scan before it sleeps, or is about to be woken.
// Data       idle_and_spinning = idle processors << 16 | spinning machines, one atomic word, so that a submitter asks
//            one question.
// Protocol   submit                                  retire (a machine found nothing)
//            S1  publish g                           R1  processor onto the idle list (idle += 1) and, if spinning,
//            S2  light barrier                           spinning -= 1: one atomic step on the word
//            S3  read the word:                      R2  heavy barrier (membarrier.h: every thread makes a full fence)
//                idle > 0 and spinning == 0:         R3  re-scan every queue (run_next too) and every timer;
//                wake one (W-steps)                      something there: take an idle processor, spinning += 1, search
//                                                        again
//            found (a spinning machine has work)     wake one
//            F1  spinning -= 1                       W1  CAS spinning 0 -> 1 (failed: another searches, done)
//            F2  submit's S3, then run g             W2  take an idle processor; none: spinning -= 1, done
//                                                    W3  a machine for it, which starts spinning
//            R1 and W2 are under the scheduler lock, the decrement of W2 included. Otherwise a processor could become
//            idle while `spinning` is 1 and no machine will act on it.
//            S2 is needed where S1 is not seq_cst: after the store into run_next (submit.h). A push into a processor's
//            queue (run_queue.h) and the store of a deadline (timer/heap.h) are seq_cst, as S3 is, and need none. Nor
//            does a push into the global queue: it is under that lock, and R1 looks at the queue under it before it
//            gives up.
//            J1  Machines that come back from calls retire by the hundred, and the kernel makes one barrier at a time.
//                A retiring machine that finds another one at R2 or R3 leaves both steps to it. The other machine does
//                them once more, since its barrier may have begun before the R1 of the first. Or it has found something
//                at R3: then it comes back and searches. Whatever that search finds, some machine then searches or
//                retires after the R1 of the first.
//            R2 is left out when R1 has made the last processor idle. A submitter that does not hold the scheduler lock
//            has a processor. That processor has since become idle under the lock, so what was submitted is visible. A
//            plain thread's timers and waits for descriptors are counted by seq_cst stores; S3 and R3 (for descriptors:
//            sleep_for_events()), also seq_cst, cannot both pass these stores.
// Proof      The fence that R2 makes in the submitter's thread falls before or after S2 in its program order.
//            After S2: S1 is visible to R3. The retiring machine takes g, or finds no idle processor: then each has
//              been taken by a machine that will itself find work or retire after that, and the argument starts again
//              with that machine.
//            Before S2: R1 is visible to S3, which sees the idle processor. If spinning is 0 the submitter wakes a
//              machine. If not, another machine is spinning; it stops spinning through F (F2 wakes the next one) or
//              through R (its R3 comes after S1: the other case).
//            If W2 finds no idle processor, the argument of the first case applies. In every case one of the two acts;
//            if both do, it costs one needless wake-up.
// Deferred   A goroutine readied into run_next is mostly run by the same processor at once: the goroutine that readied
//            it parks (ping-pong, request and reply) or joins it. Waking a thread for it costs more than running it. So
//            where turns are short (turns.h), S3 leaves the wake to the monitor, if the monitor is attentive (its
//            rounds are 1 ms apart, which it keeps up only while it is needed). The same holds for a short queue of
//            goroutines that have run before (queue_wake_is_deferred), and thieves leave such a queue alone as well:
//            two processors that take turns with the same channels or locks need five times as long as one. R3 leaves
//            both out for the same reason: it would find them again and again, and the machine would find nothing when
//            it comes. Where turns are long, run_next is left to its processor only if the goroutine that fills it has
//            parked soon after the last ones that it readied; otherwise a goroutine that it readies goes into the
//            queue, from which a thief takes it without the handshake, and a machine is woken.
//            A mistake lasts until the monitor finds a run_next or a queue that has not moved between two rounds, or
//            until a thief takes from a run_next: both then note a long turn, and the goroutine that went on. So G1
//            holds after 2 ms at the latest; and as many of the next wakes as the wait would have paid for are made at
//            once (turns.h).
// Left out   Timers fire on a machine that is about to choose what to run (local_work.cpp). This machine comes to its
//            own run_next at once, so while its queue is empty it wakes no machine for a goroutine there. Where it does
//            not come to it after all (a chain's slice is over, or it is a preempted goroutine's turn) it wakes one
//            then, as F2 does. A machine that slept in the poller comes back with something in hand without having
//            searched. So no submitter has relied on it, and it wakes no machine for the first goroutine that it has
//            made runnable. No machine sleeps in the poller then: this machine wakes one if it came for a deadline
//            and another is near; otherwise the monitor does when a deadline has come, or when descriptors have not
//            been polled between two rounds.
// Rejected   Go re-scans only in machines that were spinning and patches the rest with `needspinning`; here every
//            machine re-scans and the submitter may skip when nothing is idle, which is the common case in a busy
//            program. Handing g to a parked thread: locality is lost. Waking on every submit: threads start and find
//            nothing. A full fence in S2: a quarter of a spawn and its join, against 7 to 11 us for the
//            barrier in each retirement, where falling asleep costs as much again. No barriers at all: S3 may be read
//            before S1 is visible (tests/model/wake_model_test.cpp, variants without S2 or R2, fail).
// Source     Go 1.24 runtime/proc.go, "Worker thread parking/unparking". Differs as described.
// Tests      tests/model/wake_model_test.cpp, tests/sched/lost_wakeup_stress_test.cpp, tests/sched/turns_test.cpp.
//            stats().waits_while_idle measures G1 (waits.h).
#pragma once

#include "platform/membarrier.h"
#include "sched/data/types.h"
#include "sched/machines/turns.h"

namespace dunlin::inline v0_1::sched {

inline constexpr std::uint32_t one_idle = 1u << 16;
inline constexpr std::uint32_t one_spinning = 1;

inline std::uint32_t idle_count(std::uint32_t word) noexcept { return word >> 16; }
inline std::uint32_t spinning_count(std::uint32_t word) noexcept { return word & 0xffff; }

// S2.
inline void submit_barrier() noexcept { platform::light_barrier(); }
// R2.
inline void retire_barrier() noexcept { platform::heavy_barrier(); }
// True: no processor is in use. Exact under the lock. Seq_cst for a caller without the lock: a machine that takes a
// processor after this load sees what the caller stored, seq_cst, before it.
inline bool every_processor_is_idle() noexcept {
    const scheduler& s = the_scheduler;
    return idle_count(s.idle_and_spinning.load(std::memory_order_seq_cst)) ==
               s.max_procs.load(std::memory_order_relaxed) &&
           !s.stopping.load(std::memory_order_relaxed);
}

// W1 to W3.
void wake_one() noexcept;
// The same for a goroutine in p's run_next, or in its queue, unless the wake may be left out.
void wake_one_for_run_next(const processor* p) noexcept;

// Leaves the wake to the monitor, or wakes at once if the monitor is not attentive (and asks it to be). Mostly both
// flags are set already, and there is nothing to do.
void defer_wake_slow(processor* p) noexcept;
[[gnu::always_inline]] inline void defer_wake(processor* p) noexcept {
    const bool settled = the_scheduler.monitor_attentive.load(std::memory_order_relaxed) &&
        the_scheduler.wakes_deferred.load(std::memory_order_relaxed);
    if (DUNLIN_UNLIKELY(!settled)) defer_wake_slow(p);
}

// The same decision at R3: true if p's run_next may be left to the monitor, which is told so here.
bool wake_is_deferred(const processor* p) noexcept;

// The same for p's queue: true if it is short, its goroutines were readied (not just started), and the processor keeps
// up. Such goroutines mostly talk to each other, and another processor would take longer to fetch their memory than
// they run. New goroutines are work for every processor.
inline constexpr std::uint32_t short_queue = 8;
bool queue_wake_is_deferred(const processor* p) noexcept;

// S3. The caller has published work and executed S2.
inline void wake_if_idle() noexcept {
    const std::uint32_t word = the_scheduler.idle_and_spinning.load(std::memory_order_seq_cst);
    if (DUNLIN_UNLIKELY(idle_count(word) != 0 && spinning_count(word) == 0)) wake_one();
}

// S3 for a goroutine that was put into p's empty run_next, or was pushed from run_next into a short queue.
[[gnu::always_inline]] inline void wake_for_run_next(processor* p) noexcept {
    const std::uint32_t word = the_scheduler.idle_and_spinning.load(std::memory_order_seq_cst);
    if (DUNLIN_LIKELY(idle_count(word) == 0 || spinning_count(word) != 0)) return;
    if (has_short_turns(p)) {
        defer_wake(p);
    } else {
        wake_one_for_run_next(p);
    }
}

// R3: is there anything that a machine without a processor should come back for?
bool work_anywhere() noexcept;

}  // namespace dunlin::sched
