// latch, barrier, and the limits of wait_group.
#include <thread>
#include <vector>

#include <dunlin/barrier.hpp>
#include <dunlin/latch.hpp>
#include <dunlin/wait_group.hpp>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class Latch : public support::each_p {};
EACH_P(Latch);
class Barrier : public support::each_p {};
EACH_P(Barrier);
class WaitGroupLimits : public support::each_p {};
EACH_P(WaitGroupLimits);

TEST_P(Latch, OpensAtZeroAndMayThenBeDestroyed) {
    run([] {
        for (int round = 0; round < support::rounds(2000); ++round) {
            auto l = std::make_unique<dunlin::latch>(3);
            dunlin::latch& latch = *l;
            dunlin::go([&] { latch.count_down(); });
            dunlin::go([&] { latch.count_down(2); });
            if (round % 2) {
                latch.wait();
            } else {
                while (!latch.wait_for(10us)) {}
            }
            EXPECT_TRUE(latch.try_wait());
            l.reset();
        }
        dunlin::latch two(2);
        std::thread t([&] { two.arrive_and_wait(); });
        two.arrive_and_wait();
        dunlin::blocking([&] { t.join(); });
    });
}

TEST_P(Latch, BadArgumentsAreExceptions) {
    run([] {
        EXPECT_THROW(dunlin::latch(-1), std::invalid_argument);
        dunlin::latch l(1);
        EXPECT_THROW(l.count_down(-1), std::invalid_argument);
        EXPECT_THROW(l.count_down(2), std::logic_error);
        EXPECT_FALSE(l.wait_for(1ms));
        EXPECT_FALSE(l.wait_until(std::chrono::steady_clock::now()));
        l.count_down();
        l.wait();
    });
}

constinit dunlin::latch static_latch(1);
constinit dunlin::barrier<> static_barrier(1);

TEST_P(Latch, StaticOnesNeedNoConstructor) {
    run([] {
        EXPECT_EQ(dunlin::latch::max(), UINT32_MAX);
        dunlin::latch most(dunlin::latch::max());
        EXPECT_FALSE(most.try_wait());
        most.count_down(dunlin::latch::max());
        EXPECT_TRUE(most.try_wait());
        if (!static_latch.try_wait()) static_latch.count_down();
        static_latch.wait();
        static_barrier.arrive_and_wait();
    });
}

// An arrival that is refused changes nothing, the count of the next phase neither.
TEST_P(Barrier, AnUnexpectedArrivalCannotDropOut) {
    run([] {
        dunlin::barrier<> b(2);
        auto first = b.arrive();
        bool refused = false;
        struct during {
            dunlin::barrier<during>** b;
            bool* refused;
            void operator()() const noexcept {
                try {
                    (*b)->arrive_and_drop();
                } catch (const std::logic_error&) {
                    *refused = true;
                }
            }
        };
        dunlin::barrier<during>* self = nullptr;
        dunlin::barrier<during> c(2, during{&self, &refused});
        self = &c;
        static_cast<void>(c.arrive());
        c.arrive_and_wait();
        EXPECT_TRUE(refused) << "all had arrived";
        refused = false;
        auto token = c.arrive();
        EXPECT_FALSE(refused) << "two are expected still";
        c.arrive_and_wait();
        EXPECT_TRUE(refused);
        c.wait(std::move(token));
        c.arrive_and_drop();
        c.arrive_and_wait();
        c.arrive_and_wait();  // alone
        b.arrive_and_wait();
        b.wait(std::move(first));
    });
}

// The drop and its arrival are one step for the phase that it ends.
TEST_P(Barrier, DroppingOutAgainstTheEndOfThePhase) {
    run([] {
        for (int round = 0; round < support::rounds(300); ++round) {
            dunlin::barrier<> b(4);
            dunlin::task_group group;
            for (int i = 0; i < 2; ++i) group.go([&] { b.arrive_and_drop(); });
            for (int i = 0; i < 2; ++i) {
                group.go([&] {
                    for (int phase = 0; phase < 5; ++phase) b.arrive_and_wait();
                });
            }
            group.wait();
        }
    });
}

TEST_P(Barrier, AllArriveBeforeAnyGoesOn) {
    run([] {
        const int rounds = support::rounds(1000);
        std::atomic<int> arrived{0}, completed{0}, wrong{0};
        auto on_completion = [&]() noexcept { ++completed; };
        dunlin::barrier b(6, on_completion);
        auto body = [&] {
            for (int i = 0; i < rounds; ++i) {
                ++arrived;
                b.arrive_and_wait();
                if (arrived < 6 * (i + 1) || completed < i + 1) ++wrong;
            }
        };
        std::vector<std::thread> threads;
        for (int i = 0; i < 2; ++i) threads.emplace_back(body);
        dunlin::task_group group;
        for (int i = 0; i < 4; ++i) group.go(body);
        group.wait();
        for (std::thread& t : threads) dunlin::blocking([&] { t.join(); });
        EXPECT_EQ(wrong, 0);
        EXPECT_EQ(completed, rounds);
    });
}

TEST_P(Barrier, MayBeDestroyedWhenTheOthersHaveGoneOn) {
    run([] {
        for (int round = 0; round < support::rounds(2000); ++round) {
            dunlin::barrier<> b(2);
            auto t = dunlin::spawn([&] { static_cast<void>(b.arrive()); });
            b.arrive_and_wait();
        }
    });
}

TEST_P(Barrier, AnArrivalThatDropsOutIsNotExpectedAgain) {
    run([] {
        dunlin::barrier<> b(3);
        auto token = b.arrive();
        b.arrive_and_drop();
        static_cast<void>(b.arrive());
        b.wait(std::move(token));
        auto next = b.arrive(2);
        b.wait(std::move(next));
        EXPECT_THROW(static_cast<void>(b.arrive(3)), std::logic_error);
        EXPECT_THROW(static_cast<void>(b.arrive(0)), std::invalid_argument);
        EXPECT_THROW(dunlin::barrier<>(-1), std::invalid_argument);
    });
}

TEST_P(WaitGroupLimits, EndTheWait) {
    run([] {
        dunlin::wait_group wg;
        EXPECT_TRUE(wg.wait_for(0ms));
        wg.add();
        EXPECT_FALSE(wg.wait_for(2ms));
        EXPECT_FALSE(wg.wait_until(std::chrono::steady_clock::now() + 1ms));
        auto t = dunlin::spawn([=] { return wg.wait_for(10s); });
        wg.done();
        EXPECT_TRUE(t.get());
    });
}

TEST_P(WaitGroupLimits, RaceWithTheLastDone) {
    run([] {
        for (int round = 0; round < support::rounds(3000); ++round) {
            dunlin::wait_group wg;
            wg.add(2);
            dunlin::go([&wg] { wg.done(); });
            dunlin::go([wg]() mutable { wg.done(); });
            while (!wg.wait_for(std::chrono::microseconds(round % 20))) {}
        }
    });
}

}  // namespace
