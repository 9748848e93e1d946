// The threads behind calls that block: given back when they are not needed, not to be had, to be had again, idle, and
// coming back in crowds.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <string>
#include <unistd.h>

#include "go/syscall_support.h"
#include "sched/machines/wake.h"
#include "support/child.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;
using namespace syscall_support;

namespace {

timespec cpu_time() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now;
}

long microseconds_between(timespec a, timespec b) {
    return (b.tv_sec - a.tv_sec) * 1'000'000 + (b.tv_nsec - a.tv_nsec) / 1'000;
}

class GoSyscallThreads : public support::runtime_test {};

TEST_F(GoSyscallThreads, ThreadsThatAreNotNeededAreGivenBack) {
    dunlin::run({.max_procs = 2}, [] {
        const auto ended_before = hand_offs().threads_ended;
        constexpr int n = support::sanitized ? 50 : 200;
        meeting all_in(n);
        dunlin::wait_group done;
        for (int i = 0; i < n; ++i) {
            done.go([&] {
                dunlin::blocking([&] {
                    all_in.wait_for_all();
                    usleep(20'000);
                });
            });
        }
        // Main does not wait in a call of the runtime that would run them in place.
        while (dunlin::runtime::num_goroutines() > 1) dunlin::sleep_for(1ms);
        done.wait();
        const unsigned most = dunlin::runtime::stats().threads;
        // All were there at once; on a busy machine that is more than a second ago.
        EXPECT_GE(most + hand_offs().threads_ended - ended_before, static_cast<unsigned>(n));
        // Half of them each second. To a quarter is enough to see.
        while (dunlin::runtime::stats().threads > std::max(most / 4, 8u)) dunlin::sleep_for(50ms);
        EXPECT_GE(hand_offs().threads_ended, ended_before + most - std::max(most / 4, 8u));
        // And they come again.
        dunlin::wait_group again;
        for (int i = 0; i < 20; ++i) again.go([] { dunlin::blocking([] { usleep(2'000); }); });
        again.wait();
    });
}

// The record of a thread that has ended serves another; its last hand-over had said that it searched.
TEST_F(GoSyscallThreads, ThreadsThatComeAgainAreNotCountedAsSearching) {
    dunlin::run({.max_procs = 4}, [] {
        for (int burst = 0; burst < 3; ++burst) {
            constexpr int n = 40;
            meeting all_in(n);
            dunlin::wait_group done;
            for (int i = 0; i < n; ++i) done.go([&] { dunlin::blocking([&] { all_in.wait_for_all(); }); });
            done.wait();
            while (dunlin::runtime::stats().threads > 20) dunlin::sleep_for(20ms);
        }
        // Only main has a processor now.
        support::eventually(
            [] { return dunlin::sched::spinning_count(dunlin::sched::the_scheduler.idle_and_spinning.load()) == 0; });
    });
}

// A goroutine that comes back from a call may have the processor at once, but not always before all others.
TEST_F(GoSyscallThreads, ManyThatComeBackAllTheTimeLeaveTheQueueItsTurns) {
    dunlin::run({.max_procs = 1}, [] {
        std::atomic<bool> over{false};
        std::atomic<long> calls{0};
        dunlin::wait_group callers;
        for (int i = 0; i < 100; ++i) {
            callers.go([&] {
                while (!over) {
                    dunlin::blocking([] { usleep(300); });
                    calls.fetch_add(1);
                }
            });
        }
        while (calls < 1000) dunlin::yield();
        const long before = calls;
        constexpr int turns = 50;
        for (int i = 0; i < turns; ++i) dunlin::yield();
        // One turn each, and one more for every second of those that are caught in between; a hundred times that is
        // enough to see.
        EXPECT_LT(calls - before, turns * 100 * 20);
        over = true;
        callers.wait();
    });
}

TEST_F(GoSyscallThreads, WithoutMoreThreadsItGoesOnAndSaysSoOnce) {
    const auto r = support::run_child("hand_off", {"no_more_threads"});
    if (r.status == 77) GTEST_SKIP() << "seccomp is not available";
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "count 12\n") << r;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r;
    EXPECT_NE(r.err.find("no more threads"), std::string::npos) << r;
}

// Else its thread would serve another goroutine, which waits for the lock, like all other threads.
TEST_F(GoSyscallThreads, WithoutMoreThreadsTheHolderOfALockKeepsItsThread) {
    const auto r = support::run_child("hand_off", {"locks_without_threads"}, {.timeout = 60s});
    if (r.status == 77) GTEST_SKIP() << "seccomp is not available";
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "count 300\n") << r;
}

TEST_F(GoSyscallThreads, AFilterThatTheProgramInstallsItselfIsNoticed) {
    if (support::sanitized) GTEST_SKIP() << "as a barrier they are all the same, and slower";
    auto r = support::run_child("hand_off", {"barriers_refused_before"});
    if (r.status == 77) GTEST_SKIP() << "seccomp is not available";
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "count 160000\n") << r;
    r = support::run_child("hand_off", {"barriers_refused_later"});
    if (r.status == 77) GTEST_SKIP() << "membarrier is not available";
    EXPECT_EQ(r.signal, SIGABRT) << r;
    EXPECT_NE(r.err.find("the kernel refuses membarrier"), std::string::npos) << r;
}

// None of them lasts until the monitor would take the processor.
TEST_F(GoSyscallThreads, ShortCallsWithoutEndGiveWayAfterTheirTurn) {
    if (support::sanitized) GTEST_SKIP() << "calls are counted, and take longer";
    dunlin::run({.max_procs = 1}, [] {
        std::atomic<bool> stop{false};
        std::atomic<long> calls{0};
        dunlin::wait_group caller;
        caller.go([&] {
            while (!stop.load()) {
                dunlin::blocking([] {
                    const timespec begin = cpu_time();
                    while (microseconds_between(begin, cpu_time()) < 15) {
                    }
                });
                calls.fetch_add(1);
            }
        });
        constexpr int sleeps = 100;
        for (int i = 0; i < sleeps; ++i) dunlin::sleep_for(1ms);
        // Its turn is a millisecond when a timer is due, 67 calls; without one it is over by chance only.
        EXPECT_LT(calls.load(), sleeps * 600);
        stop = true;
        caller.wait();
    });
}

TEST_F(GoSyscallThreads, AGoroutineThatWaitsForAThreadHasOneWhenThereAreThreadsAgain) {
    if (support::sanitized) GTEST_SKIP() << "sanitizers need address space";
    const auto r = support::run_child("hand_off", {"threads_come_back"});
    if (r.status == 77) GTEST_SKIP() << "address space cannot be limited";
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "released\n") << r;
    EXPECT_NE(r.err.find("no more threads"), std::string::npos) << r;
}

TEST_F(GoSyscallThreads, AnIdleProcessSleepsWhateverItsThreadsSleepIn) {
    if (support::sanitized) GTEST_SKIP() << "the sanitizer has a thread of its own";
    const auto r = support::run_child("hand_off", {"idle_after_hand_offs"});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_LT(std::stol(r.out), 50) << r;  // a monitor that looks each 10 ms wakes 150 times
}

}  // namespace
