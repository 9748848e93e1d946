// What waits without the kernel, and one waiter that gives up (abandon.h), in orders and virtual time of dunlin::sim.
#include <string>

#include <dunlin/sim.hpp>

#include "support/runtime_test.h"
#include "vocabulary/abandon.h"
#include "vocabulary/abandon_rows.h"
#include "vocabulary/abandon_table.h"

namespace {

namespace sim = dunlin::sim;
using namespace abandon;

class SimulatedWait : public support::runtime_test, public testing::WithParamInterface<row> {};

TEST_P(SimulatedWait, LosesNothingInAnyOrder) {
    const row& line = GetParam();
    for (const way w : all_ways) {
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
    Each, SimulatedWait, testing::ValuesIn(rows_in_memory), [](const auto& i) { return std::string(i.param.name); });

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
