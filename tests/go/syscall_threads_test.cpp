// The threads behind calls that block: given back when nobody needs them, not to be had, to be had again, and idle.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <unistd.h>

#include "go/syscall_support.h"
#include "support/child.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;
using namespace syscall_support;

namespace {

class GoSyscallThreads : public support::runtime_test {};

TEST_F(GoSyscallThreads, ThreadsAreGivenBackWhenNobodyNeedsThem) {
    dunlin::run({.max_procs = 2}, [] {
        const auto ended_before = hand_offs().threads_ended;
        std::mutex mutex;
        std::condition_variable all_in;
        constexpr int n = support::sanitized ? 50 : 200;
        int inside = 0;
        dunlin::wait_group done;
        for (int i = 0; i < n; ++i) {
            done.go([&] {
                dunlin::blocking([&] {
                    std::unique_lock lock(mutex);
                    if (++inside == n) all_in.notify_all();
                    all_in.wait(lock, [&] { return inside == n; });
                    lock.unlock();
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

TEST_F(GoSyscallThreads, WithoutMoreThreadsItGoesOnAndSaysSoOnce) {
    const auto r = support::run_child("hand_off", {"no_more_threads"});
    if (r.status == 77) GTEST_SKIP() << "seccomp is not available";
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "count 12\n") << r;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r;
    EXPECT_NE(r.err.find("no more threads"), std::string::npos) << r;
}

TEST_F(GoSyscallThreads, WhoWaitsForAThreadHasOneWhenThereAreThreadsAgain) {
    if (support::sanitized) GTEST_SKIP() << "sanitizers need address space";
    const auto r = support::run_child("hand_off", {"threads_come_back"});
    if (r.status == 77) GTEST_SKIP() << "address space cannot be limited";
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "released\n") << r;
    EXPECT_NE(r.err.find("no more threads"), std::string::npos) << r;
}

TEST_F(GoSyscallThreads, AnIdleProcessUsesNoCpuWhateverItsThreadsSleepIn) {
    if (support::sanitized) GTEST_SKIP() << "the sanitizer's own thread uses some";
    const auto r = support::run_child("hand_off", {"idle_after_hand_offs"});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_LT(std::stod(r.out), 0.2) << r;
}

}  // namespace
