// timer_bench.cpp - how many sleepers, how late they wake. Twin: peers/go/timer.go.

#include <chrono>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "measure.h"
#include "registry.h"

namespace bench {
namespace {

using namespace std::chrono_literals;

/// 100,000 goroutines sleep for 0 to 1000 ms; the ideal end is 1000 ms after the start.
void sleepers(const settings& s, results& r) {
    const long goroutines = s.scaled(100'000);
    dunlin::run([&] {
        splitmix64 random(1);
        dunlin::wait_group wg;
        const double cpu_before = cpu_seconds();
        const auto start = steady::now();
        for (long i = 0; i < goroutines; ++i) {
            const auto d = std::chrono::nanoseconds(static_cast<long>(random.next() % 1'000'000'000u));
            wg.go([d] { dunlin::sleep_for(d); });
        }
        wg.wait();
        const double took_ns = ns_between(start, steady::now());
        r.add("late", (took_ns - 1e9) / 1e6, "ms");
        r.add("cpu", cpu_seconds() - cpu_before, "s");
    });
}

void sleep_overshoot(const settings& s, results& r) {
    std::vector<double> overshoot_us(static_cast<std::size_t>(s.scaled(1000)));
    dunlin::run([&] {
        for (double& over_us : overshoot_us) {
            const auto start = steady::now();
            dunlin::sleep_for(100us);
            over_us = ns_between(start + 100us, steady::now()) / 1e3;
        }
        r.add("p50", percentile(overshoot_us, 0.50), "us");
        r.add("p99", percentile(overshoot_us, 0.99), "us");
    });
}

const registered all[] = {
    registered({"sleepers", "100,000 goroutines sleep for 0 to 1000 ms", sleepers}),
    registered({"sleep-overshoot", "how much longer than 100 us a sleep of 100 us takes", sleep_overshoot}),
};

}  // namespace
}  // namespace bench
