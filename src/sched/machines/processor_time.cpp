#include "sched/machines/processor_time.h"

#include <utility>

#include "platform/clock.h"

namespace dunlin::inline v0_1::sched {

namespace {

std::int64_t max_procs_now() noexcept { return the_scheduler.max_procs.load(std::memory_order_relaxed); }

// How much of all processors' time the stop under way has taken so far.
std::int64_t standing_ns(std::int64_t now) noexcept {
    const time_counters& t = the_scheduler.time;
    return t.stopped_ns != 0 ? (now - t.stopped_ns) * max_procs_now() : 0;
}

}  // namespace

void begin_idle(processor* p) noexcept {
    the_scheduler.lock.assert_held();
    p->idle_since_ns = platform::real_now_ns();
}

void end_idle(processor* p) noexcept {
    the_scheduler.lock.assert_held();
    p->idle_ns += platform::real_now_ns() - std::exchange(p->idle_since_ns, 0);
}

std::int64_t idle_time_ns(const processor* p, std::int64_t now) noexcept {
    the_scheduler.lock.assert_held();
    return p->idle_ns + (p->idle_since_ns != 0 ? now - p->idle_since_ns : 0);
}

std::int64_t all_time_ns(std::int64_t now) noexcept {
    the_scheduler.lock.assert_held();
    const time_counters& t = the_scheduler.time;
    return t.proc_ns + (t.since_ns != 0 ? (now - t.since_ns) * max_procs_now() : 0);
}

std::int64_t stopped_time_ns(std::int64_t now) noexcept {
    the_scheduler.lock.assert_held();
    return static_cast<std::int64_t>(the_scheduler.time.stopped_proc_ns.get()) + standing_ns(now);
}

void note_time_of_procs(std::int64_t now) noexcept {
    time_counters& t = the_scheduler.time;
    t.proc_ns = all_time_ns(now);
    t.since_ns = now;
    t.stopped_proc_ns.add(static_cast<std::uint64_t>(standing_ns(now)));
    t.stopped_ns = now;
}

void note_stop_wanted() noexcept { the_scheduler.time.stop_wanted_ns = platform::real_now_ns(); }

void note_stopped() noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    const std::int64_t now = platform::real_now_ns();
    s.time.stopped_ns = now;
    s.lock.unlock();
    s.time.stopping.add(now - s.time.stop_wanted_ns, 1);
}

void note_started() noexcept {
    the_scheduler.lock.assert_held();
    time_counters& t = the_scheduler.time;
    const std::int64_t now = platform::real_now_ns();
    t.stops.add(now - t.stop_wanted_ns, 1);
    t.stopped_proc_ns.add(static_cast<std::uint64_t>(standing_ns(now)));
    t.stopped_ns = 0;
}

}  // namespace dunlin::sched
