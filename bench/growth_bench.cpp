// growth_bench.cpp - how cost grows with the number of goroutines, channels, timers, connections: `dunlin_bench
// grow-timers --n 1000`. Twin: peers/go/growth.go. bench/driver/growth.py says which sizes are run, each in a process
// of its own; its curves over processors are workloads of the other files, but for one.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <dunlin/select.hpp>

#include "measure.h"
#include "net_bench.h"
#include "registry.h"

namespace bench {
namespace {

using namespace std::chrono_literals;

double each_of(double total, long n) { return total / static_cast<double>(n); }

/// How often `operations` are repeated, so that they are about `total`.
long repeated(const settings& s, long total, long operations, long least) {
    return std::max(least, s.scaled(total) / operations);
}

// ---- goroutines -----------------------------------------------------------------------------------------------------

/// Goroutines that wait for values on one channel and take them until it is closed.
class crowd {
public:
    /// Returns when all are waiting, or at least on their way.
    explicit crowd(long n) {
        for (long i = 0; i < n; ++i) {
            all_.go([this] {
                ++arrived_;
                long taken = 0;
                for ([[maybe_unused]] const long value : values_) ++taken;
                taken_ += taken;
            });
        }
        while (arrived_ < n) dunlin::yield();
    }
    crowd(const crowd&) = delete;
    crowd& operator=(const crowd&) = delete;

    void give(long values) {
        for (long i = 0; i < values; ++i) values_.send(i);
        given_ += values;
    }

    void end() {
        values_.close();
        all_.wait();
        if (taken_ != given_) fail("grow-goroutines: values were lost");
    }

private:
    dunlin::chan<long> values_;
    dunlin::wait_group all_;
    std::atomic<long> arrived_ = 0, taken_ = 0;
    long given_ = 0;
};

void grow_goroutines(const settings& s, results& r) {
    const long n = s.size();
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        const double before = status_bytes("VmRSS") + status_bytes("VmPTE");
        const auto start = steady::now();
        crowd waiting(n);
        const double first_ns = ns_between(start, steady::now());
        dunlin::sleep_for(20ms);  // those that have counted themselves but do not wait yet
        r.add("memory", each_of(status_bytes("VmRSS") + status_bytes("VmPTE") - before, n), "B");
        r.add("first", each_of(first_ns, n), "ns");

        // The oldest waits longest, so each value meets the goroutine whose memory was used longest ago.
        const long rounds = repeated(s, 100'000, n, 1);
        r.add("wake", ns_per_operation(n * rounds, [&] { waiting.give(n * rounds); }), "ns");
        waiting.end();

        std::vector<double> lives_ns;
        for (double total = 0; lives_ns.empty() || total < measured_ns_min;) {
            const auto born = steady::now();
            crowd(n).end();
            lives_ns.push_back(ns_between(born, steady::now()));
            total += lives_ns.back();
        }
        r.add("life", each_of(percentile(lives_ns, 0.5), n), "ns");
    });
}

// ---- processors -----------------------------------------------------------------------------------------------------

/// `n` pairs that play ping-pong at once, each over two channels of its own.
void grow_pairs(const settings& s, results& r) {
    const long pairs = s.size(), rounds = repeated(s, 200'000, pairs, 10);
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        const double ns = ns_per_operation(pairs * rounds, [&] {
            dunlin::wait_group playing;
            for (long i = 0; i < pairs; ++i) {
                const dunlin::chan<long> ping, pong;
                playing.go([=] {
                    for (long n : ping) pong.send(n + 1);
                });
                playing.go([=] {
                    for (long n = 0; n < rounds; ++n) {
                        ping.send(n);
                        if (*pong.recv() != n + 1) fail("grow-pairs: a wrong reply");
                    }
                    ping.close();
                });
            }
            playing.wait();
        });
        r.add("time", ns, "ns");
    });
}

// ---- channels -------------------------------------------------------------------------------------------------------

/// A number goes round `n` goroutines over as many channels and loses one at each hop. The channels hold one value, so
/// that a ring of one is a ring.
void grow_channels(const settings& s, results& r) {
    const long n = s.size(), hops = std::max(s.scaled(200'000), 5 * n);
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        const double before = status_bytes("VmRSS");
        std::vector<dunlin::chan<long>> links;
        links.reserve(static_cast<std::size_t>(n));
        for (long i = 0; i < n; ++i) links.emplace_back(1);
        // The kernel counts in pages, and a few channels need less than one.
        if (n >= 1000) r.add("memory", each_of(status_bytes("VmRSS") - before, n), "B");
        const dunlin::chan<long> last(1);
        dunlin::wait_group members;
        for (std::size_t i = 0; i < links.size(); ++i) {
            members.go([in = links[i], out = links[(i + 1) % links.size()], last] {
                for (const long token : in) {
                    if (token == 0) {
                        last.send(token);
                    } else {
                        out.send(token - 1);
                    }
                }
            });
        }
        const double ns = ns_per_operation(hops, [&] {
            links[0].send(hops);
            if (last.recv() != 0) fail("grow-channels: the number was lost");
        });
        for (const auto& link : links) link.close();
        members.wait();
        r.add("time", ns, "ns");
    });
}

/// One goroutine selects over `n` buffered channels, of which one random one has a value.
void grow_select(const settings& s, results& r) {
    const long n = s.size(), selects = repeated(s, 1'000'000, n, 50);
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        std::vector<dunlin::chan<long>> channels;
        std::vector<long> received(static_cast<std::size_t>(n));
        std::vector<dunlin::select_case> cases;
        long sum = 0;
        for (long i = 0; i < n; ++i) {
            channels.emplace_back(1);
            cases.emplace_back(dunlin::on_recv(channels.back(), [&sum](std::optional<long> value) { sum += *value; }));
        }
        splitmix64 random(1);
        const double ns = ns_per_operation(selects, [&] {
            sum = 0;
            for (long i = 0; i < selects; ++i) {
                const std::size_t place = random.next() % static_cast<std::uint64_t>(n);
                channels[place].send(1);
                if (dunlin::select(cases) != place) fail("grow-select: another case than the one that is ready");
            }
            if (sum != selects) fail("grow-select: values were lost");
        });
        r.add("time", ns, "ns");
    });
}

// ---- timers ---------------------------------------------------------------------------------------------------------

void grow_timers(const settings& s, results& r) {
    const long n = s.size(), rounds = s.scaled(200'000);
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        std::atomic<long> fired = 0;
        const auto count = [&fired] { ++fired; };
        splitmix64 random(1);
        const auto below = [&random](std::chrono::nanoseconds limit) {
            return std::chrono::nanoseconds(
                static_cast<long>(random.next() % static_cast<std::uint64_t>(limit.count())));
        };

        std::vector<dunlin::timer> pending(static_cast<std::size_t>(n));
        const double before = status_bytes("VmRSS");
        const auto start = steady::now();
        for (dunlin::timer& t : pending) t = dunlin::after_func(30min + below(1h), count);
        r.add("create", each_of(ns_between(start, steady::now()), n), "ns");
        if (n >= 1000) r.add("memory", each_of(status_bytes("VmRSS") - before, n), "B");

        const double ns = ns_per_operation(rounds, [&] {
            for (long i = 0; i < rounds; ++i) {
                if (!dunlin::after_func(1h, count).stop()) fail("grow-timers: a timer of an hour was not pending");
            }
        });
        r.add("time", ns, "ns");
        for (dunlin::timer& t : pending) {
            if (!t.stop()) fail("grow-timers: a timer of half an hour was not pending");
        }
        if (fired != 0) fail("grow-timers: a timer that was stopped has fired");

        // All due within 100 ms: what the process computes for each from its making to its function's end.
        const double cpu_before = cpu_seconds();
        dunlin::wait_group all_fired;
        all_fired.add(n);
        for (dunlin::timer& t : pending) t = dunlin::after_func(below(100ms), [&all_fired] { all_fired.done(); });
        all_fired.wait();
        r.add("fire", each_of((cpu_seconds() - cpu_before) * 1e9, n), "ns");
    });
}

// ---- connections ----------------------------------------------------------------------------------------------------

void grow_echo(const settings& s, results& r) {
    echo_under(r, "echo", {"--connections", std::to_string(s.size()), "--seconds", s.quick ? "0.1" : "0.5"});
}
void grow_idle(const settings& s, results& r) { echo_under(r, "idle", {"--connections", std::to_string(s.size())}); }

const registered all[] = {
    registered({"grow-goroutines", "--n goroutines wait, are woken, and end", grow_goroutines}),
    registered({"grow-pairs", "--n pairs of goroutines play ping-pong over channels", grow_pairs}),
    registered({"grow-channels", "a value goes round --n goroutines over as many channels", grow_channels}),
    registered({"grow-select", "one goroutine selects over --n channels", grow_select}),
    registered({"grow-timers", "--n pending timers", grow_timers}),
    registered({"grow-echo", "an echo server for --n connections", grow_echo}),
    registered({"grow-idle", "--n connections that do nothing", grow_idle}),
};

}  // namespace
}  // namespace bench
