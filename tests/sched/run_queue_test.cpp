// The local run queue, as it is (tests/model/run_queue_model_test.cpp has the interleavings): its order, its limits,
// and real threads that steal from it.
#include "sched/data/run_queue.h"

#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sched/queues/run_queue_prefetch.h"
#include "support/build.h"

namespace {

using dunlin::sched::goroutine;
using dunlin::sched::run_queue;

constexpr std::uint32_t capacity = run_queue::capacity;

class RunQueue : public testing::Test {
protected:
    goroutine* g(std::size_t i) { return &all_[i]; }

    void push(std::size_t first, std::size_t count) {
        for (std::size_t i = first; i < first + count; ++i) ASSERT_TRUE(queue_.push(g(i)));
    }

    // Its slots are a ring: the tests begin at each of several places in it.
    void move_head_by(std::uint32_t n) {
        for (std::uint32_t i = 0; i < n; ++i) {
            ASSERT_TRUE(queue_.push(g(0)));
            ASSERT_EQ(queue_.pop(), g(0));
        }
    }

    run_queue queue_;

private:
    std::unique_ptr<goroutine[]> all_ = std::make_unique<goroutine[]>(2 * capacity);
};

// go1.24.4 src/runtime/export_test.go, RunSchedLocalQueueTest; SCH-08.
TEST_F(RunQueue, IsFirstInFirstOutAndCompleteForEveryFillLevel) {
    for (std::uint32_t fill = 0; fill <= capacity; ++fill) {
        ASSERT_EQ(queue_.pop(), nullptr);
        push(0, fill);
        ASSERT_EQ(queue_.size(), fill);
        for (std::uint32_t i = 0; i < fill; ++i) ASSERT_EQ(queue_.at(i), g(i));
        ASSERT_EQ(queue_.at(fill), nullptr);
        for (std::uint32_t i = 0; i < fill; ++i) ASSERT_EQ(i % 2 ? queue_.pop() : queue_.pop_and_prefetch(), g(i));
        ASSERT_EQ(queue_.pop_and_prefetch(), nullptr);
        ASSERT_EQ(queue_.size(), 0u);
    }
}

TEST_F(RunQueue, RefusesWhatDoesNotFitAndKeepsTheRest) {
    move_head_by(100);
    push(0, capacity);
    EXPECT_FALSE(queue_.push(g(capacity)));
    EXPECT_EQ(queue_.rotate(g(capacity)), nullptr);
    EXPECT_EQ(queue_.size(), capacity);
    for (std::uint32_t i = 0; i < capacity; ++i) ASSERT_EQ(queue_.pop(), g(i));
}

// go1.24.4 src/runtime/export_test.go, RunSchedLocalQueueStealTest.
TEST_F(RunQueue, TakeHalfTakesTheOlderHalfRoundedUpForEveryFillLevel) {
    goroutine* half[capacity / 2];
    for (std::uint32_t fill = 0; fill <= capacity; ++fill) {
        push(0, fill);
        const std::uint32_t taken = queue_.take_half(half);
        ASSERT_EQ(taken, (fill + 1) / 2);
        for (std::uint32_t i = 0; i < taken; ++i) ASSERT_EQ(half[i], g(i));
        for (std::uint32_t i = taken; i < fill; ++i) ASSERT_EQ(queue_.pop(), g(i));
        ASSERT_EQ(queue_.pop(), nullptr);
    }
}

TEST_F(RunQueue, PushAllAppendsInOrderAcrossTheEndOfTheRing) {
    move_head_by(capacity - 3);
    goroutine* list[10];
    for (std::size_t i = 0; i < 10; ++i) list[i] = g(i + 2);
    push(0, 2);
    queue_.push_all(list, 10);
    for (std::size_t i = 0; i < 12; ++i) ASSERT_EQ(queue_.pop(), g(i));
}

TEST_F(RunQueue, PopYoungestIfTakesTheYoungestOrNothing) {
    const auto yes = [](const goroutine*) { return true; };
    EXPECT_EQ(queue_.pop_youngest_if(yes), nullptr);
    move_head_by(capacity - 2);
    push(0, 5);
    std::vector<const goroutine*> asked;
    EXPECT_EQ(
        queue_.pop_youngest_if([&](const goroutine* youngest) { return asked.push_back(youngest), false; }), nullptr);
    EXPECT_EQ(asked, std::vector<const goroutine*>{g(4)});
    EXPECT_EQ(queue_.size(), 5u);
    for (std::size_t i = 5; i-- > 1;) EXPECT_EQ(queue_.pop_youngest_if(yes), g(i));
    EXPECT_EQ(queue_.pop(), g(0));
    EXPECT_EQ(queue_.pop_youngest_if(yes), nullptr);
}

TEST_F(RunQueue, RotateTakesTheOldestAndQueuesAnotherBehindTheYoungest) {
    EXPECT_EQ(queue_.rotate(g(9)), nullptr);
    EXPECT_EQ(queue_.size(), 0u);
    push(0, 3);
    for (std::size_t i = 0; i < 3 * capacity; ++i) ASSERT_EQ(queue_.rotate(g((i + 3) % 4)), g(i % 4));
    EXPECT_EQ(queue_.size(), 3u);
}

// The version. A thief that has read the word must fail once anything has been taken out, even if head and size are the
// same again.
TEST_F(RunQueue, EveryTakingChangesWhatAThiefHasRead) {
    const auto yes = [](const goroutine*) { return true; };
    goroutine* half[capacity / 2];
    const auto changes = [&](const char* what, const auto& take) {
        push(0, 4);
        const std::uint64_t before = queue_.takings();
        take();
        EXPECT_NE(queue_.takings(), before) << what;
        while (queue_.pop() != nullptr) {}
    };
    changes("pop", [&] { queue_.pop(); });
    changes("pop_and_prefetch", [&] { queue_.pop_and_prefetch(); });
    changes("pop_youngest_if", [&] { queue_.pop_youngest_if(yes); });
    changes("take_half", [&] { queue_.take_half(half); });
    changes("rotate", [&] { queue_.rotate(g(5)); });
}

// Where counters begin shortly before they wrap (platform/wrap.h), each queue of each test does.
TEST_F(RunQueue, TheVersionWrapsAroundAndNothingElseChanges) {
    const std::uint64_t at_first = queue_.takings();
    push(0, 3);
    for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ(queue_.rotate(g((i + 3) % 4)), g(i % 4));
    EXPECT_EQ(queue_.size(), 3u);
    EXPECT_EQ(queue_.takings() < at_first, dunlin::platform::counters_wrap_soon);
}

// The same as it happens: the claim of the outer one stands for a thief's. Between its reading and its claim the
// youngest is taken back and another pushed, so that head and size are what they were.
TEST_F(RunQueue, AClaimFailsWhenTheYoungestWasTakenBackAndAnotherPushedMeanwhile) {
    const auto yes = [](const goroutine*) { return true; };
    for (const std::uint32_t place : {0u, 100u, capacity - 1}) {
        move_head_by(place);
        push(0, 2);
        bool first = true;
        const goroutine* claimed = queue_.pop_youngest_if([&](const goroutine*) {
            if (std::exchange(first, false)) {
                EXPECT_EQ(queue_.pop_youngest_if(yes), g(1));
                EXPECT_TRUE(queue_.push(g(2)));
            }
            return true;
        });
        EXPECT_EQ(claimed, g(2)) << "it claimed what had been taken";
        EXPECT_EQ(queue_.pop(), g(0));
        EXPECT_EQ(queue_.pop(), nullptr);
    }
}

// A full queue has no free slot: one written before the claim is read by a thief as the oldest. One place less is room
// enough.
TEST_F(RunQueue, RotateLeavesAFullQueueAloneAndWorksInOneThatIsNearlyFull) {
    move_head_by(7);
    push(0, capacity);
    EXPECT_EQ(queue_.rotate(g(capacity)), nullptr);
    EXPECT_EQ(queue_.peek(), g(0));
    EXPECT_EQ(queue_.at(capacity - 1), g(capacity - 1));
    EXPECT_EQ(queue_.pop(), g(0));
    EXPECT_EQ(queue_.rotate(g(capacity)), g(1));
    EXPECT_EQ(queue_.size(), capacity - 1);
    for (std::uint32_t i = 2; i <= capacity; ++i) ASSERT_EQ(queue_.pop(), g(i));
}

// The same few goroutines go in and out again and again, and the queue is often empty: what a thief has read is soon
// true again, of another moment.
void steal_from_a_busy_owner(unsigned thieves, std::uint32_t goroutines, int operations) {
    const auto all = std::make_unique<goroutine[]>(goroutines);
    const auto queued = std::make_unique<std::atomic<int>[]>(goroutines);
    run_queue queue;
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> stolen{0};
    std::uint64_t pushed = 0, popped = 0;
    const auto take = [&](const goroutine* g) {
        const int before = queued[static_cast<std::size_t>(g - all.get())].exchange(0, std::memory_order_relaxed);
        if (before != 1) ADD_FAILURE() << "taken twice";
    };
    const auto rob = [&] {
        goroutine* half[capacity / 2];
        while (!stop.load(std::memory_order_relaxed)) {
            const std::uint32_t n = queue.take_half(half);
            for (std::uint32_t i = 0; i < n; ++i) take(half[i]);
            stolen.fetch_add(n, std::memory_order_relaxed);
        }
    };
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < thieves; ++i) threads.emplace_back(rob);

    std::minstd_rand random(thieves * 1000 + goroutines);
    const auto free_one = [&]() -> goroutine* {
        const std::uint32_t i = static_cast<std::uint32_t>(random()) % goroutines;
        if (queued[i].load(std::memory_order_relaxed) != 0) return nullptr;
        queued[i].store(1, std::memory_order_relaxed);
        return &all[i];
    };
    for (int i = 0; i < operations; ++i) {
        goroutine* got = nullptr;
        goroutine* put = nullptr;
        switch (random() % 8) {
            case 0: got = queue.pop(); break;
            case 1: got = queue.pop_and_prefetch(); break;
            case 2: got = queue.pop_youngest_if([](const goroutine*) { return true; }); break;
            case 3:
                put = free_one();
                if (put == nullptr) break;
                got = queue.rotate(put);
                if (got != nullptr) ++pushed;
                else queued[static_cast<std::size_t>(put - all.get())] = 0;
                break;
            default:
                put = free_one();
                if (put == nullptr) break;
                if (queue.push(put)) ++pushed;
                else queued[static_cast<std::size_t>(put - all.get())] = 0;
        }
        if (got != nullptr) {
            take(got);
            ++popped;
        }
    }
    stop = true;
    threads.clear();
    while (goroutine* g = queue.pop()) {
        take(g);
        ++popped;
    }
    EXPECT_EQ(pushed, popped + stolen.load());
    for (std::uint32_t i = 0; i < goroutines; ++i) EXPECT_EQ(queued[i].load(), 0);
}

TEST(RunQueueStress, EachGoroutineIsTakenOnceWhenTheQueueIsNearlyEmpty) {
    for (const unsigned thieves : {1u, 2u, 4u}) steal_from_a_busy_owner(thieves, 3, support::rounds(1'000'000));
}

TEST(RunQueueStress, EachGoroutineIsTakenOnceWhenTheQueueIsNearlyFull) {
    for (const unsigned thieves : {1u, 2u, 4u}) steal_from_a_busy_owner(thieves, 600, support::rounds(1'000'000));
}

}  // namespace
