// monitor.cpp - what must be done on time although every processor may be busy with one goroutine.
//
// Rounds     Each round: note the time (coarse clock), tell busy processors whose timers are due, let starved goroutines try again, give back
//            the memory of stacks that nobody used, end slices, pay the wakes that were left to it (wake.h), print the trace. Then sleep
//            until the earliest timer of a busy processor, at least
//            1 ms, and twice as long after each 50 rounds without effect, at most 10 ms.
//            Go's 20 us between rounds costs 17 to 52 % of a core in a virtual machine (docs/decisions/007-monitor.md); 1 ms costs 3 %, 10 ms 0.6 %.
// Sleep      When all processors have been idle for 10 rounds it sleeps until somebody takes one: 0 % CPU in an idle process.
//              monitor: asleep = 1; fence; all idle? sleep            taker: idle -= 1 (seq_cst); asleep? wake
//            One of them sees the other.
#include "sched/monitor.h"

#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/thread.h"
#include "sched/deadlock.h"
#include "sched/event_source.h"
#include "sched/freeze.h"
#include "sched/goroutine.h"
#include "sched/wake.h"

namespace dunlin::sched {

std::atomic<std::uint32_t> monitor_asleep{0};

namespace {

constexpr std::int64_t ms = 1'000'000;
constexpr std::int64_t shortest_ns = 1 * ms;
constexpr std::int64_t longest_ns = 10 * ms;
constexpr unsigned rounds_before_doubling = 50;
constexpr unsigned idle_rounds_before_sleep = 10;
constexpr std::int64_t deadlock_again_ns = 250 * ms;  // 20 us of reading /proc: 0.01 % of a CPU
constexpr unsigned rounds_of_attention = 10;  // after the last owed wake
constexpr std::int64_t trim_every_ns = 1000 * ms;
constexpr std::size_t trim_slots_max = 30'000;  // 50 ms of system calls at most

std::atomic<unsigned> threads{0};
std::atomic<std::uint32_t> tick_word{0};  // never changes: to sleep on with a deadline
std::atomic<std::int64_t> trace_period_ns{0};
std::atomic<void (*)()> print_trace{nullptr};

struct rounds {
    std::int64_t period_ns = shortest_ns;
    unsigned without_effect = 0;
    unsigned idle = 0;
    unsigned rounds_without_owing = rounds_of_attention;
    std::int64_t next_trim_ns = 0;
    std::int64_t next_trace_ns = 0;
};

bool all_idle() noexcept {
    const scheduler& s = the_scheduler;
    return idle_count(s.idle_and_spinning.load(std::memory_order_seq_cst)) >= s.max_procs.load(std::memory_order_relaxed);
}

// Returns the earliest deadline that is still to come, or the longest sleep.
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

// A chain of goroutines that ready each other, or run each other in place, keeps its processor's tick where it is: it is one slice, and when that
// has lasted ten milliseconds the others in the queue have their turn (find_local).
void tell_of_ended_slices(rounds& r, std::int64_t now) noexcept {
    const scheduler& s = the_scheduler;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) {
        processor* p = s.processor_at(i);
        const std::uint32_t tick = p->tick.load(std::memory_order_relaxed);
        if (p->state.load(std::memory_order_relaxed) != processor_state::running || tick != p->seen_tick) {
            p->seen_tick = tick;
            p->seen_since_ns = now;
        } else if (now - p->seen_since_ns >= slice_ns) {
            if (p->slice_over.load(std::memory_order_relaxed) == 0) p->slice_over.store(1, std::memory_order_relaxed);
            p->seen_since_ns = now;
            r.without_effect = 0;
        }
    }
}

// The goroutines in run_next whose wake was left to us: if one is still the same as in the last round, its processor does not get around to it.
void pay_owed_wakes(rounds& r) noexcept {
    scheduler& s = the_scheduler;
    const bool owed = s.wakes_owed.exchange(false, std::memory_order_relaxed);
    r.rounds_without_owing = owed ? 0 : r.rounds_without_owing + 1;
    const bool attentive = r.rounds_without_owing < rounds_of_attention;
    if (s.monitor_attentive.load(std::memory_order_relaxed) != attentive) s.monitor_attentive.store(attentive, std::memory_order_relaxed);
    if (!attentive) return;
    r.period_ns = shortest_ns;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) {
        processor* p = s.processor_at(i);
        const std::uint32_t count = p->run_next_count.load(std::memory_order_relaxed);
        if (count == p->seen_run_next && p->run_next.load(std::memory_order_relaxed) != nullptr) {
            p->kept_in_a_row = 0;
            wake_if_idle();
        }
        p->seen_run_next = count;
    }
}

// The memory of stacks that nobody wanted during the last seconds.
void trim_stacks(rounds& r, std::int64_t now) noexcept {
    if (now < r.next_trim_ns) return;
    if (r.next_trim_ns != 0) stack::stacks.trim_idle(trim_slots_max);
    r.next_trim_ns = now + trim_every_ns;
}

void trace(rounds& r, std::int64_t now) noexcept {
    const std::int64_t period = trace_period_ns.load(std::memory_order_relaxed);
    if (period == 0 || now < r.next_trace_ns) return;
    r.next_trace_ns = now + period;
    if (auto* print = print_trace.load(std::memory_order_acquire)) print();
}

// True: all are asleep, and only threads that are not ours may change that. Their end is no event that reaches us.
bool look_for_deadlock() noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    if (s.deadlock_suspected) check_for_deadlock();
    const bool suspected = s.deadlock_suspected;
    s.lock.unlock();
    return suspected;
}

void sleep_until_busy() noexcept {
    the_scheduler.monitor_attentive.store(false, std::memory_order_relaxed);
    monitor_asleep.store(1, std::memory_order_seq_cst);
    while (all_idle() && monitor_asleep.load(std::memory_order_seq_cst) != 0) {
        platform::futex_wait_until(monitor_asleep, 1, look_for_deadlock() ? platform::now_ns() + deadlock_again_ns : platform::no_deadline);
    }
    monitor_asleep.store(0, std::memory_order_seq_cst);
}

void one_round(rounds& r) noexcept {
    std::int64_t now = platform::now_ns();
    the_scheduler.coarse_now_ns.store(now, std::memory_order_relaxed);
    const std::int64_t next_timer = tell_of_due_timers(r, now);
    tell_of_ended_slices(r, now);
    pay_owed_wakes(r);
    feed_starved();
    freeze_again();
    trim_stacks(r, now);
    trace(r, now);
    r.idle = all_idle() ? r.idle + 1 : 0;
    if (r.idle >= idle_rounds_before_sleep && trace_period_ns.load(std::memory_order_relaxed) == 0) {
        sleep_until_busy();
        r = {};
        return;
    }
    if (++r.without_effect % rounds_before_doubling == 0 && r.period_ns < longest_ns) r.period_ns *= 2;
    now = platform::now_ns();
    std::int64_t wake_at = now + r.period_ns;
    if (next_timer > now + shortest_ns && next_timer < wake_at) wake_at = next_timer;
    platform::futex_wait_until(tick_word, 0, wake_at);
}

void monitor_main(void*) {
    platform::use_exact_timers();
    rounds r;
    for (;;) one_round(r);
}

}  // namespace

bool start_monitor() noexcept {
    if (threads.exchange(1) != 0) return true;
    if (platform::start_thread(monitor_main, nullptr, "dunlin-monitor") == 0) return true;
    threads.store(0);
    return false;
}

unsigned monitor_threads() noexcept { return threads.load(std::memory_order_relaxed); }

void wake_monitor() noexcept {
    monitor_asleep.store(0, std::memory_order_seq_cst);
    platform::futex_wake(monitor_asleep);
}

void set_trace_period(std::int64_t period_ms, void (*print)()) noexcept {
    print_trace.store(print, std::memory_order_release);
    trace_period_ns.store(period_ms * ms, std::memory_order_relaxed);
}

}  // namespace dunlin::sched
