// counting_semaphore and binary_semaphore.
#include <thread>
#include <vector>

#include <dunlin/semaphore.hpp>

#include "park/parking_lot.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class Semaphore : public support::each_p {};
EACH_P(Semaphore);

TEST_P(Semaphore, LetsInNoMoreThanItsPermits) {
    run([] {
        dunlin::counting_semaphore<3> s(3);
        std::atomic<int> inside{0}, wrong{0};
        const int rounds = support::rounds(3000);
        auto body = [&] {
            for (int i = 0; i < rounds; ++i) {
                if (i % 4 == 0) {
                    if (!s.try_acquire_for(50us)) continue;
                } else {
                    s.acquire();
                }
                if (inside.fetch_add(1) >= 3) ++wrong;
                if (i % 32 == 0) dunlin::yield();
                inside.fetch_sub(1);
                s.release();
            }
        };
        std::vector<std::thread> threads;
        for (int i = 0; i < 2; ++i) threads.emplace_back(body);
        dunlin::task_group group;
        for (int i = 0; i < 8; ++i) group.go(body);
        group.wait();
        for (std::thread& t : threads) dunlin::blocking([&] { t.join(); });
        EXPECT_EQ(wrong, 0);
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(s.try_acquire());
        EXPECT_FALSE(s.try_acquire());
    });
}

// The other party is still inside release() when the semaphore goes away.
TEST_P(Semaphore, MayBeDestroyedAsSoonAsTheAcquireHasReturned) {
    run([] {
        for (int round = 0; round < support::rounds(5000); ++round) {
            dunlin::binary_semaphore s(0);
            dunlin::go([&] { s.release(); });
            s.acquire();
        }
        for (int round = 0; round < support::rounds(300); ++round) {
            auto s = std::make_unique<dunlin::binary_semaphore>(0);
            std::thread t([&] { s->release(); });
            s->acquire();
            s.reset();
            dunlin::blocking([&] { t.join(); });
        }
    });
}

TEST_P(Semaphore, PermitsGoToTheOldestWaiters) {
    run([] {
        dunlin::counting_semaphore<> s(0);
        std::atomic<int> next{0};
        dunlin::task_group group;
        for (int i = 0; i < 10; ++i) {
            group.go([&, i] {
                s.acquire();
                EXPECT_EQ(next.load(), i);
                ++next;
            });
            support::eventually([&] { return dunlin::park::bucket_of(&s).waiting == static_cast<unsigned>(i + 1); });
        }
        for (int i = 0; i < 10; ++i) {
            s.release();
            support::eventually([&] { return next == i + 1; });
        }
        group.wait();
        EXPECT_FALSE(s.try_acquire());
    });
}

TEST_P(Semaphore, ReleaseOfManyWakesManyAndKeepsTheRest) {
    run([] {
        dunlin::counting_semaphore<> s(0);
        std::atomic<int> got{0};
        dunlin::task_group group;
        for (int i = 0; i < 5; ++i) group.go([&] { s.acquire(), ++got; });
        support::eventually([&] { return dunlin::park::bucket_of(&s).waiting == 5; });
        s.release(7);
        group.wait();
        EXPECT_EQ(got, 5);
        EXPECT_TRUE(s.try_acquire());
        EXPECT_TRUE(s.try_acquire());
        EXPECT_FALSE(s.try_acquire());
        EXPECT_FALSE(s.try_acquire_for(1ms));
        EXPECT_FALSE(s.try_acquire_until(std::chrono::steady_clock::now() + 1ms));
    });
}

TEST_P(Semaphore, BadArgumentsAreExceptions) {
    run([] {
        EXPECT_THROW(dunlin::counting_semaphore<2>(3), std::invalid_argument);
        EXPECT_THROW(dunlin::counting_semaphore<2>(-1), std::invalid_argument);
        dunlin::counting_semaphore<2> s(1);
        EXPECT_THROW(s.release(-1), std::invalid_argument);
        EXPECT_THROW(s.release(2), std::overflow_error);
        s.release();
        EXPECT_THROW(s.release(), std::overflow_error);
    });
}

// A release that is refused has changed nothing, with waiters and other releases at the same time.
TEST_P(Semaphore, WorksAfterAReleaseThatWasRefused) {
    allow(60s);
    run([] {
        dunlin::counting_semaphore<2> s(2);
        EXPECT_THROW(s.release(), std::overflow_error);
        s.acquire();
        EXPECT_THROW(s.release(2), std::overflow_error);
        s.release(1);
        s.acquire();
        s.acquire();
        EXPECT_FALSE(s.try_acquire());
        auto waiter = dunlin::spawn([&] { s.acquire(); });
        support::eventually([&] { return dunlin::park::bucket_of(&s).waiting == 1; });
        EXPECT_THROW(s.release(3), std::overflow_error);
        s.release(2);
        waiter.get();
        EXPECT_TRUE(s.try_acquire());
        EXPECT_FALSE(s.try_acquire());

        // Exactly what was not refused is there at the end.
        dunlin::counting_semaphore<3> t(0);
        std::atomic<long> released{0}, taken{0};
        dunlin::task_group group;
        for (int i = 0; i < 3; ++i) {
            group.go([&, i] {
                for (int round = 0; round < support::rounds(2000); ++round) {
                    try {
                        t.release(1 + (round + i) % 3);
                        released += 1 + (round + i) % 3;
                    } catch (const std::overflow_error&) {
                        dunlin::yield();
                    }
                }
            });
            group.go([&] {
                for (int round = 0; round < support::rounds(2000); ++round) {
                    if (t.try_acquire_for(50us)) ++taken;
                }
            });
        }
        group.wait();
        while (t.try_acquire()) ++taken;
        EXPECT_EQ(released, taken);
    });
}

}  // namespace
