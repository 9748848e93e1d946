#include "sim/whole.h"

#include <dunlin/detail/atomic.hpp>

#include "platform/clock.h"
#include "platform/futex.h"
#include "sched/data/event_source.h"
#include "sched/data/hooks.h"
#include "sched/machines/handshake.h"
#include "sched/machines/wake.h"
#include "sched/preempt/lifetime.h"

namespace dunlin::inline v0_1::sim_cases {

namespace {

using sched::the_scheduler;

// The monitor knows of each goroutine that computes without a processor, and of no other.
std::string whose_processor_is_lost() {
    for (const sched::machine* m = the_scheduler.machines.load(); m != nullptr; m = m->all_next) {
        const bool has_one = m->p.load() != nullptr, is_detached = m->detached.load();
        if (is_detached && has_one) return "a thread is counted as one without a processor, and has one";
        const sched::goroutine* g = m->current.load();
        if (g == nullptr || has_one || is_detached || m->condemned) continue;
        if (g->state.load() != sched::goroutine_state::running) continue;
        if (g->reason.load() == sched::wait_reason::blocking_call) continue;
        return "a goroutine computes without a processor, and the monitor does not know";
    }
    return {};
}

// G1 of wake.h, when nobody can do anything: no goroutine is runnable while a processor is idle, but for those whose
// wake is left to the monitor.
std::string forgotten_goroutine() {
    const sched::scheduler& s = the_scheduler;
    const std::uint32_t word = s.idle_and_spinning.load();
    if (s.stopping.load()) return {};
    if (std::string lost = whose_processor_is_lost(); !lost.empty()) return lost;
    if (sched::spinning_count(word) != 0) return "a machine is counted as searching, and none does";
    if (sched::idle_count(word) == 0) return {};
    if (s.global_size() != 0) return "a goroutine waits in the global queue while a processor is idle";
    const bool attentive = s.monitor_attentive.load();
    for (std::uint32_t i = 0; i < s.procs_made.load(); ++i) {
        const sched::processor* p = s.processor_at(i);
        const bool deferred = attentive && sched::has_short_turns(p);
        if (p->queue.size() >= sched::short_queue || (p->queue.size() != 0 && !deferred)) {
            return "a goroutine waits in a queue while a processor is idle";
        }
        if (p->run_next.load() != nullptr && !deferred) return "a goroutine waits in run_next while a processor is idle";
    }
    return {};
}

constinit platform::atomic<std::uint32_t> begun{0};

void make_threads(unsigned max_procs) {
    dunlin::run({.max_procs = max_procs}, [] {
        task_group g;
        for (int i = 0; i < 3; ++i) {
            g.go([] { explorer::compute(20 * us); });
        }
        g.wait();
    });
}

}  // namespace

std::vector<explorer::options> drawn(std::size_t executions, std::size_t max_steps) {
    std::vector<explorer::options> runs;
    const auto add = [&](explorer::order o, explorer::memory m, std::size_t so_many) {
        runs.push_back(
            {.order = o, .model = m, .executions = so_many, .depth = 3, .max_steps = max_steps, .whole = true});
    };
    add(explorer::order::delayed, explorer::memory::tso, executions);
    add(explorer::order::pct, explorer::memory::tso, executions);
    add(explorer::order::random, explorer::memory::tso, executions / 2);
    add(explorer::order::delayed, explorer::memory::sequential, executions / 2);
    add(explorer::order::pct, explorer::memory::sequential, executions / 2);
    add(explorer::order::delayed, explorer::memory::cxx, executions / 2);
    return runs;
}

std::vector<explorer::options> punctually(std::size_t executions) {
    std::vector<explorer::options> runs = drawn(executions);
    for (explorer::options& o : runs) o.punctual = true;
    return runs;
}

std::vector<explorer::options> seen_in_time(std::size_t executions) {
    std::vector<explorer::options> runs = punctually(executions);
    std::erase_if(runs, [](const explorer::options& o) { return o.model == explorer::memory::cxx; });
    return runs;
}

void let_plain_threads_begin() {
    begun.store(1);
    platform::futex_wake(begun, 1 << 20);
}

void linger() {
    wait_group g;
    g.go([] {});
    explorer::compute(60 * ms);
    g.wait();
}

explorer::case_function whole(program p) {
    return [p](explorer::scenario& s) {
        s.thread("run", [p] {
            sched::start_runtime();
            sched::hooks.deadlock = []() noexcept { explorer::require(false, "a deadlock is reported"); };
            if (p.has_threads) make_threads(p.max_procs);
            if (p.monitor_sleeps) explorer::sleep_in_kernel(400 * ms);
            if (!p.prepares_itself) {
                explorer::prepared();
                let_plain_threads_begin();
            }
            dunlin::run({.max_procs = p.max_procs, .at_end = p.at_end}, p.main);
            if (p.afterwards) p.afterwards();
        });
        for (std::size_t i = 0; i < p.plain_threads.size(); ++i) {
            s.thread("plain " + std::to_string(i + 1), [p, i] {
                while (begun.load() == 0) platform::futex_wait(begun, 0);
                p.plain_threads[i]();
            });
        }
        s.when_quiet([lacks_threads = p.lacks_threads] {
            return lacks_threads && the_scheduler.idle_machine_count == 0 ? std::string() : forgotten_goroutine();
        });
    };
}

}  // namespace dunlin::sim_cases
