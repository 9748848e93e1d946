// hogs_bench.cpp - who gets the CPU while goroutines compute without a call, and what an idle process uses of it. Twin:
// peers/go/hogs.go.

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "hogs.h"
#include "measure.h"
#include "registry.h"

namespace bench {
namespace {

using namespace std::chrono_literals;

double units_of(const std::vector<worker>& workers) {
    double sum = 0;
    for (const worker& w : workers) sum += static_cast<double>(w.units.load(std::memory_order_relaxed));
    return sum;
}

double mean_units(const std::vector<worker>& workers) {
    return units_of(workers) / static_cast<double>(workers.size());
}

/// Two hogs for each processor, and a goroutine that sleeps for 1 ms again and again: how much later it runs.
void hogs_wake(const settings& s, results& r) {
    const auto length = std::chrono::milliseconds(s.scaled(2000));
    std::vector<double> delays_ms;
    dunlin::run([&] {
        std::vector<worker> hogs(2 * dunlin::runtime::max_procs());
        std::atomic<bool> stop = false;
        dunlin::wait_group wg;
        for (worker& hog : hogs) wg.go([&hog, &stop] { hog.work_until(stop); });
        for (const auto end = steady::now() + length; steady::now() < end;) {
            const auto asleep_at = steady::now();
            dunlin::sleep_for(1ms);
            delays_ms.push_back(ns_between(asleep_at + 1ms, steady::now()) / 1e6);
        }
        stop = true;
        wg.wait();
    });
    r.add("p50", percentile(delays_ms, 0.50), "ms");
    r.add("p99", percentile(delays_ms, 0.99), "ms");
}

/// Four hogs for each processor with the same work, and, until the first has finished, two goroutines that yield after
/// each unit.
void hogs_fair(const settings& s, results& r) {
    const long units_each = s.scaled(4000);
    dunlin::run([&] {
        std::vector<worker> hogs(4 * dunlin::runtime::max_procs()), yielders(2);
        std::vector<double> finished_ns(hogs.size());
        std::atomic<bool> one_finished = false;
        double of_a_hog = 0, of_a_yielder = 0;
        steady::time_point start;
        dunlin::wait_group gate, wg;
        gate.add(1);
        for (worker& w : yielders) {
            wg.go([&] {
                gate.wait();
                while (!one_finished.load(std::memory_order_relaxed)) {
                    w.work();
                    dunlin::yield();
                }
            });
        }
        for (std::size_t i = 0; i < hogs.size(); ++i) {
            wg.go([&, i] {
                gate.wait();
                for (long n = 0; n < units_each; ++n) hogs[i].work();
                finished_ns[i] = ns_between(start, steady::now());
                if (!one_finished.exchange(true)) {
                    of_a_hog = mean_units(hogs);
                    of_a_yielder = std::max(mean_units(yielders), 0.5);
                }
            });
        }
        dunlin::sleep_for(10ms);  // all wait at the gate
        start = steady::now();
        gate.done();
        wg.wait();
        const auto [first, last] = std::minmax_element(finished_ns.begin(), finished_ns.end());
        r.add("spread", (*last - *first) / *last * 100, "%");
        r.add("yielders", of_a_hog / of_a_yielder, "x");
    });
}

/// Microseconds of wall time per unit while the workers of `start` run for a second; `finish` waits for them after the
/// stop.
template <class Start, class Finish>
double us_per_unit(std::chrono::milliseconds length, Start&& start, Finish&& finish) {
    std::vector<worker> workers(2 * dunlin::runtime::max_procs());
    std::atomic<bool> stop = false;
    const auto begin = steady::now();
    start(workers, stop);
    dunlin::sleep_for(length);
    const double units = units_of(workers);
    const double took_ns = ns_between(begin, steady::now());
    stop = true;
    finish();
    return took_ns / units / 1e3;
}

double goroutines_us_per_unit(std::chrono::milliseconds length) {
    dunlin::wait_group wg;
    return us_per_unit(
        length,
        [&wg](std::vector<worker>& workers, std::atomic<bool>& stop) {
            for (worker& w : workers) wg.go([&w, &stop] { w.work_until(stop); });
        },
        [&wg] { wg.wait(); });
}

/// Where threads may run that shall have as many CPUs as the runtime has processors.
cpu_set_t cpus_of_threads() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) fail("hogs-throughput: sched_getaffinity failed");
    cpu_set_t chosen;
    CPU_ZERO(&chosen);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&chosen) < static_cast<int>(dunlin::runtime::max_procs()); ++cpu) {
        if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &chosen);
    }
    return chosen;
}

double threads_us_per_unit(std::chrono::milliseconds length) {
    const cpu_set_t cpus = cpus_of_threads();
    std::vector<std::thread> threads;
    return us_per_unit(
        length,
        [&](std::vector<worker>& workers, std::atomic<bool>& stop) {
            for (worker& w : workers) {
                threads.emplace_back([&w, &stop, &cpus] {
                    if (pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus) != 0)
                        fail("hogs-throughput: pthread_setaffinity_np failed");
                    w.work_until(stop);
                });
            }
        },
        [&threads] {
            dunlin::blocking([&threads] {
                for (std::thread& t : threads) t.join();
            });
        });
}

/// Two hogs for each processor as goroutines and as threads on as many CPUs, by turns.
void hogs_throughput(const settings& s, results& r) {
    const auto length = std::chrono::milliseconds(s.scaled(1000));
    dunlin::run([&] {
        std::vector<double> goroutines_us, relative;
        for (int pair = 0; pair < 2; ++pair) {
            goroutines_us.push_back(goroutines_us_per_unit(length));
            relative.push_back(goroutines_us.back() / threads_us_per_unit(length));
        }
        r.add("time", percentile(goroutines_us, 0.5), "us");
        r.add("relative", percentile(relative, 0.5), "x");
    });
}

/// 10,000 goroutines wait and nothing happens.
void idle_cpu(const settings& s, results& r) {
    const long goroutines = s.scaled(10'000);
    const auto length = std::chrono::milliseconds(s.scaled(10'000));
    dunlin::run([&] {
        dunlin::wait_group gate, all;
        gate.add(1);
        for (long i = 0; i < goroutines; ++i) all.go([&gate] { gate.wait(); });
        dunlin::sleep_for(200ms);  // until all wait, and the threads have gone to sleep
        const double cpu_before = cpu_seconds();
        const auto start = steady::now();
        dunlin::sleep_for(length);
        const double took_ns = ns_between(start, steady::now());
        r.add("cpu", (cpu_seconds() - cpu_before) * 1e9 / took_ns * 100, "%");
        gate.done();
        all.wait();
    });
}

const registered all[] = {
    registered({"hogs-wake", "how late a goroutine wakes beside two hogs for each processor", hogs_wake}),
    registered({"hogs-fair", "how evenly four hogs for each processor advance, and goroutines that yield beside them",
        hogs_fair}),
    registered({"hogs-throughput", "two hogs for each processor, as goroutines and as threads", hogs_throughput}),
    registered({"idle-cpu", "CPU time of 10,000 goroutines that wait", idle_cpu}),
};

}  // namespace
}  // namespace bench
