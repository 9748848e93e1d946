// deadlock.cpp - concludes that all goroutines are asleep, at the moment when the last machine goes to sleep.
//
// They are asleep for ever when all of this is true, under the scheduler lock:
//   - every machine is on the idle list: none runs, none is being made, none sleeps in the poller, and none is in user
//     code without a processor;
//   - nothing is queued, no timer is armed, and no waiter is registered for a descriptor;
//   - there is a goroutine, and goroutines that wait for memory for a stack would get none;
//   - every thread of the process belongs to the runtime, or is the one that waits in run().
// Machines with goroutines of a run() that has returned do not count: such a goroutine is lost at its next call of the
// runtime, so it readies no goroutine of this run() - unless it is in on_thread_stack(), where it may do what any
// thread of the program may do.
#include "sched/machines/deadlock.h"

#include "platform/thread.h"
#include "sched/data/bells.h"
#include "sched/data/event_source.h"
#include "sched/data/hooks.h"
#include "sched/machines/event_notice.h"
#include "sched/machines/processor.h"
#include "sched/machines/starved.h"

namespace dunlin::inline v0_1::sched {

namespace {

unsigned our_threads() noexcept {
    const scheduler& s = the_scheduler;
    s.lock.assert_held();
    unsigned count = s.machine_count.load(std::memory_order_relaxed) + monitor_threads() + thread_maker_threads();
    count += watching_threads.load(std::memory_order_relaxed);
    if (s.inside_run) ++count;
    if (stack::thread_sanitizing) ++count;  // TSan has a thread of its own
    return count;
}

}  // namespace

void check_for_deadlock() noexcept {
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    s.deadlock_suspected = false;
    const std::int64_t asleep = std::int64_t{static_cast<std::uint32_t>(s.idle_machine_count)} + s.condemned_machines
        + s.wired_machines_waiting;
    const std::int64_t awake = std::int64_t{s.machine_count.load(std::memory_order_relaxed)} - asleep;
    if (awake == 1 && s.poller_claimed.load(std::memory_order_relaxed) != 0 && earliest_deadline() == 0 &&
        !s.events->has_waiters()) {
        // the machine in the poller may wait for a timer that was stopped meanwhile: it comes here when it finds
        // nothing else
        s.events->interrupt();
    }
    if (awake != 0) return;
    if (s.stopping.load(std::memory_order_relaxed) || !s.inside_run || s.main_returned) return;
    // A goroutine has called exit(): its thread, which counts as one of ours, runs destructors of the program. Stored
    // before end_run(), which takes this lock.
    if (s.exiting.load(std::memory_order_relaxed) != 0) return;
    if (s.global.size() != 0 || earliest_deadline() != 0 || s.events->has_waiters()) return;
    if (s.monitor_delivers.load(std::memory_order_seq_cst)) {
        s.deadlock_suspected = true;  // the monitor has goroutines in hand, and will queue them in a moment
        return;
    }
    if (!any_ends_with_run() && !s.main_exited) return;
    if (platform::count_threads() != our_threads()) {
        s.deadlock_suspected = true;  // when such threads end, this is not announced
        return;
    }
    // A goroutine in on_thread_stack() uses the library as a plain thread does, and may still ready another one,
    // whichever run() it belongs to.
    for (const machine* m = s.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
        if (!m->in_thread_call.load(std::memory_order_relaxed) || m->frozen.load(std::memory_order_relaxed)) continue;
        s.deadlock_suspected = true;
        return;
    }
    if (s.starved.size != 0 && memory_for_a_stack()) {
        s.deadlock_suspected = true;  // until the monitor's next round, which feeds them: S3 of starved.h
        return;
    }
    hooks.deadlock();
}

}  // namespace dunlin::sched
