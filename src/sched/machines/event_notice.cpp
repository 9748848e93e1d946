#include "sched/machines/event_notice.h"

#include "sched/data/event_source.h"
#include "sched/data/types.h"
#include "sched/machines/wake.h"

namespace dunlin::inline v0_1::sched {

std::int64_t earliest_deadline() noexcept {
    const scheduler& s = the_scheduler;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    std::int64_t earliest = 0;
    for (std::uint32_t i = 0; i < made; ++i) {
        const std::int64_t d = s.events->next_deadline(s.processor_at(i));
        if (d != 0 && (earliest == 0 || d < earliest)) earliest = d;
    }
    return earliest;
}

void timer_added(std::int64_t when) noexcept {
    scheduler& s = the_scheduler;
    submit_barrier();
    if (s.poller_claimed.load(std::memory_order_seq_cst) != 0) {
        const std::int64_t until = s.poll_until_ns.load(std::memory_order_seq_cst);
        if (until == 0 || until > when) s.events->interrupt();
    } else {
        wake_if_idle();
    }
}

void waiter_added() noexcept {
    submit_barrier();
    // A machine that has claimed the poller looks at has_waiters() after its barrier, as it does at deadlines for
    // timer_added().
    if (the_scheduler.poller_claimed.load(std::memory_order_seq_cst) == 0) wake_if_idle();
}

bool events_are_unwatched() noexcept {
    const scheduler& s = the_scheduler;
    return s.poller_claimed.load(std::memory_order_seq_cst) == 0 &&
        (earliest_deadline() != 0 || s.events->has_waiters());
}

void retired_for_another() noexcept {
    retire_barrier();
    if (work_anywhere()) wake_if_idle();
    if (const std::int64_t deadline = earliest_deadline()) {
        timer_added(deadline);
    } else if (the_scheduler.events->has_waiters()) {
        waiter_added();
    }
}

}  // namespace dunlin::sched
