// shared_mutex: readers together, writers alone, none starves.
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

#include <dunlin/context.hpp>
#include <dunlin/shared_mutex.hpp>

#include "park/parking_lot.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class SharedMutex : public support::each_p {};
EACH_P(SharedMutex);

void wait_for_waiters(const dunlin::shared_mutex& m, unsigned count) {
    support::eventually([&] { return dunlin::park::bucket_of(&m).waiting == count; });
}

// Readers may go on together: the writer that was between them is left behind by its run().
TEST_P(SharedMutex, AThreadBehindAWriterThatIsLeftBehindGoesOn) {
    dunlin::shared_mutex& m = *new dunlin::shared_mutex;
    m.lock_shared();
    std::thread behind;
    run([&] {
        dunlin::go([&] { m.lock(); });
        wait_for_waiters(m, 1);
        behind = std::thread([&] {
            m.lock_shared();
            m.unlock_shared();
        });
        wait_for_waiters(m, 2);
    });
    behind.join();
    EXPECT_TRUE(m.try_lock_shared());
    m.unlock_shared();
    m.unlock_shared();
    EXPECT_TRUE(m.try_lock());
    m.unlock();
}

TEST_P(SharedMutex, AWriterThatIsLeftBehindKeepsNoLaterReaderOut) {
    using dunlin::shared_mutex;
    const auto read_beside_leftover = [&](auto lock) {
        shared_mutex& m = *new shared_mutex;
        m.lock_shared();
        run([&] {
            dunlin::go([&] { m.lock(); });
            wait_for_waiters(m, 1);
        });
        EXPECT_TRUE(lock(m));
        m.unlock_shared();
        m.unlock_shared();
        EXPECT_TRUE(m.try_lock());
        m.unlock();
    };
    read_beside_leftover([](shared_mutex& m) {
        m.lock_shared();
        return true;
    });
    read_beside_leftover([](shared_mutex& m) { return m.try_lock_shared(); });
    read_beside_leftover([](shared_mutex& m) { return m.try_lock_shared_for(0ns); });
    read_beside_leftover([](shared_mutex& m) { return m.try_lock_shared_for(1h); });
    read_beside_leftover([this](shared_mutex& m) {
        run([&] { m.lock_shared(); });
        return true;
    });
    // A writer that waits is not passed because of another that was left behind.
    read_beside_leftover([](shared_mutex& m) {
        const auto writer = dunlin::spawn([&] { return m.try_lock_for(1h) && (m.unlock(), true); });
        support::eventually([&] { return !m.try_lock_shared() || (m.unlock_shared(), false); });
        m.unlock_shared();
        writer.wait();
        m.lock_shared();
        return m.try_lock_shared();
    });
}

TEST_P(SharedMutex, LetsReadersInTogetherAndWritersAlone) {
    allow(60s);
    run([] {
        dunlin::shared_mutex m;
        std::atomic<int> activity{0}, wrong{0};
        auto reader = [&](int rounds, bool timed) {
            for (int i = 0; i < rounds; ++i) {
                if (timed && i % 5 == 0) {
                    if (!m.try_lock_shared_for(50us)) continue;
                } else {
                    m.lock_shared();
                }
                const int n = activity.fetch_add(1) + 1;
                if (n < 1 || n >= 10'000) ++wrong;
                if (i % 32 == 0) dunlin::yield();
                activity.fetch_sub(1);
                m.unlock_shared();
            }
        };
        auto writer = [&](int rounds, bool timed) {
            for (int i = 0; i < rounds; ++i) {
                if (timed && i % 5 == 0) {
                    if (!m.try_lock_for(50us)) continue;
                } else {
                    m.lock();
                }
                if (activity.fetch_add(10'000) != 0) ++wrong;
                if (i % 16 == 0) dunlin::yield();
                activity.fetch_sub(10'000);
                m.unlock();
            }
        };
        const int rounds = support::rounds(2000);
        std::vector<std::thread> threads;
        threads.emplace_back([&] { reader(rounds, true); });
        threads.emplace_back([&] { writer(rounds / 4, false); });
        dunlin::task_group group;
        for (int i = 0; i < 6; ++i) group.go([&, i] { reader(rounds, i % 2 == 0); });
        for (int i = 0; i < 3; ++i) group.go([&, i] { writer(rounds / 4, i % 2 == 0); });
        group.wait();
        for (std::thread& t : threads) dunlin::blocking([&] { t.join(); });
        EXPECT_EQ(wrong, 0);
        EXPECT_TRUE(m.try_lock());
        m.unlock();
    });
}

TEST_P(SharedMutex, AWriterThatWaitsKeepsReadersOutAndLetsThemInWhenItGivesUp) {
    run([] {
        dunlin::shared_mutex m;
        m.lock_shared();
        std::atomic<bool> given_up{false};
        const auto try_to_write = [&] {
            const bool locked = m.try_lock_for(100ms);
            given_up = true;
            return locked;
        };
        auto writer = dunlin::spawn(try_to_write);
        support::eventually([&] {
            if (!m.try_lock_shared()) return true;
            m.unlock_shared();
            if (given_up.exchange(false)) {  // on a busy machine before it was seen to wait
                EXPECT_FALSE(writer.get());
                writer = dunlin::spawn(try_to_write);
            }
            return false;
        });
        auto reader = dunlin::spawn([&] {
            std::shared_lock lock(m);
            return true;
        });
        EXPECT_FALSE(m.try_lock());
        EXPECT_FALSE(writer.get());
        EXPECT_TRUE(reader.get());
        m.unlock_shared();
        std::unique_lock lock(m);
    });
}

// One writer gives up, another one remains: the readers that stand before that one get in, those behind it do not.
TEST_P(SharedMutex, AWriterThatGivesUpLetsReadersInUpToTheNextWriter) {
    run([] {
        dunlin::shared_mutex m;
        m.lock_shared();
        const auto [give_up, cancel] = dunlin::with_cancel({});
        auto first = dunlin::spawn([&, ctx = give_up] { EXPECT_THROW(m.lock(ctx), dunlin::context_cancelled); });
        wait_for_waiters(m, 1);
        dunlin::task_group before;
        for (int i = 0; i < 3; ++i) before.go([&] { m.lock_shared(); });
        wait_for_waiters(m, 4);
        auto second = dunlin::spawn([&] { m.lock(); });
        wait_for_waiters(m, 5);
        std::atomic<bool> behind_is_in{false};
        auto behind = dunlin::spawn([&] {
            m.lock_shared();
            behind_is_in = true;
            m.unlock_shared();
        });
        wait_for_waiters(m, 6);
        cancel();
        first.get();
        before.wait();
        wait_for_waiters(m, 2);
        EXPECT_FALSE(m.try_lock_shared()) << "a writer waits";
        EXPECT_FALSE(behind_is_in);
        for (int i = 0; i < 4; ++i) m.unlock_shared();
        second.get();
        EXPECT_FALSE(behind_is_in);
        m.unlock();
        behind.get();
        EXPECT_TRUE(m.try_lock());
        m.unlock();
    });
}

// Readers are as good as alone when all writers only try for a while.
TEST_P(SharedMutex, ReadersGetInAmongWritersThatOnlyTimeOut) {
    run([] {
        dunlin::shared_mutex m;
        std::atomic<bool> stop{false};
        m.lock_shared();
        dunlin::task_group writers;
        for (int i = 0; i < 3; ++i) {
            writers.go([&, i] {
                dunlin::sleep_for(std::chrono::microseconds(i * 700));
                while (!stop) EXPECT_FALSE(m.try_lock_for(2ms));
            });
        }
        for (int i = 0; i < 10; ++i) {
            dunlin::sleep_for(3ms);
            m.lock_shared();  // the watchdog ends it when it never gets in
            m.unlock_shared();
        }
        stop = true;
        writers.wait();
        m.unlock_shared();
    });
}

TEST_P(SharedMutex, AllReadersThatWaitGetInBeforeTheNextWriter) {
    run([] {
        dunlin::shared_mutex m;
        std::atomic<int> readers{0};
        std::atomic<int> seen{-1};
        m.lock();
        dunlin::task_group group;
        group.go([&] {
            m.lock();
            seen = readers.load();
            m.unlock();
        });
        wait_for_waiters(m, 1);
        for (int i = 0; i < 10; ++i) {
            group.go([&] {
                m.lock_shared();
                ++readers;
                m.unlock_shared();
            });
        }
        wait_for_waiters(m, 11);
        m.unlock();
        group.wait();
        EXPECT_EQ(seen, 10);
    });
}

TEST_P(SharedMutex, AWriterGetsInAmongReadersThatNeverStop) {
    run([] {
        dunlin::shared_mutex m;
        std::atomic<bool> stop{false};
        dunlin::task_group group;
        for (int i = 0; i < 8; ++i) {
            group.go([&] {
                while (!stop) {
                    m.lock_shared();
                    dunlin::yield();
                    m.unlock_shared();
                }
            });
        }
        for (int i = 0; i < 100; ++i) {
            m.lock();
            m.unlock();
        }
        stop = true;
        group.wait();
    });
}

TEST_P(SharedMutex, MayBeDestroyedAsSoonAsItIsFree) {
    run([] {
        for (int round = 0; round < support::rounds(3000); ++round) {
            auto m = std::make_unique<dunlin::shared_mutex>();
            m->lock();
            auto t = dunlin::spawn([&] {
                round % 2 ? m->lock() : m->lock_shared();
                round % 2 ? m->unlock() : m->unlock_shared();
                m.reset();
            });
            if (round % 3 == 0) dunlin::yield();
            m->unlock();
            t.get();
        }
    });
}

TEST(SharedMutexDeathTest, MisuseEndsTheProcess) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_DEATH(
        dunlin::run([] { dunlin::shared_mutex().unlock(); }), "unlock of unlocked shared_mutex \\(goroutine 1");
    EXPECT_DEATH(dunlin::run([] { dunlin::shared_mutex().unlock_shared(); }), "unlock_shared of unlocked shared_mutex");
    EXPECT_DEATH(dunlin::run([] {
        dunlin::shared_mutex m;
        m.lock_shared();
        m.unlock();
    }), "unlock of unlocked shared_mutex");
    EXPECT_DEATH(dunlin::run([] {
        dunlin::shared_mutex m;
        m.lock();
        m.unlock_shared();
    }), "unlock_shared of unlocked shared_mutex");
}

}  // namespace
