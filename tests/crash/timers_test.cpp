// Which timers are a reason to wait: one that can still make a goroutine go on is, one that was stopped or has no
// waiter is not.
#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "support/build.h"
#include "support/child.h"

using namespace std::chrono_literals;

namespace {

// Where a deadlock is not seen, the child hangs.
support::child_result timers(const std::string& scenario) {
    return support::run_child("timers", {scenario}, {.timeout = 10s});
}

class TimersAndDeadlock : public testing::Test {
protected:
    static void expect_end(const std::string& scenario, const std::string& output) {
        const auto r = timers(scenario);
        EXPECT_EQ(r.status, 0) << r;
        EXPECT_EQ(r.out, output + '\n') << r;
        EXPECT_EQ(r.err, "") << r;
    }
    // DLK-06: reported within 2 s. TSan sleeps for a second at exit.
    static void expect_deadlock(const std::string& scenario, const std::string& text) {
        const auto r = timers(scenario);
        EXPECT_FALSE(r.timed_out) << r;
        EXPECT_EQ(r.status, 2) << r;
        EXPECT_EQ(r.err.rfind("fatal: all goroutines are asleep - deadlock!", 0), 0u) << r;
        EXPECT_NE(r.err.find(text), std::string::npos) << text << '\n' << r;
        EXPECT_LT(r.milliseconds(), support::sanitized ? 6000 : 2000) << r;
    }
};

// DLK-06
TEST_F(TimersAndDeadlock, APendingFunctionIsAReasonToWait) { expect_end("function_closes", "closed"); }
TEST_F(TimersAndDeadlock, AStoppedFunctionIsNone) { expect_deadlock("function_stopped", "goroutine 1 [chan receive"); }
TEST_F(TimersAndDeadlock, AFunctionThatIsStoppedLaterIsNone) {
    expect_deadlock("function_stopped_later", "goroutine 1 [chan receive");
}

TEST_F(TimersAndDeadlock, ATimerWithAWaiterIsAReasonToWait) { expect_end("waits_for_timer", "received"); }
TEST_F(TimersAndDeadlock, AStoppedTimerIsNone) {
    expect_deadlock("waits_for_stopped_timer", "goroutine 1 [chan receive");
}
TEST_F(TimersAndDeadlock, ATimerThatIsStoppedUnderItsWaiterIsNone) {
    expect_deadlock("stopped_under_its_waiter", "goroutine 1 [chan receive");
}
TEST_F(TimersAndDeadlock, AStoppedTickerIsNone) { expect_deadlock("waits_for_stopped_ticker", "goroutine 1 [select"); }
TEST_F(TimersAndDeadlock, ATimerWhoseValueWasReceivedIsNone) {
    expect_deadlock("receives_twice", "goroutine 1 [chan receive");
}
TEST_F(TimersAndDeadlock, TimersWithoutAWaiterAreNone) { expect_deadlock("without_a_waiter", "goroutine 1 [chan receive"); }
TEST_F(TimersAndDeadlock, TimersWhoseWaitersHaveGivenUpAreNone) {
    expect_deadlock("after_the_last_waiter", "goroutine 1 [chan receive");
}
TEST_F(TimersAndDeadlock, ATimerThatIsDroppedUnderItsWaiterIsNone) {
    expect_deadlock("dropped_under_its_waiter", "[chan receive");
}

TEST_F(TimersAndDeadlock, AFunctionOfAnEarlierRunIsNone) {
    expect_deadlock("function_of_an_earlier_run", "[chan receive");
}
TEST_F(TimersAndDeadlock, ATimerThatHadAWaiterInAnEarlierRunServesThisOne) {
    expect_end("waited_for_again", "received");
}

TEST_F(TimersAndDeadlock, AnExceptionThatLeavesTheFunctionEndsTheProcess) {
    const auto r = timers("function_throws");
    EXPECT_EQ(r.status, 2) << r;
    EXPECT_NE(r.err.find("from a timer"), std::string::npos) << r;
    EXPECT_EQ(r.out, "") << r;
}

}  // namespace
