#include "platform/lock.h"
#include "platform/destroyable_lock.h"

#include <sched.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace {

using dunlin::platform::futex_lock;
using dunlin::platform::destroyable_lock;

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

template <class T>
class AnyLock : public testing::Test {};
using locks = testing::Types<futex_lock, destroyable_lock>;
TYPED_TEST_SUITE(AnyLock, locks);

TEST(Lock, IsEightBytesAndConstantInitialised) {
    static constinit futex_lock lock;
    static_assert(sizeof(futex_lock) == 8);
    EXPECT_FALSE(lock.is_locked());
}

TYPED_TEST(AnyLock, TryLockFailsWhileItIsHeldAndSucceedsAfterwards) {
    TypeParam lock;
    ASSERT_TRUE(lock.try_lock());
    EXPECT_FALSE(lock.try_lock());
    lock.unlock();
    EXPECT_TRUE(lock.try_lock());
    lock.unlock();
}

TYPED_TEST(AnyLock, OneOwnerAtATimeAndEachSeesWhatTheLastOneWrote) {
    for (int threads : {2, 8}) {
        TypeParam lock;
        int rounds = 0;  // plain: only the lock makes this right, and ThreadSanitizer would tell
        constexpr int each = 50'000;
        in_threads(threads, [&] {
            for (int i = 0; i < each; ++i) {
                const std::scoped_lock guard(lock);
                ++rounds;
            }
        });
        EXPECT_EQ(rounds, threads * each);
        EXPECT_TRUE(lock.try_lock());
        lock.unlock();
    }
}

// With the owner asleep inside, the others must go to the kernel and each must come back: a lost wake-up hangs here.
TYPED_TEST(AnyLock, NoSleeperIsForgotten) {
    TypeParam lock;
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

TYPED_TEST(AnyLock, AThreadThatWaitsLongSleepsInsteadOfSpinning) {
    TypeParam lock;
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

TYPED_TEST(AnyLock, WaitingLeavesErrnoAlone) {
    TypeParam lock;
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

// The value says that the other is through; what it stood in goes at once.
TEST(MortalLock, MayBeDestroyedByItsLastHolderAtOnce) {
    struct guarded {
        destroyable_lock lock;
        bool ready = false;
    };
    std::atomic<guarded*> handed{nullptr};
    constexpr int rounds = 20'000;
    std::jthread giver([&] {
        for (int i = 0; i < rounds; ++i) {
            while (handed.load(std::memory_order_relaxed) != nullptr) sched_yield();
            auto* g = new guarded;
            g->lock.lock();
            handed.store(g, std::memory_order_release);
            g->ready = true;
            g->lock.unlock();
        }
    });
    for (int i = 0; i < rounds; ++i) {
        guarded* g;
        while ((g = handed.load(std::memory_order_acquire)) == nullptr) sched_yield();
        g->lock.lock();
        EXPECT_TRUE(g->ready);
        g->lock.unlock();
        handed.store(nullptr, std::memory_order_relaxed);
        delete g;
    }
}

TYPED_TEST(AnyLock, UnlockingAFreeOneEndsTheProcessWithAText) {
    TypeParam lock;
    EXPECT_DEATH(lock.unlock(), "unlocked while it was not held");
}

}  // namespace
