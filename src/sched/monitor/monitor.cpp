// monitor.cpp - what must be done on time even if every processor is busy with one goroutine.
//
// Rounds     Each round: note the time (coarse clock); tell busy processors that their timers are due; poll, or wake a
//            machine to do it, if none does; take processors from threads that block or compute and hand them on
//            (retake.h); make the wakes that were left to the monitor (wake.h); let starved goroutines try again;
//            give back unused memory of stacks and unused threads; ask for the trace, for dumps and for a look at
//            goroutines that have waited long for a mutex (report_kind). Then sleep until something is due: a timer of
//            a busy processor, the end of a slice, a descriptor while every processor is stuck (sleep_in_poller); or
//            for 1 ms while a goroutine waits for a processor that is stuck (3 ms if they are all hogs), and twice as
//            long after each 50 rounds without effect, at most 10 ms. A thread that brings work from outside while all
//            processors are stuck ends that sleep (call_monitor).
//            Go's 20 us between rounds costs 17 to 52 % of a core in a virtual machine (docs/decisions/007-monitor.md);
//            1 ms costs 3 %, 10 ms 0.6 %.
// Give back  A part in each round, because no goroutine is preempted meanwhile: 100,000 stacks take 0.2 s of system
//            calls.
// Sleep      When all processors have been idle for 10 rounds the monitor sleeps until one is taken, or it is time to
//            give something back: an idle process uses 0 % CPU, and the memory of its last peak goes back a second or
//            two later, 64,000 stacks a second.
//              monitor: asleep = 1; all idle? sleep                   taker: idle -= 1; asleep? wake
//            All four operations are seq_cst, so one of them sees the other. A thread that loses a goroutine whose
//            run() has returned does the same with monitor_bell.lost_late.
#include "sched/monitor/monitor.h"

#include <dunlin/detail/atomic.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/thread.h"
#include "sched/data/bells.h"
#include "sched/data/all_goroutines.h"
#include "sched/data/event_source.h"
#include "sched/data/steering.h"
#include "sched/goroutines/goroutine.h"
#include "sched/machines/deadlock.h"
#include "sched/machines/event_notice.h"
#include "sched/machines/machine.h"
#include "sched/machines/starved.h"
#include "sched/machines/wake.h"
#include "sched/monitor/detached.h"
#include "sched/monitor/retake.h"
#include "sched/monitor/thread_maker.h"
#include "sched/preempt/freeze.h"
#include "sched/preempt/frozen.h"

namespace dunlin::inline v0_1::sched {

namespace {

constexpr std::int64_t ms = 1'000'000;
constexpr std::int64_t shortest_ns = 1 * ms;
constexpr std::int64_t longest_ns = monitor_sleeps_at_most_ns;
constexpr std::int64_t hogs_only_ns = 3 * ms;
constexpr unsigned rounds_before_doubling = 50;
constexpr int yields_for_round = 100;  // of a thread that waits for a round's end, before it sleeps
constexpr unsigned idle_rounds_before_sleep = 10;
constexpr std::int64_t poll_after_ns = 10 * ms;
constexpr std::int64_t deadlock_again_ns = 250 * ms;  // 20 us of reading /proc: 0.01 % of a CPU
constexpr unsigned rounds_of_attention = 10;  // after the last deferred wake
constexpr std::int64_t end_threads_after_ns = 1000 * ms;
constexpr std::uint32_t spare_threads = 4;
constexpr std::int64_t trim_every_ns = 1000 * ms;
constexpr std::int64_t longest_leftover_wait_ns = 500 * ms;
constexpr std::size_t stacks_at_once = 64;  // 0.05 to 0.2 ms of system calls: no goroutine is preempted meanwhile
constexpr unsigned threads_at_once = 128;   // each a wake-up
// the longest pause between two reports of long waits, in multiples of long_wait_ns
constexpr std::int64_t report_pauses = 8;

platform::atomic<std::int64_t> schedtrace_period_ns{0};
platform::atomic<std::int64_t> long_wait_ns{1000 * ms};
platform::atomic<void (*)()> reporter{nullptr};
platform::atomic<std::uint32_t> reports_wanted{0}; // bits of report_kind: the monitor's for the reporter

// Goroutines that have waited long for a mutex, or for the end of others, may wait for each other. The reporter finds
// out whether they do; it stops the world for that. So it is asked only when the set of such waits has changed since
// the last time: only a new wait can close a circle.
struct long_waits {
    std::int64_t next_ns = 0;                // 0: nothing has been executed since a look that found no such wait
    // true: nothing has been executed since a look that found no new wait
    bool settled = false;
    std::int64_t last_ns = 0;
    std::uint32_t ticks = 0;                 // the sum over all processors, at the last look
    std::uint64_t reported = 0;              // tells which waits were long at the last report
    std::int64_t report_not_before_ns = 0;
    std::int64_t pause_ns = 0;
    // When the coarse clock, by which the beginning of a wait is noted, stood still recently: while the monitor slept,
    // or had no CPU.
    struct pause_of_clock {
        std::int64_t stood_ns = 0, went_on_ns = 0;
    };
    std::array<pause_of_clock, 16> clock_pauses{};
    std::size_t clock_pause_count = 0;
    std::int64_t round_ns = 0;               // the time of the last round
};

// Memory and threads that were not needed for a second are given back, a part at a time.
struct upkeep {
    std::int64_t next_trim_ns = 0;
    std::int64_t next_thread_end_ns = 0;  // 0: there are no spare threads to end
    bool trimming = false;
    std::int64_t next_leftover_ns = 0;    // the next look at goroutines of a run() that has returned; 0: there are none
    std::int64_t leftover_wait_ns = 0;
    long_waits waits;

    // 0: there is nothing left to do.
    std::int64_t next_ns() const noexcept {
        std::int64_t next = earlier(earlier(next_thread_end_ns, next_leftover_ns), waits.next_ns);
        if (trimming || stack::stacks.anything_warm()) next = earlier(next, next_trim_ns);
        return next;
    }
    // The earlier of two times; 0 is never.
    static constexpr std::int64_t earlier(std::int64_t a, std::int64_t b) noexcept {
        return a == 0 || (b != 0 && b < a) ? b : a;
    }
};

struct rounds {
    std::int64_t period_ns = shortest_ns;
    unsigned without_effect = 0;
    unsigned idle = 0;
    unsigned rounds_without_deferring = rounds_of_attention;
    std::uint64_t polls = 0;  // the number of polls by the last round
    // when `polls` last changed, or when the monitor last polled without a need to poll again
    std::int64_t polled_ns = 0;
    std::uint32_t ticks = 0;     // the sum over all processors, when `polls` was looked at
    std::int64_t next_schedtrace_ns = 0;
    upkeep keep;
};

bool all_idle() noexcept {
    const scheduler& s = the_scheduler;
    return idle_count(s.idle_and_spinning.load(std::memory_order_seq_cst)) >=
           s.max_procs.load(std::memory_order_relaxed);
}

// Returns the earliest future deadline of a processor that runs, or now + longest_ns if that is sooner.
std::int64_t tell_of_due_timers(rounds& r, std::int64_t now) noexcept {
    const scheduler& s = the_scheduler;
    std::int64_t wake_at = now + longest_ns;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) {
        processor* p = s.processor_at(i);
        if (p->state.load(std::memory_order_relaxed) != processor_state::running) continue;
        const std::int64_t deadline = s.events->next_deadline(p);
        if (deadline == 0) continue;
        if (deadline <= now) {
            p->events_due.store(true, std::memory_order_relaxed);
            r.without_effect = 0;
            r.period_ns = shortest_ns;
        } else if (deadline < wake_at) {
            wake_at = deadline;
        }
    }
    return wake_at;
}

std::uint32_t ticks_of_all() noexcept {
    const std::uint32_t made = the_scheduler.procs_made.load(std::memory_order_acquire);
    std::uint32_t ticks = 0;
    for (std::uint32_t i = 0; i < made; ++i) {
        ticks += the_scheduler.processor_at(i)->tick.load(std::memory_order_relaxed);
    }
    return ticks;
}

bool ticks_go_on(rounds& r) noexcept {
    const std::uint32_t ticks = ticks_of_all();
    return std::exchange(r.ticks, ticks) != ticks;
}

// While every processor is busy no machine sleeps in the poller. This can also happen while one is idle: the idle
// machine sleeps elsewhere if it went to sleep before there was a waiter, or the machine that slept in the poller has
// left it with events in hand (find_work.cpp), which may keep it busy.
void look_at_poller(rounds& r, outlook& o) noexcept {
    scheduler& s = the_scheduler;
    if (s.poller_claimed.load(std::memory_order_relaxed) != 0) return;
    const bool some_idle = idle_count(s.idle_and_spinning.load(std::memory_order_relaxed)) != 0;
    const std::int64_t deadline = some_idle ? earliest_deadline() : 0;
    // If all are idle, no machine is on its way to the poller: the monitor itself may have held the claim as the last
    // machine went to sleep.
    if (deadline != 0 && (deadline <= o.now_ns || all_idle())) return wake_if_idle();
    if (deadline != 0) o.look_again_at(deadline);
    if (!s.events->has_waiters()) return;
    const std::uint64_t polls = s.polls.load(std::memory_order_relaxed);
    if (std::exchange(r.polls, polls) != polls) {
        r.polled_ns = o.now_ns;
        if (some_idle) o.look_again_at(o.now_ns + shortest_ns);  // so long may descriptors wait beside it
        return;
    }
    if (some_idle) return wake_if_idle();
    // Processors that come to the scheduler poll by themselves before long (find_local), so the monitor need not poll
    // for them in each round. Nor need it for chains of goroutines that ready each other or run each other in place,
    // although their tick stands still.
    const bool by_themselves = ticks_go_on(r);
    const bool all_stuck = s.all_stuck.load(std::memory_order_relaxed);
    if (!all_stuck && o.now_ns - r.polled_ns < poll_after_ns) return o.look_again_at(r.polled_ns + poll_after_ns);
    // The monitor is the only thread that readies goroutines without being counted as awake: so check_for_deadlock()
    // reads this flag after it has found no machine awake.
    s.monitor_delivers.store(true, std::memory_order_seq_cst);
    const unsigned delivered = s.events->poll();
    s.monitor_delivers.store(false, std::memory_order_seq_cst);
    r.polls = s.polls.load(std::memory_order_relaxed);  // so that the monitor's own poll does not count
    if (delivered == 0 || by_themselves) r.polled_ns = o.now_ns;
    if (delivered == 0 || (by_themselves && !all_stuck)) return;
    r.without_effect = 0;
    r.period_ns = shortest_ns;
    // These goroutines were woken from outside (retake.cpp): a goroutine that has computed for a short time makes
    // room for them.
    if (all_stuck) s.urgent.store(true, std::memory_order_relaxed);
}

// Makes the wakes that were left to the monitor. If a goroutine has been in run_next since the last round, or nothing
// was taken from a queue, the processor does not come to them.
void make_deferred_wakes(rounds& r) noexcept {
    scheduler& s = the_scheduler;
    const bool deferred = s.wakes_deferred.exchange(false, std::memory_order_relaxed);
    r.rounds_without_deferring = deferred ? 0 : r.rounds_without_deferring + 1;
    const bool attentive = r.rounds_without_deferring < rounds_of_attention;
    if (s.monitor_attentive.load(std::memory_order_relaxed) != attentive) {
        s.monitor_attentive.store(attentive, std::memory_order_relaxed);
    }
    if (!attentive) return;
    r.period_ns = shortest_ns;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) {
        processor* p = s.processor_at(i);
        const std::uint32_t count = p->run_next_count.load(std::memory_order_relaxed);
        const std::uint64_t takings = p->queue.takings();
        const bool slot_stands = count == p->notes.run_next && p->run_next.load(std::memory_order_relaxed) != nullptr;
        const bool queue_stands = takings == p->notes.takings && p->queue.size() != 0;
        if (slot_stands || queue_stands) {
            note_long_turn(p, longest_turn_ns);
            if (const machine* m = p->owner.load(std::memory_order_acquire)) {
                if (goroutine* g = m->current.load(std::memory_order_acquire)) g->marks.raise_lingers(most_lingers);
            }
            wake_if_idle();
        }
        p->notes.run_next = count;
        p->notes.takings = takings;
    }
}

void trim_stacks(upkeep& k, outlook& o) noexcept {
    if (o.now_ns < k.next_trim_ns) return;
    if (!k.trimming) {
        stack::stacks.note_idle();
        k.trimming = k.next_trim_ns != 0;
    }
    if (k.trimming) k.trimming = stack::stacks.trim_idle(stacks_at_once) == stacks_at_once;
    k.next_trim_ns = o.now_ns + (k.trimming ? shortest_ns : trim_every_ns);
    if (k.trimming) o.look_again_at(k.next_trim_ns);
}

// Looks at goroutines of a run() that has returned: those that are frozen may hold what main waits for, and the others
// are asked to stop. While all processors are idle the looks become rarer.
void look_at_leftovers(upkeep& k, outlook& o) noexcept {
    k.next_leftover_ns = look_at_frozen(o.now_ns);
    if (!freeze_again()) {
        k.leftover_wait_ns = 0;
        return;
    }
    k.leftover_wait_ns = std::clamp(2 * k.leftover_wait_ns, shortest_ns, longest_leftover_wait_ns);
    k.next_leftover_ns = upkeep::earlier(k.next_leftover_ns, o.now_ns + k.leftover_wait_ns);
}

void ask_for_schedtrace(rounds& r, std::int64_t now) noexcept {
    const std::int64_t period = schedtrace_period_ns.load(std::memory_order_relaxed);
    if (period == 0 || now < r.next_schedtrace_ns) return;
    r.next_schedtrace_ns = now + period;
    want_report(report_schedtrace);
}

// True: the goroutine executes, or is about to, and may begin to wait before any processor's tick changes.
bool may_begin_to_wait(const goroutine& g) noexcept {
    const goroutine_state state = g.state.load(std::memory_order_relaxed);
    if (state == goroutine_state::running) {
        return g.reason.load(std::memory_order_relaxed) != wait_reason::blocking_call;
    }
    return state == goroutine_state::runnable || state == goroutine_state::preempted;
}

// Called at the beginning of a round.
void note_whether_clock_stood(long_waits& w, std::int64_t now) noexcept {
    const std::int64_t before = std::exchange(w.round_ns, now);
    if (now - before > 2 * longest_ns) w.clock_pauses[w.clock_pause_count++ % w.clock_pauses.size()] = {before, now};
}

// The latest time when a wait that began at since_ns by the coarse clock can have begun: if that clock stood still, any
// time until it went on.
std::int64_t began_at_last(const long_waits& w, std::int64_t since_ns) noexcept {
    for (const long_waits::pause_of_clock& p : w.clock_pauses) {
        if (p.stood_ns <= since_ns && since_ns < p.went_on_ns) return p.went_on_ns;
    }
    return since_ns;
}

// A look costs 2 ns for each goroutine struct ever made. Once nothing is executed any more and each long wait has been
// reported, looks are rare; if there is no such wait either, there are none.
void look_for_long_waits(long_waits& w, std::int64_t now) noexcept {
    const std::int64_t long_ns = long_wait_ns.load(std::memory_order_relaxed);
    const std::uint32_t ticks = ticks_of_all();
    if ((w.next_ns == 0 || w.settled) && ticks != w.ticks) {
        w.settled = false;
        w.next_ns = std::max(now + 1, w.last_ns + long_ns);
    }
    if (w.next_ns == 0 || now < w.next_ns) return;
    const bool executed = std::exchange(w.ticks, ticks) != ticks;
    std::uint64_t which = 0;  // a sum over the long waits, independent of their order
    std::size_t young = 0, old = 0;
    bool unsettled = false;
    for_each_goroutine([&](const goroutine& g) {
        unsettled = unsettled || may_begin_to_wait(g);
        if (!may_be_in_a_circle(g.reason.load(std::memory_order_relaxed))) return;
        if (g.state.load(std::memory_order_relaxed) != goroutine_state::waiting) return;
        const std::int64_t since_ns = g.waits_since_ns;
        if (began_at_last(w, since_ns) > now - long_ns) {
            ++young;
            return;
        }
        ++old;
        std::uint64_t wait =
            (reinterpret_cast<std::uintptr_t>(&g) ^ static_cast<std::uint64_t>(since_ns)) * 0x9e3779b97f4a7c15;
        which += wait ^ wait >> 32;
    });
    if (which == w.reported) {
        w.pause_ns = 0;
    } else if (which == 0) {
        w.reported = 0;
    } else if (now >= w.report_not_before_ns) {
        w.reported = which;
        w.pause_ns = std::clamp(2 * w.pause_ns, long_ns, report_pauses * long_ns);
        w.report_not_before_ns = now + w.pause_ns;
        want_report(report_long_waits);
    }
    w.last_ns = now;
    w.settled = !executed && !unsettled && young == 0 && which == w.reported;
    w.next_ns = !w.settled ? now + long_ns : old != 0 ? now + report_pauses * long_ns : 0;
}

// True: all goroutines seem to be asleep, and perhaps only threads outside the runtime can change that. The end of such
// a thread is not announced, so the monitor looks again later.
bool look_for_deadlock() noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    if (s.deadlock_suspected) check_for_deadlock();
    const bool suspected = s.deadlock_suspected;
    s.lock.unlock();
    return suspected;
}

// Sleeps until a processor is busy or the monitor is called, or until `deadline_ns` (0: none). False: the deadline has
// come.
bool sleep_until_busy(std::int64_t deadline_ns) noexcept {
    the_scheduler.monitor_attentive.store(false, std::memory_order_relaxed);
    monitor_asleep.store(1, std::memory_order_seq_cst);
    bool in_time = true;
    while (in_time && all_idle() && !monitor_bell.lost_late.load(std::memory_order_seq_cst) &&
           !monitor_bell.dump_called_for.load(std::memory_order_seq_cst) && !in_pause_after_failure() &&
           monitor_asleep.load(std::memory_order_seq_cst) != 0) {
        std::int64_t until = deadline_ns;
        if (look_for_deadlock()) {
            const std::int64_t again = platform::now_ns() + deadlock_again_ns;
            until = until != 0 ? std::min(until, again) : again;
        }
        platform::futex_wait_until(monitor_asleep, 1, until != 0 ? until : platform::no_deadline);
        in_time = deadline_ns == 0 || platform::now_ns() < deadline_ns;
    }
    monitor_asleep.store(0, std::memory_order_seq_cst);
    return in_time;
}

// Ends half of the spare threads at a time; a few stay.
void end_spare_threads(upkeep& k, std::int64_t now) noexcept {
    const std::uint32_t idle = the_scheduler.idle_machine_count;
    const std::uint32_t stay = the_scheduler.max_procs.load(std::memory_order_relaxed) + spare_threads;
    if (idle <= stay) {
        k.next_thread_end_ns = 0;
    } else if (k.next_thread_end_ns == 0) {
        k.next_thread_end_ns = now + end_threads_after_ns;
    } else if (now >= k.next_thread_end_ns) {
        end_idle_machines(std::min((idle - stay + 1) / 2, threads_at_once));
        k.next_thread_end_ns = now + end_threads_after_ns / 10;
    }
}

// When the next round begins.
std::int64_t end_of_sleep(rounds& r, const outlook& o, std::int64_t next_timer) noexcept {
    if (o.effect || o.stuck) {
        r.without_effect = 0;
        r.period_ns = shortest_ns;
    } else if (++r.without_effect % rounds_before_doubling == 0 && r.period_ns < longest_ns) {
        r.period_ns *= 2;
    }
    const std::int64_t now = platform::now_ns();
    // If only goroutines that compute are left there is no hurry: the ends of their slices, timers, and work from
    // outside end this sleep anyway.
    const bool in_no_hurry = o.only_hogs && !the_scheduler.monitor_attentive.load(std::memory_order_relaxed);
    std::int64_t wake_at = now + (in_no_hurry ? hogs_only_ns : r.period_ns);
    // A processor that is stuck does not look at its timers.
    const std::int64_t timer_from = the_scheduler.all_stuck.load(std::memory_order_relaxed) ? o.now_ns : now
        + shortest_ns;
    if (next_timer > timer_from && next_timer < wake_at) wake_at = next_timer;
    if (o.look_again_ns != 0 && o.look_again_ns < wake_at) wake_at = o.look_again_ns;
    return wake_at;
}

// The sleep between two rounds while every processor is stuck and goroutines wait for descriptors: a descriptor that
// becomes ready ends it. False: another thread sleeps in the poller. As with monitor_asleep: the monitor announces that
// it is in the poller, then looks at the word; hurry_monitor() changes the word, then looks whether the monitor is in
// the poller. After the claim it looks again, as a machine does (sleep_for_events): a timer that was added before has
// woken no thread. Without a barrier: what this look misses is found in the next round.
bool sleep_in_poller(std::uint32_t calls, std::int64_t until) noexcept {
    scheduler& s = the_scheduler;
    std::uint32_t unclaimed = 0;
    if (!s.poller_claimed.compare_exchange_strong(unclaimed, 1, std::memory_order_seq_cst)) return false;
    s.poll_until_ns.store(0, std::memory_order_seq_cst);
    if (const std::int64_t deadline = earliest_deadline(); deadline > platform::now_ns()) {
        until = std::min(until, deadline);
    }
    s.poll_until_ns.store(until, std::memory_order_seq_cst);
    if (idle_count(s.idle_and_spinning.load(std::memory_order_seq_cst)) != 0) {
        s.poller_claimed.store(0, std::memory_order_seq_cst);
        if (events_are_unwatched()) wake_if_idle();
        return false;
    }
    s.monitor_delivers.store(true, std::memory_order_seq_cst);
    monitor_bell.in_poller.store(true, std::memory_order_seq_cst);
    event_batch found;
    if (monitor_bell.call_word.load(std::memory_order_seq_cst) == calls) s.events->wait(until, found);
    monitor_bell.in_poller.store(false, std::memory_order_relaxed);
    s.poller_claimed.store(0, std::memory_order_seq_cst);
    if (found.count != 0 && s.events->deliver(found) != 0 && s.all_stuck.load(std::memory_order_relaxed)) {
        s.urgent.store(true, std::memory_order_relaxed);
    }
    s.monitor_delivers.store(false, std::memory_order_seq_cst);
    return true;
}

// Returns the simulation that steers, if there is one: then this round must not look at processors.
//   monitor: looks += 1; steered? then no look                 simulation: steer; looks odd? wait
// All four operations are seq_cst, so one of the two sees the other. (The simulation build has a simulation of its own,
// and needs no steps for this one.)
steering* begin_looks() noexcept {
    if constexpr (platform::may_be_simulated) return nullptr;
    monitor_bell.looks.store(monitor_bell.looks.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    return the_steering.load(std::memory_order_seq_cst);
}

// Release: what this round has done to processors is seen by wait_for_round_in_progress().
void end_looks() noexcept {
    if constexpr (platform::may_be_simulated) return;
    monitor_bell.looks.store(monitor_bell.looks.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void one_round(rounds& r) noexcept {
    scheduler& s = the_scheduler;
    outlook o;
    o.now_ns = platform::now_ns();
    s.coarse_now_ns.store(o.now_ns, std::memory_order_relaxed);
    note_whether_clock_stood(r.keep.waits, o.now_ns);
    const std::uint32_t calls = monitor_bell.call_word.load(std::memory_order_acquire);
    if (steering* simulation = begin_looks()) {
        simulation->watch(o.now_ns);
        end_looks();  // only now: the next simulation is not judged by what this one did
        r = {.keep = r.keep};
        platform::futex_wait_until(monitor_bell.call_word, calls, o.now_ns + longest_ns);
        return;
    }
    const std::int64_t next_timer = tell_of_due_timers(r, o.now_ns);
    look_at_poller(r, o);
    look_at_processors(o);
    look_at_detached_machines(o);
    make_deferred_wakes(r);
    if (feed_starved()) wake_if_idle();
    look_at_leftovers(r.keep, o);
    if (monitor_bell.lost_late.load(std::memory_order_relaxed) &&
        monitor_bell.lost_late.exchange(false, std::memory_order_acquire)) {
        want_lost_forgotten();
    }
    trim_stacks(r.keep, o);
    end_spare_threads(r.keep, o.now_ns);
    if (spare_is_overdue(o.now_ns) && (work_anywhere() || events_are_unwatched())) wake_if_idle();
    // A machine may have fallen asleep after its search while another found no machine to wake.
    if (in_pause_after_failure() && s.idle_machine_count != 0 && work_anywhere()) wake_if_idle();
    ask_for_schedtrace(r, o.now_ns);
    platform::atomic<bool>& dump = monitor_bell.dump_called_for;
    if (dump.load(std::memory_order_relaxed) && dump.exchange(false, std::memory_order_acquire)) {
        want_report(report_dump);
    }
    look_for_long_waits(r.keep.waits, o.now_ns);
    end_looks();
    r.idle = all_idle() && !in_pause_after_failure() && !some_starve() ? r.idle + 1 : 0;
    if (r.idle >= idle_rounds_before_sleep && schedtrace_period_ns.load(std::memory_order_relaxed) == 0) {
        if (sleep_until_busy(r.keep.next_ns())) r = {.keep = r.keep};  // otherwise it is time to give something back
        return;
    }
    const std::int64_t until = end_of_sleep(r, o, next_timer);
    const bool watches = s.all_stuck.load(std::memory_order_relaxed) && !s.urgent.load(std::memory_order_relaxed) &&
        !o.on_loan && !s.stopping.load(std::memory_order_relaxed) && s.events->has_waiters();
    if (!watches || !sleep_in_poller(calls, until)) platform::futex_wait_until(monitor_bell.call_word, calls, until);
}

void monitor_main(void*) {
    platform::act_as_rescuer();
    platform::use_exact_timers();
    platform::use_short_slices();
    rounds r;
    for (;;) one_round(r);
}

constexpr platform::thread_kind monitor_thread{monitor_main, "dunlin-monitor"};

}  // namespace

bool start_monitor() noexcept {
    if (monitor_bell.threads.exchange(1) != 0) return true;
    if (platform::start_thread<monitor_thread>(nullptr) == 0) return true;
    monitor_bell.threads.store(0);
    return false;
}

void wait_for_round_in_progress() noexcept {
    const std::uint32_t seen = monitor_bell.looks.load(std::memory_order_seq_cst);
    if (seen % 2 == 0) return;
    // Acquire pairs with the release in end_looks(). The monitor changes the word without a wake.
    for (int yields = 0; monitor_bell.looks.load(std::memory_order_acquire) == seen; ++yields) {
        if (yields < yields_for_round) {
            platform::give_cpu_away();
        } else {
            platform::futex_wait_until(monitor_bell.looks, seen, platform::real_now_ns() + ms);
        }
    }
}

void set_reporter(void (*print)()) noexcept { reporter.store(print, std::memory_order_release); }

void want_report(report_kind what) noexcept {
    auto* print = reporter.load(std::memory_order_acquire);
    if (print == nullptr) return;
    reports_wanted.fetch_or(what, std::memory_order_relaxed);  // want_printed() releases it
    want_printed(print);
}

std::uint32_t take_reports() noexcept { return reports_wanted.exchange(0, std::memory_order_relaxed); }

void set_long_wait(std::int64_t ns) noexcept { long_wait_ns.store(ns, std::memory_order_relaxed); }

void set_schedtrace_period(std::int64_t period_ms) noexcept {
    schedtrace_period_ns.store(period_ms * ms, std::memory_order_relaxed);
}

}  // namespace dunlin::sched
