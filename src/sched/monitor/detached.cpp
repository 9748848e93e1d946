// detached.cpp - see detached.h. Runs on the monitor's thread: allocates nothing, creates no thread, takes no lock of
// libc.
//
// Looks      A detached machine that computes is asked to stop (preempt.h), or gets a processor if one is idle. One
//            that sleeps is looked at less and less often.
// Rescue     A thread that the others depend on (it has stopped the world, or makes threads) may wait for a lock that a
//            stopped goroutine holds. If it does not get on for a while, all preempted goroutines go on without a
//            processor.
#include "sched/monitor/detached.h"

#include <algorithm>
#include <utility>

#include "platform/thread.h"
#include "sched/data/bells.h"
#include "sched/machines/machine.h"
#include "sched/machines/processor.h"
#include "sched/machines/wake.h"
#include "sched/preempt/preempt.h"

namespace dunlin::inline v0_1::sched {

namespace {

constexpr std::int64_t longest_stop_wait_ns = 8'000'000, longest_asleep_wait_ns = 50'000'000;

machine* detached_list = nullptr;  // linked by notes.next
// in the last round: the more there are, the less often each that sleeps is looked at
unsigned detached_count = 0;

// Gives m an idle processor. False: there is none, or other goroutines need it, or m no longer does.
bool give_back(machine* m) noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    const bool may = m->detached.load(std::memory_order_relaxed) && !m->condemned.load(std::memory_order_relaxed) &&
        !s.stopping.load(std::memory_order_relaxed) &&
                     s.global.size() == 0;
    processor* p = may ? take_idle_processor(m->last_p) : nullptr;
    if (p != nullptr) {
        m->detached.store(false, std::memory_order_relaxed);
        give(p, m);  // last_p before p: enter_slow() compares them (handshake.h, Q3)
        s.hand_offs.given_back.add();
    }
    s.lock.unlock();
    return p != nullptr;
}

// Doubles the time between two looks, up to a limit.
void look_later(detached_notes& n, std::int64_t now, std::int64_t longest) noexcept {
    n.next_look_ns = now + n.wait_ns;
    n.wait_ns = std::min(2 * n.wait_ns, longest);
}

// Begins the period over which the next look judges m.
void begin_period(detached_notes& n, std::int64_t now, std::int64_t cpu, std::uint64_t sleeps) noexcept {
    n.cpu_ns = cpu;
    n.since_ns = now;
    n.sleeps = sleeps;
}

// m has computed since `since_ns` without sleeping, perhaps little: it shares the CPUs with other threads. One that has
// lent its processor is asked at the end of the loan in any case.
void stop_detached(machine* m, std::int64_t computed, outlook& o) noexcept {
    detached_notes& n = m->notes;
    if (computed < computing_ns && m->borrower == nullptr) return look_later(n, o.now_ns, longest_stop_wait_ns);
    ask_to_stop(m);
    if (m->rejects == 0) return look_later(n, o.now_ns, longest_stop_wait_ns);
    n.next_look_ns = o.now_ns + stop_again_ns;
    o.look_again_at(n.next_look_ns);
}

// How much CPU time m has got does not tell whether it sleeps: beside many others that compute it is little. But what
// it tells saves looks at /proc, which would be most of the monitor's work where a thousand threads sleep.
void look_at_detached(machine* m, outlook& o) noexcept {
    detached_notes& n = m->notes;
    if (o.now_ns < n.next_look_ns) {
        if (m->borrower != nullptr) o.look_again_at(n.next_look_ns);  // the loan ends then, in whatever round
        return;
    }
    const std::int64_t cpu = platform::thread_cpu_ns(m->tid);
    const std::int64_t computed = cpu - n.cpu_ns;
    const bool first = n.since_ns == 0;
    const std::int64_t asleep_wait_ns = longest_asleep_wait_ns * (1 + detached_count / 256);
    if (!first && computed == 0) return look_later(n, o.now_ns, asleep_wait_ns);
    const bool little = !first && computed < (o.now_ns - n.since_ns) / 20;
    const bool may_stop =
        preemption_mode == preemption::signal && !m->in_thread_call.load(std::memory_order_relaxed);
    const bool running = may_stop && platform::thread_is_running(m->tid);
    if (little && !running) {
        begin_period(n, o.now_ns, cpu, 0);
        return look_later(n, o.now_ns, asleep_wait_ns);
    }
    const std::uint64_t sleeps = running ? platform::thread_sleeps(m->tid) : 0;
    const bool computes = !first && running && sleeps == n.sleeps;
    if (!first && (computes || !little) &&
        idle_count(the_scheduler.idle_and_spinning.load(std::memory_order_relaxed)) != 0 && give_back(m)) {
        o.effect = true;
        return;
    }
    if (computes) return stop_detached(m, computed, o);
    begin_period(n, o.now_ns, cpu, sleeps);
    if (!little && may_stop) n.wait_ns = 2 * shortest_look_ns;
    look_later(n, o.now_ns, little ? asleep_wait_ns : longest_stop_wait_ns);
}

std::int64_t stopping_since_ns = 0;
std::uint64_t stoppers_sleeps = 0;

// Does the thread that has stopped the world get on? It may look at hundreds of stacks, each of which its thread shows.
bool stopper_gets_on() noexcept {
    const pid_t stopper = monitor_bell.stopper.load(std::memory_order_relaxed);
    if (stopper == 0) return false;  // it waits for processors
    const std::uint64_t sleeps = platform::thread_sleeps(stopper);
    return std::exchange(stoppers_sleeps, sleeps) != sleeps || platform::thread_is_running(stopper);
}

// The thread that has stopped the world may wait for a lock that a stopped goroutine holds.
void look_at_stopped_world(std::int64_t now) noexcept {
    if (!the_scheduler.stopping.load(std::memory_order_relaxed)) {
        stopping_since_ns = 0;
    } else if (stopping_since_ns == 0 || stopper_gets_on()) {
        stopping_since_ns = now;
    } else if (now - stopping_since_ns >= runtime_patience_ns / 2) {
        let_preempted_go();
    }
}

std::uint32_t makings_seen = 0;
std::int64_t making_since_ns = 0, making_patience_ns = 0;

// The thread maker may wait for a lock that a stopped goroutine holds (libc's for thread stacks, malloc's). Without an
// idle machine nothing but preempted goroutines gets a processor meanwhile, and the holder's turn may be far away.
void look_at_maker(std::int64_t now) noexcept {
    const scheduler& s = the_scheduler;
    const std::uint32_t makings = maker_bell.makings.load(std::memory_order_acquire);
    if (makings != makings_seen || makings % 2 == 0) {
        makings_seen = makings;
        making_since_ns = now;
        making_patience_ns = runtime_patience_ns;
    } else if (now - making_since_ns >= making_patience_ns && s.idle_machine_count == 0 &&
        s.preempted_size.load(std::memory_order_relaxed) != 0 &&
        !platform::thread_is_running(maker_bell.tid.load(std::memory_order_relaxed))) {
        let_preempted_go();
        making_patience_ns *= 2;  // if no goroutine has the lock, this has helped nothing
    }
}

}  // namespace

void note_detached(machine* m) noexcept {
    detached_notes& n = m->notes;
    n.next_look_ns = 0;
    n.wait_ns = shortest_look_ns;
    n.since_ns = 0;
    if (n.listed) return;
    n.listed = true;
    n.next = detached_list;
    detached_list = m;
}

void look_at_detached_machines(outlook& o) noexcept {
    scheduler& s = the_scheduler;
    look_at_stopped_world(o.now_ns);
    look_at_maker(o.now_ns);
    o.stuck = o.stuck || (stopping_since_ns != 0 && s.preempted_size.load(std::memory_order_relaxed) != 0);
    if (stopping_since_ns != 0) o.only_hogs = false;
    if (s.detached_unlisted.load(std::memory_order_relaxed) &&
        s.detached_unlisted.exchange(false, std::memory_order_acquire)) {
        for (machine* m = s.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
            if (m->detached.load(std::memory_order_relaxed) && !m->notes.listed) note_detached(m);
        }
    }
    unsigned count = 0;
    for (machine** link = &detached_list; *link != nullptr;) {
        machine* m = *link;
        if (m->detached.load(std::memory_order_relaxed)) {
            ++count;
            look_at_detached(m, o);
            if (m->notes.wait_ns <= longest_stop_wait_ns) {
                o.stuck = true;
                o.only_hogs = false;
            }
            link = &m->notes.next;
        } else {
            *link = m->notes.next;
            m->notes.listed = false;
        }
    }
    detached_count = count;
}

}  // namespace dunlin::sched
