// DLK-10: the end of main() ends the process at once, with status 0, whatever goroutines do, and without a crash in
// static destructors.
#include <algorithm>
#include <csignal>
#include <string>

#include <gtest/gtest.h>

#include "support/build.h"
#include "support/child.h"
#include "support/may_trace.h"

using namespace std::chrono_literals;

namespace {

support::child_result leave(const std::string& scenario) {
    return support::run_child("exit", {scenario}, {.timeout = 10s});
}

class Exit : public testing::TestWithParam<const char*> {};

// A thousand runs in all. The machine that runs the tests may stop for a while: some may take longer, but none for
// ever. What is more than a few is compared with processes of as many plain threads, beside them, in which nothing is
// stopped.
TEST_P(Exit, IsAtOnceAndWithoutACrash) {
    constexpr int scenarios = 17;
    const int runs = support::rounds(1020) / scenarios / (support::under_thread ? 2 : 1);
    const auto is_slow = [](const support::child_result& r) {
        return r.milliseconds() >= (support::sanitized ? 2000 : 200);
    };
    int slow = 0, slow_with_threads = 0;
    double slowest = 0;
    for (int i = 0; i < runs; ++i) {
        const auto r = leave(GetParam());
        ASSERT_EQ(r.status, 0) << "run " << i << '\n' << r;
        ASSERT_EQ(r.err, "") << r;
        slow += is_slow(r);
        slowest = std::max(slowest, r.milliseconds());
    }
    if (slow > 1) {
        for (int i = 0; i < runs; ++i) slow_with_threads += is_slow(leave("plain_threads"));
    }
    EXPECT_LE(slow, std::max(runs / 10, 1) + 2 * slow_with_threads) << "the slowest took " << slowest << " ms";
}

INSTANTIATE_TEST_SUITE_P(While, Exit,
    testing::Values("nothing", "spin", "park", "sleep", "system_call", "allocate", "printf", "cout", "static_objects",
        "throw", "spawn", "yield", "everything_at_once", "everything_without_run", "exit_in_a_goroutine",
        "exit_in_a_thread", "exit_in_main_goroutine"),
    [](const auto& info) { return std::string(info.param); });

// A library's thread_local objects and keys use its static objects.
TEST(ThreadThatEnds, HasDestroyedWhatItKeepsBeforeStaticObjectsAre) {
    for (int i = 0; i < 10; ++i) {
        const auto r = leave("threads_that_end");
        EXPECT_EQ(r.status, 0) << r;
    }
}

// A goroutine that its run() has left holds a std::mutex. What waits for it goes on, or is told.
TEST(LeftHolder, GoesOnForWhateverWaitsForItsLock) {
    if (support::sanitized) GTEST_SKIP() << "sanitizers have locks of their own around these";
    struct kind {
        const char *scenario, *waiter;
    };
    for (const kind& k : {kind{"exit_by_a_goroutine_beside_a_holder", "the thread that called exit()"},
             kind{"exit_by_a_thread_beside_a_holder", "the thread that called exit()"},
             kind{"thread_beside_a_holder", "a thread of the program"}}) {
        const auto r = leave(k.scenario);
        EXPECT_EQ(r.status, 0) << k.scenario << r;
        EXPECT_EQ(r.out, "had the lock\n") << k.scenario << r;
        if (!r.err.empty()) {  // it may have given the lock back before it stood still
            EXPECT_EQ(r.err.rfind(std::string("dunlin: ") + k.waiter + " waits for the lock at ", 0), 0u) << r;
        }
    }
}

TEST(LeftHolder, DoesNotKeepMainOutByLockingAgain) {
    if (support::sanitized) GTEST_SKIP() << "as above";
    const auto r = leave("holders_that_lock_again");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "had each lock\n") << r;
}

TEST(LeftHolder, IsNamedWhenItCannotGoOn) {
    if (support::sanitized) GTEST_SKIP() << "as above";
    const auto r = leave("holder_that_calls");
    EXPECT_EQ(r.signal, SIGALRM) << r;
    EXPECT_NE(r.err.find("dunlin: the main thread waits for the lock at "), std::string::npos) << r;
    EXPECT_NE(r.err.find("\"holder\" held when its run() returned"), std::string::npos) << r;
    EXPECT_NE(r.err.find(" exit.cpp:"), std::string::npos) << "where it was created: " << r;
    EXPECT_NE(r.err.find("it stays locked"), std::string::npos) << r;
}

TEST(LeftHolder, GoesOnBehindAnother) {
    if (support::sanitized) GTEST_SKIP() << "as above";
    const auto r = leave("holders_in_a_chain");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "had the lock\n") << r;
}

TEST(LeftHolder, OfAMutexOfOursIsNamed) {
    for (const std::string scenario : {"computing_holder_of_a_mutex_of_ours", "waiting_holder_of_a_mutex_of_ours"}) {
        // ThreadSanitizer delivers a signal at the next call that it intercepts, and such a loop has none.
        if (support::under_thread && scenario.front() == 'c') continue;
        const auto r = leave(scenario);
        EXPECT_EQ(r.signal, SIGALRM) << r;
        EXPECT_NE(r.err.find("dunlin: a thread waits for the mutex at "), std::string::npos) << r;
        EXPECT_NE(r.err.find("\"holder\" held when its run() returned\n    created at exit.cpp:"), std::string::npos) << r;
    }
}

class StaticDestructors : public testing::Test {};

TEST_F(StaticDestructors, MayUseTheRuntimeAfterRun) {
    const auto r = leave("static_destructor_uses_the_runtime");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.err, "destroyed, 0 goroutines\n") << r;
}

TEST_F(StaticDestructors, MayUseTheRuntimeWhenAGoroutineCalledExit) {
    const auto r = leave("static_destructor_uses_the_runtime_after_exit_in_a_goroutine");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_NE(r.err.find("destroyed"), std::string::npos) << r;
}

TEST_F(StaticDestructors, MayBeWaitedForWhenAGoroutineCalledExit) {
    const auto r = leave("a_goroutine_waits_for_the_thread_that_exits");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.err, "received 7\n") << r;
}

TEST_F(StaticDestructors, MayUseTheRuntimeWhenAnIndependentGoroutineCalledExit) {
    const auto r = leave("exit_in_an_independent_goroutine");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_NE(r.err.find("destroyed"), std::string::npos) << r;
}

TEST_F(StaticDestructors, MayUseTheRuntimeWithoutRun) {
    const auto r = leave("static_destructor_uses_the_runtime_without_run");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_NE(r.err.find("destroyed"), std::string::npos) << r;
}

TEST_F(StaticDestructors, MayReadErrorCodesAndTheContextOfTheRun) {
    const auto r = leave("static_destructor_reads_what_it_has_kept");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.err, "read\n") << r;
}

TEST_F(StaticDestructors, MayWaitForWhatAPlainThreadHasStarted) {
    for (const char* scenario : {"static_objects_wait_for_goroutines", "static_objects_wait_after_an_unrelated_run"}) {
        const auto r = leave(scenario);
        EXPECT_EQ(r.status, 0) << scenario << r;
        EXPECT_NE(r.out.find("asked to stop\n"), std::string::npos) << scenario << r;
        EXPECT_NE(r.out.find("ended\n"), std::string::npos) << scenario << r;
    }
}

TEST_F(StaticDestructors, ThatWaitForWhatTheEndOfARunHasStoppedAreReported) {
    for (const char* scenario :
        {"a_static_object_waits_for_a_goroutine_of_a_run", "a_static_object_waits_for_a_call_of_a_run"}) {
        const auto r = leave(scenario);
        EXPECT_NE(r.status, 0) << scenario << r;
        EXPECT_NE(r.err.find("a static object waits for goroutine"), std::string::npos) << scenario << r;
    }
}

TEST_F(StaticDestructors, AndExitHandlersMayStartGoroutines) {
    const auto r = leave("exit_handler_uses_the_runtime");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.err, "answer 42\n") << r;
}

TEST_F(StaticDestructors, MayCloseWhatGoroutinesWaitedFor) {
    const auto r = leave("exit_while_goroutines_accept");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_FALSE(r.timed_out) << r;
}

TEST_F(StaticDestructors, QuickExitIsQuick) {
    const auto r = leave("quick_exit");
    EXPECT_EQ(r.status, 0) << r;
}

class AtEnd : public testing::Test {};

TEST_F(AtEnd, WhatWaitsForTheThreadInRunIsNoDeadlock) {
    const auto r = leave("an_independent_goroutine_waits_for_run");
    EXPECT_EQ(r.status, 0) << r;
}

class Leaks : public testing::Test {};

TEST_F(Leaks, AreNamedWhenAskedFor) {
    const auto r = leave("leak_report");
    EXPECT_EQ(r.status, 0) << r;
    for (const char* text :
        {"1 goroutine is left when run() returns", "\"forgotten\"", "[sync.WaitGroup.Wait", "exit.cpp:"}) {
        EXPECT_NE(r.err.find(text), std::string::npos) << text << '\n' << r;
    }
}

TEST_F(Leaks, ThoseThatAreLostAreNamedWithTheSetting) {
    const auto r =
        support::run_child("exit", {"lost_report"}, {.environment = {{"DUNLIN_DEBUG", "leaks"}}, .timeout = 30s});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.err.find("\"kept\""), std::string::npos) << r;
    if (support::under_thread || !support::may_trace()) {
        EXPECT_NE(r.err.find("not looked for goroutines that can never go on: "), std::string::npos) << r;
    } else if (!support::under_address) {  // there old values may hide them
        EXPECT_NE(r.err.find(" can never go on, for nothing that can still run refers to what they wait for"),
            std::string::npos)
            << r;
        EXPECT_NE(r.err.find("\"answers too late\" [chan send"), std::string::npos) << r;
    }
    EXPECT_EQ(support::run_child("exit", {"lost_report"}, {.timeout = 30s}).err, "");
}

TEST_F(Leaks, AreNotReportedWhenThereAreNone) {
    for (const char* scenario : {"leak_report_of_none", "leak_report_after_a_run_with_leftovers"}) {
        const auto r = leave(scenario);
        EXPECT_EQ(r.status, 0) << r;
        EXPECT_EQ(r.err, "") << r;
    }
}

}  // namespace
