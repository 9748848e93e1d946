#include "platform/lock.h"

#include <cerrno>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace {

using dunlin::platform::futex_lock;

void in_threads(int count, const auto& body) {
    std::vector<std::jthread> threads;
    for (int i = 0; i < count; ++i) {
        threads.emplace_back(body);
    }
}

std::chrono::microseconds cpu_time_of_this_thread() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

TEST(Lock, IsEightBytesAndConstantInitialised) {
    static constinit futex_lock lock;
    static_assert(sizeof(futex_lock) == 8);
    EXPECT_FALSE(lock.is_locked());
}

TEST(Lock, TryLockFailsWhileItIsHeldAndSucceedsAfterwards) {
    futex_lock lock;
    ASSERT_TRUE(lock.try_lock());
    EXPECT_TRUE(lock.is_locked());
    EXPECT_FALSE(lock.try_lock());
    lock.unlock();
    EXPECT_TRUE(lock.try_lock());
    lock.unlock();
}

TEST(Lock, OneOwnerAtATimeAndEachSeesWhatTheLastOneWrote) {
    for (int threads : {2, 8}) {
        futex_lock lock;
        int rounds = 0;  // plain: only the lock makes this right, and ThreadSanitizer would tell
        constexpr int each = 50'000;
        in_threads(threads, [&] {
            for (int i = 0; i < each; ++i) {
                const std::scoped_lock guard(lock);
                ++rounds;
            }
        });
        EXPECT_EQ(rounds, threads * each);
        EXPECT_FALSE(lock.is_locked());
    }
}

// With the owner asleep inside, the others must go to the kernel and each must come back: a lost wake-up hangs here.
TEST(Lock, NoSleeperIsForgotten) {
    futex_lock lock;
    int rounds = 0;
    constexpr int each = 100;
    in_threads(8, [&] {
        for (int i = 0; i < each; ++i) {
            const std::scoped_lock guard(lock);
            if (++rounds % 8 == 0) {
                std::this_thread::sleep_for(std::chrono::microseconds(50));
            }
        }
    });
    EXPECT_EQ(rounds, 8 * each);
}

TEST(Lock, AThreadThatWaitsLongSleepsInsteadOfSpinning) {
    futex_lock lock;
    lock.lock();
    std::chrono::microseconds spent{};
    std::jthread waiter([&] {
        lock.lock();
        spent = cpu_time_of_this_thread();
        lock.unlock();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    lock.unlock();
    waiter.join();
    EXPECT_LT(spent, std::chrono::milliseconds(150));
}

TEST(Lock, WaitingLeavesErrnoAlone) {
    futex_lock lock;
    lock.lock();
    int seen = 0;
    std::jthread waiter([&] {
        errno = 4711;
        lock.lock();
        seen = errno;
        lock.unlock();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    lock.unlock();
    waiter.join();
    EXPECT_EQ(seen, 4711);
}

TEST(LockDeathTest, UnlockingAFreeLockEndsTheProcessWithAText) {
    futex_lock lock;
    EXPECT_DEATH(lock.unlock(), "unlocked while nobody held it");
}

}  // namespace
