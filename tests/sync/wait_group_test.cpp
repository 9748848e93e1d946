// wait_group: the counter, its copies, and the races of wait() against the last done().
#include <climits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class WaitGroup : public support::each_p {};
EACH_P(WaitGroup);

TEST_P(WaitGroup, IsSharedByLambdasThatAreNotMutable) {
    run([] {
        const dunlin::wait_group g;
        std::atomic<int> ended{0};
        g.add();
        dunlin::go([=, &ended] {
            g.go([&ended] { ++ended; });
            ++ended;
            g.done();
        });
        g.wait();
        EXPECT_EQ(ended, 2);
    });
}

// go1.24 src/sync/waitgroup_test.go, TestWaitGroup.
TEST_P(WaitGroup, TestWaitGroup) {
    run([] {
        dunlin::wait_group first, second;
        for (int round = 0; round < 8; ++round) {
            constexpr int n = 16;
            first.add(n);
            second.add(n);
            std::atomic<int> exited{0};
            for (int i = 0; i < n; ++i) {
                dunlin::go([&exited, first, second]() mutable {
                    first.done();
                    second.wait();
                    exited.fetch_add(1);
                });
            }
            first.wait();
            for (int i = 0; i < n; ++i) {
                ASSERT_EQ(exited.load(), 0) << "released before the group was done";
                second.done();
            }
            support::eventually([&] { return exited.load() == n; });
        }
    });
}

// go1.24 src/sync/waitgroup_test.go, TestWaitGroupMisuse.
TEST_P(WaitGroup, TestWaitGroupMisuse) {
    run([] {
        dunlin::wait_group wg;
        wg.add(1);
        wg.done();
        EXPECT_THROW(wg.done(), std::logic_error);
        EXPECT_THROW(wg.add(-1), std::logic_error);
        wg.wait();
        wg.add(2);
        EXPECT_THROW(wg.add(-3), std::logic_error);
        wg.add(-2);
        wg.wait();
        try {
            wg.done();
            FAIL();
        } catch (const std::logic_error& e) {
            EXPECT_NE(std::string(e.what()).find("negative wait_group counter"), std::string::npos) << e.what();
        }
    });
}

// Two done() for one add(): one of them is the misuse, in either order.
TEST_P(WaitGroup, OfTwoDonesAtOnceForOneAddExactlyOneThrows) {
    for (int i = 0; i < support::rounds(5000); ++i) {
        dunlin::wait_group wg;
        wg.add(1);
        std::atomic<int> ready{0}, threw{0};
        const auto end = [&] {
            ready.fetch_add(1);
            while (ready.load() != 2) std::this_thread::yield();
            try {
                wg.done();
            } catch (const std::logic_error&) {
                threw.fetch_add(1);
            }
        };
        std::thread other(end);
        end();
        other.join();
        ASSERT_EQ(threw.load(), 1) << "round " << i;
        wg.wait();
    }
}

// go1.24 src/sync/waitgroup_test.go, TestWaitGroupRace.
TEST_P(WaitGroup, TestWaitGroupRace) {
    run([] {
        for (int i = 0; i < support::rounds(10'000); ++i) {
            dunlin::wait_group wg;
            std::atomic<int> n{0};
            wg.add(1);
            dunlin::go([&n, wg]() mutable {
                n.fetch_add(1);
                wg.done();
            });
            wg.add(1);
            dunlin::go([&n, wg]() mutable {
                n.fetch_add(1);
                wg.done();
            });
            wg.wait();
            ASSERT_EQ(n.load(), 2);
        }
    });
}

TEST_P(WaitGroup, CopiesShareTheCounter) {
    run([] {
        dunlin::wait_group original;
        dunlin::wait_group copy = original;
        dunlin::wait_group assigned;
        assigned = copy;
        original.add(2);
        copy.done();
        assigned.done();
        original.wait();
        copy.wait();
        EXPECT_THROW(assigned.done(), std::logic_error);
        dunlin::wait_group moved = std::move(copy);
        moved.add(1);
        original.done();
        moved.wait();
    });
}

TEST_P(WaitGroup, OutlivesTheHandleItsMembersWereStartedWith) {
    run([] {
        std::atomic<int> ended{0};
        for (int i = 0; i < support::rounds(2000); ++i) {
            dunlin::wait_group wg;
            for (int k = 0; k < 3; ++k) {
                wg.go([&ended] {
                    dunlin::yield();
                    ended.fetch_add(1);
                });
            }
        }
        support::eventually([&] { return ended.load() == 3 * support::rounds(2000); });
    });
}

TEST_P(WaitGroup, GoInsideItsOwnGroupWhileAnotherWaits) {
    struct chain {
        static void link(dunlin::wait_group wg, std::atomic<int>& n, int left) {
            n.fetch_add(1);
            if (left > 0) wg.go([wg, &n, left] { link(wg, n, left - 1); });
        }
    };
    run([] {
        for (int round = 0; round < support::rounds(100); ++round) {
            dunlin::wait_group wg;
            std::atomic<int> n{0};
            wg.go([wg, &n] { chain::link(wg, n, 200); });
            std::vector<dunlin::task<void>> waiters;
            for (int i = 0; i < 4; ++i) {
                waiters.push_back(dunlin::spawn([&n, wg] {
                    wg.wait();
                    EXPECT_EQ(n.load(), 201);
                }));
            }
            wg.wait();
            ASSERT_EQ(n.load(), 201);
        }
    });
}

TEST_P(WaitGroup, AWaitMayMeetTheLastDone) {
    run([] {
        for (int i = 0; i < support::rounds(20'000); ++i) {
            auto wg = std::make_unique<dunlin::wait_group>();
            int plain = 0;
            wg->add(1);
            dunlin::go([g = wg.get(), &plain] {
                plain = 1;
                g->done();
            });
            if (i % 3 == 0) dunlin::yield();
            wg->wait();
            ASSERT_EQ(plain, 1);
            wg.reset();  // it must not be touched any more
        }
    });
}

TEST_P(WaitGroup, WaitAgainstTheLastDoneOfAPlainThread) {
    run([] {
        for (int i = 0; i < support::rounds(2000); ++i) {
            auto wg = std::make_unique<dunlin::wait_group>();
            wg->add(2);
            int a = 0, b = 0;
            std::thread thread([g = wg.get(), &a] {
                a = 1;
                g->done();
            });
            dunlin::go([g = wg.get(), &b] {
                b = 1;
                g->done();
            });
            wg->wait();
            ASSERT_EQ(a + b, 2);
            wg.reset();
            thread.join();
        }
    });
}

TEST_P(WaitGroup, WakesGoroutinesAndPlainThreadsThatWaitForTheSame) {
    run([] {
        for (int round = 0; round < support::rounds(300); ++round) {
            dunlin::wait_group wg, woken;
            wg.add(1);
            std::vector<std::thread> threads;
            woken.add(6);
            for (int i = 0; i < 3; ++i) {
                threads.emplace_back([wg, woken]() mutable {
                    wg.wait();
                    woken.done();
                });
                dunlin::go([wg, woken]() mutable {
                    wg.wait();
                    woken.done();
                });
            }
            dunlin::yield();
            wg.done();
            woken.wait();
            for (std::thread& t : threads) t.join();
        }
    });
}

TEST_P(WaitGroup, TakesTheBiggestCounts) {
    run([] {
        dunlin::wait_group wg;
        wg.add(INT_MAX);
        wg.add(-INT_MAX);
        wg.wait();
        wg.add(0);
        wg.wait();
        wg.add(INT_MAX);
        EXPECT_THROW(wg.add(INT_MIN), std::logic_error);
        wg.add(-INT_MAX);
        wg.wait();
    });
}

TEST_P(WaitGroup, ACountThatIsTooBigIsAnErrorAndLeavesItAsItIs) {
    run([] {
        dunlin::wait_group wg;
        wg.add(INT_MAX);
        EXPECT_THROW(wg.add(1), std::overflow_error);
        EXPECT_THROW(wg.add(INT_MAX), std::overflow_error);
        wg.go([] {});  // a member more has room
        EXPECT_FALSE(wg.wait_for(1ms));
        support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
        EXPECT_THROW(wg.add(1), std::overflow_error);
        wg.done();
        wg.add(1);
        wg.add(-INT_MAX);
        wg.wait();
        EXPECT_THROW(wg.done(), std::logic_error);
        wg.wait();
    });
}

TEST_P(WaitGroup, ExceptionsOfWhatItCannotStartLeaveItsCount) {
    run([] {
        dunlin::wait_group wg;
        EXPECT_THROW(wg.go({.stack_size = 3}, [] {}), std::invalid_argument);
        EXPECT_THROW(wg.go(static_cast<void (*)()>(nullptr)), std::invalid_argument);
        wg.wait();
    });
}

TEST_P(WaitGroup, AMemberThatExitsIsDone) {
    run([] {
        dunlin::wait_group wg;
        for (int i = 0; i < 100; ++i) wg.go([] { dunlin::exit_goroutine(); });
        wg.wait();
    });
}

TEST_P(WaitGroup, HasAHundredThousandMembers) {
    run([] {
        const int n = support::rounds(100'000);
        dunlin::wait_group wg;
        std::atomic<int> count{0};
        for (int i = 0; i < n; ++i) wg.go([&count] { count.fetch_add(1, std::memory_order_relaxed); });
        wg.wait();
        EXPECT_EQ(count.load(), n);
    });
}

// Each in the group waits for another, over and over: one that loses a wake-up hangs.
TEST_P(WaitGroup, NoWakeUpIsLostInABarrierOfWaitGroups) {
    static constexpr int members = 10;
    run([] {
        const int turns = support::rounds(2000);
        struct turn {
            dunlin::wait_group arrived;
            std::atomic<int> seen{0};
        };
        std::vector<turn> all(static_cast<std::size_t>(turns));
        for (turn& t : all) t.arrived.add(members);
        dunlin::wait_group ended;
        for (int m = 0; m < members; ++m) {
            ended.go([&all] {
                for (turn& t : all) {
                    t.seen.fetch_add(1);
                    t.arrived.done();
                    t.arrived.wait();
                    EXPECT_EQ(t.seen.load(), members);
                }
            });
        }
        ended.wait();
    });
}

}  // namespace
