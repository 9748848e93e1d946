// task_group: waits for all, rethrows the first exception, grows while wait() waits.
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class TaskGroup : public support::each_p {};
EACH_P(TaskGroup);

TEST_P(TaskGroup, WaitReturnsWhenAllMembersHaveEnded) {
    run([] {
        for (int round = 0; round < support::rounds(300); ++round) {
            dunlin::task_group group;
            std::atomic<int> ended{0};
            for (int i = 0; i < 100; ++i) {
                group.go([&ended, i] {
                    for (int k = 0; k < i % 5; ++k) dunlin::yield();
                    ended.fetch_add(1);
                });
            }
            group.wait();
            ASSERT_EQ(ended.load(), 100);
        }
    });
}

TEST_P(TaskGroup, GoNStartsEachOfThemOnceWithItsNumber) {
    run([] {
        for (const std::size_t n : {0u, 1u, 2u, 63u, 64u, 65u, 66u, 255u, 256u, 257u, 300u, 1000u}) {
            for (int round = 0; round < support::rounds(20); ++round) {
                dunlin::task_group group;
                std::vector<std::atomic<int>> runs(n);
                if (round % 2 != 0) group.go([] {});  // there is one in run_next
                group.go_n(n, [&runs, round](std::size_t i) {
                    if ((i + static_cast<std::size_t>(round)) % 3 == 0) dunlin::yield();
                    runs[i].fetch_add(1);
                });
                group.wait();
                for (const auto& r : runs) ASSERT_EQ(r.load(), 1);
            }
        }
    });
    dunlin::task_group outside;
    std::atomic<int> ran{0};
    outside.go_n(100, [&ran](std::size_t) { ran.fetch_add(1); });
    outside.wait();
    EXPECT_EQ(ran.load(), 100);
}

TEST_P(TaskGroup, GoNRethrowsAndCancels) {
    run([] {
        dunlin::task_group group;
        std::atomic<int> cancelled{0};
        group.go_n(20, [&group, &cancelled](std::size_t i) {
            if (i == 7) throw std::runtime_error("seven");
            group.context().done().recv();
            cancelled.fetch_add(1);
        });
        EXPECT_THROW(group.wait(), std::runtime_error);
        EXPECT_EQ(cancelled.load(), 19);
    });
}

TEST_P(TaskGroup, GoNKeepsToTheLimit) {
    run([] {
        dunlin::task_group group;
        group.set_limit(3);
        std::atomic<int> now{0}, most{0}, ended{0};
        group.go_n(50, [&](std::size_t) {
            const int n = now.fetch_add(1) + 1;
            for (int seen = most; seen < n && !most.compare_exchange_weak(seen, n);) {}
            dunlin::yield();
            now.fetch_sub(1);
            ended.fetch_add(1);
        });
        group.wait();
        EXPECT_EQ(ended.load(), 50);
        EXPECT_LE(most.load(), 3);
    });
}

// Its fifth copy cannot be made.
struct copied_four_times {
    std::atomic<int>* copies;
    std::atomic<int>* alive;
    std::atomic<int>* ran;
    copied_four_times(std::atomic<int>& c, std::atomic<int>& a, std::atomic<int>& r) : copies(&c), alive(&a), ran(&r) {
        alive->fetch_add(1);
    }
    copied_four_times(const copied_four_times& other) : copies(other.copies), alive(other.alive), ran(other.ran) {
        if (copies->fetch_add(1) == 4) throw std::runtime_error("no more copies");
        alive->fetch_add(1);
    }
    ~copied_four_times() { alive->fetch_sub(1); }
    void operator()(std::size_t) const { ran->fetch_add(1); }
};

TEST_P(TaskGroup, GoNStartsNoneIfACopyThrows) {
    run([] {
        std::atomic<int> copies{0}, alive{0}, ran{0};
        {
            dunlin::task_group group;
            EXPECT_THROW(group.go_n(10, copied_four_times(copies, alive, ran)), std::runtime_error);
            group.wait();
        }
        EXPECT_EQ(ran.load(), 0);
        EXPECT_EQ(alive.load(), 0);
    });
}

TEST_P(TaskGroup, WaitOfAnEmptyGroupReturnsAtOnce) {
    run([] {
        dunlin::task_group group;
        group.wait();
        group.wait();
    });
    dunlin::task_group outside;
    outside.wait();
}

TEST_P(TaskGroup, RethrowsTheFirstExceptionAfterAllHaveEnded) {
    run([] {
        for (int round = 0; round < support::rounds(500); ++round) {
            dunlin::task_group group;
            std::atomic<int> ended{0};
            std::atomic<bool> thrown{false};
            group.go([&] {
                thrown = true;
                throw std::runtime_error("first");
            });
            support::eventually([&] { return thrown.load(); });
            for (int i = 0; i < 10; ++i) {
                group.go([&ended, i] {
                    for (int k = 0; k < i; ++k) dunlin::yield();
                    ended.fetch_add(1);
                });
            }
            EXPECT_THROW(group.wait(), std::runtime_error);
            ASSERT_EQ(ended.load(), 10);
        }
    });
}

TEST_P(TaskGroup, RethrowsOneExceptionWhenManyMembersThrow) {
    run([] {
        for (int round = 0; round < support::rounds(500); ++round) {
            dunlin::task_group group;
            for (int i = 0; i < 20; ++i) {
                group.go([i] {
                    if (i % 2 == 0) dunlin::yield();
                    throw std::runtime_error(std::to_string(i));
                });
            }
            EXPECT_THROW(group.wait(), std::runtime_error);
            group.wait();  // it was taken
        }
    });
}

TEST_P(TaskGroup, CanBeUsedAgainAfterWaitAndAfterAnException) {
    run([] {
        dunlin::task_group group;
        int count = 0;
        for (int round = 0; round < 1000; ++round) {
            group.go([&] { ++count; });
            if (round % 3 == 0) {
                group.wait();
                group.go([] { throw 7; });
                EXPECT_THROW(group.wait(), int);
            } else {
                group.wait();
            }
        }
        EXPECT_EQ(count, 1000);
    });
}

TEST_P(TaskGroup, MembersMayAddMembersWhileTheGroupIsWaitedFor) {
    struct tree {
        static void grow(dunlin::task_group& group, std::atomic<int>& nodes, int depth) {
            nodes.fetch_add(1);
            if (depth == 0) return;
            group.go([&group, &nodes, depth] { grow(group, nodes, depth - 1); });
            if (depth % 2 == 0) dunlin::yield();
            group.go([&group, &nodes, depth] { grow(group, nodes, depth - 1); });
        }
    };
    run([] {
        for (int round = 0; round < support::rounds(20); ++round) {
            dunlin::task_group group;
            std::atomic<int> nodes{0};
            group.go([&] { tree::grow(group, nodes, 10); });
            group.wait();
            ASSERT_EQ(nodes.load(), (1 << 11) - 1);
        }
    });
}

TEST_P(TaskGroup, DestructorWaitsAndDropsExceptions) {
    run([] {
        for (int round = 0; round < support::rounds(2000); ++round) {
            std::atomic<int> ended{0};
            {
                dunlin::task_group group;
                group.go([&] {
                    dunlin::yield();
                    ended.fetch_add(1);
                });
                group.go([] { throw 1; });
            }
            ASSERT_EQ(ended.load(), 1);
        }
    });
}

// Without this the exception would wait for members that wait for ever.
TEST_P(TaskGroup, AnExceptionThatLeavesItsScopeCancelsTheMembers) {
    run([] {
        std::atomic<int> cancelled{0};
        const auto wait_for_ever = [&](const dunlin::task_group& group) {
            try {
                group.context().done().recv();
                ++cancelled;
            } catch (...) {
                ADD_FAILURE();
            }
        };
        try {
            dunlin::task_group group;
            group.go([&] { wait_for_ever(group); });
            group.go([&] { wait_for_ever(group); });
            throw std::runtime_error("early");
        } catch (const std::runtime_error&) {
        }
        EXPECT_EQ(cancelled.load(), 2);
    });
}

// A group of a destructor that runs during unwinding is left as others are.
TEST_P(TaskGroup, OneThatIsMadeDuringUnwindingIsNotCancelled) {
    run([] {
        struct cleans_up {
            bool& cancelled;
            ~cleans_up() {
                dunlin::task_group group;
                group.go([&] {
                    dunlin::sleep_for(2ms);
                    cancelled = group.context().is_done();
                });
            }
        };
        bool cancelled = true;
        try {
            const cleans_up last{cancelled};
            throw std::runtime_error("early");
        } catch (const std::runtime_error&) {
        }
        EXPECT_FALSE(cancelled);
    });
}

TEST_P(TaskGroup, AMemberThatExitsIsNotAnError) {
    run([] {
        dunlin::task_group group;
        bool after = false;
        group.go([] { dunlin::exit_goroutine(); });
        group.go([&] { after = true; });
        group.wait();
        EXPECT_TRUE(after);
        // And does not hide an exception that comes later.
        group.go([] { dunlin::exit_goroutine(); });
        group.wait();
        group.go([] { throw 3; });
        EXPECT_THROW(group.wait(), int);
    });
}

TEST_P(TaskGroup, MembersTakeOptionsAndArguments) {
    run([] {
        dunlin::task_group group;
        std::string seen;
        group.go({.name = "member", .stack_size = 64 << 10}, [&seen](const std::string& s,
            int n) { seen = dunlin::this_goroutine::name() + s + std::to_string(n); },
                 "-", 5);
        group.wait();
        EXPECT_EQ(seen, "member-5");
        EXPECT_THROW(group.go({.stack_size = 1}, [] {}), std::invalid_argument);
        group.wait();
    });
}

TEST_P(TaskGroup, ServesPlainThreads) {
    run([] {
        std::atomic<bool> ended{false};
        std::thread thread([&] {
            for (int i = 0; i < support::rounds(1000); ++i) {
                dunlin::task_group group;
                int sum[4] = {};
                for (int k = 0; k < 4; ++k) group.go([&sum, k] { sum[k] = k; });
                group.wait();
                EXPECT_EQ(sum[0] + sum[1] + sum[2] + sum[3], 6);
            }
            ended = true;
        });
        support::eventually([&] { return ended.load(); });
        thread.join();
    });
}

TEST_P(TaskGroup, MayBeDestroyedAsSoonAsWaitHasReturned) {
    run([] {
        for (int i = 0; i < support::rounds(20'000); ++i) {
            auto group = std::make_unique<dunlin::task_group>();
            group->go([] {});
            group->go([] { dunlin::yield(); });
            group->wait();
            group.reset();
        }
    });
}

}  // namespace
