// stats.cpp - runtime::stats().
#include <dunlin/runtime.hpp>

#include <algorithm>
#include <limits>
#include <mutex>
#include <numeric>

#include "observe/contention.h"
#include "platform/clock.h"
#include "poll/fd_record.h"
#include "sched/data/all_goroutines.h"
#include "sched/goroutines/goroutine.h"
#include "sched/machines/machine.h"
#include "sched/machines/processor_time.h"
#include "sched/machines/wake.h"
#include "sched/preempt/lifetime.h"

namespace dunlin::inline v0_1::runtime {

namespace {

processor_stats stats_of(const sched::processor& p, std::uint32_t made) {
    processor_stats r;
    r.id = p.id;
    r.state = name(p.state.load(std::memory_order_relaxed));
    if (const sched::machine* m = p.owner.load(std::memory_order_acquire)) r.machine = static_cast<int>(m->id);
    r.run_queue = p.queue.size();
    r.run_next = p.run_next.load(std::memory_order_relaxed) != nullptr;
    r.tick = p.tick.load(std::memory_order_relaxed);
    const sched::processor_counters& c = p.counts;
    r.created = c.created.get();
    r.ended = c.ended.get();
    r.switches = c.switches.get();
    r.run_next_hits = c.run_next_hits.get();
    r.global_hits = c.global_hits.get();
    r.global_tick_hits = c.global_tick_hits.get();
    r.overflows = c.overflows.get();
    r.steals = c.steals.get();
    r.stolen = c.stolen.get();
    r.run_next_steals = c.run_next_steals.get();
    r.in_place_joins = c.in_place_joins.get();
    r.parks = c.parks.get();
    r.yields = c.yields.get();
    r.stacks_bound = c.stack_binds.get();
    r.hand_offs = c.hand_offs.get();  // a part of the next, so it is read before that
    r.blocking_calls = c.blocking_calls.get();
    r.stolen_from.reserve(made);
    for (std::uint32_t i = 0; i < made; ++i) r.stolen_from.push_back(p.stolen_from[i].load(std::memory_order_relaxed));
    return r;
}

stack::arena_stats stats_of_stacks() {
    const sched::unstoppable_section section;  // the arena has a lock
    return stack::stacks.stats();
}

void copy_hand_offs(hand_off_stats& r) {
    const sched::scheduler& s = sched::the_scheduler;
    const sched::hand_off_counters& c = s.hand_offs;
    r.from_blocking = c.from_blocking.get();
    r.from_blocked = c.from_blocked.get();
    r.from_hogs = c.from_hogs.get();
    r.urgent = c.urgent.get();
    r.asked = c.asked.get();
    r.signals = c.stop_requests.get();
    r.preemptions = c.preemptions.get();
    r.preempted_now = s.preempted_size.load(std::memory_order_relaxed);
    r.thaws = c.thaws.get();
    r.given_back = c.given_back.get();
    r.returns_idle = c.returns_idle.get();
    r.returns_queued = c.returns_queued.get();
    r.threads_ended = c.threads_ended.get();
}

duration_histogram empty_histogram() {
    duration_histogram r;
    r.limits_ns.assign(sched::wait_limits_ns.begin(), sched::wait_limits_ns.end());
    r.counts.assign(sched::wait_limits_ns.size() + 1, 0);
    return r;
}

void add(duration_histogram& to, const sched::wait_counters& of) noexcept {
    for (std::size_t k = 0; k < of.by_length.size(); ++k) to.counts[k] += of.by_length[k].get();
    to.total_ns += static_cast<std::int64_t>(of.total_ns.get());
}

void copy_park_times(std::vector<wait_durations>& to) {
    for (std::size_t reason = 0; reason < sched::wait_reason_count; ++reason) {
        wait_durations one{std::string(name(static_cast<sched::wait_reason>(reason))), empty_histogram()};
        for (const auto& shard : observe::park_times_of) {
            const observe::park_times& of = shard[reason];
            for (std::size_t k = 0; k < of.by_length.size(); ++k) {
                one.waits.counts[k] += of.by_length[k].load(std::memory_order_relaxed);
            }
            one.waits.total_ns += static_cast<std::int64_t>(of.total_ns.load(std::memory_order_relaxed));
        }
        if (one.waits.total() == 0) continue;
        // Some reasons share their text.
        const auto same =
            std::find_if(to.begin(), to.end(), [&](const wait_durations& d) { return d.reason == one.reason; });
        if (same == to.end()) {
            to.push_back(std::move(one));
            continue;
        }
        for (std::size_t k = 0; k < one.waits.counts.size(); ++k) same->waits.counts[k] += one.waits.counts[k];
        same->waits.total_ns += one.waits.total_ns;
    }
}

duration_histogram copy(const sched::wait_counters& of) {
    duration_histogram r = empty_histogram();
    add(r, of);
    return r;
}

// Times that still go on are counted up to one moment, so that the parts do not exceed the total. Likewise the idle
// threads are a part of all threads.
void copy_times_and_threads(runtime_stats& r) {
    sched::scheduler& s = sched::the_scheduler;
    const sched::unstoppable_section section;
    const std::lock_guard guard(s.lock);
    r.threads = s.machine_count.load(std::memory_order_relaxed);
    r.idle_threads = s.idle_machine_count;
    const std::int64_t now = platform::real_now_ns();
    r.time.total = std::chrono::nanoseconds(sched::all_time_ns(now));
    r.time.stopped = std::chrono::nanoseconds(sched::stopped_time_ns(now));
    for (processor_stats& p : r.procs) {
        p.idle = std::chrono::nanoseconds(sched::idle_time_ns(s.processor_at(p.id), now));
        r.time.idle += p.idle;
    }
}

void count_states(runtime_stats& r) {
    sched::for_each_goroutine([&](const sched::goroutine& g) {
        switch (g.state.load(std::memory_order_relaxed)) {
            case sched::goroutine_state::runnable: ++r.runnable; break;
            case sched::goroutine_state::running: ++r.running; break;
            case sched::goroutine_state::waiting: ++r.waiting; break;
            case sched::goroutine_state::preempted: ++r.preempted; break;
            default: break;
        }
    });
}

}  // namespace

std::uint64_t duration_histogram::total() const noexcept {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

std::int64_t duration_histogram::quantile_ns(double q) const noexcept {
    const std::uint64_t all = total();
    if (all == 0) return 0;
    const double wanted = std::clamp(q, 0.0, 1.0) * static_cast<double>(all);
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < limits_ns.size(); ++i) {
        seen += counts[i];
        if (seen != 0 && static_cast<double>(seen) >= wanted) return limits_ns[i];
    }
    return std::numeric_limits<std::int64_t>::max();
}

duration_histogram duration_histogram::since(const duration_histogram& before) const {
    duration_histogram r = *this;
    for (std::size_t i = 0; i < r.counts.size() && i < before.counts.size(); ++i) r.counts[i] -= before.counts[i];
    r.total_ns -= before.total_ns;
    return r;
}

runtime_stats stats() {
    sched::start_runtime();
    sched::scheduler& s = sched::the_scheduler;
    runtime_stats r;
    r.max_procs = s.max_procs.load(std::memory_order_relaxed);
    const std::uint32_t word = s.idle_and_spinning.load(std::memory_order_relaxed);
    r.idle_procs = sched::idle_count(word);
    r.spinning_threads = sched::spinning_count(word);
    r.goroutines = sched::live_goroutines();
    r.global_queue = s.global_size();
    copy_hand_offs(r.hand_offs);
    r.poll.descriptors = netpoll::fd_record::open_count();
    r.poll.waiting = static_cast<std::size_t>(netpoll::fd_record::waiter_count());
    r.poll.polls = s.polls.load(std::memory_order_relaxed);
    const stack::arena_stats stacks = stats_of_stacks();
    r.stacks_in_use = stacks.slots_in_use;
    r.stack_bytes_reserved = stacks.reserved_bytes;
    r.stack_guards = platform::to_string(stacks.kind);
    count_states(r);
    r.waits_while_idle = empty_histogram();
    r.scheduling_latency = empty_histogram();
    r.run_queue_lengths.assign(sched::queue_length_classes, 0);
    copy_park_times(r.park_times);
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    r.procs.reserve(made);
    for (std::uint32_t i = 0; i < made; ++i) {
        r.procs.push_back(stats_of(*s.processor_at(i), made));
        const sched::processor& p = *s.processor_at(i);
        add(r.waits_while_idle, p.waits);
        add(r.scheduling_latency, p.latency);
        for (std::size_t k = 0; k < p.queue_lengths.size(); ++k) r.run_queue_lengths[k] += p.queue_lengths[k].get();
        r.steals += r.procs.back().steals;
        r.stolen += r.procs.back().stolen;
        r.in_place_joins += r.procs.back().in_place_joins;
        r.overflows += r.procs.back().overflows;
        r.hand_offs.blocking_calls += r.procs.back().blocking_calls;
        r.hand_offs.at_once += r.procs.back().hand_offs;
    }
    r.world_stopping = copy(s.time.stopping);
    r.world_stops = copy(s.time.stops);
    copy_times_and_threads(r);
    return r;
}

}  // namespace dunlin::runtime
