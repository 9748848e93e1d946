// What stats() says while something goes on: go1.24 src/runtime/metrics_test.go, as far as there are such figures.
// OBS-07.
//
// TestReadMetrics          here, and Stats.* in tests/runtime/dump_test.cpp; as text: Server.Metrics in
//                          tests/debug/server_test.cpp
// TestMutexWaitTimeMetric  here, by park_times
// TestSchedPauseMetrics    stats() counts no stops of the world. A trace has them: tests/tools/trace_test.py,
//                          test_each_stop_of_the_world_is_in_it
// TestCPUMetricsSleep      stats() has no seconds of CPU time by class. That a processor without work counts as idle:
//                          here, by idle_procs
#include <atomic>
#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
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
        h.at_once, h.from_blocking, h.from_blocked, h.from_hogs, h.urgent, h.signals, h.preemptions, h.thaws,
        h.given_back, h.returns_idle, h.returns_queued, h.threads_ended, s.scheduling_latency.total(),
        s.waits_while_idle.total()};
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
            EXPECT_LE(s.runnable + s.running + s.waiting + s.preempted, 2 * (2 * busy + 1));  // each may be seen twice
            EXPECT_LE(s.hand_offs.at_once, s.hand_offs.blocking_calls);
            EXPECT_GT(s.stack_bytes_reserved, 0u);
            const std::vector<std::uint64_t> now = counters_of(s);
            for (std::size_t k = 0; k < std::min(before.size(), now.size()); ++k) EXPECT_GE(now[k], before[k]) << k;
            before = now;
            dunlin::yield();
        }
        enough.store(true);
        all.wait();
        support::eventually([] { return runtime::num_goroutines() == 1; });
        const runtime::runtime_stats s = runtime::stats();
        EXPECT_EQ(s.goroutines, 1u);
        EXPECT_EQ(s.running, 1u);
        EXPECT_EQ(s.runnable + s.waiting, 0u);
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

}  // namespace
