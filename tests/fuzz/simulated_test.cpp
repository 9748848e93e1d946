// The random programs, their plain threads as goroutines, in orders and virtual time of dunlin::sim: nothing is wrong
// in any, and faults that are planted are found and played again.
#include <algorithm>
#include <string>
#include <vector>

#include <dunlin/sim.hpp>

#include "fuzz/play.h"
#include "support/runtime_test.h"

namespace {

namespace sim = dunlin::sim;

// What has no seed is left out: plain threads, pipes and sockets, locks that block their thread.
fuzz::story within_the_simulation(std::uint64_t seed) {
    fuzz::story s = fuzz::story_of(seed);
    s.simulated = true;
    for (auto& line : s.lines) {
        line.drained_by_thread = false;
        if (carries_records(line.kind)) line.kind = fuzz::line_kind::channel;
    }
    for (auto& actor : s.actors) actor.on_thread = false;
    for (auto& guard : s.guards) {
        if (guard.kind == fuzz::guard_kind::std_mutex) guard.kind = fuzz::guard_kind::mutex;
    }
    return s;
}

sim::result explore(std::uint64_t program, fuzz::plant planted, const sim::options& o) {
    const fuzz::story s = within_the_simulation(program);
    return sim::explore(o, [&] {
        const std::vector<std::string> faults = fuzz::player(s, planted).run();
        sim::require(faults.empty(), faults.empty() ? std::string() : faults.front());
    });
}

class SimulatedPrograms : public support::runtime_test {};

// It computes all the time: in parts, so that on a busy machine each is far from the watchdog.
class SomeSimulatedPrograms : public SimulatedPrograms, public testing::WithParamInterface<std::uint64_t> {
protected:
    static constexpr std::uint64_t programs = support::sanitized ? 1 : 25;
};

TEST_P(SomeSimulatedPrograms, KeepToTheOracleInEachOrder) {
    std::uint64_t executions = 0;
    for (std::uint64_t program = GetParam() * programs + 1; program <= (GetParam() + 1) * programs; ++program) {
        for (const sim::search_strategy& strategy : {sim::random, sim::search_strategy(sim::pct(3))}) {
            const sim::options o{.seeds = 10, .strategy = strategy};
            const sim::result r = explore(program, fuzz::plant::none, o);
            ASSERT_TRUE(r.ok()) << "program " << program << ":\n"
                                << fuzz::to_string(within_the_simulation(program)) << r.report;
            executions += r.executions;
        }
    }
    EXPECT_EQ(executions, 20 * programs);
}

INSTANTIATE_TEST_SUITE_P(Parts, SomeSimulatedPrograms, testing::Range<std::uint64_t>(0, support::sanitized ? 4 : 8));

// Of each kind: a value, a permit, a lock, a wake-up.
TEST_F(SimulatedPrograms, FaultsAreFoundAndPlayedAgain) {
    using fuzz::plant;
    for (const plant planted :
        {plant::lose_on_time_out, plant::permit_lost_on_time_out, plant::lock_kept_on_cancel, plant::swallow_wake_up}) {
        sim::result found;
        std::uint64_t program = 0;
        while (found.ok() && program < 400) found = explore(++program, planted, {.seeds = 5});
        ASSERT_FALSE(found.ok()) << "plant " << static_cast<int>(planted);
        EXPECT_TRUE(found.replayed) << found.report;
        EXPECT_EQ(explore(program, planted, {.seeds = 1, .first_seed = found.seed}).hash, found.hash);
    }
}

}  // namespace
