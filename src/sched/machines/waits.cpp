#include "sched/machines/waits.h"

#include <algorithm>
#include <bit>

#include "platform/clock.h"

namespace dunlin::inline v0_1::sched {

// While the clock runs, free_clock is negative and the time is now + free_clock. Otherwise it stands still.
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

void wait_counters::add(std::int64_t ns, std::uint64_t weight) noexcept {
    const auto& limits = wait_limits_ns;
    const auto bucket = static_cast<std::size_t>(std::upper_bound(limits.begin(), limits.end(),
        ns - 1) - limits.begin());
    by_length[bucket].add(weight);
    total_ns.add(static_cast<std::uint64_t>(ns) * weight);
}

namespace {

constexpr unsigned unit_bits = 7;

std::uint32_t units(std::int64_t ns) noexcept { return static_cast<std::uint32_t>(ns >> unit_bits); }
// Never negative, although free_clock may step back a little.
std::int64_t units_between(std::uint32_t from, std::uint32_t to) noexcept {
    return std::int64_t{std::max(static_cast<std::int32_t>(to - from), 0)} << unit_bits;
}
std::uint64_t clocks_of(const goroutine* g) noexcept {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(g->waits_since_ns));
}
void set_clocks(goroutine* g, std::uint32_t upper, std::uint32_t lower) noexcept {
    g->waits_since_ns = static_cast<std::int64_t>(std::uint64_t{upper} << 32 | lower);
}
std::uint32_t upper_of(const goroutine* g) noexcept { return static_cast<std::uint32_t>(clocks_of(g) >> 32); }
std::uint32_t lower_of(const goroutine* g) noexcept { return static_cast<std::uint32_t>(clocks_of(g)); }

}  // namespace

void stamp_slow(goroutine* g, std::uint64_t weight) noexcept {
    set_clocks(g, units(free_time_ns()), lower_of(g));
    g->marks.set_stamped(weight);
}

void note_wait(processor* p, goroutine* g) noexcept {
    p->waits.add(units_between(upper_of(g), units(free_time_ns())), g->marks.stamped());
    g->marks.set_stamped(0);
    g->waits_since_ns = 0;  // dumps would read it as a time of another clock
}

void begin_latency(goroutine* g) noexcept {
    set_clocks(g, upper_of(g), units(platform::now_ns()));
    g->marks.set_measured(true);
}

void note_latency(processor* p, goroutine* g) noexcept {
    p->latency.add(units_between(lower_of(g), units(platform::now_ns())), one_in_measured);
    g->marks.set_measured(false);
    if (g->marks.stamped() == 0) g->waits_since_ns = 0;
}

void note_queue_length(processor* p) noexcept {
    const std::size_t length = p->queue.size() + (p->run_next.load(std::memory_order_relaxed) != nullptr);
    p->queue_lengths[std::min<std::size_t>(std::bit_width(length), queue_length_classes - 1)].add(one_in_measured);
}

}  // namespace dunlin::sched
