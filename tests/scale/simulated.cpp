// scale_simulated [--server] [--compare] [--later N] [--cost NAME=NS]... WORKLOAD PROCS [SIZE]: what the workload takes
// on so many virtual CPUs, and where they waited, as JSON. --server: with that machine's costs; --compare: the size
// beside real CPUs; --later: begins so many
// nanoseconds later, and so in another order. --costs: the table; --workloads: their names.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/personality.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "scale/workloads.h"
#include "sched/data/types.h"
#include "sched/machines/wake.h"
#include "explorer/timed.h"

namespace {

namespace explorer = dunlin::explorer;
namespace sched = dunlin::sched;

constexpr std::size_t most_places = 25;
const char* const spent_on[] = {
    "work", "plain", "locked", "lines", "spinning", "kernel", "barriers", "interrupted"};

void name_parts(explorer::timed& t) {
    sched::scheduler& s = sched::the_scheduler;
    t.name(&s, sizeof s, "scheduler");
    t.name(&s.lock, sizeof s.lock, "scheduler.lock");
    t.name(&s.idle_and_spinning, sizeof s.idle_and_spinning, "scheduler.idle_and_spinning");
    t.name(&s.free_clock, sizeof s.free_clock, "scheduler.free_clock");
    t.name(&s.global, sizeof s.global, "scheduler.global");
    for (std::uint32_t i = 0; i < s.procs_made.load(std::memory_order_relaxed); ++i) {
        sched::processor* p = s.processor_at(i);
        t.name(p, sizeof *p, "processor");
        t.name(&p->run_next, 2 * dunlin::platform::cache_line, "processor.run_next");
        t.name(&p->queue, sizeof p->queue, "processor.queue");
        t.name(&p->sections, sizeof p->sections, "processor.sections");
        t.name(&p->state, dunlin::platform::cache_line, "processor.state");
        t.name(&p->notes, sizeof p->notes, "processor.notes");
        t.name(&p->counts, sizeof p->counts, "processor.counts");
    }
}

// In the middle of a run, and not part of it.
struct standing {
    unsigned idle = 0;          // processors
    std::size_t queued = 0;     // goroutines that could run on them
};
standing stands_at_end;

void look_at_queues() {
    dunlin::platform::access_checker* const simulation = std::exchange(dunlin::platform::checker_of_thread, nullptr);
    const sched::scheduler& s = sched::the_scheduler;
    stands_at_end = {sched::idle_count(s.idle_and_spinning.load()), s.global_size()};
    for (std::uint32_t i = 0; i < s.procs_made.load(); ++i) stands_at_end.queued += s.processor_at(i)->queue.size();
    dunlin::platform::checker_of_thread = simulation;
}

extern "C" char __executable_start;

std::string object_text(const explorer::timed& t, std::uintptr_t object) {
    if (object == 0) return "heap";
    if (object <= t.count_names()) return t.name_of(object);
    std::ostringstream text;
    text << "@" << std::hex << object - reinterpret_cast<std::uintptr_t>(&__executable_start);
    return text.str();
}

std::string_view short_path(std::string_view file) {
    for (const std::string_view folder : {"/src/", "/include/", "/tests/"}) {
        if (const std::size_t at = file.rfind(folder); at != file.npos) return file.substr(at + folder.size());
    }
    return file;
}

void print(const explorer::timed& t, const dunlin_scale::workload& w, unsigned procs, std::uint64_t operations) {
    const explorer::timed::measured& r = t.result();
    std::ostream& out = std::cout;
    out << "{\"workload\": \"" << w.name << "\", \"operation\": \"" << w.operation << "\", \"procs\": " << procs
        << ", \"operations\": " << operations << ", \"ns\": " << r.ns << ", \"steps\": " << r.steps
        << ", \"barriers\": " << r.barriers << ", \"wakes\": " << r.wakes << ", \"polls\": " << r.polls
        << ", \"idle_at_end\": " << stands_at_end.idle << ", \"queued_at_end\": " << stands_at_end.queued
        << ", \"spent\": {";
    for (std::size_t i = 0; i < std::size(spent_on); ++i) {
        out << (i == 0 ? "\"" : ", \"") << spent_on[i] << "\": " << r.times[i];
    }
    out << "}, \"places\": [";
    for (std::size_t i = 0; i < r.places.size() && i < most_places; ++i) {
        const explorer::timed::place& p = r.places[i];
        out << (i == 0 ? "" : ", ") << "{\"at\": \"" << short_path(p.file) << ":" << p.line << "\", \"object\": \""
            << object_text(t, p.object) << "\", \"count\": " << p.count << ", \"moved\": " << p.moved_ns
            << ", \"queued\": " << p.queued_ns << ", \"spun\": " << p.spun_ns << ", \"kernel\": " << p.kernel_ns << "}";
    }
    out << "], \"locks\": [";
    for (std::size_t i = 0; i < r.locks.size() && i < most_places; ++i) {
        const explorer::timed::held_lock& l = r.locks[i];
        out << (i == 0 ? "" : ", ") << "{\"object\": \"" << object_text(t, l.object) << "\", \"count\": " << l.count
            << ", \"held\": " << l.held_ns << "}";
    }
    out << "]}" << std::endl;
}

int print_costs() {
    std::cout << "[";
    const char* before = "";
    for (const explorer::cost_row& row : explorer::cost_table()) {
        std::cout << before << "{\"name\": \"" << row.name << "\", \"here\": " << row.here
                  << ", \"server\": " << row.server << ", \"source\": \"" << row.source << "\"}";
        before = ",\n ";
    }
    std::cout << "]\n";
    return 0;
}

int run(const dunlin_scale::workload& w, unsigned procs, unsigned size, std::int64_t later_ns,
    const explorer::costs& costs) {
    explorer::timed t(costs, procs);
    std::uint64_t operations = 0;
    const dunlin_scale::host h{[](std::int64_t ns) { explorer::timed_here()->compute(ns); },
        [] { explorer::timed_here()->begin_measure(); }, [] {
            explorer::timed_here()->end_measure();
            look_at_queues();
        }};
    const std::string wrong = t.execute([&] {
        dunlin::run({.max_procs = procs}, [&] {
            name_parts(t);
            h.compute(later_ns);
            operations = w.run(procs, size, h);
        });
    });
    if (!wrong.empty()) {
        std::fprintf(stderr, "scale_simulated: %s, %u: %s\n", w.name, procs, wrong.c_str());
        return 1;
    }
    print(t, w, procs, operations);
    _exit(0);  // the runtime's threads do not go on
}

}  // namespace

int main(int argc, char** argv) {
    const int now = personality(0xffffffff);
    if (now != -1 && (now & ADDR_NO_RANDOMIZE) == 0 &&
        personality(static_cast<unsigned>(now) | ADDR_NO_RANDOMIZE) != -1) {
        execv("/proc/self/exe", argv);
    }
    auto machine = explorer::costs::machine::here;
    bool compare = false;
    std::int64_t later_ns = 0;
    std::vector<std::string_view> changed, words;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--costs") return print_costs();
        if (word == "--workloads") {
            for (const dunlin_scale::workload& w : dunlin_scale::workloads()) std::cout << w.name << "\n";
            return 0;
        }
        if (word == "--compare") {
            compare = true;
        } else if (word == "--later" && i + 1 < argc) {
            later_ns = std::atoll(argv[++i]);
        } else if (word == "--server") {
            machine = explorer::costs::machine::server;
        } else if (word == "--cost" && i + 1 < argc) {
            changed.emplace_back(argv[++i]);
        } else {
            words.push_back(word);
        }
    }
    explorer::costs costs(machine);
    for (const std::string_view change : changed) {
        const std::size_t middle = change.find('=');
        if (middle == change.npos || !costs.set(change.substr(0, middle), std::atoll(change.data() + middle + 1))) {
            std::fprintf(stderr, "scale_simulated: no such cost: %s\n", change.data());
            return 2;
        }
    }
    for (const dunlin_scale::workload& w : dunlin_scale::workloads()) {
        if (words.size() < 2 || words[0] != w.name) continue;
        const int procs = std::atoi(words[1].data());
        if (procs < 1 || procs > static_cast<int>(explorer::timed::most_cpus)) break;
        const unsigned size = compare ? w.simulated_size : w.size;
        return run(w, static_cast<unsigned>(procs),
            words.size() > 2 ? static_cast<unsigned>(std::atoi(words[2].data())) : size, later_ns, costs);
    }
    std::fprintf(stderr, "usage: scale_simulated [--server] [--compare] [--later N] [--cost NAME=NS]... WORKLOAD PROCS [SIZE]\n");
    return 2;
}
