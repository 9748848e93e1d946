// memory_bench.cpp - what a goroutine that waits costs in memory. Twin: peers/go/memory.go.

#include <atomic>
#include <chrono>

#include <dunlin/dunlin.hpp>

#include "measure.h"
#include "registry.h"

namespace bench {
namespace {

using namespace std::chrono_literals;

void parked_memory(const settings& s, results& r) {
    const long goroutines = s.scaled(1'000'000);
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        const auto each = [goroutines](double total) { return total / static_cast<double>(goroutines); };
        dunlin::wait_group gate;
        gate.add(1);
        std::atomic<long> parked = 0;
        dunlin::wait_group all;

        const double rss_before = status_bytes("VmRSS");
        const double tables_before = status_bytes("VmPTE");
        const auto create_start = steady::now();
        for (long i = 0; i < goroutines; ++i) {
            all.go([&gate, &parked] {
                ++parked;
                gate.wait();
            });
        }
        while (parked < goroutines) dunlin::sleep_for(1ms);
        const double created_ns = ns_between(create_start, steady::now());
        dunlin::sleep_for(20ms);  // those that have counted themselves but do not wait yet
        const double resident = each(status_bytes("VmRSS") - rss_before);
        const double tables = each(status_bytes("VmPTE") - tables_before);

        const auto end_start = steady::now();
        gate.done();
        all.wait();
        const double ended_ns = ns_between(end_start, steady::now());

        r.add("memory", resident + tables, "B");
        r.add("resident", resident, "B");
        r.add("page-tables", tables, "B");
        r.add("create", each(created_ns), "ns");
        r.add("end", each(ended_ns), "ns");
    });
}

const registered all[] = {
    registered({"parked-memory", "memory of a million goroutines that are all parked at once", parked_memory}),
};

}  // namespace
}  // namespace bench
