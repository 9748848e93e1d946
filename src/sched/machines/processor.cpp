// processor.cpp - the idle list, the number of processors, and stopping the world.
//
// Stopping   Under the scheduler lock `stopping` is set and the idle processors are taken. Busy ones are taken through
//            the handshake of handshake.h as soon as their goroutine is in user code, or are given up by their machine
//            when it begins to search for work. When all are stopped, no goroutine can get past its next call into the
//            runtime, and what is parked or queued stays as it is.
//            Goroutines that compute go on computing: they have no processor, and wait in enter_slow() if they call the
//            runtime.
// Starting   A processor that was taken from a machine is given back to it (the machine cannot have found another:
//            there is none). The rest go to the idle list, or to a machine if they have work.
#include "sched/machines/processor.h"

#include <dunlin/detail/atomic.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/thread.h"
#include "sched/data/bells.h"
#include "sched/data/all_goroutines.h"
#include "sched/data/event_source.h"
#include "sched/machines/event_notice.h"
#include "sched/machines/machine.h"
#include "sched/machines/processor_time.h"
#include "sched/machines/starved.h"
#include "sched/machines/trace.h"
#include "sched/machines/waits.h"
#include "sched/machines/wake.h"
#include "sched/queues/global_queue.h"

namespace dunlin::inline v0_1::sched {

namespace {

constexpr std::int64_t retry_ns = 50'000;

// Called while the world is stopped. Processors are made when they are first needed and never freed: other threads may
// read through stale pointers to them.
void make_processors(std::uint32_t n) {
    scheduler& s = the_scheduler;
    for (std::uint32_t i = s.procs_made.load(std::memory_order_relaxed); i < n; ++i) {
        auto p = std::make_unique<processor>();
        p->id = i;
        p->stolen_from = std::make_unique<platform::atomic<std::uint32_t>[]>(max_procs_limit);
        p->events = s.events->make_events();
        s.processors[i].store(p.release(), std::memory_order_relaxed);
        // Release: a thread that sees the number sees the processor.
        s.procs_made.store(i + 1, std::memory_order_release);
    }
}

bool computes_on(const machine* m) noexcept {
    return m != nullptr && !m->condemned && m->current.load(std::memory_order_relaxed) != nullptr;
}

// Under the lock. A machine that was in user code when the world stopped, and whose processor is now beyond max_procs,
// gets an idle processor. If there is none it becomes a detached machine: the monitor asks it to stop, as it does after
// taking a processor, so that no more goroutines compute than there are processors.
void place_machine_of_surplus(processor* p) noexcept {
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    machine* m = std::exchange(p->stopped_from, nullptr);
    if (!computes_on(m)) return;
    if (processor* idle = take_idle_processor()) {
        give(idle, m);
        return;
    }
    m->slice_used_ns = 0;
    m->borrower = nullptr;
    m->detached_cpu_ns = platform::thread_cpu_ns(m->tid);
    // as in take() of retake.cpp; enter_slow() clears it under this lock
    m->detached.store(true, std::memory_order_release);
    // pairs with the exchange in look_at_detached_machines()
    s.detached_unlisted.store(true, std::memory_order_release);
}

}  // namespace

processor* take_idle_processor(const processor* preferred) noexcept {
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    if (s.idle_processors == nullptr) return nullptr;
    processor** link = &s.idle_processors;
    if (preferred != nullptr && preferred->state.load(std::memory_order_relaxed) == processor_state::idle) {
        while (*link != preferred) link = &(*link)->idle_next;
    }
    processor* p = *link;
    *link = p->idle_next;
    p->idle_next = nullptr;
    transition(p->state, processor_state::running);
    end_idle(p);
    s.idle_and_spinning.fetch_sub(one_idle, std::memory_order_seq_cst);
    settle_free_clock();
    return p;
}

void put_idle_processor(processor* p, bool was_spinning) noexcept {
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    if (DUNLIN_UNLIKELY(s.starved.size != 0 || is_surplus(p))) give_stacks_to_arena(p, 0);  // S1 of starved.h
    std::uint32_t change = was_spinning ? 0u - one_spinning : 0u;
    if (s.stopping.load(std::memory_order_relaxed)) {
        transition(p->state, processor_state::stopped);
    } else if (is_surplus(p)) {
        transition(p->state, processor_state::dead);
    } else {
        transition(p->state, processor_state::idle);
        p->idle_next = s.idle_processors;
        s.idle_processors = p;
        begin_idle(p);
        change += one_idle;
    }
    if (change == 0) return;
    s.idle_and_spinning.fetch_add(change, std::memory_order_seq_cst);  // R1 of wake.h
    settle_free_clock();
}

bool has_local_work(const processor* p) noexcept {
    return p->queue.size() != 0 || p->run_next.load(std::memory_order_relaxed) != nullptr;
}

void drain_to_global(processor* p) noexcept {
    assert_owner(p);
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    while (goroutine* g = p->queue.pop_youngest_if([](const goroutine*) { return true; })) s.global.push_front(g);
    if (goroutine* g = p->run_next.load(std::memory_order_acquire)) s.global.push_front(g);
    p->run_next.store(nullptr, std::memory_order_relaxed);
}

// The world's lock is held from stop_world() to start_world().
void stop_world() noexcept DUNLIN_NOT_ANALYSED {
    scheduler& s = the_scheduler;
    // The thread that stops the world must not itself be stopped before the world goes on.
    if (machine* self = current_machine()) self->unstoppable = self->unstoppable + 1;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    s.world.lock();
    monitor_bell.stopper.store(0, std::memory_order_relaxed);
    note_stop_wanted();
    s.lock.lock();
    s.stopping.store(true, std::memory_order_seq_cst);
    if (DUNLIN_UNLIKELY(tracing::on())) tracing::note_world(tracing::kind::world_stops);
    while (processor* p = take_idle_processor()) transition(p->state, processor_state::stopped);
    s.lock.unlock();
    wake_monitor_if_asleep();
    // A machine that sleeps in the poller has no processor and finds none when it wakes. Now the running processors:
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) {
        processor* p = s.processor_at(i);
        while (p->state.load(std::memory_order_acquire) == processor_state::running) {
            // Makes a machine that looks for work there look at `stopping` as well.
            p->events_due.store(true, std::memory_order_relaxed);
            p->retake.lock();
            machine* m = p->owner.load(std::memory_order_relaxed);
            if (m != nullptr && take_locked(p, true)) {
                p->stopped_from = m;
                transition(p->state, processor_state::stopped, std::memory_order_release);
            }
            p->retake.unlock();
            if (p->state.load(std::memory_order_relaxed) == processor_state::running) {
                platform::atomic<std::uint32_t> never{0};
                platform::futex_wait_until(never, 0, platform::real_now_ns() + retry_ns);
            }
        }
    }
    note_stopped();
    monitor_bell.stopper.store(platform::thread_id(), std::memory_order_relaxed);
}

void start_world() noexcept DUNLIN_NOT_ANALYSED {
    scheduler& s = the_scheduler;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    processor* with_work = nullptr;
    // Before the scheduler lock is taken: the timer heaps have locks of their own and allocate. The first processor
    // keeps its events. It is surplus too when the first start fails for want of memory: then it has none.
    for (std::uint32_t i = 1; i < made; ++i) {
        if (processor* p = s.processor_at(i); is_surplus(p)) s.events->move(p, s.processor_at(0));
    }
    s.lock.lock();
    note_started();
    s.stopping.store(false, std::memory_order_seq_cst);
    if (DUNLIN_UNLIKELY(tracing::on())) tracing::note_world(tracing::kind::world_starts);
    for (std::uint32_t i = made; i-- > 0;) {
        processor* p = s.processor_at(i);
        if (p->state.load(std::memory_order_relaxed) == processor_state::dead && !is_surplus(p)) {
            put_idle_processor(p, false);
        }
        if (p->state.load(std::memory_order_relaxed) != processor_state::stopped) continue;
        machine* m = p->stopped_from;
        if (is_surplus(p)) {
            drain_to_global(p);
            give_stacks_to_arena(p, 0);
            transition(p->state, processor_state::dead);
            continue;  // for its machine see place_machine_of_surplus()
        }
        p->stopped_from = nullptr;
        if (computes_on(m)) {
            p->retake.lock();
            transition(p->state, processor_state::running);
            give_back_locked(p, m);
            p->retake.unlock();
        } else if (has_local_work(p)) {
            transition(p->state, processor_state::running);
            p->idle_next = with_work;
            with_work = p;
        } else {
            put_idle_processor(p, false);
        }
    }
    for (std::uint32_t i = 0; i < made; ++i) place_machine_of_surplus(s.processor_at(i));
    s.world_word.fetch_add(1, std::memory_order_release);
    s.lock.unlock();
    platform::futex_wake(s.world_word, 1 << 30);
    if (s.detached_unlisted.load(std::memory_order_relaxed)) hurry_monitor();
    while (with_work != nullptr) {
        processor* p = with_work;
        with_work = p->idle_next;
        p->idle_next = nullptr;
        start_machine(p, false, wake_place::anywhere);
    }
    // For timers of a retired processor, and for goroutines in a queue: the machine that is woken looks there. One that
    // sleeps in the poller may come back with something in hand, without a search.
    retire_barrier();
    if (work_anywhere()) wake_if_idle();
    timer_added(platform::now_ns());
    if (s.events->has_waiters()) waiter_added();
    s.world.unlock();
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (machine* self = current_machine()) self->unstoppable = self->unstoppable - 1;
}

void set_max_procs(std::uint32_t n) {
    scheduler& s = the_scheduler;
    stop_world();
    try {
        make_processors(n);
    } catch (...) {
        start_world();
        throw;
    }
    s.lock.lock();
    note_time_of_procs(platform::real_now_ns());
    s.max_procs.store(n, std::memory_order_relaxed);
    s.lock.unlock();
    for (std::uint32_t i = 0; i < n; ++i) forget_turns(s.processor_at(i));
    start_world();
}

std::size_t live_goroutines() noexcept {
    const scheduler& s = the_scheduler;
    const auto sum = [&](counter processor_counters::*which) {
        std::uint64_t all = 0;
        const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
        for (std::uint32_t i = 0; i < made; ++i) all += (s.processor_at(i)->counts.*which).get();
        return all;
    };
    const auto gone = [&] { return sum(&processor_counters::ended) + s.forgotten.load(std::memory_order_relaxed); };
    // Goroutines that end between the two sums count as alive, never as minus one. A reader that loses its CPU in
    // between would count all that came and went meanwhile, so it looks again; the smallest result is the closest.
    std::size_t least = std::numeric_limits<std::size_t>::max();
    std::uint64_t before = gone();
    for (int looks = 0; looks < 4; ++looks) {
        const std::uint64_t outside = s.created_outside.load(std::memory_order_relaxed);
        const std::uint64_t created = sum(&processor_counters::created) + outside;
        least = std::min<std::size_t>(least, created > before ? created - before : 0);
        const std::uint64_t now = gone();
        if (now == before) break;
        before = now;
    }
    return least;
}

bool any_ends_with_run() noexcept {
    const scheduler& s = the_scheduler;
    if (live_goroutines() == 0) return false;
    if (s.independent.load(std::memory_order_relaxed) == 0) return true;
    const auto counts = [](const goroutine& g) {
        const goroutine_state state = g.state.load(std::memory_order_acquire);
        return state != goroutine_state::dead && state != goroutine_state::frozen && !g.independent();
    };
    std::size_t n = 0;
    for_each_goroutine([&](const goroutine& g) { n += counts(g); });
    // Goroutines of a run() that has ended, which are not frozen yet.
    for (const machine* m = s.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
        const goroutine* g = m->condemned ? m->current.load(std::memory_order_relaxed) : nullptr;
        if (g != nullptr && counts(*g)) --n;
    }
    return n != 0;
}

}  // namespace dunlin::sched
