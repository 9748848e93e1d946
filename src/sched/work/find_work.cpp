// find_work.cpp - what runs next, and what a machine does if it finds nothing.
//
// Order      find_local     (local_work.cpp) on the leaving goroutine's stack, never blocks:
//              1. the global queue: one goroutine, at every 61st tick (otherwise a busy local queue would starve it),
//                 and when the monitor has ended a slice because goroutines there have waited for 10 ms (a batch, if it
//                 was the slice of a chain: see 3); at a 61st tick, but at most once in a millisecond, the poller, for
//                 the same reason
//              2. due timers of this processor: every 16th time, and when the monitor says so
//              3. run_next: the goroutine last readied; it inherits the rest of the slice, so the tick does not advance
//              4. the local queue, first in first out
//            take_global    a batch of the global queue
//            find_work      on the scheduler's stack: all of the above, then
//              5. poll: goroutines whose descriptor has become ready, unless a machine sleeps in the poller
//              6. steal: four rounds over the other processors in random order; the last round also looks at their
//                 timers and takes run_next
//              7. a lent processor goes back to its lender (retake.cpp); else a preempted goroutine gets the
//                 processor, on its own thread (preempt.h); else watch for some microseconds if another processor runs,
//                 since falling asleep and being woken costs more than that
//              8. retire: wake.h, R1 to R3
//              9. sleep in the poller, until the earliest timer of all or a descriptor, if no other machine does; else
//                 until handed a processor
// Source     Go 1.24 runtime/proc.go, findRunnable. Differs: every machine re-scans (wake.h); run_next is taken from a
//            busy victim by the retake handshake (handshake.h), because its owner changes it without a CAS: 0.4 ns
//            instead of 10.
#include "sched/work/find_work.h"

#include <dunlin/detail/atomic.hpp>

#include <algorithm>
#include <utility>

#include "platform/clock.h"
#include "platform/thread.h"
#include "sched/data/bells.h"
#include "sched/data/event_source.h"
#include "sched/machines/event_notice.h"
#include "sched/machines/machine.h"
#include "sched/machines/preempted.h"
#include "sched/machines/processor.h"
#include "sched/machines/starved.h"
#include "sched/machines/trace.h"
#include "sched/machines/turns.h"
#include "sched/machines/waits.h"
#include "sched/machines/wake.h"
#include "sched/queues/run_queue_prefetch.h"
#include "sched/queues/steal_order.h"
#include "sched/work/local_work.h"

namespace dunlin::inline v0_1::sched {

// ---- stealing -------------------------------------------------------------------------------------------------------

namespace {

// Takes the goroutine in run_next of a victim that does not come to it. The goroutine that runs there is likely to park
// in a moment, and its machine would run the other one with a warm cache, so the thief waits three microseconds first;
// longer where the goroutines are to stay together (turns.h, Trial), unless there is other work.
// Then it takes the victim through the handshake of handshake.h, which succeeds while that machine is in user code.
goroutine* steal_run_next(processor* victim) noexcept {
    if (victim->run_next.load(std::memory_order_seq_cst) == nullptr) return nullptr;
    const std::uint32_t count = victim->run_next_count.load(std::memory_order_relaxed);
    const std::int64_t until = platform::now_ns() + (keeps_together(victim) ? deferred_wait_ns : run_next_backoff_ns);
    do {
        const std::int64_t next = std::min(until, platform::now_ns() + run_next_backoff_ns);
        while (platform::now_ns() < next) platform::pause();
        // The owner writes that cache line all the time, so looks are rare.
        if (victim->run_next.load(std::memory_order_relaxed) == nullptr ||
            victim->run_next_count.load(std::memory_order_relaxed) != count ||
            the_scheduler.global_size() != 0 || the_scheduler.stopping.load(std::memory_order_relaxed)) {
            return nullptr;
        }
    } while (platform::now_ns() < until);
    if (!victim->retake.try_lock()) return nullptr;
    goroutine* g = nullptr;
    machine* owner = victim->owner.load(std::memory_order_relaxed);
    if (owner != nullptr && take_locked(victim)) {
        g = victim->run_next.load(std::memory_order_acquire);
        victim->run_next.store(nullptr, std::memory_order_relaxed);
        if (g != nullptr) note_readied_unseen(victim, until);
        give_back_locked(victim, owner);
    }
    victim->retake.unlock();
    return g;
}

void count_steal(processor* p, const processor* victim, std::uint32_t n) noexcept {
    p->counts.steals.add();
    p->counts.stolen.add(n);
    if (DUNLIN_UNLIKELY(tracing::on())) {
        tracing::note_processor(current_machine(), tracing::kind::steal, p, victim->id, n);
    }
    auto& cell = p->stolen_from[victim->id];
    cell.store(cell.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

// p's own queue is empty: what is stolen must find room in it.
goroutine* steal_from(processor* p, processor* victim, bool last_round) noexcept {
    goroutine* half[run_queue::capacity / 2];
    const std::uint32_t n = queue_wake_is_deferred(victim) ? 0 : victim->queue.take_half(half);
    if (n != 0) {
        count_steal(p, victim, n);
        // The thief runs the last one; the others are published in its own queue.
        if (n > 1) p->queue.push_all(half, n - 1);
        return half[n - 1];
    }
    if (!last_round) return nullptr;
    goroutine* g = steal_run_next(victim);
    if (g) {
        count_steal(p, victim, 1);
        p->counts.run_next_steals.add();
        note_long_turn(victim, unknown_turn_ns);
    }
    return g;
}

// Fires due timers of another processor, whose machine may be busy for a long time.
bool collect_from(machine* m, processor* victim) noexcept {
    const std::int64_t deadline = the_scheduler.events->next_deadline(victim);
    if (deadline == 0) return false;
    const std::int64_t now = platform::now_ns();
    return now >= deadline && collect_before_choosing(m, victim, now) != 0;
}

goroutine* steal(machine* m, processor* p) noexcept {
    scheduler& s = the_scheduler;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    for (int round = 0; round < steal_rounds; ++round) {
        const bool last = round == steal_rounds - 1;
        for (steal_order order(made, m->random.next()); !order.done(); order.next()) {
            if (s.stopping.load(std::memory_order_relaxed)) return nullptr;
            processor* victim = s.processor_at(order.position());
            if (victim == p) continue;
            // Even if that finds nothing, because the world stops or it is a preempted goroutine's turn: p has work of
            // its own now.
            if (last && collect_from(m, victim)) return find_local(m, p);
            if (victim->state.load(std::memory_order_relaxed) != processor_state::running) continue;
            if (goroutine* g = steal_from(p, victim, last)) return g;
        }
    }
    return nullptr;
}

// ---- spinning -------------------------------------------------------------------------------------------------------

// How long a machine watches. A sleep and a wake take 17 us of CPU of both sides; but the goroutine for which a thread
// is woken waits for 20 to 50 us as well. While goroutines wait for descriptors, much of what comes is delivered by the
// poller, which a watcher does not ask. See docs/decisions/006-spinning.md.
constexpr std::int64_t watch_ns = 60'000, watch_beside_descriptors_ns = 20'000;

// At most half as many machines search as processors are busy; more would only burn CPU. They are also at most half as
// many as there are CPUs: with more processors than CPUs a searcher takes the CPU of a machine that has work (skynet
// with 64 processors on two busy CPUs took up to 7 s of CPU for 0.2 s of work).
bool may_spin(machine* m) noexcept {
    if (m->spinning) return true;
    const std::uint32_t word = the_scheduler.idle_and_spinning.load(std::memory_order_relaxed);
    const std::uint32_t procs = the_scheduler.max_procs.load(std::memory_order_relaxed);
    const std::uint32_t busy =
        std::min(procs - idle_count(word), std::max(the_scheduler.cpus.load(std::memory_order_relaxed), 2u));
    return procs > 1 && 2 * spinning_count(word) < busy;
}

void start_spinning(machine* m) noexcept {
    if (m->spinning) return;
    m->spinning = true;
    the_scheduler.idle_and_spinning.fetch_add(one_spinning, std::memory_order_seq_cst);
    settle_free_clock();
}

// F1 and F2 of wake.h.
void stop_spinning(machine* m) noexcept {
    if (!m->spinning) return;
    m->spinning = false;
    the_scheduler.idle_and_spinning.fetch_sub(one_spinning, std::memory_order_seq_cst);
    settle_free_clock();
    wake_if_idle();
}

// Is there a goroutine in another processor's run_next, with no change in any run_next since the last look? The owner
// writes that cache line all the time, so looks are rare. A goroutine that moves on would be gone before the thief's
// patience is over.
constexpr unsigned look_at_run_next_every = 16;
bool run_next_waits(const processor* p, std::uint32_t made, std::uint32_t& puts_before) noexcept {
    std::uint32_t puts = 0;
    bool any = false;
    for (std::uint32_t i = 0; i < made; ++i) {
        const processor* other = the_scheduler.processor_at(i);
        if (other == p) continue;
        any = any || other->run_next.load(std::memory_order_relaxed) != nullptr;
        puts += other->run_next_count.load(std::memory_order_relaxed);
    }
    return std::exchange(puts_before, puts) == puts && any;
}

// Is there a goroutine in the queues of others that was there at the last look? One that is pushed just before the
// pusher parks is gone by the next look.
bool queues_wait(const processor* p, std::uint32_t made, std::uint64_t& takings_before) noexcept {
    std::uint64_t takings = 0;
    bool any = false;
    for (std::uint32_t i = 0; i < made; ++i) {
        const processor* other = the_scheduler.processor_at(i);
        if (other == p || other->queue.size() == 0 || queue_wake_is_deferred(other)) continue;
        takings += other->queue.takings() + 1;
        any = true;
    }
    return std::exchange(takings_before, takings) == takings && any;
}

// True: something has appeared.
bool watch(const processor* p) noexcept {
    const scheduler& s = the_scheduler;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    const std::int64_t begin = platform::now_ns();
    const std::int64_t shortest = begin + watch_beside_descriptors_ns;
    std::int64_t until = s.events->has_waiters() ? shortest : begin + watch_ns;
    if (const std::int64_t due = earliest_deadline(); due != 0) until = std::clamp(due, shortest, until);
    unsigned looks = 0;
    std::uint32_t puts = 0;
    std::uint64_t takings = 0;
    do {
        for (int i = 0; i < 8; ++i) platform::pause();
        if (s.global_size() != 0) return true;
        if (s.stopping.load(std::memory_order_relaxed)) return false;
        if (queues_wait(p, made, takings)) return true;
        if (++looks % look_at_run_next_every != 0) continue;
        if (run_next_waits(p, made, puts) || p->events_due.load(std::memory_order_relaxed) ||
            s.preempted_size.load(std::memory_order_relaxed) != 0) {
            return true;
        }
        if (s.events->has_waiters()) until = shortest;
    } while (platform::now_ns() < until);
    return false;
}

// Step 7, watching. True: search again.
bool watch_for_work(processor* p) noexcept {
    const scheduler& s = the_scheduler;
    if (s.cpus.load(std::memory_order_relaxed) < 2) return false;  // the thread that has the work waits for our CPU
    // If no other processor runs, work can come only from outside, rarely within microseconds; and a ready descriptor
    // would not be noticed here.
    if (idle_count(s.idle_and_spinning.load(std::memory_order_relaxed))
        + 1 >= s.max_procs.load(std::memory_order_relaxed)) {
        return false;
    }
    if (!s.events->has_waiters()) return watch(p);
    if (!p->watches.worth_it()) return false;
    const bool found = watch(p);
    p->watches.note(found);
    return found;
}

// ---- retiring -------------------------------------------------------------------------------------------------------

// R1: this machine gives its processor up, unless there is something in the global queue or its own after all, or a
// preempted goroutine waits. Then it keeps the processor, and returns a goroutine of the global queue, or null: search
// again. `all_idle`: set if all processors are idle now.
goroutine* retire(machine* m, bool& all_idle) noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    leave_stacks_to_starved(processor_of(m));
    const bool any = s.global.size() != 0 || s.preempted.size != 0 || has_local_work(processor_of(m));
    if (any && !s.stopping.load(std::memory_order_relaxed)) {
        s.lock.unlock();
        return take_global(processor_of(m));
    }
    processor* p = release_processor(m);
    const bool was_spinning = m->spinning;
    m->spinning = false;
    put_idle_processor(p, was_spinning);
    all_idle = every_processor_is_idle();
    s.lock.unlock();
    return nullptr;
}

// Gives the processor back to the machine that lent it (retake.cpp), if that machine has gone on computing since.
// True: m has no processor any more.
bool return_to_lender(machine* m) noexcept {
    scheduler& s = the_scheduler;
    processor* p = processor_of(m);
    machine* lender = p->lender;
    p->lender = nullptr;
    const std::int64_t cpu_ns = platform::thread_cpu_ns(lender->tid);
    s.lock.lock();
    const bool may = lender->detached.load(std::memory_order_acquire) && lender->borrower == p &&
                     !lender->condemned.load(std::memory_order_relaxed) &&
                     !s.stopping.load(std::memory_order_relaxed) && s.global.size() == 0;
    if (may) {
        lender->detached.store(false, std::memory_order_relaxed);
        release_processor(m);
        p->slice_used_ns = lender->slice_used_ns;
        p->slice.store(slice_state::goes_on, std::memory_order_relaxed);
        advance_tick(p);
        lender->resumed_cpu_ns = cpu_ns;
        lender->resumed_ns = platform::now_ns();
        give(p, lender);  // last_p before p: enter_slow() compares them (handshake.h, Q3)
        s.hand_offs.given_back.add();
    }
    s.lock.unlock();
    // This machine would have polled; now the monitor is to sleep in the poller, or to learn that all processors are
    // stuck if another machine sleeps there. It is not called for timers: a thread that wakes so soon again may have to
    // wait for the kernel's next tick (docs/decisions/046).
    if (may && s.events->has_waiters()) hurry_monitor();
    return may;
}

// Takes an idle processor: after R3 has found something, or (`to_search` false) to deliver events that m has in hand;
// then the caller wakes the monitor after it has delivered them.
bool come_back(machine* m, bool to_search = true) noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    processor* p = s.stopping.load(std::memory_order_relaxed) ? nullptr : take_idle_processor();
    s.lock.unlock();
    if (p == nullptr) return false;
    give(p, m);
    if (to_search) {
        start_spinning(m);
        wake_monitor_if_asleep();
    }
    return true;
}

// R2 and R3 (wake.h, J1). True: this machine has a processor again.
bool search_again(machine* m) noexcept {
    platform::atomic<std::uint32_t>& retirers = the_scheduler.retirers;
    std::uint32_t others = 0;                                // J1
    while (!retirers.compare_exchange_weak(others, others == 0 ? 1 : 2, std::memory_order_seq_cst)) {
    }
    if (others != 0) return false;
    do {
        retire_barrier();                                    // R2
        if (work_anywhere()) {                               // R3
            // Machines that have come to J1 since then are served as well: from here on this machine searches, or no
            // processor is idle.
            retirers.store(0, std::memory_order_seq_cst);
            return come_back(m);
        }
    } while (retirers.fetch_sub(1, std::memory_order_seq_cst) != 1);
    return false;
}

void collect_everywhere(machine* m) noexcept {
    const std::uint32_t made = the_scheduler.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) collect_from(m, the_scheduler.processor_at(i));
}

// Step 9, one machine at a time: sleeps until the earliest deadline, or until a descriptor is ready. True: this machine
// has a processor again.
//   sleeper: claim; heavy barrier; look at the deadlines again; publish poll_until_ns; sleep
//   adder: insert; light barrier; read claim and poll_until_ns; interrupt
// As in wake.h: either the sleeper sees the new deadline or the adder sees the sleeper (timer_added()). If all
// processors are idle there is no barrier, and the order of the seq_cst operations shows it: claim, look; insert, read
// the claim.
bool sleep_for_events(machine* m) noexcept {
    scheduler& s = the_scheduler;
    if (earliest_deadline() == 0 && !s.events->has_waiters()) return false;
    std::uint32_t unclaimed = 0;
    if (!s.poller_claimed.compare_exchange_strong(unclaimed, 1, std::memory_order_seq_cst)) return false;
    has_come(m);
    s.poll_until_ns.store(0, std::memory_order_seq_cst);  // 0 reads as "unknown": an adder then always interrupts
    if (!every_processor_is_idle()) retire_barrier();
    const std::int64_t deadline = earliest_deadline();
    s.poll_until_ns.store(deadline, std::memory_order_seq_cst);
    if (deadline != 0 && !std::exchange(m->exact_timers, true)) platform::use_exact_timers();
    event_batch found;
    if ((deadline != 0 || s.events->has_waiters()) && !work_anywhere()) s.events->wait(deadline, found);
    s.poller_claimed.store(0, std::memory_order_seq_cst);
    // Reading the clock, with the loads for it, costs a tenth of a wake-up: without a deadline it is read only if the
    // coarse clock has stood still.
    const std::int64_t now = deadline != 0 || monitor_asleep.load(std::memory_order_relaxed) != 0 ? platform::now_ns()
        : 0;
    if (now != 0) s.coarse_now_ns.store(now, std::memory_order_relaxed);
    // A machine that searched and found work wakes another (F2 of wake.h). A machine that comes back with events or a
    // due deadline has not searched, and wakes another only if there are several goroutines: a second thread for each
    // event would cost more than the event itself.
    const bool due = deadline != 0 && now >= deadline, in_hand = due || found.count != 0;
    const bool back = come_back(m, !in_hand);
    if (DUNLIN_UNLIKELY(tracing::on()) && back) {
        tracing::note_processor(m, tracing::kind::polled, processor_of(m), found.count, 1);
    }
    if (back && due) collect_everywhere(m);
    s.events->deliver(found);
    if (!back && found.count != 0) call_monitor_if_all_stuck();  // it was brought from outside
    if (back && in_hand) {
        wake_monitor_if_asleep();
        const std::int64_t next = due ? earliest_deadline() : 0;
        if (next != 0 && next - now < monitor_sleeps_at_most_ns) wake_if_idle();  // to sleep here
    }
    return back;
}

// Step 5. The claim is only a hint: two machines that poll at once get different events.
bool poll_here() noexcept {
    scheduler& s = the_scheduler;
    if (!s.events->has_waiters() || s.poller_claimed.load(std::memory_order_relaxed) != 0) return false;
    const unsigned count = s.events->poll();
    machine* m = current_machine();
    if (DUNLIN_UNLIKELY(tracing::on()) && count != 0) {
        tracing::note_processor(m, tracing::kind::polled, processor_of(m), count);
    }
    return count != 0;
}

}  // namespace

// ---- the search -----------------------------------------------------------------------------------------------------

void look_for_a_processor(machine* m) noexcept {
    // Before the first look. Acquires what was released by the requests that the thread maker has left to this machine:
    // the maker reads this count with a read-modify-write.
    the_scheduler.yet_to_look.fetch_sub(1, std::memory_order_acq_rel);
    // The barrier is an interrupt on every CPU. It is not needed if no processor is idle: a machine that makes one idle
    // from now on looks for work itself (R2 and R3) or asks for another machine, and a processor that became idle
    // before this machine was asked for is seen here (asking releases, the thread maker acquires). Nor is it needed if
    // work is seen without it.
    if (idle_count(the_scheduler.idle_and_spinning.load(std::memory_order_acquire)) != 0) {
        if (!work_anywhere() && !every_processor_is_idle()) retire_barrier();
        if (work_anywhere() && come_back(m)) return has_come(m);
    }
    sleep_for_events(m);
}

void watch_events(machine* m) noexcept { sleep_for_events(m); }

goroutine* find_work(machine* m) noexcept {
    scheduler& s = the_scheduler;
    m->trace.fresh = 0;
    if (turns_matter()) {
        if (processor* p = m->p.load(std::memory_order_relaxed)) note_turns(p, nullptr);
    }
    for (;;) {
        processor* p = m->p.load(std::memory_order_relaxed);
        if (p == nullptr) {
            sleep_until_handed_a_processor(m);
            if (m->must_end) return nullptr;
            continue;
        }
        if (DUNLIN_UNLIKELY(turn_of_preempted(p))) {
            p->slice.store(slice_state::goes_on, std::memory_order_relaxed);
            stop_spinning(m);
            if (give_turn_to_preempted(m)) continue;
        }
        if (DUNLIN_UNLIKELY(std::exchange(p->poll_first, false))) {
            poll_here();
            p->polls_seen = s.polls.load(std::memory_order_relaxed);
        }
        goroutine* g = nullptr;
        bool all_idle = false;
        if (!s.stopping.load(std::memory_order_relaxed)) {
            g = find_local(m, p);
            if (!g) {
                look_at_events(p, true);
                g = find_local(m, p);
            }
            if (!g && s.global_size() != 0) g = take_global(p);
            if (!g && poll_here()) g = find_local(m, p);
            // With work of its own, which find_local() could not give it, p neither steals nor retires.
            if (!g && may_spin(m) && !has_local_work(p)) {
                start_spinning(m);
                g = steal(m, p);
                if (!g && s.preempted_size.load(std::memory_order_relaxed) == 0 && p->lender == nullptr &&
                    !has_local_work(p) && watch_for_work(p)) {
                    continue;
                }
            }
            // What it has just made runnable here waits for nothing but the turn: the lender would keep it waiting.
            if (!g && DUNLIN_UNLIKELY(p->lender != nullptr) && !has_local_work(p)) {
                stop_spinning(m);
                if (return_to_lender(m)) {
                    // The machine of an idle processor may have found nothing to wait for when it went to sleep.
                    if (idle_count(s.idle_and_spinning.load(std::memory_order_relaxed)) != 0) sleep_for_events(m);
                    continue;
                }
            }
            if (!g && s.preempted_size.load(std::memory_order_relaxed) != 0) {
                stop_spinning(m);
                if (give_turn_to_preempted(m)) continue;
            }
            if (!g) g = retire(m, all_idle);
        } else {
            retire(m, all_idle);
        }
        if (g) {
            stop_spinning(m);
            if (turns_matter()) begin_turns(processor_of(m));
            // wake.h, Left out: this machine does not come to its run_next at once
            if (DUNLIN_UNLIKELY(processor_of(m)->run_next.load(std::memory_order_relaxed) != nullptr)) wake_if_idle();
            return g;
        }
        if (m->p.load(std::memory_order_relaxed) != nullptr) continue;
        if (all_idle ? work_anywhere() && come_back(m) : search_again(m)) continue;
        if (sleep_for_events(m)) continue;
    }
}

}  // namespace dunlin::sched
