// The deadlock report: when it comes, what it says, and when it must not come.
#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/build.h"
#include "support/child.h"

namespace {

constexpr const char* asleep = "fatal: all goroutines are asleep - deadlock!";

std::size_t count(const std::string& text, const std::string& what) {
    std::size_t n = 0;
    for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
    return n;
}

support::child_result deadlock(const std::string& scenario) { return support::run_child("deadlock", {scenario}); }

class Deadlock : public testing::Test {
protected:
    static void expect_report(const support::child_result& r, const std::vector<std::string>& texts) {
        EXPECT_EQ(r.status, 2) << r;
        EXPECT_EQ(r.err.rfind(asleep, 0), 0u) << "the report begins with the conclusion\n" << r;
        for (const std::string& text : texts) EXPECT_NE(r.err.find(text), std::string::npos) << text << '\n' << r;
    }
};

TEST_F(Deadlock, ReportListsEveryGoroutineWithItsWaitReasonAndPlace) {
    const auto r = deadlock("wait_group_never_done");
    expect_report(r, {"goroutine 1 [sync.WaitGroup.Wait", "\"left behind\" [sync.WaitGroup.Wait",
                         "waits at deadlock.cpp:", "created at deadlock.cpp:", "kind=parked"});
    EXPECT_EQ(count(r.err, "\ngoroutine "), 2u) << r;
    EXPECT_EQ(r.out, "waiting\n");
}

TEST_F(Deadlock, OfTwoThatWaitForEachOther) {
    expect_report(deadlock("two_wait_for_each_other"), {"[sync.WaitGroup.Wait"});
}
TEST_F(Deadlock, OfLocksNamesTheirHolders) {
    const auto r = deadlock("locks_in_two_orders");
    expect_report(r, {"[sync.Mutex.Lock"});
    EXPECT_EQ(count(r.err, ", which goroutine "), 2u) << r;
    EXPECT_EQ(count(r.err, " has held for "), 2u) << r;
}
TEST_F(Deadlock, OfAGroupIsReported) { expect_report(deadlock("task_group_never_ends"), {}); }
TEST_F(Deadlock, OfAJoinIsReported) {
    expect_report(deadlock("join_never_ends"), {"goroutine 1 [task join", "[sync.WaitGroup.Wait"});
}

TEST_F(Deadlock, OfLeftoversIsReportedUnlessALimitEndsTheWait) {
    expect_report(deadlock("run_waits_for_leftovers"), {"[sync.WaitGroup.Wait"});
    const auto r = deadlock("run_waits_for_leftovers_until_a_limit");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "waited: yes\nran\n") << r;
}

TEST_F(Deadlock, IsReportedAtOnce) {
    // TSan sleeps for a second at exit.
    const double limit_ms = support::sanitized ? 3000 : 100;
    // The best of some, so that a busy machine does not matter. A report that waits for something would be late each
    // time.
    double best_ms = 1e9;
    for (int i = 0; i < 10 && best_ms >= limit_ms; ++i) {
        const auto r = deadlock("after_a_sleep");
        expect_report(r, {"goroutine 1 [sync.WaitGroup.Wait"});
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        best_ms = std::min(best_ms,
            (static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec) - std::stod(r.out)) / 1e6);
    }
    EXPECT_LT(best_ms, limit_ms);
}

// Threads of the runtime that only watch are none of the program's.
TEST_F(Deadlock, IsReportedWhileLostGoroutinesAreLookedForAndATraceIsWritten) {
    for (const char* scenario : {"after_a_sleep", "two_wait_for_each_other", "with_many_processors"}) {
        expect_report(support::run_child("deadlock", {scenario}, {.environment = {{"DUNLIN_DEBUG", "leaks=20"}}}), {});
        expect_report(support::run_child("deadlock", {scenario}, {.environment = {{"DUNLIN_TRACE", "/dev/null"}}}), {});
    }
}

TEST_F(Deadlock, OfAThousandThatAreAlikeCountsAThousand) {
    const auto r = deadlock("many_goroutines");
    expect_report(r, {"    and 999 like it: "});
    EXPECT_EQ(count(r.err, "\ngoroutine "), 2u) << r;
}

TEST_F(Deadlock, IsReportedWithManyProcessors) { expect_report(deadlock("with_many_processors"), {}); }
TEST_F(Deadlock, IsReportedInALaterRun) { expect_report(deadlock("second_run"), {}); }

TEST_F(Deadlock, InALaterRunDoesNotListWhatTheEarlierOneLeft) {
    const auto r = deadlock("second_run_after_parked_ones_were_left");
    expect_report(r, {});
    EXPECT_EQ(count(r.err, "\ngoroutine "), 1u) << r;
}

// What joins a thread sees it gone a moment before the kernel does.
TEST_F(Deadlock, AfterAThreadWasJoinedIsReportedEveryTime) {
    for (int i = 0; i < support::rounds(50); ++i) {
        const auto r =
            support::run_child("deadlock", {"after_a_thread_was_joined"}, {.timeout = std::chrono::seconds(5)});
        ASSERT_EQ(r.status, 2) << "run " << i << '\n' << r;
    }
}

TEST_F(Deadlock, ThatComesToBeWhenTheLastThreadEndsIsReported) {
    const auto r =
        support::run_child("deadlock", {"after_the_last_thread_ended"}, {.timeout = std::chrono::seconds(5)});
    expect_report(r, {});
}

TEST_F(Deadlock, IsNotConcludedWhileAThreadMaySend) {
    const auto r = deadlock("thread_sends_later");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "received\n") << r;
}

TEST_F(Deadlock, IsNotConcludedWhileWhatAnEarlierRunLeftOnAThreadsStackMaySend) {
    const auto r = deadlock("left_on_a_threads_stack_sends_later");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "received\n") << r;
    EXPECT_EQ(r.err, "") << r;
}

TEST_F(Deadlock, IsNotConcludedWithoutRun) {
    const auto r = deadlock("without_run");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "ended\n") << r;
    EXPECT_EQ(r.err, "") << r;
}

}  // namespace
