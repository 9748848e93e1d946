// sched_bench.cpp - what the scheduler's own steps cost: yield, spawn, join, wake. Twin: peers/go/sched.go.

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "measure.h"
#include "registry.h"
#include "start_up.h"

namespace bench {
namespace {

using namespace std::chrono_literals;

void yield_among(results& r, long goroutines, long yields) {
    dunlin::run([&] {
        const double ns = ns_per_operation(goroutines * yields, [&] {
            dunlin::wait_group wg;
            for (long i = 0; i < goroutines; ++i) {
                wg.go([=] {
                    for (long n = 0; n < yields; ++n) dunlin::yield();
                });
            }
            wg.wait();
        });
        r.add("time", ns, "ns");
    });
}

void yield_2(const settings& s, results& r) { yield_among(r, 2, s.scaled(100'000)); }
void yield_1000(const settings& s, results& r) { yield_among(r, 1000, s.scaled(500)); }

void spawn_join(const settings& s, results& r) {
    const long rounds = s.scaled(100'000);
    dunlin::run([&] {
        const double ns = ns_per_operation(rounds, [&] {
            long sum = 0;
            for (long i = 0; i < rounds; ++i) sum += dunlin::spawn([] { return 1; }).get();
            if (sum != rounds) fail("spawn-join: a child did not return its value");
        });
        r.add("time", ns, "ns");
    });
}

void spawn_join_wait_group(const settings& s, results& r) {
    const long rounds = s.scaled(100'000);
    dunlin::run([&] {
        const double ns = ns_per_operation(rounds, [&] {
            dunlin::wait_group wg;
            long sum = 0;
            for (long i = 0; i < rounds; ++i) {
                wg.go([&sum] { sum += 1; });
                wg.wait();
            }
            if (sum != rounds) fail("spawn-join-wg: a child did not run");
        });
        r.add("time", ns, "ns");
    });
}

void spawn_million(const settings& s, results& r) {
    const long goroutines = s.scaled(1'000'000);
    const auto batch = [goroutines] {
        dunlin::wait_group wg;
        for (long i = 0; i < goroutines; ++i) wg.go([] {});
        wg.wait();
    };
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        const auto start = steady::now();
        batch();
        const double first = ns_between(start, steady::now()) / static_cast<double>(goroutines);
        r.add("time", ns_per_operation(goroutines, batch), "ns");
        r.add("first", first, "ns");  // nothing allocated yet: what a program that does this once pays
        r.add("peak-rss", status_bytes("VmHWM") / 1e6, "MB");
    });
}

/// A plain thread sleeps, so that the runtime is idle, and then starts one goroutine.
void wake_idle(const settings& s, results& r) {
    std::vector<double> delays_us(static_cast<std::size_t>(s.scaled(500)));
    dunlin::wait_group running;
    running.add(1);
    std::atomic<bool> started = false;
    std::thread plain([&] {
        while (!started) std::this_thread::sleep_for(1ms);
        for (double& delay_us : delays_us) {
            std::this_thread::sleep_for(1ms);
            std::atomic<steady::rep> ran_at = 0;
            const auto asked_at = steady::now();
            dunlin::go([&ran_at] { ran_at = steady::now().time_since_epoch().count(); });
            // Sleeping and not spinning, so that the goroutine's thread finds a free CPU also on a small machine.
            while (ran_at == 0) std::this_thread::sleep_for(1ms);
            delay_us = ns_between(asked_at, steady::time_point(steady::duration(ran_at))) / 1e3;
        }
        running.done();
    });
    dunlin::run([&] {
        started = true;
        running.wait();  // the main goroutine is parked: nothing else is alive
    });
    plain.join();
    r.add("p50", percentile(delays_us, 0.50), "us");
    r.add("p99", percentile(delays_us, 0.99), "us");
}

void start_up(const settings& s, results& r) { measure_start_up(s, r, "dunlin_empty"); }

const registered all[] = {
    registered({"start-up", "a process with an empty run(), from exec to its end", start_up}),
    registered({"yield", "two goroutines yield to each other", yield_2}),
    registered({"yield1000", "a thousand goroutines yield in turn", yield_1000}),
    registered({"spawn-join", "spawn one goroutine and wait for its value, one after the other", spawn_join}),
    registered({"spawn-join-wg", "the same through a wait_group", spawn_join_wait_group}),
    registered({"spawn-million", "spawn a million goroutines, then wait for all", spawn_million}),
    registered({"wake-idle", "a plain thread starts a goroutine on an idle runtime", wake_idle}),
};

}  // namespace
}  // namespace bench
