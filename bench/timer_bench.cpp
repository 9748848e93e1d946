// timer_bench.cpp - how many sleepers, how late they wake; timers that never fire. Twin: peers/go/timer.go.

#include <atomic>
#include <chrono>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "measure.h"
#include "registry.h"

namespace bench {
namespace {

using namespace std::chrono_literals;

/// Goroutines sleep for 0 to 1000 ms; the ideal end is 1000 ms after the start.
void sleep_together(results& r, long goroutines) {
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
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

void sleepers(const settings& s, results& r) { sleep_together(r, s.scaled(100'000)); }
void sleepers_million(const settings& s, results& r) { sleep_together(r, s.scaled(1'000'000)); }

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

void expect_pending(bool was_pending) {
    if (!was_pending) fail("a timer of an hour was not pending when it was stopped");
}

void timer_stop(const settings& s, results& r) {
    const long rounds = s.scaled(200'000);
    dunlin::run([&] {
        const double ns = ns_per_operation(rounds, [&] {
            for (long i = 0; i < rounds; ++i) {
                dunlin::timer t(1h);
                if (t.channel().is_nil()) fail("timer-stop: no channel");
                expect_pending(t.stop());
            }
        });
        // Of a deadline for a channel that is never needed.
        const double unasked_ns = ns_per_operation(rounds, [&] {
            for (long i = 0; i < rounds; ++i) {
                dunlin::timer t(1h);
                expect_pending(t.stop());
            }
        });
        r.add("time", ns, "ns");
        r.add("unasked", unasked_ns, "ns");
    });
}

/// Beside `pending` other timers, which are due from half an hour before to half an hour after the one that is
/// measured.
void after_func_stop_beside(const settings& s, results& r, long pending) {
    const long rounds = s.scaled(200'000);
    dunlin::run([&] {
        std::atomic<long> fired = 0;
        const auto count = [&fired] { ++fired; };
        splitmix64 random(1);
        std::vector<dunlin::timer> others;
        for (long i = 0; i < pending; ++i)
            others.push_back(dunlin::after_func(
                30min + std::chrono::nanoseconds(static_cast<long>(random.next() % 3'600'000'000'000u)), count));
        const double ns = ns_per_operation(rounds, [&] {
            for (long i = 0; i < rounds; ++i) expect_pending(dunlin::after_func(1h, count).stop());
        });
        for (dunlin::timer& t : others) expect_pending(t.stop());
        if (fired != 0) fail("after-func-stop: a timer that was stopped has fired");
        r.add("time", ns, "ns");
    });
}

void after_func_stop(const settings& s, results& r) { after_func_stop_beside(s, r, 0); }
void after_func_stop_100k(const settings& s, results& r) { after_func_stop_beside(s, r, 100'000); }

/// Every request has a deadline, which is cancelled when it is answered; all of them are pending at once. A handler
/// that waits for something asks for the channel that says when it is over.
double deadlines_ns(long requests, bool asked) {
    return ns_per_operation(requests, [=] {
        std::vector<dunlin::cancellable> pending;
        pending.reserve(static_cast<std::size_t>(requests));
        for (long i = 0; i < requests; ++i) {
            pending.push_back(dunlin::with_timeout(dunlin::context::background(), 30s));
            if (asked && pending.back().done().is_nil()) fail("deadlines: nothing to wait for");
        }
        for (const dunlin::cancellable& c : pending) {
            c.cancel();
            if (c.err() != dunlin::errc::cancelled) fail("deadlines: not cancelled");
        }
    });
}

void deadlines(const settings& s, results& r) {
    const long requests = s.scaled(100'000);
    dunlin::run([&] {
        r.add("time", deadlines_ns(requests, true), "ns");
        r.add("unasked", deadlines_ns(requests, false), "ns");
    });
}

const registered all[] = {
    registered({"deadlines", "100,000 deadlines of requests, set and cancelled", deadlines}),
    registered({"sleepers", "100,000 goroutines sleep for 0 to 1000 ms", sleepers}),
    registered({"sleepers-million", "a million goroutines sleep for 0 to 1000 ms", sleepers_million}),
    registered({"sleep-overshoot", "how much longer than 100 us a sleep of 100 us takes", sleep_overshoot}),
    registered({"timer-stop", "make a timer of an hour, take its channel, stop it", timer_stop}),
    registered({"after-func-stop", "start a function in an hour and stop it", after_func_stop}),
    registered({"after-func-stop-100k", "the same beside 100,000 pending timers", after_func_stop_100k}),
};

}  // namespace
}  // namespace bench
