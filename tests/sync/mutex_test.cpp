// mutex and recursive_mutex: mutual exclusion from goroutines and threads, limits, fairness, lifetime, misuse.
#include <concepts>
#include <memory>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <vector>

#include <dunlin/chan.hpp>
#include <dunlin/mutex.hpp>

#include "park/parking_lot.h"
#include "support/runtime_test.h"
#include "sync/mutex_holder.h"

using namespace std::chrono_literals;

namespace {

template <class M>
concept timed_lockable = requires(M m, std::chrono::milliseconds d, std::chrono::steady_clock::time_point t) {
    m.lock();
    { m.try_lock() } -> std::convertible_to<bool>;
    { m.try_lock_for(d) } -> std::convertible_to<bool>;
    { m.try_lock_until(t) } -> std::convertible_to<bool>;
    m.unlock();
};
static_assert(timed_lockable<dunlin::mutex> && timed_lockable<dunlin::recursive_mutex>);

class Mutex : public support::each_p {};
class MutexOfThreads : public support::runtime_test {};
EACH_P(Mutex);

// Goroutines and threads raise one number.
template <class M>
void hammer(M& m, int goroutines, int threads, int rounds) {
    long count = 0;
    std::atomic<int> inside{0}, wrong{0};
    auto body = [&] {
        for (int i = 0; i < rounds; ++i) {
            if (i % 3 == 0) {
                while (!m.try_lock()) dunlin::yield();
            } else if (i % 7 == 0) {
                while (!m.try_lock_for(100us)) {}
            } else {
                m.lock();
            }
            if (inside.fetch_add(1) != 0) ++wrong;
            ++count;
            if (i % 64 == 0) dunlin::yield();
            inside.fetch_sub(1);
            m.unlock();
        }
    };
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i) all.emplace_back(body);
    {
        dunlin::task_group group;
        for (int i = 0; i < goroutines; ++i) group.go(body);
        group.wait();
    }
    for (std::thread& t : all) dunlin::blocking([&] { t.join(); });
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(count, static_cast<long>(rounds) * (goroutines + threads));
}

TEST_P(Mutex, LetsInOneAtATime) {
    allow(60s);
    run([] {
        dunlin::mutex m;
        hammer(m, 8, 0, support::rounds(5000));
        hammer(m, 4, 2, support::rounds(3000));
        hammer(m, 0, 3, support::rounds(3000));
        dunlin::recursive_mutex r;
        hammer(r, 4, 2, support::rounds(1000));
    });
}

TEST_P(Mutex, StandardLocksTakeIt) {
    run([] {
        dunlin::mutex a, b;
        { std::lock_guard guard(a); }
        {
            std::scoped_lock both(a, b);
            EXPECT_FALSE(a.try_lock());
        }
        std::unique_lock lock(a, std::defer_lock);
        EXPECT_TRUE(lock.try_lock_for(1ms));
        EXPECT_FALSE(a.try_lock_for(2ms));
        EXPECT_FALSE(a.try_lock_until(std::chrono::system_clock::now() + 2ms));
    });
}

TEST_P(Mutex, ALimitEndsTheWaitAndLeavesTheMutexAsItWas) {
    run([] {
        dunlin::mutex m;
        m.lock();
        std::atomic<int> late{0};
        {
            dunlin::task_group group;
            for (int i = 0; i < 20; ++i) {
                group.go([&] {
                    if (!m.try_lock_for(3ms)) ++late;
                });
            }
            group.wait();
        }
        EXPECT_EQ(late, 20);
        m.unlock();
        EXPECT_TRUE(m.try_lock());
        m.unlock();
    });
}

// Two goroutines: one has it for long again and again, the other for a moment. Go: TestMutexFairness.
TEST_P(Mutex, AWaiterGetsItAfterAMillisecond) {
    run([] {
        dunlin::mutex m;
        std::atomic<bool> stop{false};
        dunlin::task_group group;
        group.go([&] {
            while (!stop) {
                m.lock();
                dunlin::sleep_for(100us);
                m.unlock();
            }
        });
        for (int i = 0; i < 10; ++i) {
            dunlin::sleep_for(100us);
            ASSERT_TRUE(m.try_lock_for(10s));
            m.unlock();
        }
        stop = true;
        group.wait();
    });
}

TEST_P(Mutex, MayBeUnlockedByAnotherGoroutine) {
    run([] {
        dunlin::mutex m;
        m.lock();
        auto t = dunlin::spawn([&] { m.unlock(); });
        t.get();
        m.lock();
        m.unlock();
    });
}

// The next thread may have everything that the one before had, its number and its memory.
TEST_F(MutexOfThreads, LeftLockedByOneIsNotTheNextOnes) {
    dunlin::mutex m;
    for (int i = 0; i < 3; ++i) {
        std::thread([&] { m.lock(); }).join();
        std::thread next([&] {
            m.lock();
            m.unlock();
        });
        usleep(5'000);
        m.unlock();
        next.join();
    }
}

// The last to unlock deletes it, while the one before may still be inside unlock().
TEST_P(Mutex, MayBeDestroyedAsSoonAsItIsFree) {
    struct shared {
        dunlin::mutex m;
        int references = 3;
    };
    run([] {
        for (int round = 0; round < support::rounds(3000); ++round) {
            auto* s = new shared;
            auto drop = [s] {
                s->m.lock();
                const int left = --s->references;
                s->m.unlock();
                if (left == 0) delete s;
            };
            dunlin::task_group group;
            group.go(drop);
            group.go(drop);
            if (round % 8 == 0) {
                std::thread t(drop);
                dunlin::blocking([&] { t.join(); });
            } else {
                drop();
            }
            group.wait();
        }
    });
}

TEST_P(Mutex, RecursiveIsFreeAfterAsManyUnlocks) {
    run([] {
        dunlin::recursive_mutex m;
        m.lock();
        EXPECT_TRUE(m.try_lock());
        EXPECT_TRUE(m.try_lock_for(1ms));
        auto others = [&] { return dunlin::spawn([&] { return m.try_lock() ? (m.unlock(), true) : false; }).get(); };
        m.unlock();
        m.unlock();
        EXPECT_FALSE(others());
        m.unlock();
        EXPECT_TRUE(others());
    });
}

// One goroutine of the first run was told to try and never comes, others stay in the queue: the second run is not to
// wait for them.
TEST_P(Mutex, WaitersLeftBehindByAnEarlierRunAreForgotten) {
    dunlin::mutex& m = *new dunlin::mutex;  // those left behind keep it
    for (int round = 0; round < 5; ++round) {
        run([&m] {
            m.lock();
            for (int i = 0; i < 5; ++i) {
                dunlin::go([&m] {
                    m.lock();
                    m.unlock();
                    dunlin::chan<int>::nil().recv();
                });
            }
            support::eventually([&m] { return dunlin::park::bucket_of(&m).waiting >= 5; });
            const dunlin::no_preempt guard;
            m.unlock();
        });
        // Perhaps one was quick enough to take it.
        if (!m.try_lock()) return;
        m.unlock();
        run([&m] { hammer(m, 6, 0, support::rounds(500)); });
    }
}

// The goroutine that was told to try never does, and the mutex is free: the thread behind it takes it.
TEST_P(Mutex, AThreadBehindWaitersThatAreLeftBehindGoesOn) {
    for (int round = 0; round < 5; ++round) {
        dunlin::mutex& m = *new dunlin::mutex;
        std::thread behind;
        run([&] {
            m.lock();
            for (int i = 0; i < 3; ++i) {
                dunlin::go([&m] { m.lock(); });
            }
            support::eventually([&m] { return dunlin::park::bucket_of(&m).waiting >= 3; });
            behind = std::thread([&m] {
                m.lock();
                m.unlock();
            });
            support::eventually([&m] { return dunlin::park::bucket_of(&m).waiting >= 4; });
            const dunlin::no_preempt guard;
            m.unlock();
        });
        // Perhaps a goroutine was quick enough to take it.
        const std::uint64_t owner = dunlin::detail::mutex_holder::goroutine(&m);
        if (owner != 0) {
            behind.detach();
            return;
        }
        behind.join();
    }
}

class MutexDeathTest : public testing::Test {
protected:
    void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(MutexDeathTest, MisuseEndsTheProcess) {
    EXPECT_DEATH(dunlin::run([] { dunlin::mutex().unlock(); }), "unlock of unlocked mutex \\(goroutine 1.*created at");
    EXPECT_DEATH(dunlin::mutex().unlock(), "unlock of unlocked mutex \\(a thread");
    EXPECT_DEATH(dunlin::run([] { dunlin::recursive_mutex().unlock(); }), "unlock of unlocked mutex");
    EXPECT_DEATH(dunlin::run([] {
        static dunlin::mutex m;
        m.lock();
        m.lock();
    }), "recursive lock of a mutex by its own holder: goroutine 1 has held it for ");
    EXPECT_DEATH(dunlin::run([] {
        dunlin::mutex m;
        m.lock();
    }), "a mutex is destroyed while it is locked");
    EXPECT_DEATH(dunlin::run([] {
        static dunlin::recursive_mutex m;
        m.lock();
        dunlin::spawn([] { m.unlock(); }).get();
    }), "recursive_mutex that another goroutine or thread holds");
}

}  // namespace
