// What waits without the kernel, and one waiter that gives up (abandon.h), in orders and virtual time of dunlin::sim.
#include <string>

#include <dunlin/sim.hpp>

#include "support/runtime_test.h"
#include "vocabulary/abandon.h"
#include "vocabulary/abandon_chan.h"
#include "vocabulary/abandon_sync.h"
#include "vocabulary/abandon_table.h"

namespace {

namespace sim = dunlin::sim;
using namespace abandon;

const row rows[] = {
    {"chan_recv", make<chan_recv<0>>, {.timed = true, .closes = true, .destroys = true}},
    {"chan_recv_buffered", make<chan_recv<2>>, {.timed = true, .closes = true, .destroys = true}},
    {"chan_send", make<chan_send<0>>, {.timed = true, .closes = true, .destroys = true}},
    {"chan_send_buffered", make<chan_send<2>>, {.timed = true, .closes = true, .destroys = true}},
    {"select_recv", make<select_recv>, {.timed = true, .closes = true}},
    {"select_send", make<select_send>, {.timed = true, .closes = true}},
    {"mutex", make<mutex_lock>, {.timed = true, .destroys = true}},
    {"shared_mutex_lock", make<shared_lock_write>, {.timed = true, .destroys = true}},
    {"shared_mutex_lock_shared", make<shared_lock_read>, {.timed = true, .for_all = true, .destroys = true}},
    {"condition_variable", make<condition_wait<dunlin::condition_variable>>, {.timed = true}},
    {"condition_variable_bare", make<bare_condition_wait>, {.timed = true, .destroys = true}},
    {"semaphore", make<semaphore_acquire>, {.timed = true, .destroys = true}},
    {"latch", make<latch_wait>, {.timed = true, .for_all = true, .destroys = true}},
    {"barrier", make<barrier_wait>, {.for_all = true}},
    {"wait_group", make<wait_group_wait>, {.timed = true, .for_all = true, .destroys = true}},
    {"future", make<future_get>, {.timed = true, .closes = true, .for_all = true, .waiters = 1}},
    {"task", make<task_get>, {.timed = true, .for_all = true, .waiters = 1}},
    {"task_group", make<task_group_wait>, {.for_all = true, .destroys = true, .waiters = 1}},
};

class SimulatedWait : public support::runtime_test, public testing::WithParamInterface<row> {};

TEST_P(SimulatedWait, LosesNothingInAnyOrder) {
    const row& line = GetParam();
    constexpr way ways[] = {way::success, way::cancel, way::deadline, way::time_out, way::close, way::destroyed,
        way::cancel_race, way::time_race};
    for (const way w : ways) {
        if (!applies(w, line.what)) continue;
        constexpr std::uint64_t seeds = support::sanitized ? 20 : 500;
        const sim::result r = sim::explore({.seeds = seeds, .longest_delay = std::chrono::microseconds(20)}, [&] {
            const scenario s{w, line.what.waiters == 1 ? 0 : static_cast<int>(sim::draw(3)), kind::goroutine,
                kind::goroutine, static_cast<unsigned>(sim::draw(40))};
            const std::string fault = play(line.make(), line.what, s).run();
            sim::require(fault.empty(), fault);
        });
        EXPECT_TRUE(r.ok()) << line.name << ": " << name(w) << '\n' << r.report;
        EXPECT_EQ(r.executions, seeds);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Each, SimulatedWait, testing::ValuesIn(rows), [](const auto& i) { return std::string(i.param.name); });

// A permit that is served twice is seen there, too.
class generous : public semaphore_acquire {
public:
    void serve() override {
        semaphore_acquire::serve();
        if (++served_ == 2) semaphore_acquire::serve();
    }

private:
    int served_ = 0;
};

TEST(SimulatedWaitItself, NoticesWhatIsNotAsItShouldBe) {
    const sim::result r = sim::explore({.seeds = 50}, [] {
        const scenario s{way::cancel, 1, kind::goroutine, kind::goroutine};
        const std::string fault = play(std::make_unique<generous>(), {.timed = true, .waiters = 3}, s).run();
        sim::require(fault.empty(), fault);
    });
    EXPECT_EQ(r.kind, sim::failure_kind::requirement);
    EXPECT_NE(r.message.find("a permit is left"), std::string::npos) << r.report;
}

}  // namespace
