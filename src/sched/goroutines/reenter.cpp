// reenter.cpp - a goroutine enters the runtime and its processor is gone.
//
// The processor was taken because the goroutine computed or blocked for long (retake.h), because the world stops
// (processor.cpp), or because its run() has returned (end_of_run.cpp). The goroutine gets the first of these that is
// available: the processor that it had, if it is idle; any idle one; one that was offered and for which no machine has
// come yet (machine.h); a place in the global queue.
//
// While it queues, the goroutine is wired to its thread (os_thread.cpp), and the machine that takes it off the queue
// gives its processor to that thread. The call that enters the runtime may be one that never waits, made while the
// goroutine holds a lock that belongs to its thread: a recursive mutex or a rwlock of libc, a FILE's, SQLite's. That
// such code finds no processor is the common case: it has slept in the kernel for its lock. So only calls that wait can
// change the thread, and the end of blocking(), since waking its thread would cost as much as the call.
//
// If no more threads can be made and other goroutines wait for one, the end of blocking() gives its thread to one of
// them, even where it could have a processor. A call that never waits keeps its thread even then: the goroutine may
// hold a lock for which the others would wait, on all the threads that there are.
//
// Or the processor is still there, and the monitor has only asked (handshake.h, Asking). A goroutine whose slice is
// over gives way in the next call that may wait: it costs a switch, while to stop its thread by a signal costs that
// signal and the wake-ups of two threads, which the kernel may start on a CPU that is busy.
#include "platform/futex.h"
#include "sched/data/bells.h"
#include "sched/data/steering.h"
#include "sched/goroutines/goroutine.h"
#include "sched/goroutines/os_thread.h"
#include "sched/goroutines/yield.h"
#include "sched/machines/lost_holders.h"
#include "sched/machines/machine.h"
#include "sched/machines/processor.h"
#include "sched/machines/trace.h"
#include "sched/queues/global_queue.h"

namespace dunlin::inline v0_1::sched {

namespace {

// Q1 to Q3 of handshake.h. True: this machine has a processor after all. `waits`: the caller gives way if it is
// asked to; otherwise `taken` stays raised for the next call that may wait.
bool ask_for_it_back(machine* m, bool waits) noexcept {
    for (;;) {
        processor* had = m->last_p;
        m->in_runtime.store(0, std::memory_order_release);                    // Q1
        had->retake.lock();                                                   // Q2
        m->in_runtime.store(1, std::memory_order_relaxed);                    // Q3
        platform::light_barrier();
        // Acquire pairs with the release of T4. A null may mean that another processor was given and taken again
        // meanwhile: then last_p names that other one.
        processor* now = m->p.load(std::memory_order_acquire);
        const bool another = now != had && (now != nullptr || m->last_p != had);
        if (now == had && (waits || !is_asked(m))) lower_what_asked(m);
        had->retake.unlock();
        if (!another) return now == had;
    }
}

// Switches from goroutine `self` to the scheduler's stack for good: self never runs again (its run() has returned).
[[noreturn]] void abandon(machine* m, goroutine* self) noexcept {
    self->state.store(goroutine_state::frozen, std::memory_order_release);
    call_monitor_for_lost();
    m->leaving = nullptr;
    *m->exceptions = {};
    // Not before_last_switch(), as for a goroutine that has ended: the frames stay, since timers and other goroutines
    // point to them.
    stack::before_switch(self->fake, m->own_stack);
    stack::jump_context(&m->scheduler_context);
}

// The goroutine is lost; its machine is reusable, and must no longer be frozen. Under the lock, which this releases.
[[noreturn]] void lose_goroutine(machine* m, goroutine* self) noexcept {
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    m->condemned = false;
    --s.condemned_machines;
    m->freeze_asked.store(false, std::memory_order_release);
    m->detached.store(false, std::memory_order_relaxed);
    // unless its thread was changed: os_thread.cpp, rule 4; frozen.cpp
    if (m->wired_g != nullptr || m->lowered) m->must_end = true;
    m->wired_g = nullptr;
    note_lost_holder(m->tid, m, self);
    // under this lock, start_world() asks whether to give the machine its processor back
    m->current.store(nullptr, std::memory_order_relaxed);
    s.lock.unlock();
    abandon(m, self);
}

// Under the lock. True: no more threads can be made, and goroutines wait for one. Then a goroutine that comes back from
// blocking() gives its thread to one of them, even where it could have a processor; otherwise it would go from call to
// call and they would never run.
bool others_lack_a_thread() noexcept {
    const scheduler& s = the_scheduler;
    s.lock.assert_held();
    return s.global.size() != 0 && s.idle_machine_count == 0 && in_pause_after_failure();
}

}  // namespace

// `stays`: on this thread, since the call never waits.
static machine* get_a_processor(machine* m, bool stays) noexcept {
    scheduler& s = the_scheduler;
    // If there is a taker, it has stored 1 over steered_taken before its barrier, as for enter() (steering.h).
    if (m->taken.load(std::memory_order_acquire) == steered_taken) {
        if (steering* simulation = steered()) return simulation->point(m);
        std::uint32_t before = steered_taken;  // left over from a simulation that has ended
        m->taken.compare_exchange_strong(before, 0, std::memory_order_acq_rel);
        if (before == steered_taken) return m;
    }
    goroutine* self = m->current.load(std::memory_order_relaxed);
    for (;;) {
        // The taker may be about to give up (T3), or may wait for this machine to leave the runtime: it holds the lock
        // until it has decided.
        bool have_it;
        {
            unstoppable_section section;
            have_it = ask_for_it_back(m, !stays);
        }
        if (have_it) return m;
        s.lock.lock_in_a_crowd();
        if (m->condemned) lose_goroutine(m, self);
        if (m->p.load(std::memory_order_acquire) != nullptr) {  // given back meanwhile, under this lock
            s.lock.unlock();
            return m;
        }
        const std::uint32_t world = s.world_word.load(std::memory_order_relaxed);
        if (s.stopping.load(std::memory_order_relaxed)) {
            s.lock.unlock();
            platform::futex_wait(s.world_word, world);
            continue;
        }
        m->detached.store(false, std::memory_order_relaxed);
        m->rejects = 0;
        processor* p = take_idle_processor(m->last_p);
        if (p == nullptr) p = catch_offered();
        // A wired thread runs no other goroutine.
        const bool wired = m->wired_g != nullptr;
        const bool gives_thread = !stays && !wired && others_lack_a_thread();
        const bool queues = p == nullptr || gives_thread;
        const bool wires = queues && stays && !wired;
        if (!queues) {
            s.hand_offs.returns_idle.add();
        } else {
            s.hand_offs.returns_queued.add();
            if (wires) wire_until_back(m, self);
            self->saved.store(0, std::memory_order_relaxed);
            if (DUNLIN_UNLIKELY(tracing::on())) tracing::note(m, tracing::kind::queued, self);
            transition<goroutine_state::running, goroutine_state::runnable>(self->state);
            // No wake: under this lock no processor is idle; or this machine has one, and searches from here (wake.h,
            // G1).
            s.global.push_back(self);
        }
        s.lock.unlock();
        if (p != nullptr) {
            give(p, m);
            wake_monitor_if_asleep();
        }
        if (!queues) return m;
        m = leave_queued(m, self);
        if (wires) unwire(m, self);
        return m;
    }
}

[[gnu::noinline]] machine* enter_slow(machine* m) noexcept { return get_a_processor(m, true); }
[[gnu::noinline]] machine* enter_slow_from_call(machine* m) noexcept { return get_a_processor(m, false); }

[[gnu::noinline]] machine* enter_slow_to_wait(machine* m) noexcept {
    m = get_a_processor(m, false);
    if (!is_asked(m)) return m;
    m->asked.store(nullptr, std::memory_order_relaxed);
    leave(m);
    yield();
    return enter(current_machine());
}

}  // namespace dunlin::sched
