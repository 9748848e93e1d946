// The order in which a thief visits the processors. go1.24.4 src/runtime/export_test.go, RunStealOrderTest; SCH-11.
#include "sched/queues/steal_order.h"

#include <map>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "sched/data/types.h"
#include "support/runtime_test.h"

namespace {

using dunlin::sched::steal_order;

std::vector<std::uint32_t> order_of(std::uint32_t count, std::uint64_t random) {
    std::vector<std::uint32_t> visited;
    for (steal_order order(count, random); !order.done(); order.next()) visited.push_back(order.position());
    return visited;
}

bool visits_each_once(std::uint32_t count, std::uint64_t random) {
    std::vector<char> visited(count, 0);
    std::uint32_t visits = 0;
    for (steal_order order(count, random); !order.done(); order.next(), ++visits) {
        const std::uint32_t i = order.position();
        if (i >= count || visited[i]++ != 0) return false;
    }
    return visits == count;
}

TEST(StealOrder, VisitsEachProcessorOnceForEveryCountAndManySeeds) {
    std::mt19937_64 random(1);
    for (std::uint32_t count = 1; count <= 1000; ++count) {
        for (int i = 0; i < 16; ++i) {
            const std::uint64_t drawn = random();
            ASSERT_TRUE(visits_each_once(count, drawn)) << count << " processors, " << drawn;
        }
    }
}

TEST(StealOrder, AlsoForTheExtremesOfTheRandomNumber) {
    for (std::uint32_t count = 1; count <= 1024; ++count) {
        for (const std::uint64_t random :
            {std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0} << 32, std::uint64_t{count - 1} << 32 | count}) {
            ASSERT_TRUE(visits_each_once(count, random)) << count << " processors, " << random;
        }
    }
}

TEST(StealOrder, EveryOrderOfThreeAndEveryPairOfStartAndStepComesUp) {
    std::mt19937_64 random(2);
    std::set<std::vector<std::uint32_t>> three, eight;
    for (int i = 0; i < 10'000; ++i) {
        three.insert(order_of(3, random()));
        eight.insert(order_of(8, random()));
    }
    EXPECT_EQ(three.size(), 6u);
    EXPECT_EQ(eight.size(), 8u * 4);  // starts, coprimes
}

TEST(StealOrder, NoProcessorIsFirstMuchMoreOftenThanAnother) {
    std::mt19937_64 random(3);
    std::map<std::uint32_t, int> first;
    for (int i = 0; i < 80'000; ++i) ++first[steal_order(8, random()).position()];
    for (const auto& [processor, times] : first) EXPECT_NEAR(times, 10'000, 500) << processor;
}

class StealOrderOfProcessors : public support::runtime_test {};

// Processors are never freed, so the enumeration goes over the dead ones too; thieves pass by those.
TEST_F(StealOrderOfProcessors, AfterAChangeOfMaxProcsThoseInServiceAreExactlyTheNewOnes) {
    for (const unsigned procs : {5u, 3u, 8u, 1u, 2u}) {
        dunlin::runtime::set_max_procs(procs);
        auto& s = dunlin::sched::the_scheduler;
        std::set<std::uint32_t> alive, expected;
        for (std::uint32_t i = 0; i < procs; ++i) expected.insert(i);
        for (const std::uint32_t i : order_of(s.procs_made.load(), 4711)) {
            if (s.processor_at(i)->state.load() != dunlin::sched::processor_state::dead) alive.insert(i);
        }
        EXPECT_EQ(alive, expected);
    }
}

}  // namespace
