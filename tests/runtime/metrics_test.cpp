// What stats() says while something goes on: go1.24 src/runtime/metrics_test.go, as far as there are such figures.
// OBS-07.
//
// TestReadMetrics          here, and Stats.* in tests/runtime/dump_test.cpp; as text:
//                          Server.ServesMetricsAsPrometheusReadsThem in tests/debug/server_test.cpp
// TestMutexWaitTimeMetric  here, by park_times
// TestSchedPauseMetrics    here, for each function that stops the world; Go's kinds (of its garbage collector and of
//                          others) are one. In a trace: tests/tools/trace_test.py,
//                          test_each_stop_of_the_world_is_in_it
// TestCPUMetricsSleep      here, by idle_procs and by time
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

namespace runtime = dunlin::runtime;

class Metrics : public support::each_p {};
EACH_P(Metrics);

// All that only ever grows.
std::vector<std::uint64_t> counters_of(const runtime::runtime_stats& s) {
    const runtime::hand_off_stats& h = s.hand_offs;
    std::vector<std::uint64_t> r{s.steals, s.stolen, s.in_place_joins, s.overflows, s.poll.polls, h.blocking_calls,
        h.at_once, h.from_blocking, h.from_blocked, h.from_hogs, h.urgent, h.asked, h.signals, h.preemptions, h.thaws,
        h.given_back, h.returns_idle, h.returns_queued, h.threads_ended, s.scheduling_latency.total(),
        s.waits_while_idle.total(), s.world_stopping.total(), s.world_stops.total(),
        static_cast<std::uint64_t>(s.time.total.count()), static_cast<std::uint64_t>(s.time.idle.count()),
        static_cast<std::uint64_t>(s.time.stopped.count())};
    for (const runtime::processor_stats& p : s.procs) {
        r.insert(r.end(), {p.tick, p.created, p.ended, p.switches, p.run_next_hits, p.global_hits, p.global_tick_hits,
            p.overflows, p.steals, p.stolen, p.run_next_steals, p.in_place_joins, p.parks, p.yields, p.stacks_bound,
            p.blocking_calls, p.hand_offs});
    }
    return r;
}

// TestReadMetrics.
TEST_P(Metrics, ArePlausibleWhileGoroutinesGoOn) {
    run([this] {
        constexpr unsigned busy = 4;
        std::atomic<bool> enough{false};
        dunlin::wait_group all;
        const dunlin::chan<int> c(1);
        for (unsigned i = 0; i < busy; ++i) {
            all.go([&] {
                while (!enough.load()) {
                    static_cast<void>(c.try_send(1));
                    static_cast<void>(c.try_recv());
                    dunlin::yield();
                    dunlin::sleep_for(5us);
                    dunlin::spawn([] {}).get();
                    dunlin::blocking([] {});
                }
            });
        }
        std::vector<std::uint64_t> before = counters_of(runtime::stats());
        for (int i = 0; i < support::rounds(500); ++i) {
            const runtime::runtime_stats s = runtime::stats();
            EXPECT_EQ(s.max_procs, procs());
            EXPECT_LE(s.idle_procs, procs());
            EXPECT_LE(s.idle_threads, s.threads);
            EXPECT_GE(s.threads, 1u);
            EXPECT_GE(s.procs.size(), procs());
            EXPECT_GE(s.goroutines, busy + 1);
            EXPECT_LE(s.goroutines, 2 * busy + 1);
            EXPECT_GE(s.running, 1u);  // this one
            EXPECT_LE(s.hand_offs.at_once, s.hand_offs.blocking_calls);
            EXPECT_GT(s.stack_bytes_reserved, 0u);
            EXPECT_GE(s.time.busy(), 0ns);
            EXPECT_EQ(s.world_stops.total(), s.world_stopping.total());  // none is under way
            const std::vector<std::uint64_t> now = counters_of(s);
            for (std::size_t k = 0; k < std::min(before.size(), now.size()); ++k) EXPECT_GE(now[k], before[k]) << k;
            before = now;
            dunlin::yield();
        }
        enough.store(true);
        all.wait();
        // One that ends is counted as ended a moment before its state says so.
        support::eventually([] { return runtime::num_goroutines() == 1 && runtime::stats().running == 1; });
        const runtime::runtime_stats s = runtime::stats();
        EXPECT_EQ(s.goroutines, 1u);
        EXPECT_EQ(s.running, 1u);
        EXPECT_EQ(s.runnable + s.waiting, 0u);
    });
}

// A thread that counts is kept from its CPU now and then, between the two sums as often as anywhere: what came and went
// meanwhile is not counted as alive.
TEST_P(Metrics, WhatCameAndWentDuringACountIsNotAlive) {
    run([] {
        std::atomic<bool> over{false};
        std::atomic<std::size_t> most{0};
        std::vector<std::thread> counting;  // more than there are CPUs
        for (unsigned k = 0; k < 2 * std::max(1u, std::thread::hardware_concurrency()); ++k) {
            counting.emplace_back([&] {
                while (!over.load()) {
                    const std::size_t alive = runtime::num_goroutines();
                    for (std::size_t m = most.load(); m < alive && !most.compare_exchange_weak(m, alive);) {
                    }
                }
            });
        }
        dunlin::wait_group all;
        for (int k = 0; k < 2; ++k) {
            all.go([] {
                for (int i = 0; i < support::rounds(200'000); ++i) dunlin::spawn([] {}).get();
            });
        }
        all.wait();
        over.store(true);
        dunlin::blocking([&] {
            for (std::thread& t : counting) t.join();
        });
        EXPECT_LE(most.load(), 5u + 60u);  // alive at once, and what a few looks in succession add
    });
}

// The same: descriptors, and what waits for them.
TEST_P(Metrics, DescriptorsAndWaitsForThemAreCounted) {
    run([] {
        const runtime::poll_stats before = runtime::stats().poll;
        {
            auto ends = dunlin::fs::pipe();
            EXPECT_EQ(runtime::stats().poll.descriptors, before.descriptors + 2);
            EXPECT_EQ(runtime::stats().poll.waiting, before.waiting);
            dunlin::wait_group reader;
            reader.go([&] {
                char byte[1];
                EXPECT_EQ(ends.read_end.read_some(byte), 1u);
            });
            support::eventually([&] { return runtime::stats().poll.waiting == before.waiting + 1; });
            ends.write_end.write_all("x");
            reader.wait();
            EXPECT_EQ(runtime::stats().poll.waiting, before.waiting);
        }
        EXPECT_EQ(runtime::stats().poll.descriptors, before.descriptors);
    });
}

runtime::duration_histogram waits_for(const std::string& reason) {
    runtime::duration_histogram none;
    for (const runtime::wait_durations& d : runtime::stats().park_times) {
        if (d.reason == reason) return d.waits;
    }
    return none;
}

// A goroutine waits for 100 ms and more in `wait`, which it calls while this one has what it waits for.
template <class Take, class GiveBack, class Wait>
void expect_wait(const std::string& reason, Take take, GiveBack give_back, Wait wait) {
    const bool counted = runtime::set_wait_histograms(true);
    const auto total_ns = [&] { return waits_for(reason).total_ns; };
    const auto count = [&] { return waits_for(reason).total(); };
    const std::int64_t ns_before = total_ns();
    const std::uint64_t before = count();
    take();
    const auto begin = dunlin::clock::now();
    dunlin::wait_group waiter;
    waiter.go(wait);
    support::eventually([] { return runtime::stats().waiting == 1; });
    const auto waits = dunlin::clock::now();
    dunlin::sleep_for(100ms);
    const auto least = dunlin::clock::now() - waits;
    EXPECT_EQ(count(), before) << reason;  // it counts when it has ended
    give_back();
    waiter.wait();
    const auto most = dunlin::clock::now() - begin;
    EXPECT_EQ(count(), before + 1) << reason;
    EXPECT_GE(total_ns() - ns_before, least / 1ns) << reason;
    EXPECT_LE(total_ns() - ns_before, most / 1ns) << reason;
    runtime::set_wait_histograms(counted);
}

// TestMutexWaitTimeMetric: mutex, rwmutexWrite, rwmutexReadWrite, rwmutexWriteRead. No time is lost, none is made up.
TEST_P(Metrics, TheTimeThatALockIsWaitedForIsCounted) {
    run([] {
        dunlin::mutex m;
        expect_wait("sync.Mutex.Lock", [&] { m.lock(); }, [&] { m.unlock(); }, [&] { const std::lock_guard mine(m); });
        dunlin::shared_mutex rw;
        const auto write = [&] { const std::lock_guard mine(rw); };
        const auto read = [&] { const std::shared_lock mine(rw); };
        expect_wait("sync.RWMutex.Lock", [&] { rw.lock(); }, [&] { rw.unlock(); }, write);
        expect_wait("sync.RWMutex.Lock", [&] { rw.lock_shared(); }, [&] { rw.unlock_shared(); }, write);
        expect_wait("sync.RWMutex.RLock", [&] { rw.lock(); }, [&] { rw.unlock(); }, read);
    });
}

// TestSchedPauseMetrics: each of these stops the world, and that is counted, once for each time.
TEST_P(Metrics, StopsOfTheWorldAreCounted) {
    run([this] {
        std::ostringstream nowhere;
        const std::pair<const char*, std::function<void()>> stopping[] = {
            {"set_max_procs", [this] { runtime::set_max_procs(procs() + 1), runtime::set_max_procs(procs()); }},
            {"dump", [&] { runtime::dump(nowhere); }},
            {"goroutine_profile", [&] { runtime::goroutine_profile(nowhere); }},
            {"leaks", [] { static_cast<void>(runtime::leaks()); }},
            {"set_wait_histograms", [] { runtime::set_wait_histograms(!runtime::set_wait_histograms(true)); }},
        };
        for (const auto& [name, stop] : stopping) {
            const runtime::runtime_stats before = runtime::stats();
            const auto begin = dunlin::clock::now();
            stop();
            const auto took = dunlin::clock::now() - begin;
            const runtime::runtime_stats after = runtime::stats();
            const runtime::duration_histogram stops = after.world_stops.since(before.world_stops);
            const runtime::duration_histogram stopping_took = after.world_stopping.since(before.world_stopping);
            EXPECT_GE(stops.total(), 1u) << name;
            EXPECT_EQ(stopping_took.total(), stops.total()) << name;
            EXPECT_GT(stopping_took.total_ns, 0) << name;
            EXPECT_GE(stops.total_ns, stopping_took.total_ns) << name;
            EXPECT_LE(stops.total_ns, took / 1ns) << name;
            EXPECT_GT(after.time.stopped, before.time.stopped) << name;
            // Each processor stood for at most as long; there was one more for a moment.
            EXPECT_LE((after.time.stopped - before.time.stopped) / 1ns, stops.total_ns * (procs() + 1)) << name;
        }
        const runtime::duration_histogram before = runtime::stats().world_stops;
        dunlin::yield();
        EXPECT_EQ(runtime::stats().world_stops.since(before).total(), 0u) << "what stops nothing was counted";
    });
}

// TestCPUMetricsSleep: a program that waits leaves its processors idle; each that computes takes one away.
TEST_P(Metrics, AProcessorWithoutWorkIsIdle) {
    const auto idle = [] { return runtime::stats().idle_procs; };
    run([&] {
        std::atomic<unsigned> computing{0};
        std::atomic<bool> over{false};
        const dunlin::chan<int> end;
        std::thread outside([&] {
            support::eventually_on_thread([&] { return idle() == procs(); });  // all sleep
            const unsigned hogs = (procs() + 1) / 2;
            for (unsigned i = 0; i < hogs; ++i) {
                dunlin::go([&] {
                    ++computing;
                    while (!over.load()) {
                    }
                    --computing;
                });
            }
            support::eventually_on_thread([&] { return computing.load() == hogs && idle() == procs() - hogs; });
            over.store(true);
            support::eventually_on_thread([&] { return computing.load() == 0 && idle() == procs(); });
            end.close();
        });
        end.recv();
        dunlin::blocking([&] { outside.join(); });
    });
}

// TestCPUMetricsSleep: while all wait the time of all processors is idle time, all of it; of one that computes it is
// not. And it is what the processors could have had.
TEST_P(Metrics, TheTimeOfProcessorsIsIdleOrBusy) {
    run([this] {
        struct moment {
            dunlin::clock::time_point not_before = dunlin::clock::now();
            runtime::processor_time time = runtime::stats().time;
            dunlin::clock::time_point not_after = dunlin::clock::now();
        };
        const auto between = [this](const moment& first, const moment& last) {
            const runtime::processor_time& a = first.time;
            const runtime::processor_time& b = last.time;
            EXPECT_GE(b.total - a.total, (last.not_before - first.not_after) * procs());
            EXPECT_LE(b.total - a.total, (last.not_after - first.not_before) * procs());
            return runtime::processor_time{b.total - a.total, b.idle - a.idle, b.stopped - a.stopped};
        };
        const dunlin::chan<int> end;
        std::thread outside([&] {
            // A processor is idle also while this goroutine makes a thread, and the kernel lets it wait.
            support::eventually_on_thread([&] {
                const runtime::runtime_stats s = runtime::stats();
                return s.waiting == 1 && s.idle_procs == procs();
            });
            const moment first;
            std::this_thread::sleep_for(100ms);
            const runtime::processor_time asleep = between(first, moment());
            EXPECT_EQ(asleep.idle, asleep.total);
            EXPECT_EQ(asleep.stopped, 0ns);
            end.close();
        });
        end.recv();
        dunlin::blocking([&] { outside.join(); });
        const moment first;
        while (dunlin::clock::now() - first.not_after < 100ms) {
        }
        const runtime::processor_time computing = between(first, moment());
        EXPECT_GE(computing.busy(), 100ms);
        EXPECT_LE(computing.idle, computing.total - 100ms);
        std::chrono::nanoseconds sum{0};
        const runtime::runtime_stats all = runtime::stats();
        for (const runtime::processor_stats& p : all.procs) sum += p.idle;
        EXPECT_EQ(sum, all.time.idle);
    });
}

// All parts of the time only ever grow, also while the world is stopped.
TEST_P(Metrics, NoPartOfTheTimeGoesBack) {
    run([this] {
        std::atomic<bool> over{false};
        std::thread stops([&] {
            while (!over.load()) runtime::set_max_procs(procs() + 1), runtime::set_max_procs(procs());
        });
        runtime::processor_time before = runtime::stats().time;
        for (int i = 0; i < support::rounds(3000); ++i) {
            const runtime::processor_time now = runtime::stats().time;
            EXPECT_GE(now.total, before.total);
            EXPECT_GE(now.idle, before.idle);
            EXPECT_GE(now.stopped, before.stopped);
            EXPECT_GE(now.busy(), before.busy());
            before = now;
            if (i % 16 == 0) dunlin::yield();
        }
        over.store(true);
        dunlin::blocking([&] { stops.join(); });
    });
}

}  // namespace
