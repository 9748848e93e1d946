// The number of processors: read, changed under load, refused.
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/runtime_test.h"
#include "support/undisturbed.h"

using namespace std::chrono_literals;

namespace {

class MaxProcs : public support::runtime_test {};

TEST_F(MaxProcs, ShowsAChangeAtOnceAndReturnsTheOldValue) {
    dunlin::runtime::set_max_procs(3);
    EXPECT_EQ(dunlin::runtime::max_procs(), 3u);
    EXPECT_EQ(dunlin::runtime::set_max_procs(7), 3u);
    EXPECT_EQ(dunlin::runtime::max_procs(), 7u);
    EXPECT_EQ(dunlin::runtime::stats().max_procs, 7u);
    dunlin::run([] {
        EXPECT_EQ(dunlin::runtime::set_max_procs(2), 7u);
        EXPECT_EQ(dunlin::runtime::max_procs(), 2u);
    });
}

TEST_F(MaxProcs, RefusesZeroAndMoreThanTheLimitAndChangesNothing) {
    dunlin::runtime::set_max_procs(2);
    for (const unsigned bad : {0u, 1025u, 4096u, ~0u})
        EXPECT_THROW(dunlin::runtime::set_max_procs(bad), std::invalid_argument) << bad;
    EXPECT_EQ(dunlin::runtime::max_procs(), 2u);
}

TEST_F(MaxProcs, TakesEveryLegalValueAlsoAboveTheNumberOfCpus) {
    for (unsigned n = 1; n <= 1024; n += n < 8 ? 1 : 127) {
        dunlin::runtime::set_max_procs(n);
        EXPECT_EQ(dunlin::spawn([] { return dunlin::runtime::max_procs(); }).get(), n);
    }
    dunlin::runtime::set_max_procs(1024);
    EXPECT_EQ(dunlin::spawn([] { return dunlin::runtime::max_procs(); }).get(), 1024u);
    dunlin::runtime::set_max_procs(2);
}

// Goroutines of every kind of activity, each of which must come to its end.
TEST_F(MaxProcs, ChangedAThousandTimesUnderLoadLosesNoGoroutine) {
    allow(120s);
    dunlin::run({.max_procs = 4}, [] {
        std::atomic<bool> stop{false};
        std::atomic<std::uint64_t> ended{0}, started{0};
        dunlin::wait_group load;
        for (int i = 0; i < 4; ++i) {
            load.go([&] {  // yields
                while (!stop) dunlin::yield();
            });
            load.go([&] {  // spawns and joins
                while (!stop) {
                    dunlin::task<int> t = dunlin::spawn([] { return 1; });
                    started.fetch_add(1);
                    ended.fetch_add(static_cast<std::uint64_t>(t.get()));
                }
            });
            load.go([&] {  // fans out
                while (!stop) {
                    dunlin::wait_group wg;
                    for (int k = 0; k < 300; ++k) {
                        started.fetch_add(1);
                        wg.go([&] { ended.fetch_add(1); });
                    }
                    wg.wait();
                }
            });
            load.go([&] {  // sleeps
                while (!stop) dunlin::sleep_for(100us);
            });
        }
        const unsigned sizes[] = {1, 8, 2, 16, 1, 3, 64, 1, 2};
        for (int i = 0; i < support::rounds(1000); ++i) {
            dunlin::runtime::set_max_procs(sizes[static_cast<std::size_t>(i) % std::size(sizes)]);
            if (i % 10 == 0) dunlin::yield();
        }
        stop = true;
        load.wait();
        EXPECT_EQ(started.load(), ended.load());
        EXPECT_GT(started.load(), 0u);
    });
    EXPECT_EQ(dunlin::runtime::num_goroutines(), 0u);
}

TEST_F(MaxProcs, ChangedByPlainThreadsAtTheSameTime) {
    dunlin::run({.max_procs = 2}, [] {
        std::atomic<bool> stop{false};
        std::vector<std::thread> changers;
        for (unsigned t = 0; t < 3; ++t) {
            changers.emplace_back([&stop, t] {
                for (unsigned i = 0; !stop; ++i) dunlin::runtime::set_max_procs(1 + (i * 3 + t) % 9);
            });
        }
        std::atomic<int> count{0};
        constexpr int rounds = support::sanitized ? 20 : 500;
        for (int round = 0; round < rounds; ++round) {
            dunlin::wait_group wg;
            for (int k = 0; k < 100; ++k) {
                wg.go([&count] {
                    dunlin::yield();
                    count.fetch_add(1);
                });
            }
            wg.wait();
        }
        EXPECT_EQ(count.load(), 100 * rounds);
        stop = true;
        for (std::thread& t : changers) t.join();
    });
}

TEST_F(MaxProcs, WhileGoroutinesComputeIsNotKeptWaiting) {
    dunlin::run({.max_procs = 2}, [] {
        std::atomic<bool> stop{false}, started{false};
        dunlin::task<void> computes = dunlin::spawn([&] {
            started = true;
            while (!stop.load()) {}
        });
        support::eventually([&] { return started.load(); });
        const auto begin = dunlin::clock::now();
        for (int i = 0; i < 20; ++i) dunlin::runtime::set_max_procs(2 + static_cast<unsigned>(i) % 3);
        EXPECT_LT(dunlin::clock::now() - begin, 5s);
        stop = true;
        computes.get();
    });
}

// At most max_procs goroutines execute at the same time.
TEST_F(MaxProcs, BoundsHowManyGoroutinesExecute) {
    for (const unsigned n : {1u, 2u, 3u}) {
        dunlin::run({.max_procs = n}, [n] {
            const auto most_at_once = [] {
                std::atomic<unsigned> inside{0}, most{0};
                dunlin::wait_group wg;
                for (int i = 0; i < 50; ++i) {
                    wg.go([&] {
                        for (int k = 0; k < support::rounds(200); ++k) {
                            const unsigned now = inside.fetch_add(1) + 1;
                            for (unsigned seen = most.load(); seen < now && !most.compare_exchange_weak(seen, now);) {}
                            for (int spin = 0; spin < 200; ++spin) asm volatile("");
                            inside.fetch_sub(1);
                            dunlin::yield();
                        }
                    });
                }
                wg.wait();
                return most.load();
            };
            // One whose thread the kernel keeps from running in there loses its processor to another.
            EXPECT_LE(support::undisturbed(most_at_once, 1h), n);
        });
    }
}

}  // namespace
