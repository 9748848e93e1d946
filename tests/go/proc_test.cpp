// Ports of Go's own tests of the scheduler, under Go's names. Where a Go test uses a channel, a wait_group, a task or
// an atomic stands here.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <mutex>
#include <sched.h>
#include <sstream>
#include <string>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "support/child.h"
#include "support/runtime_test.h"
#include "support/undisturbed.h"

using namespace std::chrono_literals;

namespace {

class GoProc : public support::runtime_test {};

// go1.24 src/runtime/proc_test.go, TestGoroutineParallelism.
TEST_F(GoProc, TestGoroutineParallelism) {
    constexpr std::uint32_t procs = 4;
    dunlin::run({.max_procs = procs}, [] {
        for (int attempt = 0; attempt < 5; ++attempt) {
            dunlin::wait_group done;
            std::atomic<std::uint32_t> x{0};
            for (std::uint32_t p = 0; p < procs; ++p) {
                done.go([&x, p] {
                    // The runtime is not called here: all four must have a thread at the same time.
                    for (std::uint32_t i = 0; i < 3; ++i) {
                        const std::uint32_t expected = procs * i + p;
                        while (x.load() != expected) {}
                        x.store(expected + 1);
                    }
                });
            }
            // Go's main waits on a channel. wait() would run the youngest member in place, and it may: the other three
            // need threads still.
            done.wait();
            ASSERT_EQ(x.load(), procs * 3);
        }
    });
}

std::size_t headers_in(const std::string& dump) {
    std::size_t count = 0;
    std::istringstream lines(dump);
    for (std::string line; std::getline(lines, line);) {
        count += line.rfind("goroutine ", 0) == 0;
        if (line.rfind("    and ", 0) == 0) count += std::stoul(line.substr(8));  // "and 49 like it"
    }
    return count;
}

std::size_t headers_in_dump() {
    std::ostringstream text;
    dunlin::runtime::dump(text);
    return headers_in(text.str());
}

// go1.24 src/runtime/proc_test.go, TestNumGoroutine.
TEST_F(GoProc, TestNumGoroutine) {
    dunlin::run([] {
        EXPECT_EQ(dunlin::runtime::num_goroutines(), 1u);
        EXPECT_EQ(headers_in_dump(), 1u);
        dunlin::wait_group gate, ended;
        gate.add(1);
        for (int i = 0; i < 50; ++i) ended.go([gate] { gate.wait(); });
        EXPECT_EQ(dunlin::runtime::num_goroutines(), 51u);
        for (int i = 0; i < 10; ++i) {
            dunlin::yield();
            EXPECT_EQ(headers_in_dump(), dunlin::runtime::num_goroutines());
        }
        gate.done();
        ended.wait();
        support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
        EXPECT_EQ(headers_in_dump(), 1u);
    });
}

// go1.24 src/runtime/proc_test.go, TestBigGOMAXPROCS.
TEST_F(GoProc, TestBigGOMAXPROCS) {
    const auto r = support::run_child("settings", {"many_goroutines"}, {.environment = {{"DUNLIN_MAXPROCS", "1024"}}});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "max_procs 1024\nsum 5000\n") << r;
}

std::size_t resident_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("VmRSS:", 0) == 0) return std::stoul(line.substr(6)) * 1024;
    }
    return 0;
}

// go1.24 test/chan/goroutines.go: each goroutine waits for its right neighbour and passes on what that had, plus one.
void chain_of(int n) {
    const std::size_t resident_before = resident_bytes();
    const int last = dunlin::run([n] {
        dunlin::wait_group start;
        start.add(1);
        dunlin::task<int> right = dunlin::spawn([start] {
            start.wait();
            return 0;
        });
        for (int i = 0; i < n; ++i) {
            right = dunlin::task<int>(dunlin::spawn([r = std::move(right)]() mutable { return r.get() + 1; }));
        }
        // All of them stand in the chain, waiting, before the value goes through it.
        support::eventually([n] { return dunlin::runtime::stats().waiting == static_cast<std::size_t>(n) + 1; });
        EXPECT_EQ(dunlin::runtime::num_goroutines(), static_cast<std::size_t>(n) + 2);
        start.done();
        return right.get();
    });
    EXPECT_EQ(last, n);
    EXPECT_EQ(dunlin::runtime::num_goroutines(), 0u);
    const std::size_t grown = resident_bytes() - std::min(resident_bytes(), resident_before);
    // 4.9 KB each while they are parked; what is resident afterwards cannot be more than the most there was.
    if (!support::sanitized) {
        EXPECT_LE(grown, static_cast<std::size_t>(n) * 4900 + (std::size_t{64} << 20));
    }
}

// ---- conformance cases of the run queues, seen through runtime::stats() ---------------------------------------------

// Pushes into the global queue: a goroutine started by a plain thread goes there.
template <class F>
void go_through_the_global_queue(F f) {
    std::thread thread([&f] { dunlin::go(std::move(f)); });
    thread.join();  // blocks this goroutine's thread, so nothing else moves at P = 1
}

// SCH-22: A and B start each other for ever, so the local queue is never empty; what is in the global queue runs
// nevertheless.
struct respawning {
    std::atomic<bool> stop{false};
    std::atomic<long> executions{0}, when_queued{0}, when_run{-1};
    dunlin::wait_group ended;

    void run() {
        ++executions;
        if (stop) {
            ended.done();
            return;
        }
        dunlin::go([this] { run(); });
        dunlin::go([] {});  // takes the LIFO slot, so the one before goes to the tail of the queue
    }
};

TEST_F(GoProc, GlobalQueueIsServedEvery61stTick) {
    dunlin::run({.max_procs = 1}, [] {
        struct round_result {
            long waited, run_at;
            std::uint64_t global_hits;
        };
        std::vector<std::thread> threads;
        for (int round = 0; round < 20; ++round) {
            const round_result r = support::undisturbed([&threads] {
                respawning s;
                s.ended.add(3);
                const auto before = dunlin::runtime::stats().procs[0];
                for (int i = 0; i < 2; ++i) dunlin::go([&s] { s.run(); });
                // Main does not block for the thread, and its processor is not taken while it waits: nothing else
                // moves.
                std::atomic<int> step{0};
                threads.emplace_back([&s, &step] {
                    while (step != 1) usleep(50);
                    dunlin::go([&s] {
                        s.when_run = s.executions.load();
                        s.stop = true;
                        s.ended.done();
                    });
                    step = 2;
                });
                {
                    const dunlin::no_preempt scope;
                    step = 1;
                    while (step != 2) sched_yield();
                    s.when_queued = s.executions.load();
                }
                s.ended.wait();
                support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
                return round_result{s.when_run - s.when_queued, s.when_run,
                    dunlin::runtime::stats().procs[0].global_hits - before.global_hits};
            }, 1h);
            ASSERT_GE(r.run_at, 0);
            EXPECT_LE(r.waited, 2 * 61 + 2);
            EXPECT_GT(r.global_hits, 0u);
        }
        for (std::thread& thread : threads) thread.join();
    });
}

// The same when they are members of the group that main waits for, which runs them on its own stack: others still get
// their turn.
TEST_F(GoProc, GlobalQueueIsServedWhileAWaiterRunsItsMembersInPlace) {
    dunlin::run({.max_procs = 1}, [] {
        for (int round = 0; round < 5; ++round) {
            struct members {
                std::atomic<bool> stop{false};
                dunlin::task_group group;
                void run() {
                    if (!stop) group.go([this] { run(); });
                }
            } m;
            m.group.go([&m] { m.run(); });
            m.group.go([&m] { m.run(); });
            go_through_the_global_queue([&m] { m.stop = true; });
            const auto begin = dunlin::clock::now();
            m.group.wait();
            EXPECT_LT(dunlin::clock::now() - begin, 2s);
        }
    });
}

// SCH-23: capacity 256 and the LIFO slot; one more moves half of the queue and itself to the global one.
struct overflow {
    dunlin::runtime::runtime_stats before, full, over;
    std::vector<int> order;
};

overflow overflow_the_queue() {
    overflow r;
    r.order.resize(258);
    std::atomic<std::size_t> ran{0};  // a disturbed round may run two at once
    dunlin::wait_group wg;
    const auto start = [&](int i) { wg.go([&r, &ran, i] { r.order[ran.fetch_add(1)] = i; }); };
    r.before = dunlin::runtime::stats();
    for (int i = 0; i < 257; ++i) start(i);
    r.full = dunlin::runtime::stats();
    start(257);
    r.over = dunlin::runtime::stats();
    // Leaves without running any of them in place: wait() alone would.
    support::eventually([&] { return ran.load() == 258; });
    wg.wait();
    return r;
}

TEST_F(GoProc, OverflowMovesHalfOfTheQueue) {
    dunlin::run({.max_procs = 1}, [] {
        const overflow r = support::undisturbed(overflow_the_queue);
        ASSERT_EQ(r.before.global_queue, 0u);
        ASSERT_EQ(r.before.procs[0].run_queue, 0u);
        EXPECT_EQ(r.full.global_queue, 0u);
        EXPECT_EQ(r.full.procs[0].run_queue, 256u);
        EXPECT_TRUE(r.full.procs[0].run_next);
        EXPECT_EQ(r.full.procs[0].overflows, r.before.procs[0].overflows);
        EXPECT_EQ(r.over.global_queue, 129u);
        EXPECT_EQ(r.over.procs[0].run_queue, 128u);
        EXPECT_TRUE(r.over.procs[0].run_next);
        EXPECT_EQ(r.over.procs[0].overflows, r.before.procs[0].overflows + 1);

        // The LIFO slot first (257), then the ring (128 ... 255) in order, with the global queue (0 ... 127, 256) in
        // order every 61st tick in between, then the rest of the global queue.
        const std::vector<int>& order = r.order;
        std::vector<int> ring, global;
        for (const int i : order) {
            if (i >= 128 && i < 256) ring.push_back(i);
            if (i < 128 || i == 256) global.push_back(i);
        }
        EXPECT_EQ(order.front(), 257);
        EXPECT_TRUE(std::is_sorted(ring.begin(), ring.end()));
        EXPECT_TRUE(std::is_sorted(global.begin(), global.end()));
        EXPECT_EQ(ring.size(), 128u);
        EXPECT_EQ(global.size(), 129u);
        const auto last_of_ring = std::find(order.begin(), order.end(), 255) - order.begin();
        const auto early =
            std::count_if(order.begin(), order.begin() + last_of_ring, [](int i) { return i < 128 || i == 256; });
        EXPECT_LE(early, 3) << "the global queue went first more often than every 61st tick";
    });
}

// SCH-23, the other half: with what is left in the local queue a yield lets it all run before it comes back.
TEST_F(GoProc, TheYoungestRunsFirstAndTheOthersInOrder) {
    dunlin::run({.max_procs = 1}, [] {
        std::vector<int> expected{19};
        for (int i = 0; i < 19; ++i) expected.push_back(i);
        for (int round = 0; round < 100; ++round) {
            const std::vector<int> order = support::undisturbed([] {
                std::vector<int> found(20);
                std::atomic<std::size_t> ran{0};
                for (int i = 0; i < 20; ++i) dunlin::go([&found, &ran, i] { found[ran.fetch_add(1)] = i; });
                support::eventually([&] { return ran.load() == 20; });
                support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
                return found;
            });
            ASSERT_EQ(order, expected) << "round " << round;
        }
    });
}

// go1.24 src/runtime/proc_test.go, benchmarkWakeupParallel: two goroutines that alternate work and hand over, as a
// check that they overlap: the one readied is taken by the other processor while its waker goes on working. Counted,
// not timed: how much faster that makes them is the benchmarks' business.
template <class Work>
double share_of_hand_overs_taken(Work work) {
    return dunlin::run({.max_procs = 2}, [&] {
        constexpr std::size_t n = 400;
        std::vector<dunlin::wait_group> ping(n), pong(n);
        for (std::size_t i = 0; i < n; ++i) {
            ping[i].add(1);
            pong[i].add(1);
        }
        const std::uint64_t before = dunlin::runtime::stats().stolen;
        dunlin::task<void> other = dunlin::spawn([&] {
            for (std::size_t i = 0; i < n; ++i) {
                ping[i].wait();
                work(200us);
                pong[i].done();
                work(200us);
            }
        });
        for (std::size_t i = 0; i < n; ++i) {
            work(200us);
            ping[i].done();
            work(200us);
            pong[i].wait();
        }
        other.get();
        return static_cast<double>(dunlin::runtime::stats().stolen - before) / n;
    });
}

// How many CPUs two threads get that compute for a tenth of a second: less than two when others use the machine too.
double cpus_at_hand() {
    double used = 0;
    std::mutex lock;
    const auto begin = std::chrono::steady_clock::now();
    const auto compute = [&] {
        while (std::chrono::steady_clock::now() - begin < 100ms) {}
        timespec t{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        const std::lock_guard guard(lock);
        used += static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
    };
    std::thread other(compute), another(compute);
    other.join();
    another.join();
    return used / 0.1;
}

// Where others use the CPUs the thread that is woken comes too late, and the waker goes on with what it has readied
// itself. So one attempt in which more than half are taken shows that they are; where there is none, threads tell
// whether the CPUs were there at all.
template <class Work>
void expect_overlap(Work work) {
    std::string shares;
    double cpus = 2;
    for (int attempt = 0; attempt < 5; ++attempt) {
        cpus = std::min(cpus, cpus_at_hand());
        const double taken = share_of_hand_overs_taken(work);
        cpus = std::min(cpus, cpus_at_hand());
        if (taken > 0.5) return;
        shares += ' ' + std::to_string(taken);
    }
    if (cpus < 1.8)
        GTEST_SKIP() << "others use the CPUs: two threads got " << cpus << " of them; of the hand-overs were taken"
                     << shares;
    FAIL() << "they run one after the other; of the hand-overs were taken" << shares;
}

// go1.24 src/runtime/proc_test.go, BenchmarkWakeupParallelSpinning.
TEST_F(GoProc, BenchmarkWakeupParallelSpinning) {
    if (support::sanitized) GTEST_SKIP() << "it measures time";
    allow(120s);
    expect_overlap([](std::chrono::nanoseconds d) {
        const auto until = dunlin::clock::now() + d;
        while (dunlin::clock::now() < until) {}
    });
}

// go1.24 src/runtime/proc_test.go, BenchmarkWakeupParallelSyscall.
TEST_F(GoProc, BenchmarkWakeupParallelSyscall) {
    if (support::sanitized) GTEST_SKIP() << "it measures time";
    allow(120s);
    expect_overlap([](std::chrono::nanoseconds d) {
        const timespec t{0, static_cast<long>(d.count())};
        nanosleep(&t, nullptr);
    });
}

// Last: stats() walks over all goroutines that there ever were at once, which would keep those above from being
// undisturbed on a busy machine.
TEST_F(GoProc, Goroutines_10000) {
    allow(120s);
    chain_of(support::rounds(10'000));
}
TEST_F(GoProc, Goroutines_100000) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer keeps shadow stacks for each: too much memory";
    allow(120s);
    chain_of(100'000);
}
TEST_F(GoProc, Goroutines_300000) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer keeps shadow stacks for each: too much memory";
    allow(180s);
    chain_of(300'000);
}

}  // namespace
