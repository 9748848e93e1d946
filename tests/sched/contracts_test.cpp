// What a processor's owner and a machine inside the runtime may do (handshake.h), done by others. Builds that check end
// the process there, so these are death tests.
#include "sched/machines/handshake.h"

#include <dunlin/dunlin.hpp>

#include <gtest/gtest.h>

#include "platform/check.h"
#include "sched/goroutines/goroutine.h"
#include "sched/work/submit.h"

namespace {

using namespace dunlin::sched;

class ContractsDeathTest : public testing::Test {
protected:
    void SetUp() override {
        if (!DUNLIN_CHECKING) GTEST_SKIP() << "this build does not check it";
        GTEST_FLAG_SET(death_test_style, "threadsafe");
    }
};

// A processor that belongs to another machine.
TEST_F(ContractsDeathTest, AQueueIsTouchedByAThreadThatDoesNotHaveTheProcessor) {
    EXPECT_DEATH(
        {
            static machine other;
            static processor p;
            static goroutine g;
            p.owner.store(&other);
            push_local(&p, &g);
        },
        "queues are touched by a thread that does not have it");
}

// A processor without a machine is the caller's: taken, or not yet given to a machine.
TEST_F(ContractsDeathTest, AQueueOfAProcessorWithoutAMachineMayBeTouched) {
    static processor p;
    static goroutine g;
    push_local(&p, &g);
    EXPECT_EQ(p.queue.pop(), &g);
}

TEST_F(ContractsDeathTest, AProcessorThatIsNotIdleBeginsToRun) {
    EXPECT_DEATH(
        {
            static processor p;
            transition(p.state, processor_state::running);
        },
        "a processor that is dead becomes running");
}

TEST_F(ContractsDeathTest, AMachineLeavesTheRuntimeTwice) {
    EXPECT_DEATH(dunlin::run([] {
                     machine* m = enter(current_machine());
                     leave(m);
                     leave(m);
                     return 0;
                 }),
                 "without having entered it");
}

}  // namespace
