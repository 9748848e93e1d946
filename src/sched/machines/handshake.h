// handshake.h - how a machine enters and leaves the runtime, and how a processor is taken from one that does not.
//
// Problem    A goroutine may compute for seconds or block in a call that was not announced. Its thread then sits on a
//            processor with work in its queues. It must be possible to take that processor without the thread's help,
//            without a signal, and without a locked instruction in every call that a goroutine makes (a spawn costs 10
//            ns; a CAS is 4 of them).
// Guarantee  H1: a processor's queues are touched only by one thread at a time: the machine that has it, while
//            in_runtime, or its taker.
// Protocol   enter (the machine)                          take (any thread, holding p->retake)
//            E1  in_runtime = 1                           T1  m->taken = 1
//            E2  light barrier                            T2  heavy barrier (membarrier: every thread executes a fence)
//            E3  taken: enter_slow()                      T3  if m->in_runtime: m->taken = 0, give up
//            leave                                        T4  m->p = null, p->owner = null: the processor is ours
//            L1  in_runtime = 0 (release)                 give back: the two pointers, then m->taken = 0 (release)
//            enter_slow                                   patient: at T3, wait a while for in_runtime to become 0: the
//            Q1  in_runtime = 0                               machine cannot enter again, T1 stands
//            Q2  lock p->retake: no taker is at work
//            Q3  in_runtime = 1; m->p says whether we have it (`taken` does not: a patient taker may have raised it
//                again). If m->p is another processor than the one whose lock is held, or is null although last_p has
//                changed, another thread gave us one meanwhile (and a taker may have taken it again). Then again from
//                Q1, with the lock of that processor.
// Proof      T2 is a full fence in the machine's thread too, somewhere in its program order. If it falls after E1, T3
//            sees in_runtime = 1 (or a later L1, which releases everything the machine did). If it falls before E1, E3
//            sees the 1 of T1.
//            In neither case do both go on. A machine that sees `taken` takes p->retake, which waits until the taker
//            has decided.
//            `taken` is a word of its own; m->p is not used for it: a machine inside reads m->p again and again, and
//            must not see a null that the taker is about to undo.
// Asking     The monitor raises `taken` under p->retake without taking p: m's next entry comes to enter_slow(), which
//            lowers it again at Q3. So the monitor learns whether m's goroutine calls the runtime at all, and can have
//            it give way there when its slice is over (retake.cpp, Asking).
// Without    membarrier (old seccomp filters): the light barrier is a real fence, and so is the heavy one;
//            platform/membarrier.h.
// Rejected   CAS on both sides: 10 ns a call. rseq: as cheap, but it breaks under gdb and valgrind, and cannot nest.
//            Signals: they cannot stop a thread that sleeps in the kernel without an EINTR in some library.
// Users      thieves (run_next of a busy victim), world stops, the end of run(), the monitor.
// Tests      tests/model/retake_model_test.cpp, tests/model/detached_model_test.cpp
#pragma once

#include "platform/check.h"
#include "platform/membarrier.h"
#include "sched/data/current.h"
#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// The goroutine may have lost its processor meanwhile: then gets one, perhaps by waiting in the global queue. Returns
// the machine that it is on afterwards: the same one, unless no more threads are available. Called upwards, since it is
// part of a goroutine's life: goroutines/reenter.cpp.
machine* enter_slow(machine* m) noexcept;
// The same at the end of blocking(): the goroutine may be on another machine afterwards.
machine* enter_slow_from_call(machine* m) noexcept;
// The same for a call that may wait: the goroutine gives way first, if it has been asked to.
machine* enter_slow_to_wait(machine* m) noexcept;

// Fatal, in checking builds, unless m's thread is inside the runtime.
inline void assert_inside([[maybe_unused]] const machine* m) noexcept {
    DUNLIN_DCHECK(m->in_runtime.load(std::memory_order_relaxed) != 0,
                  "a machine does inside the runtime's work without having entered it (handshake.h, E1)");
}

// Fatal in the same builds unless the caller may touch p's queues (H1): it is on the machine that has p, inside the
// runtime, or p has been taken and belongs to no machine.
inline void assert_owner([[maybe_unused]] const processor* p) noexcept {
    [[maybe_unused]] const auto its_machine_is_here = [p] {
        const machine* m = p->owner.load(std::memory_order_relaxed);
        return m == nullptr || (m == current_machine() && m->in_runtime.load(std::memory_order_relaxed) != 0);
    };
    DUNLIN_DCHECK(its_machine_is_here(),
                  "a processor's queues are touched by a thread that does not have it (handshake.h, H1)");
}

// True: `taken` is raised. The processor is gone, or may be, or the monitor asks for it, or a simulation steers
// (steering.h): enter_slow() finds out which.
[[gnu::always_inline]] inline bool keep_from_takers(machine* m) noexcept {
    m->in_runtime.store(1, std::memory_order_relaxed);                      // E1
    platform::light_barrier();                                              // E2
    // Acquire pairs with the release in give_back_locked(): a machine whose processor was taken and given back
    // meanwhile sees what the taker has done to the queues.
    return m->taken.load(std::memory_order_acquire) != 0;                   // E3
}

// From here to leave() the machine's processor cannot be taken. `m` must be this thread's machine, running a goroutine.
// The returned machine may be another one. Cost 0.2 ns.
[[gnu::always_inline]] inline machine* enter(machine* m) noexcept {
    return DUNLIN_UNLIKELY(keep_from_takers(m)) ? enter_slow(m) : m;
}

// The same at the end of blocking(), after which a goroutine may be on another thread.
[[gnu::always_inline]] inline machine* enter_from_call(machine* m) noexcept {
    return DUNLIN_UNLIKELY(keep_from_takers(m)) ? enter_slow_from_call(m) : m;
}

// The same at the beginning of a call that may wait, after which it may be on another thread, too.
[[gnu::always_inline]] inline machine* enter_to_wait(machine* m) noexcept {
    return DUNLIN_UNLIKELY(keep_from_takers(m)) ? enter_slow_to_wait(m) : m;
}

// One of the two, for a call that may wait if its arguments allow it; may_wait() is asked on the slow way only.
template <class MayWait>
[[gnu::noinline, gnu::cold]] machine* enter_slow_to_wait_if(machine* m, MayWait may_wait) noexcept {
    return may_wait() ? enter_slow_to_wait(m) : enter_slow(m);
}
template <class MayWait>
[[gnu::always_inline]] inline machine* enter_to_wait_if(machine* m, MayWait may_wait) noexcept {
    return DUNLIN_UNLIKELY(keep_from_takers(m)) ? enter_slow_to_wait_if(m, may_wait) : m;
}

[[gnu::always_inline]] inline void leave(machine* m) noexcept {
    assert_inside(m);
    m->in_runtime.store(0, std::memory_order_release);                      // L1, pairs with the acquire of T3
}

// Enters the runtime and leaves it again, if the caller is not inside: here a simulation may switch the goroutine away
// (steering.h).
inline void pass_point() noexcept {
    machine* m = current_machine();
    if (m != nullptr && m->in_runtime.load(std::memory_order_relaxed) == 0) leave(enter(m));
}

// The processor of a machine that is inside the runtime.
inline processor* processor_of(machine* m) noexcept { return m->p.load(std::memory_order_relaxed); }

// Takes p from its machine if that machine is outside the runtime (`patient`: or leaves it within microseconds): steps
// T1 to T4. The caller holds p->retake.
bool take_locked(processor* p, bool patient = false) noexcept;
// The same, but takes the lock itself; false also if p has no machine.
bool try_take(processor* p) noexcept;

// Gives p back to m, from which the caller has just taken it. m has noticed nothing, or waits for p->retake, which the
// caller holds.
inline void give_back_locked(processor* p, machine* m) noexcept {
    p->retake.assert_held();
    p->owner.store(m, std::memory_order_release);
    m->p.store(p, std::memory_order_relaxed);
    m->taken.store(0, std::memory_order_release);  // pairs with the acquire of E3
}
// Raises m's `taken` as long as m has p: its next entry is a slow one (Asking). By compare-and-swap, since a simulation
// may steer m. `gives_way`: the goroutine that is to give way in its next call that may wait; null: none. All relaxed:
// m sees `asked` once it has had the same lock, and a request that it misses ends with its processor taken.
void raise_taken(processor* p, machine* m, const goroutine* gives_way) noexcept;
// Called by m inside the runtime, with the lock of the processor that it has: no taker has raised `taken`.
void lower_what_asked(machine* m) noexcept;
// Called by m inside the runtime: nothing is asked of its goroutine any more.
void forget_what_asked(machine* m) noexcept;
// Is the goroutine that runs on m, the caller's machine, asked to give way? In a no_preempt scope it need not.
inline bool is_asked(const machine* m) noexcept {
    const goroutine* asked = m->asked.load(std::memory_order_relaxed);
    return asked != nullptr && asked == m->current.load(std::memory_order_relaxed) &&
        !(asked->flags & goroutine::pinned);
}
// Gives p to m. The caller is m itself or the only holder of p.
void give(processor* p, machine* m) noexcept;

// Called by m itself, inside the runtime: gives up m's processor and returns it.
processor* release_processor(machine* m) noexcept;

// A section outside enter()/leave() in which this thread may hold a lock of the runtime: no signal stops it there.
class unstoppable_section {
public:
    unstoppable_section() noexcept : m_(current_machine()) {
        if (m_ == nullptr) return;
        m_->unstoppable = m_->unstoppable + 1;
        std::atomic_signal_fence(std::memory_order_seq_cst);  // for the handler on this thread
    }
    ~unstoppable_section() {
        if (m_ == nullptr) return;
        std::atomic_signal_fence(std::memory_order_seq_cst);
        m_->unstoppable = m_->unstoppable - 1;
    }
    // The goroutine that runs here; null on a plain thread.
    goroutine* goroutine_here() const noexcept {
        return m_ != nullptr ? m_->current.load(std::memory_order_relaxed) : nullptr;
    }
    unstoppable_section(const unstoppable_section&) = delete;
    unstoppable_section& operator=(const unstoppable_section&) = delete;

private:
    machine* m_;
};

}  // namespace dunlin::sched
