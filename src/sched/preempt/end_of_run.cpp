// end_of_run.cpp - the end of run(): every goroutine that is left is frozen where it is.
//
// The world is stopped. Then goroutines that are
//   runnable    are taken off their queues; those that never began, and that no task names, are given back: their
//               functions are neither called nor destroyed;
//   waiting     are marked, so that a late ready() by a plain thread does nothing;
//   computing   cannot be marked: their machines are condemned, and lose them at their next call into the runtime
//               (enter_slow). Until then a signal freezes them (freeze.h), so that they do not use what static
//               destructors have destroyed;
//   preempted   stay stopped; except those that may hold a lock of libc, which go on like computing ones;
//   in on_thread_stack()  go on as threads of the program would (thread_stack.h), and are lost when they come back;
//   independent  belong to no run(): they go on, and end by themselves (independent.h).
// Their stacks are never used again: a thread that looks at a waiter on such a stack finds it as it was.
#include "platform/futex.h"
#include "sched/data/all_goroutines.h"
#include "sched/data/event_source.h"
#include "sched/goroutines/goroutine.h"
#include "sched/goroutines/os_thread.h"
#include "sched/machines/processor.h"
#include "sched/machines/trace.h"
#include "sched/preempt/crash.h"
#include "sched/preempt/freeze.h"
#include "sched/preempt/preempt.h"
#include "sched/preempt/end_of_run.h"
#include "sched/queues/global_queue.h"

#include <dunlin/detail/atomic.hpp>

namespace dunlin::inline v0_1::sched {

namespace {

// LeakSanitizer reads /proc/self/maps again for each region that it is told about (0.1 ms), so it is told only about
// the first two thousand goroutines.
void keep_for_leak_check(goroutine& g) noexcept {
    static int kept = 0;
    if (++kept > 2000) return;
    stack::count_as_reachable(&g, sizeof g);
    const stack::slot* s = g.stack;
    if (s != nullptr) stack::count_as_reachable(s->low(), static_cast<std::size_t>(s->end() - s->low()));
}

platform::atomic<std::uint32_t> ended{0};

bool is_forgotten_before_it_began(const goroutine* g) noexcept {
    return g->stack == nullptr && !(g->flags & goroutine::joinable);
}

void freeze_goroutine(goroutine& g) noexcept {
    const goroutine_state state = g.state.load(std::memory_order_acquire);
    if (stack::sanitizing && state != goroutine_state::dead && state != goroutine_state::frozen) keep_for_leak_check(g);
    if (state == goroutine_state::runnable || state == goroutine_state::waiting ||
        state == goroutine_state::preempted) {
        tracing::note_frozen(g);
        g.state.store(goroutine_state::frozen, std::memory_order_release);
    }
}

// Under the lock.
void condemn_machines() noexcept {
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    const machine* self = current_machine();
    for (machine* m = s.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
        // Machines on the scheduler's stack run no goroutine, and serve the next run().
        goroutine* g = m->current.load(std::memory_order_relaxed);
        if (m->condemned || g == nullptr) continue;
        // The goroutine has queued itself in enter_slow(), and its machine is about to leave it. It is frozen in the
        // queue; the machine is not condemned, or the next run() would lack it. (`runnable` was stored under this lock.
        // `frozen`: the machine has not left since an earlier run() ended.)
        const goroutine_state state = g->state.load(std::memory_order_acquire);
        if (state == goroutine_state::runnable || state == goroutine_state::frozen) continue;
        // The thread that calls exit() is condemned even if its goroutine is independent.
        if (g->independent() && m != self) continue;
        m->condemned = true;
        ++s.condemned_machines;
        tracing::note_frozen(*g);
    }
    // Machines that wait in enter_slow() for the world to start need not wait any longer.
    s.world_word.fetch_add(1, std::memory_order_release);
    platform::futex_wake(s.world_word, 1 << 30);
}

}  // namespace

std::uint32_t runs_ended() noexcept { return ended.load(std::memory_order_relaxed); }

void end_run() noexcept {
    scheduler& s = the_scheduler;
    let_reports_finish();
    stop_world();
    s.lock.lock();
    condemn_machines();
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    dismiss_wired_machines();
    for (std::uint32_t i = 0; i < made; ++i) drain_to_global(s.processor_at(i));
    std::size_t left = live_goroutines();
    goroutine_list unbegun, staying;
    const auto forget = [&](goroutine* g) {
        if (g->independent()) {
            staying.push_back(g);
        } else if (is_forgotten_before_it_began(g)) {
            tracing::note_frozen(*g);
            transition<goroutine_state::runnable, goroutine_state::dead>(g->state);
            unbegun.push_back(g);
        } else {
            freeze_goroutine(*g);
        }
    };
    while (goroutine* g = s.global.pop_front()) forget(g);
    while (goroutine* g = s.starved.pop_front()) forget(g);
    abandon_preempted();
    s.starved_size.store(0, std::memory_order_relaxed);
    ended.fetch_add(1, std::memory_order_relaxed);
    s.main_exited = false;
    // Under the lock, because threads without a processor also ready waiting goroutines under it (ready_all).
    if (left != 0) {
        for_each_goroutine([&left](goroutine& g) {
            if (g.state.load(std::memory_order_acquire) == goroutine_state::dead) return;
            if (g.independent()) {
                left -= left != 0;  // it ends by itself
            } else {
                freeze_goroutine(g);
            }
        });
    }
    s.forgotten.fetch_add(left, std::memory_order_relaxed);
    s.global.push_back(staying);  // start_world() wakes a machine for them
    s.lock.unlock();
    stop_condemned_machines();
    // Only now: forget_all() asks which goroutines are frozen. If a goroutine calls exit(), its machine is condemned
    // too: a call that enters the runtime on it would lose the goroutine, so for these calls the thread is a plain one.
    machine* self = current_machine();
    set_current_machine(nullptr);
    discard_unbegun(unbegun);
    s.events->forget_all();
    set_current_machine(self);
    // A goroutine may have called exit(): its thread goes on with static destructors, which may use the library as any
    // plain thread may. The end of a run() may have asked that thread to freeze meanwhile: it never stops again.
    if (self != nullptr) self->unstoppable = self->unstoppable + 1;
    start_world();
    if (self != nullptr) set_current_machine(nullptr);
}

}  // namespace dunlin::sched
