// million.cpp - part 6: a million goroutines that exist, and wait, at the same time.
#include <algorithm>
#include <atomic>
#include <unistd.h>

#include "parts.h"
#include "system.h"

namespace tour {

namespace {

using namespace std::chrono_literals;

// One page of stack is what a parked goroutine cannot do without. The rest is its struct and the kernel's page
// tables.
std::size_t allowed_each() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + 804; }

// As many as wanted, or what fits into four fifths of the memory.
std::size_t affordable(std::size_t wanted) {
    const std::size_t fits = memory_left() / 5 * 4 / allowed_each();
    if (fits >= wanted) return wanted;
    say("There is memory left for %s goroutines here, so it will not be %s.", with_commas(fits).c_str(),
        with_commas(wanted).c_str());
    return fits;
}

struct figures {
    std::chrono::nanoseconds starting{}, parking{}, ending{};
    std::size_t waiting = 0;  // parked at the same time
    std::size_t ended = 0;
    memory before, parked;

    double each(std::size_t memory::*kind, std::size_t count) const {
        return (static_cast<double>(parked.*kind) - static_cast<double>(before.*kind)) / static_cast<double>(count);
    }
};

figures start_park_and_end(std::size_t count, bool show_progress) {
    figures f;
    f.before = memory_now();
    std::atomic<std::size_t> arrived{0}, ended{0};
    dunlin::wait_group gate, all;
    gate.add(1);

    const stopwatch starting;
    for (std::size_t i = 0; i < count; ++i) {
        all.go([&, gate] {
            arrived.fetch_add(1, std::memory_order_relaxed);
            gate.wait();
            ended.fetch_add(1, std::memory_order_relaxed);
        });
    }
    f.starting = starting.elapsed();

    const stopwatch parking;
    {
        progress line(show_progress ? "started and parked" : "started and parked once more", count);
        while (arrived.load(std::memory_order_relaxed) < count) {
            dunlin::sleep_for(20ms);
            line.show(arrived.load(std::memory_order_relaxed));
        }
    }
    while ((f.waiting = dunlin::runtime::stats().waiting) < count) dunlin::sleep_for(1ms);
    f.parking = parking.elapsed();
    f.parked = memory_now();

    const stopwatch ending;
    gate.done();
    all.wait();
    settle();
    f.ending = ending.elapsed();
    f.ended = ended.load();
    return f;
}

void in_one_run(std::size_t count) {
    const dunlin::runtime::runtime_stats before = dunlin::runtime::stats();
    const figures first = start_park_and_end(count, true);
    const double resident = first.each(&memory::resident, count), tables = first.each(&memory::page_tables, count);
    const std::string number = with_commas(count);
    say("started        in %8s   one go() after the other, from one goroutine", readable(first.starting).c_str());
    say("all parked     in %8s   each has got a dense stack, 239 KiB of addresses; the kernel has found a page for each",
        readable(first.parking).c_str());
    say("all ended      in %8s   after one done() on what they waited for", readable(first.ending).c_str());
    say("memory of one  %.0f bytes resident + %.0f bytes of page tables = %s", resident, tables,
        bold(text("%.0f bytes", resident + tables)).c_str());

    const figures second = start_park_and_end(count, false);
    say("once more      started in %s, parked in %s, ended in %s: the stacks were there already",
        readable(second.starting).c_str(), readable(second.parking).c_str(), readable(second.ending).c_str());
    const dunlin::runtime::runtime_stats after = dunlin::runtime::stats();

    claim(first.waiting >= count, "%s goroutines were parked at the same time, each on a stack of its own",
        number.c_str());
    claim(resident + tables < static_cast<double>(allowed_each()), "each took less than %s bytes, page tables included",
        with_commas(allowed_each()).c_str());
    claim(first.ended == count && second.ended == count, "all have ended, twice");
    claim(growth(before, after, &dunlin::runtime::processor_stats::ended) == 2 * count && after.goroutines == 1,
        "the runtime counted the same; only the main goroutine is left");
    const double more = (static_cast<double>(second.parked.all()) - static_cast<double>(first.parked.all())) /
                        static_cast<double>(count);
    claim(more < 100, "the second time took no more memory: stacks are used again (%+.0f bytes each)", more);
}

}  // namespace

void a_million_goroutines(const options& o) {
    const std::size_t wanted = o.quick ? 100'000 : 1'000'000;
    explain(
        "Threads end at some ten thousand; goroutines do not. All of these are started, and wait until the last one has\n"
        "come; then they are counted, weighed, and let go.");
    const std::size_t count = affordable(wanted);
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [count] { in_one_run(count); });
}

}  // namespace tour
