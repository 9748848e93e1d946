#include "sim/whole.h"

namespace dunlin::sim_cases {

std::vector<sim::options> whole(std::size_t executions, std::size_t max_steps) {
    std::vector<sim::options> runs;
    for (const sim::memory m : {sim::memory::sequential, sim::memory::tso}) {
        for (const sim::order o : {sim::order::random, sim::order::pct}) {
            runs.push_back({.order = o, .model = m, .executions = executions, .depth = 3, .max_steps = max_steps, .whole = true});
        }
    }
    return runs;
}

std::string nobody_is_forgotten() {
    const sched::scheduler& s = sched::the_scheduler;
    const std::uint32_t word = s.idle_and_spinning.load();
    if (s.stopping.load() || sched::idle_count(word) == 0) return {};
    if (sched::spinning_count(word) != 0) return "nobody searches, and somebody is counted as searching";
    if (s.global_size.load() != 0) return "a goroutine waits in the global queue while a processor is idle";
    const bool attentive = s.monitor_attentive.load();
    for (std::uint32_t i = 0; i < s.procs_made.load(); ++i) {
        const sched::processor* p = s.processor_at(i);
        const bool owed = attentive && sched::has_short_turns(p);
        if (p->queue.size() >= sched::short_queue || (p->queue.size() != 0 && !owed)) {
            return "a goroutine waits in a queue while a processor is idle";
        }
        if (p->run_next.load() != nullptr && !owed) return "a goroutine waits in run_next while a processor is idle";
    }
    return {};
}

sim::case_function program(unsigned max_procs, std::function<void()> main) {
    return [=](sim::scenario& s) {
        s.thread("run", [=] {
            sched::start_runtime();
            sched::hooks.deadlock = []() noexcept { sim::require(false, "a deadlock is reported"); };
            dunlin::run({.max_procs = max_procs}, [] {
                task_group g;
                for (int i = 0; i < 3; ++i) {
                    g.go([] { sim::compute(20'000); });
                }
                g.wait();
            });
            sim::prepared();
            dunlin::run({.max_procs = max_procs}, main);
        });
        s.when_quiet(nobody_is_forgotten);
    };
}

}  // namespace dunlin::sim_cases
