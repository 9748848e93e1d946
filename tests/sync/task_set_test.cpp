// Members whose results are taken as they end, and tasks that are not waited for.
#include <atomic>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;
using dunlin::context;
using dunlin::context_cancelled;

class TaskSet : public support::each_p {};
EACH_P(TaskSet);
class Detach : public support::each_p {};
EACH_P(Detach);

dunlin::cancellable done_context() {
    auto ctx = dunlin::with_cancel({});
    ctx.cancel();
    return ctx;
}

// ---- task_set -------------------------------------------------------------------------------------------------------

// As a lambda's that has captured a const vector: it is copied, and there may be no memory.
TEST_P(TaskSet, AMemberWhoseMoveThrowsDoesNotCount) {
    struct copied {
        int* copies;
        explicit copied(int* n) : copies(n) {}
        copied(const copied& other) : copies(other.copies) {
            if (++*copies == 2) throw std::runtime_error("the second copy");
        }
        void operator()() const {}
    };
    run([] {
        dunlin::task_set<void> s;
        int copies = 0;
        EXPECT_THROW(s.go(copied(&copies)), std::runtime_error);
        EXPECT_EQ(s.size(), 0u);
    });
}

TEST_P(TaskSet, ResultsComeAsTheMembersEnd) {
    run([] {
        dunlin::task_set<std::unique_ptr<int>> set;
        EXPECT_EQ(set.next(), std::nullopt);
        EXPECT_TRUE(set.empty());
        dunlin::latch first(1), second(1);
        set.go([&] {
            second.wait();
            return std::make_unique<int>(3);
        });
        set.go([&](int v) {
            first.wait();
            return std::make_unique<int>(v);
        }, 2);
        set.go([] { return std::make_unique<int>(1); });
        EXPECT_EQ(set.size(), 3u);
        EXPECT_EQ(**set.next(), 1);
        EXPECT_EQ(set.try_next(), std::nullopt);
        EXPECT_EQ(set.next_for(1ms), std::nullopt);
        EXPECT_EQ(set.next_until(std::chrono::system_clock::now() + 1ms), std::nullopt);
        EXPECT_THROW(set.next(done_context()), context_cancelled);
        first.count_down();
        EXPECT_EQ(**set.next(context()), 2);
        second.count_down();
        EXPECT_EQ(**set.next_for(1h), 3);
        EXPECT_EQ(set.next(done_context()), std::nullopt);
        set.go([] { return std::make_unique<int>(4); });
        support::eventually([&] { return set.try_next().has_value(); });
    });
}

TEST_P(TaskSet, EachExceptionComesByItself) {
    run([] {
        dunlin::task_set<void> set;
        for (int i = 0; i < 3; ++i) set.go([i] { throw i; });
        set.go([] { dunlin::exit_goroutine(); });
        set.go([] {});
        std::set<int> caught;
        int ended = 0, exited = 0;
        for (;;) {
            try {
                if (!set.next()) break;
                ++ended;
            } catch (int i) {
                caught.insert(i);
            } catch (const dunlin::goroutine_exited&) {
                ++exited;
            }
        }
        EXPECT_EQ(caught, (std::set<int>{0, 1, 2}));
        EXPECT_EQ(ended, 1);
        EXPECT_EQ(exited, 1);
        EXPECT_FALSE(set.context().is_done());
        set.go([ctx = set.context()] { EXPECT_THROW(dunlin::sleep_for(1h, ctx), context_cancelled); });
        set.cancel();
        EXPECT_TRUE(set.next());
        // What cannot be started is no member.
        EXPECT_THROW(set.go(std::function<void()>()), std::invalid_argument);
        set.set_limit(1);
        dunlin::latch go_on(1);
        set.go([&] { go_on.wait(); });
        EXPECT_FALSE(set.try_go([] {}));
        EXPECT_THROW(set.go(done_context(), [] {}), context_cancelled);
        EXPECT_EQ(set.size(), 1u);
        go_on.count_down();
        EXPECT_TRUE(set.next());
        EXPECT_FALSE(set.next());
        set.go([] {});  // its result is dropped
    });
}

// A go() that waits for a place has a member already.
TEST_P(TaskSet, TheLimitStaysWhileAGoWaitsForAPlace) {
    run([] {
        for (int round = 0; round < support::rounds(200); ++round) {
            dunlin::task_set<int> set;
            set.set_limit(1);
            dunlin::latch first(1), second(1);
            set.go([&] {
                first.wait();
                return 1;
            });
            dunlin::task<void> other = dunlin::spawn([&] {
                set.go([&] {
                    second.wait();
                    return 2;
                });
            });
            support::eventually([&] { return set.size() == 2; });
            EXPECT_THROW(set.set_limit(2), std::logic_error);
            first.count_down();
            EXPECT_EQ(set.next(), 1);
            EXPECT_THROW(set.set_limit(2), std::logic_error);
            EXPECT_THROW(set.set_limit(0), std::invalid_argument);
            second.count_down();
            other.get();
            EXPECT_EQ(set.next(), 2);
            set.set_limit(2);  // although the member may be at its very end
        }
    });
}

TEST_P(TaskSet, ManyResultsThatAreNotTakenNeedNoStack) {
    run([] {
        dunlin::spawn({.stack_size = dunlin::dense_stack_size}, [] {
            dunlin::task_set<int> set;
            for (int i = 0; i < 100'000; ++i) set.go([i] { return i; });
        }).get();
    });
}

TEST_P(TaskSet, ManyMembersAndManyTakers) {
    run([] {
        dunlin::task_set<int> set;
        set.set_limit(10);
        const int total = support::rounds(2000);
        std::atomic<long> sum{0};
        std::atomic<int> taken{0};
        dunlin::task_group takers;
        for (int t = 0; t < 3; ++t) {
            takers.go([&, t] {
                while (taken < total) {
                    const auto v = t == 0 ? set.next_for(100us) : set.try_next();
                    if (v) {
                        sum += *v;
                        ++taken;
                    } else {
                        dunlin::yield();
                    }
                }
            });
        }
        for (int i = 1; i <= total; ++i) set.go([i] { return i; });
        takers.wait();
        EXPECT_EQ(sum, static_cast<long>(total) * (total + 1) / 2);
        EXPECT_TRUE(set.empty());
        // Those that wait when the last result is taken by another are told that there is nothing left.
        dunlin::latch go_on(1);
        set.go([&] {
            go_on.wait();
            return 1;
        });
        std::atomic<int> got{0};
        dunlin::task_group waiters;
        for (int i = 0; i < 4; ++i) waiters.go([&] { got += set.next().has_value(); });
        std::thread thread([&] { got += set.next().has_value(); });
        dunlin::yield();
        go_on.count_down();
        waiters.wait();
        dunlin::blocking([&] { thread.join(); });
        EXPECT_EQ(got, 1);
    });
}

// ---- detach ---------------------------------------------------------------------------------------------------------

struct counted {
    inline static std::atomic<int> alive{0};
    counted() { ++alive; }
    counted(const counted&) { ++alive; }
    ~counted() { --alive; }
};

TEST_P(Detach, TheGoroutineGoesOnAndItsResultIsDropped) {
    run([] {
        dunlin::latch go_on(1);
        std::atomic<int> ended{0};
        for (int i = 0; i < 5; ++i) {
            auto t = dunlin::spawn([&] {
                go_on.wait();
                ++ended;
                return counted();
            });
            if (i % 2) static_cast<void>(t.wait_for(1us));
            t.detach();
            EXPECT_FALSE(t.valid());
            EXPECT_THROW(t.detach(), std::logic_error);
        }
        EXPECT_EQ(ended, 0);
        go_on.count_down();
        support::eventually([&] { return ended == 5; });
        support::eventually([] { return counted::alive == 0 && dunlin::runtime::num_goroutines() == 1; });
        // One that has ended, and one that has thrown.
        auto over = dunlin::spawn([] { return counted(); });
        over.wait();
        EXPECT_EQ(counted::alive, 1);
        over.detach();
        EXPECT_EQ(counted::alive, 0);
        dunlin::spawn([] { throw std::runtime_error("dropped"); }).detach();
        dunlin::spawn([] { dunlin::exit_goroutine(); }).detach();
        support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
    });
}

TEST_P(Detach, AtTheMomentOfTheEnd) {
    run([] {
        for (int round = 0; round < support::rounds(3000); ++round) {
            auto t = dunlin::spawn([round] {
                if (round % 3 == 0) dunlin::yield();
                if (round % 5 == 0) throw counted();
                return counted();
            });
            if (round % 2 == 0) dunlin::yield();
            t.detach();
        }
        std::thread([] {
            for (int i = 0; i < 200; ++i) dunlin::spawn([] { return counted(); }).detach();
        }).join();
        support::eventually([] { return counted::alive == 0 && dunlin::runtime::num_goroutines() == 1; });
    });
}

}  // namespace
