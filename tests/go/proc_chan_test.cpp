// Ports of Go's own tests of the scheduler that use channels, under Go's names. The others: proc_test.cpp,
// lockosthread_test.cpp.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <string>
#include <time.h>

#include <sys/syscall.h>
#include <unistd.h>

#include <dunlin/semaphore.hpp>

#include "sched/data/types.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class GoProcChanOnP : public support::each_p {};
EACH_P(GoProcChanOnP);

class GoProcChan : public support::runtime_test {};

pid_t thread_id() { return static_cast<pid_t>(syscall(SYS_gettid)); }

// SCH-06, go1.24 src/runtime/proc_test.go TestGoroutineParallelism, with Go's channel: none runs on a waiter's stack.
TEST_F(GoProcChan, TestGoroutineParallelism) {
    allow(60s);
    constexpr std::uint32_t procs = 4;
    dunlin::run({.max_procs = procs}, [] {
        for (int attempt = 0; attempt < 10; ++attempt) {
            dunlin::chan<bool> done;
            std::atomic<std::uint32_t> x{0};
            for (std::uint32_t p = 0; p < procs; ++p) {
                dunlin::go([&x, p, done] {
                    // The runtime is not called here: all four must have a thread at the same time.
                    for (std::uint32_t i = 0; i < 3; ++i) {
                        const std::uint32_t expected = procs * i + p;
                        while (x.load() != expected) {}
                        x.store(expected + 1);
                    }
                    done.send(true);
                });
            }
            for (std::uint32_t p = 0; p < procs; ++p) done.recv();
            ASSERT_EQ(x.load(), procs * 3);
        }
    });
}

// ---- SCH-15 ---------------------------------------------------------------------------------------------------------

// SCH-15, go1.24 src/runtime/proc_test.go TestBlockLocked
TEST_P(GoProcChanOnP, TestBlockLocked) {
    run([] {
        constexpr int n = 10;
        dunlin::chan<bool> c;
        dunlin::go([c] {
            dunlin::os_thread_lock wired;
            for (int i = 0; i < n; ++i) c.send(true);
        });
        for (int i = 0; i < n; ++i) EXPECT_TRUE(c.recv());
    });
}

// Two goroutines on two threads, each wired to its own, let each other go on; which of them runs is a matter of the
// scheduler, also at P = 1.
template <class Ping, class Pong>
void round_trips(int n, Ping ping, Pong pong) {
    std::atomic<int> moved{0};
    std::atomic<pid_t> there{0};
    dunlin::chan<bool> done;
    const auto wired = [&moved, n](auto step) {
        const pid_t tid = thread_id();
        for (int i = 0; i < n; ++i) {
            step(i);
            if (thread_id() != tid) ++moved;
        }
        return tid;
    };
    dunlin::go([&, done] {
        dunlin::os_thread_lock lock;
        there = wired(pong);
        done.send(true);
    });
    dunlin::os_thread_lock lock;
    const pid_t here = wired(ping);
    done.recv();
    EXPECT_NE(here, there.load());
    EXPECT_EQ(moved, 0);
}

// SCH-15: round trips between two locked goroutines.
TEST_P(GoProcChanOnP, RoundTripsOfTwoLocked) {
    allow(60s);
    run([] {
        const int n = support::rounds(10'000);
        dunlin::chan<int> there, back;
        const auto ping = [=](int i) {
            there.send(i);
            EXPECT_EQ(back.recv(), i);
        };
        const auto pong = [=](int i) {
            EXPECT_EQ(there.recv(), i);
            back.send(i);
        };
        round_trips(n, ping, pong);
    });
}

TEST_P(GoProcChanOnP, RoundTripsOfTwoLockedThroughSemaphores) {
    allow(60s);
    run([] {
        dunlin::binary_semaphore there(0), back(0);
        const auto ping = [&](int) {
            there.release();
            back.acquire();
        };
        const auto pong = [&](int) {
            there.acquire();
            back.release();
        };
        round_trips(support::rounds(10'000), ping, pong);
    });
}

// ---- SCH-18 ---------------------------------------------------------------------------------------------------------

// SCH-18, go1.24 src/runtime/proc_test.go TestLockOSThreadExit, Main: whatever ends locked, the main thread stays. In
// Go it may be the goroutine's, and is only wedged; here it is in run(), and no goroutine is ever on it.
TEST_F(GoProcChan, TestLockOSThreadExitMain) {
    for (const unsigned procs : {1u, 2u}) {
        dunlin::run({.max_procs = procs}, [] {
            std::atomic<int> on_main{0};
            dunlin::chan<bool> done;
            constexpr int n = 20;
            for (int i = 0; i < n; ++i) {
                dunlin::go([&on_main, done] {
                    dunlin::lock_os_thread();
                    if (thread_id() == getpid()) ++on_main;
                    done.send(true);
                });
            }
            for (int i = 0; i < n; ++i) done.recv();
            EXPECT_EQ(on_main, 0);
            EXPECT_NE(thread_id(), getpid());
        });
        EXPECT_EQ(thread_id(), getpid());
    }
}

// run() returns while some of them are on their way out: their threads are told to end once, and counted once.
// Otherwise the record of one that was told when it was ending anyway serves a new thread with the message still in it,
// and a processor is lost.
TEST_F(GoProcChan, GoroutinesThatEndWiredWhileRunReturns) {
    allow(60s);
    for (int round = 0; round < support::rounds(1000); ++round) {
        dunlin::run({.max_procs = 2}, [] {
            dunlin::chan<bool> done;
            for (int i = 0; i < 20; ++i) {
                dunlin::go([done] {
                    dunlin::lock_os_thread();
                    done.send(true);
                });
            }
            for (int i = 0; i < 20; ++i) done.recv();
        });
    }
    support::eventually_on_thread([] {
        dunlin::sched::scheduler& s = dunlin::sched::the_scheduler;
        const std::scoped_lock guard(s.lock);
        return s.wired_machines_waiting == 0;
    });
}

// ---- SCH-21 ---------------------------------------------------------------------------------------------------------

std::size_t resident_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("VmRSS:", 0) == 0) return std::stoul(line.substr(6)) * 1024;
    }
    return 0;
}

const std::size_t resident_at_start = resident_bytes();

// go1.24 test/chan/goroutines.go: each receives from its right channel and sends to its left one.
void chain_of(int n) {
    std::size_t resident_in_the_chain = 0;
    dunlin::run([&] {
        const dunlin::chan<int> leftmost;
        dunlin::chan<int> left = leftmost, right = leftmost;
        for (int i = 0; i < n; ++i) {
            right = dunlin::chan<int>();
            dunlin::go([left, right] { left.send(right.recv().value() + 1); });
            left = right;
        }
        // All of them wait before the value goes through the chain.
        support::eventually([n] { return dunlin::runtime::stats().waiting == static_cast<std::size_t>(n); });
        resident_in_the_chain = resident_bytes();
        dunlin::go([right] { right.send(1); });
        EXPECT_EQ(leftmost.recv(), n + 1);
        support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
    });
    EXPECT_EQ(dunlin::runtime::num_goroutines(), 0u);
    const std::size_t grown = resident_in_the_chain - std::min(resident_in_the_chain, resident_at_start);
    std::printf("    %d goroutines and channels: %zu bytes each\n", n, grown / static_cast<std::size_t>(n));
    // A page of stack, the goroutine's struct and the channel.
    if (!support::sanitized) {
        EXPECT_LE(grown, static_cast<std::size_t>(n) * 5300 + (std::size_t{64} << 20));
    }
}

TEST_F(GoProcChan, Goroutines_10000) {
    allow(120s);
    chain_of(support::rounds(10'000));
}
TEST_F(GoProcChan, Goroutines_100000) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer keeps shadow stacks for each: too much memory";
    allow(120s);
    chain_of(100'000);
}
TEST_F(GoProcChan, Goroutines_300000) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer keeps shadow stacks for each: too much memory";
    allow(180s);
    chain_of(300'000);
}

// ---- SCH-24 ---------------------------------------------------------------------------------------------------------

// SCH-24, go1.24 src/runtime/proc_test.go BenchmarkWakeupParallelSyscall, with Go's channels: two that alternate work
// and hand over overlap. Counted, not timed: the one that was readied is taken by the other processor while its waker
// goes on.
TEST_F(GoProcChan, BenchmarkWakeupParallelSyscall) {
    if (support::sanitized) GTEST_SKIP() << "it measures time";
    allow(60s);
    dunlin::run({.max_procs = 2}, [] {
        constexpr int n = 400;
        const auto work = [] {
            const timespec t{0, 200'000};
            nanosleep(&t, nullptr);
        };
        dunlin::chan<int> ping, pong;
        const std::uint64_t before = dunlin::runtime::stats().stolen;
        dunlin::go([=] {
            for (int i = 0; i < n; ++i) {
                ping.recv();
                work();
                pong.send(i);
                work();
            }
            pong.close();
        });
        for (int i = 0; i < n; ++i) {
            work();
            ping.send(i);
            work();
            pong.recv();
        }
        pong.recv();
        const double taken = static_cast<double>(dunlin::runtime::stats().stolen - before) / n;
        EXPECT_GT(taken, 0.5) << "they run one after the other";
    });
}

}  // namespace
