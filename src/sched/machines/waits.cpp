#include "sched/machines/waits.h"

#include <algorithm>

#include "platform/clock.h"

namespace dunlin::inline v0_1::sched {

// Negative: running, and shows now + clock. Else it stands.
void settle_free_clock_slow() noexcept {
    scheduler& s = the_scheduler;
    std::int64_t clock = s.free_clock.load(std::memory_order_seq_cst);
    for (;;) {
        const bool free = s.idle_and_spinning.load(std::memory_order_seq_cst) != 0;
        if ((clock < 0) == free) return;
        const std::int64_t now = platform::now_ns();
        const std::int64_t next = free ? clock - now : now + clock;
        if (s.free_clock.compare_exchange_strong(clock, next, std::memory_order_seq_cst)) clock = next;
    }
}

std::int64_t free_time_ns() noexcept {
    const std::int64_t clock = the_scheduler.free_clock.load(std::memory_order_relaxed);
    return clock < 0 ? platform::now_ns() + clock : clock;
}

void note_wait(processor* p, goroutine* g) noexcept {
    const std::int64_t waited = free_time_ns() - g->waits_since_ns;
    const auto& limits = wait_limits_ns;
    const auto bucket = static_cast<std::size_t>(std::upper_bound(limits.begin(), limits.end(), waited - 1) - limits.begin());
    p->waits[bucket].add(g->marks.stamped());
    g->marks.set_stamped(0);
    g->waits_since_ns = 0;  // for dumps it is a time of another clock
}

}  // namespace dunlin::sched
