// retake.cpp - see retake.h. Runs on the monitor's thread: allocates nothing, creates no thread, takes no lock of
// libc.
//
// Problem    A processor is of no use while its thread sleeps in the kernel; and a goroutine that computes holds up the
//            others that wait for its processor.
// Looks      Each round (mostly 1 to 10 ms, monitor.cpp) at each processor that runs. Its counts of switches, ticks,
//            parks and in-place joins tell whether its machine has come to the scheduler since the last look. If so,
//            all is well. If not, it is stuck, and:
//              in blocking()             taken at the second look if a goroutine waits, after 10 ms if none does (so
//                                        that the monitor may sleep)
//              asleep in the kernel      (/proc/self/task/TID/syscall says so) the same, at the first look
//              computing                 taken when the goroutine has computed for 10 ms while another waits; lent as
//                                        soon as it has had the processor for 0.1 ms if another has just been woken: by
//                                        a timer that is due here, or from outside while all processors were stuck
//            The processor is taken through the handshake of handshake.h: without a signal, without the thread's help.
//            The thread goes on as a detached machine (detached.h).
// Asking     A goroutine that computes may call the runtime all the same, and keep its processor there: it sends to a
//            channel that has room. If it gives way in such a call, that costs a switch; to stop it costs a signal and
//            the wake-ups of two threads. So the first look raises `taken` (handshake.h, Asking), and the goroutine's
//            next call lowers it. At the end of the slice the monitor asks a goroutine that has made a call to give way
//            in the next one that may wait, and takes the processor if it has not done so a fifth of a slice later.
// Hand on    The processor goes to an idle machine if a goroutine is runnable; else to a preempted goroutine's machine.
//            If there is no idle machine, it goes to a preempted one in any case (no goroutine may be kept waiting for
//            a new thread, see preempt.h); if there is none either, to the idle list. New threads are made by the
//            thread maker, in advance.
// Lending    A goroutine that was just woken mostly runs for microseconds, less than it costs to stop a thread with a
//            signal and to wake it again. So the processor is taken as usual, for an idle machine, and the lender's
//            thread goes on computing: the kernel schedules the two. When the borrower finds nothing more to run, it
//            gives the processor back (return_to_lender, find_work.cpp) before preempted goroutines have a turn, and
//            neither thread has slept for it. If goroutines wait for descriptors it calls the monitor, which watches
//            these from then on: the borrower did, and the lender does not. After 0.2 ms the loan is over: the next
//            look asks the lender's thread to stop, and its goroutine is owed the rest of its slice, as one that was
//            stopped early. So there are more executing goroutines than processors for 0.2 ms at most. A goroutine that
//            computes keeps the processor for 0.1 ms before it is lent again. Without an idle machine nothing is lent,
//            and the slice is 1 ms. Why the borrower may give the processor back: `detached` and `borrower` say where
//            the lender's thread is, and `detached` is cleared under the scheduler lock only.
//            If `detached` is clear, the thread has come to the runtime, or is stopped in the handler, and has been or
//            will be given another processor. If it is set and `borrower` is not this processor, the thread has lost
//            another processor since, perhaps in a call in which it sleeps. Otherwise it computes, and the steps are
//            those of give_back().
// Turns      Runnable goroutines go first, but hogs get their share: one of them has a turn every slice * (hogs +
//            others) / (hogs * processors), 2 to 100 ms, so that each goroutine gets about the same time.
//            slice_state::preempted_turn tells a processor that the turn of a hog has come.
#include "sched/monitor/retake.h"

#include <algorithm>
#include <utility>

#include "platform/thread.h"
#include "sched/data/bells.h"
#include "sched/data/event_source.h"
#include "sched/machines/event_notice.h"
#include "sched/machines/machine.h"
#include "sched/machines/preempted.h"
#include "sched/machines/processor.h"
#include "sched/machines/trace.h"
#include "sched/machines/wake.h"
#include "sched/monitor/detached.h"
#include "sched/monitor/thread_maker.h"
#include "sched/preempt/preempt.h"
#include "sched/queues/global_queue.h"
#include "sched/work/local_work.h"

namespace dunlin::inline v0_1::sched {

namespace {

constexpr std::int64_t ms = 1'000'000;
constexpr std::int64_t blocking_grace_ns = 20'000;
constexpr std::int64_t asleep_grace_ns = 100'000;
constexpr std::int64_t next_sleeper_ns = 50'000;
constexpr std::int64_t borrower_grace_ns = 100'000;  // by then it has polled, or computes itself
// Less than the longest round: a call that lasts is noticed in the next long round, or in the second short one.
constexpr std::int64_t longest_trust_ns = 7 * ms;
constexpr std::int64_t thread_made_ns = 150'000;     // mostly, another thread has been made by then
constexpr std::int64_t idle_grace_ns = 10 * ms;      // for a blocked thread for whose processor no goroutine waits

bool timer_is_due(const processor* p, std::int64_t now) noexcept {
    const std::int64_t deadline = the_scheduler.events->next_deadline(p);
    return deadline != 0 && deadline <= now;
}

// True: the slice went on, and is over now. Relaxed: if p's owner stores at the same time, one of the two is lost, and
// the monitor looks again in its next round; if p is the caller's, handing it on orders the store.
bool end_slice(processor* p) noexcept {
    if (p->slice.load(std::memory_order_relaxed) != slice_state::goes_on) return false;
    p->slice.store(slice_state::over, std::memory_order_relaxed);
    return true;
}

// ---- taking and handing on ------------------------------------------------------------------------------------------

// p has no machine, and belongs to the caller. A pending end of the slice stays: the goroutines there have waited.
// False: a preempted goroutine has got p, whose turn it was, although others want it.
bool hand_on(processor* p, outlook& o, int free_cpu = any_cpu) noexcept {
    scheduler& s = the_scheduler;
    const bool wanted = o.runnable != 0 || timer_is_due(p, o.now_ns) || s.global_size() != 0;
    // The turn was told while a goroutine computed that was just taken off p: without this, new goroutines that compute
    // for a slice each would keep preempted ones from ever having one.
    const bool turn = turn_of_preempted(p);
    if (turn) p->slice.store(slice_state::over, std::memory_order_relaxed);
    if (!s.stopping.load(std::memory_order_relaxed)) {
        if (!turn && wanted && start_idle_machine(p, false, wake_place::anywhere)) return true;
        if (const machine* m = resume_one_with(p, free_cpu)) {
            // without this its short turn would not end before the next round
            if (m->spins != 0) o.look_again_at(o.now_ns + spin_slice_ns);
            return !turn || !wanted;
        }
        if (turn && wanted && start_idle_machine(p, false, wake_place::anywhere)) return true;
        if (wanted && start_wired_machine(p)) return true;
    }
    s.lock.lock();
    const bool stopping = s.stopping.load(std::memory_order_relaxed);
    put_idle_processor(p, false);
    if (!stopping && has_local_work(p)) drain_to_global(p);
    s.lock.unlock();
    retired_for_another();
    return true;
}

// True: there is a machine for the processor.
bool can_hand_on(const outlook& o) noexcept {
    const scheduler& s = the_scheduler;
    if (spare_machines() < 2) want_spare_machine();
    return s.idle_machine_count != 0 || o.preempted != 0;
}

// The same for the processor of a thread that sleeps in a call. If no more threads can be made, the processor is taken
// all the same: the thread comes back without it, queues its goroutine and runs another (reenter.cpp).
bool can_hand_on_from_a_call(const outlook& o) noexcept { return can_hand_on(o) || in_pause_after_failure(); }

// Takes p from m. `used_ns`: how much of its slice the goroutine has used; this counts when its turn comes again.
bool take(processor* p, machine* m, std::int64_t used_ns, tracing::taking how) noexcept {
    const bool lends = how == tracing::taking::lent, computes = lends || how == tracing::taking::from_hog;
    p->retake.lock();
    const bool taken = p->owner.load(std::memory_order_relaxed) == m && take_locked(p, computes);
    if (taken) {
        m->slice_used_ns = used_ns;
        m->borrower = lends ? p : nullptr;
        m->detached_cpu_ns = platform::thread_cpu_ns(m->tid);
        // Before the unlock: enter_slow() clears `detached` once it has had this lock. Release: a thread that sees
        // `detached` (queue_preempted) sees that m->p is null.
        m->detached.store(true, std::memory_order_release);
    }
    if (taken && DUNLIN_UNLIKELY(tracing::on())) tracing::note_taken(p, m, how);
    p->retake.unlock();
    // What waits on p has waited for a slice. Otherwise turns of such goroutines, each of which begins a tick, would
    // keep a chain's slice from ever ending.
    if (taken && how == tracing::taking::from_hog) end_slice(p);
    return taken;
}

// ---- one processor --------------------------------------------------------------------------------------------------

// A sum that changes whenever the machine comes to the scheduler.
std::uint64_t progress_of(const processor* p) noexcept {
    return p->tick.load(std::memory_order_relaxed) + p->counts.switches.get() + p->counts.in_place_joins.get()
        + p->counts.parks.get();
}

// Notes what this look has found, for the next looks to compare with. True: the goroutine was resumed in the middle of
// a computation, so it is known to compute.
bool begin_notes(processor* p, machine* m, std::uint64_t progress, std::int64_t now) noexcept {
    monitor_notes& n = p->notes;
    if (n.owner != m) {
        n.seen_in_call = false;
        n.trusted_until_ns = 0;
    }
    n.owner = m;
    n.progress = progress;
    n.stuck_since_ns = now;
    n.got_it_ns = now;
    n.slice_began_ns = now;
    n.sampled = false;
    n.asked = false;
    n.spins = false;
    if (m == nullptr) return false;
    raise_taken(p, m, nullptr);
    n.blocking_tick = m->blocking_tick;
    if (m->resumed_ns == 0) return false;
    n.got_it_ns = m->resumed_ns;
    n.slice_began_ns = m->resumed_ns - p->slice_used_ns;
    n.sampled = true;
    n.spins = m->spins != 0;
    n.sampled_ns = m->resumed_ns;
    n.sampled_cpu_ns = m->resumed_cpu_ns;
    n.sampled_sleeps = m->resumed_sleeps;
    p->slice_used_ns = 0;
    m->resumed_ns = 0;
    return true;
}

void sample(monitor_notes& n, const machine* m, std::int64_t now) noexcept {
    n.sampled = true;
    n.sampled_ns = now;
    n.sampled_cpu_ns = platform::thread_cpu_ns(m->tid);
    n.sampled_sleeps = platform::thread_sleeps(m->tid);
}

void look_at_blocking(processor* p, machine* m, outlook& o) noexcept {
    monitor_notes& n = p->notes;
    const std::uint32_t tick = m->blocking_tick;
    if (tick != n.blocking_tick) {
        n.blocking_tick = tick;
        n.stuck_since_ns = o.now_ns;
        n.slice_began_ns = o.now_ns;
        if (!o.work_waits) return;
        // The goroutine makes one short call after another: when its slice is over it gives way at the end of the next
        // one (end_blocking()).
        const std::int64_t slice = o.urgent || timer_is_due(p, o.now_ns) ? short_slice_ns : slice_ns;
        if (o.now_ns - n.got_it_ns >= slice) m->preempt_later.store(true, std::memory_order_relaxed);
        o.look_again_at(o.now_ns + blocking_grace_ns);
        return;
    }
    const std::int64_t lasts = o.now_ns - n.stuck_since_ns;
    if (lasts < (o.work_waits ? blocking_grace_ns : idle_grace_ns)) return;
    if (o.work_waits && !can_hand_on_from_a_call(o)) {
        if (lasts < shortest_look_ns && !in_pause_after_failure()) o.look_again_at(o.now_ns + thread_made_ns);
        return;
    }
    const void* place = m->blocking_place;  // read before the take: after it the thread may be in another call
    if (!take(p, m, 0, tracing::taking::from_call)) return;
    the_scheduler.slow_place.store(place, std::memory_order_relaxed);
    the_scheduler.hand_offs.from_blocking.add();
    o.effect = true;
    hand_on(p, o);
}

void look_at_sleeping(processor* p, machine* m, outlook& o) noexcept {
    const std::int64_t lasts = o.now_ns - p->notes.stuck_since_ns;
    if (m->in_runtime.load(std::memory_order_relaxed) != 0) {
        if (lasts >= runtime_patience_ns && the_scheduler.preempted_size.load(std::memory_order_relaxed) != 0) {
            let_preempted_go();
        }
        return;
    }
    if (!o.work_waits && lasts < idle_grace_ns) return;
    if (o.work_waits && !can_hand_on_from_a_call(o)) return;
    if (!take(p, m, 0, tracing::taking::from_sleeper)) return;
    the_scheduler.hand_offs.from_blocked.add();
    o.effect = true;
    p->notes.short_calls = 0;
    note_detached(m);
    // What runs next may well make the same call: many goroutines that wake together must not delay the others by a
    // round each.
    if (o.runnable != 0) o.look_again_at(o.now_ns + next_sleeper_ns);
    hand_on(p, o);
}

// Nothing waits any more for p's goroutine to give way: its calls are to be fast again.
void withdraw(processor* p, machine* m) noexcept {
    p->notes.asked = false;
    raise_taken(p, m, nullptr);
}

// The slice is over. True: the goroutine calls the runtime now and then, and may still give way in such a call.
bool may_give_way(processor* p, machine* m, const goroutine* g, std::int64_t slice, outlook& o) noexcept {
    monitor_notes& n = p->notes;
    if (!n.asked) {
        if (m->taken.load(std::memory_order_relaxed) != 0) return false;  // no call since begin_notes()
        raise_taken(p, m, g);
        // Else it would yield to none of them: yield() chooses among what is in a queue.
        const bool only_preempted_wait = o.runnable == 0 && !timer_is_due(p, o.now_ns);
        if (std::exchange(o.turn_is_due, false) || only_preempted_wait) {
            p->slice.store(slice_state::preempted_turn, std::memory_order_relaxed);
        } else {
            end_slice(p);
        }
        the_scheduler.hand_offs.asked.add();
        n.asked = true;
        n.take_ns = o.now_ns + slice / 5;
    }
    if (o.now_ns >= n.take_ns) return false;
    o.look_again_at(n.take_ns);
    return true;
}

void look_at_computing(processor* p, machine* m, const goroutine* g, outlook& o) noexcept {
    scheduler& s = the_scheduler;
    monitor_notes& n = p->notes;
    if (!n.sampled) sample(n, m, o.now_ns);
    const std::int64_t age = o.now_ns - n.slice_began_ns;
    const bool urgent = o.urgent || timer_is_due(p, o.now_ns);
    const bool lends = urgent && !n.spins && age < slice_ns && s.idle_machine_count != 0;
    const std::int64_t slice = n.spins ? spin_slice_ns : urgent ? short_slice_ns : slice_ns;
    const std::int64_t due = lends ? std::max(n.got_it_ns, n.sampled_ns) + lend_ns : n.slice_began_ns + slice;
    if (o.now_ns < due) return o.look_again_at(due);
    if (g->flags & goroutine::pinned) {
        m->preempt_later.store(true, std::memory_order_relaxed);
        return;
    }
    // CPU time, so without the time during which the kernel ran other threads.
    const std::int64_t computed = platform::thread_cpu_ns(m->tid) - n.sampled_cpu_ns;
    if (!urgent && computed < (o.now_ns - n.sampled_ns) / 2 && age < 4 * slice_ns) return;
    if (!lends && !n.spins && may_give_way(p, m, g, slice, o)) return;
    if (!can_hand_on(o)) return;
    int free_cpu = any_cpu;
    const bool stoppable =
        !lends && preemption_mode == preemption::signal && computed >= std::min(computing_ns, slice / 2) &&
            platform::thread_sleeps(m->tid) == n.sampled_sleeps;
    const bool early = !n.spins && age < slice_ns;  // it is owed the rest of its slice
    if (lends) m->resumed_sleeps = n.sampled_sleeps;
    if (!take(p, m, early ? age : 0, lends ? tracing::taking::lent : tracing::taking::from_hog)) return;
    if (n.asked) m->asked.store(nullptr, std::memory_order_relaxed);
    p->lender = lends ? m : nullptr;
    n.lent = lends;
    s.hand_offs.from_hogs.add();
    if (early) s.hand_offs.urgent.add();
    o.effect = true;
    note_detached(m);
    if (lends || stoppable) {
        m->notes.since_ns = n.sampled_ns;
        m->notes.cpu_ns = n.sampled_cpu_ns;
        m->notes.sleeps = n.sampled_sleeps;
    }
    if (lends) {
        m->notes.next_look_ns = o.now_ns + loan_ns;
        o.look_again_at(m->notes.next_look_ns);
        o.on_loan = true;
    } else if (stoppable) {
        m->notes.next_look_ns = o.now_ns + stop_again_ns;
        ask_to_stop(m);
        wait_until_stopped(m);
        // Relaxed: a hint. Both are visible after the acquire in wait_until_stopped(), unless that waited in vain; then
        // one of them may be stale.
        if (g->state.load(std::memory_order_relaxed) == goroutine_state::preempted) free_cpu = m->slept_on_cpu;
    }
    if (hand_on(p, o, free_cpu) && o.urgent) {
        o.urgent = false;
        s.urgent.store(false, std::memory_order_relaxed);
    }
}

// The machine makes progress, but its goroutine may have just begun a call that lasts: then the next look comes soon.
// (If calls last as long as a round, each look finds a new one.) A goroutine that was in a short call at several looks
// in a row is trusted for longer, up to a limit: under strace every call sleeps, and each look makes three more system
// calls.
void look_again_if_it_waits(monitor_notes& n, const machine* m, outlook& o) noexcept {
    if (std::exchange(n.seen_in_call, false)) {
        n.trusted_until_ns = o.now_ns + std::min(shortest_look_ns << n.short_calls, longest_trust_ns);
        if (n.short_calls < 8) ++n.short_calls;
    }
    if (m == nullptr || !o.work_waits) return;
    const goroutine* g = m->current.load(std::memory_order_acquire);
    if (g == nullptr) return;
    if (g->reason.load(std::memory_order_relaxed) == wait_reason::blocking_call) {
        o.look_again_at(o.now_ns + blocking_grace_ns);
    } else if (m->in_runtime.load(std::memory_order_relaxed) == 0 && o.now_ns >= n.trusted_until_ns &&
        !platform::thread_is_running(m->tid)) {
        n.seen_in_call = true;
        o.look_again_at(o.now_ns + asleep_grace_ns);
    }
}

void look_at(processor* p, outlook& o) noexcept {
    machine* m = p->owner.load(std::memory_order_acquire);
    const std::uint64_t progress = progress_of(p);
    monitor_notes& n = p->notes;
    if (m == nullptr || m != n.owner || progress != n.progress) {
        const bool lent = std::exchange(n.lent, false);
        if (!begin_notes(p, m, progress, o.now_ns)) {
            if (lent) o.look_again_at(o.now_ns + borrower_grace_ns);
            return look_again_if_it_waits(n, m, o);
        }
    }
    const goroutine* g = m->current.load(std::memory_order_acquire);
    if (g == nullptr) return;  // the machine searches
    if (g->reason.load(std::memory_order_relaxed) == wait_reason::blocking_call) return look_at_blocking(p, m, o);
    if (n.asked && !o.work_waits && o.now_ns >= n.take_ns) withdraw(p, m);
    if (!o.work_waits && o.now_ns - n.stuck_since_ns < idle_grace_ns) return;
    if (!platform::thread_is_running(m->tid)) return look_at_sleeping(p, m, o);
    if (!o.work_waits || preemption_mode == preemption::off) return;
    o.stuck = true;
    look_at_computing(p, m, g, o);
}

// ---- whose turn -----------------------------------------------------------------------------------------------------

void tell_whose_turn(outlook& o) noexcept {
    scheduler& s = the_scheduler;
    if (o.preempted == 0) return;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    std::uint32_t running = 0, computing = 0;
    for (std::uint32_t i = 0; i < made; ++i) {
        const processor* p = s.processor_at(i);
        if (p->state.load(std::memory_order_relaxed) != processor_state::running) continue;
        ++running;
        computing += p->notes.sampled && progress_of(p) == p->notes.progress;
    }
    const std::int64_t hogs = o.preempted + computing, others = o.runnable + running - computing;
    const std::int64_t interval =
        std::clamp(slice_ns * (hogs + others) / (hogs * std::max(running, 1u)), 2 * ms, 100 * ms);
    if (o.now_ns - s.preempted_since_ns < interval) return;
    o.turn_is_due = true;
    for (std::uint32_t i = 0; i < made; ++i) {
        processor* p = s.processor_at(i);
        // Only a processor that runs one goroutine after the other: neither one that makes no progress, nor one that
        // was just given to a preempted goroutine.
        if (p->state.load(std::memory_order_relaxed) != processor_state::running ||
            progress_of(p) == p->notes.progress) {
            continue;
        }
        const machine* m = p->owner.load(std::memory_order_acquire);
        if (m == nullptr || m->resumed_ns != 0) continue;
        p->slice.store(slice_state::preempted_turn, std::memory_order_relaxed);
        o.effect = true;
        o.turn_is_due = false;
        return;
    }
}

// A chain of goroutines that ready each other, or run each other in place, does not advance its processor's tick: the
// whole chain is one slice. When it has lasted ten milliseconds, the other goroutines in the queue have their turn
// (find_local). The same holds when goroutines have waited in the global queue for as long: 61 ticks may be 61 slices.
// Goroutines that come from there one at a time, at a tick or for one that yields, change nothing: the others wait on.
// A wait that ends no slice, because a slice's end is pending already, goes on.
void look_at_slice(processor* p, outlook& o) noexcept {
    monitor_notes& n = p->notes;
    const std::uint32_t tick = p->tick.load(std::memory_order_relaxed);
    const std::uint64_t batches = p->counts.global_batches.get();
    const bool goes_on = tick == n.tick;
    const bool global_waits = the_scheduler.global_size() != 0 && batches == n.global_batches;
    n.tick = tick;
    n.global_batches = batches;
    if (!goes_on) n.tick_since_ns = o.now_ns;
    if (!global_waits) n.global_since_ns = o.now_ns;
    if (o.now_ns - std::min(n.tick_since_ns, n.global_since_ns) < slice_ns || !end_slice(p)) return;
    n.tick_since_ns = n.global_since_ns = o.now_ns;
    o.effect = true;
}

}  // namespace

void look_at_processors(outlook& o) noexcept {
    scheduler& s = the_scheduler;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    bool due = false;
    std::size_t runnable = s.global_size();
    for (std::uint32_t i = 0; i < made; ++i) {
        const processor* p = s.processor_at(i);
        if (p->state.load(std::memory_order_relaxed) != processor_state::running) continue;
        runnable += p->queue.size() + (p->run_next.load(std::memory_order_relaxed) != nullptr);
        due = due || timer_is_due(p, o.now_ns);
    }
    o.runnable = static_cast<std::uint32_t>(std::min<std::size_t>(runnable, 1u << 20));
    o.preempted = s.preempted_size.load(std::memory_order_relaxed);
    // An idle processor will get a machine soon, unless no machine is idle and no thread can be made.
    const bool idle_one_comes = idle_count(s.idle_and_spinning.load(std::memory_order_relaxed)) != 0 &&
        !(in_pause_after_failure() && s.idle_machine_count == 0);
    o.work_waits = (runnable != 0 || o.preempted != 0 || due) && !idle_one_comes;
    o.urgent = s.urgent.load(std::memory_order_relaxed);
    tell_whose_turn(o);
    bool all_stuck = true;
    for (std::uint32_t i = 0; i < made; ++i) {
        processor* p = s.processor_at(i);
        if (p->state.load(std::memory_order_relaxed) != processor_state::running) {
            p->notes.owner = nullptr;
            p->notes.lent = false;
            // A thread that stops the world again and again must not make waiters young.
            if (p->state.load(std::memory_order_relaxed) != processor_state::stopped)
                p->notes.tick_since_ns = p->notes.global_since_ns = o.now_ns;
            continue;
        }
        look_at_slice(p, o);
        look_at(p, o);
        // Notes that begin in this round mean progress. A goroutine that was resumed in the middle of a computation has
        // an older slice, and does not count as progress: its processor is as stuck as before.
        if (p->notes.slice_began_ns == o.now_ns) all_stuck = false;
    }
    all_stuck = all_stuck && idle_count(s.idle_and_spinning.load(std::memory_order_relaxed)) == 0;
    o.only_hogs = all_stuck && o.preempted != 0 && runnable == 0 && !due && !s.events->has_waiters();
    if (!all_stuck && o.urgent) s.urgent.store(false, std::memory_order_relaxed);
    if (s.all_stuck.load(std::memory_order_relaxed) != all_stuck) {
        s.all_stuck.store(all_stuck, std::memory_order_relaxed);
    }
}

}  // namespace dunlin::sched
