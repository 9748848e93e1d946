// The check of the order of the runtime's locks (platform/lock_check.h): each rule broken once, and all of them kept.
// Builds that check end the process where one is broken, so those are death tests.
#include "platform/lock.h"
#include "platform/lock_check.h"

#include <cstdlib>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "support/build.h"

namespace {

using namespace dunlin::platform;

template <lock_rank rank>
using lock_of = ranked_lock<rank>;

class LockCheck : public testing::Test {
protected:
    void SetUp() override {
        if (!DUNLIN_CHECKING) GTEST_SKIP() << "this build does not check the order of locks";
        GTEST_FLAG_SET(death_test_style, "threadsafe");
    }

    lock_of<lock_rank::registry> registry_, another_registry_;
    lock_of<lock_rank::channel> channel_, another_channel_;
    lock_of<lock_rank::parking_lot> lot_;
    lock_of<lock_rank::scheduler> scheduler_, another_scheduler_;
    lock_of<lock_rank::retake> retake_;
    lock_of<lock_rank::leaf> leaf_;
};

// What the compiler does not leave out.
void allocate() {
    void* volatile memory = std::malloc(100);
    std::free(memory);
}

bool always() { return true; }
bool never() { return false; }

TEST_F(LockCheck, TheOrderKeptPasses) {
    set_stoppable(never);
    watch_allocations();
    for (int i = 0; i < 2; ++i) {
        registry_.lock();
        another_registry_.lock();
        channel_.lock();
        another_channel_.lock();
        allocate();  // the monitor waits for none of these
        lot_.lock_in_a_crowd();
        ASSERT_TRUE(scheduler_.try_lock());
        retake_.lock();
        leaf_.lock();
        // Given back in any order.
        scheduler_.unlock();
        leaf_.unlock();
        registry_.unlock();
        retake_.unlock();
        allocate();
        lot_.unlock();
        another_channel_.unlock();
        channel_.unlock();
        another_registry_.unlock();
        assert_no_locks();
    }
    assert_unstoppable();
    set_stoppable(nullptr);
    EXPECT_FALSE(leaf_.is_locked());
}

TEST_F(LockCheck, MoreLocksThanAreWrittenDownAreCounted) {
    constexpr int many = 40;
    const auto all = std::make_unique<lock_of<lock_rank::channel>[]>(many);
    for (int i = 0; i < many; ++i) all[i].lock();
    for (int i = many; i-- > 0;) all[i].unlock();
    leaf_.lock();
    leaf_.unlock();
    assert_no_locks();
}

TEST_F(LockCheck, TheMonitorMayTakeTheLocksThatItWaitsFor) {
    std::jthread([&] {
        act_as_rescuer();
        scheduler_.lock();
        retake_.lock();
        retake_.unlock();
        scheduler_.unlock();
        end_lock_checks();  // a thread that ends frees memory, which the monitor never does
    }).join();
}

using LockCheckDeathTest = LockCheck;

TEST_F(LockCheckDeathTest, K1_ALockIsTakenUnderOneThatComesAfterIt) {
    EXPECT_DEATH(
        {
            retake_.lock();
            scheduler_.lock();
        },
        "innermost last\\): retake scheduler\n.*out of order \\(K1\\)");
    // The last one given back, and still under an earlier one.
    EXPECT_DEATH(
        {
            lot_.lock();
            leaf_.lock();
            leaf_.unlock();
            channel_.lock();
        },
        "out of order \\(K1\\)");
}

TEST_F(LockCheckDeathTest, K1_ARankFollowsItselfThatHasOnlyOneLockAtATime) {
    EXPECT_DEATH(
        {
            scheduler_.lock();
            another_scheduler_.lock();
        },
        "out of order \\(K1\\)");
}

TEST_F(LockCheckDeathTest, K1_TryLockIsNoWayAround) {
    EXPECT_DEATH(
        {
            leaf_.lock();
            (void)lot_.try_lock();
        },
        "out of order \\(K1\\)");
}

TEST_F(LockCheckDeathTest, WhatALockGuardsIsTouchedWithoutIt) {
    scheduler_.lock();
    scheduler_.assert_held();
    scheduler_.unlock();
    EXPECT_DEATH(scheduler_.assert_held(), "rank 'scheduler' must be held here");
    // Held, but not by this thread.
    EXPECT_DEATH(
        {
            std::jthread([&] { retake_.lock(); }).join();
            retake_.assert_held();
        },
        "rank 'retake' must be held here");
}

TEST_F(LockCheckDeathTest, K2_ALockIsTakenWhereTheMonitorMayStopTheThread) {
    EXPECT_DEATH(
        {
            set_stoppable(always);
            leaf_.lock();
        },
        "may stop the thread \\(K2\\)");
    EXPECT_DEATH(
        {
            set_stoppable(always);
            assert_unstoppable();
        },
        "where the runtime relies on it to go on \\(K2\\)");
}

TEST_F(LockCheckDeathTest, K3_MemoryIsAllocatedOrFreedUnderALockThatTheMonitorWaitsFor) {
    if (!support::sanitized) GTEST_SKIP() << "only a sanitizer's malloc calls back";
    EXPECT_DEATH(
        {
            watch_allocations();
            scheduler_.lock();
            void* volatile memory = std::malloc(100);
            (void)memory;
        },
        "under a lock that the monitor waits for \\(K3\\)");
    EXPECT_DEATH(
        {
            watch_allocations();
            void* volatile memory = std::malloc(100);
            retake_.lock();
            leaf_.lock();
            std::free(memory);
        },
        "under a lock that the monitor waits for \\(K3\\)");
}

TEST_F(LockCheckDeathTest, K3_TheMonitorAllocates) {
    if (!support::sanitized) GTEST_SKIP() << "only a sanitizer's malloc calls back";
    EXPECT_DEATH(
        {
            watch_allocations();
            act_as_rescuer();
            allocate();
        },
        "the monitor allocates or frees memory \\(K3\\)");
}

TEST_F(LockCheckDeathTest, K4_TheMonitorTakesALockThatItMustNotWaitFor) {
    EXPECT_DEATH(
        {
            act_as_rescuer();
            channel_.lock();
        },
        "that it must not wait for \\(K4\\)");
}

TEST_F(LockCheckDeathTest, ALockIsGivenBackByAThreadThatDoesNotHoldIt) {
    EXPECT_DEATH(
        {
            leaf_.lock();
            std::jthread([&] { leaf_.unlock(); }).join();
        },
        "given back by a thread that does not hold it");
}

TEST_F(LockCheckDeathTest, ALockIsHeldOverASwitchOfStacks) {
    EXPECT_DEATH(
        {
            leaf_.lock();
            assert_no_locks();
        },
        "held over a switch of stacks");
}

}  // namespace
