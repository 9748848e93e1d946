// Ports of Go's own tests of package sync that run long, under Go's names: RWMutex, WaitGroup, Pool.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dunlin/mutex.hpp>
#include <dunlin/pool.hpp>
#include <dunlin/shared_mutex.hpp>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class GoSyncStress : public support::each_p {};
EACH_P(GoSyncStress);

// ---- RWMutex --------------------------------------------------------------------------------------------------------

struct rw_hammer {
    dunlin::shared_mutex m;
    std::atomic<std::int32_t> activity{0};  // a reader adds 1, a writer 10000
    std::atomic<int> wrong{0};
    dunlin::chan<bool> done;

    void work() {
        for (int i = 0; i < 100; ++i) asm volatile("");
    }
    void reader(int iterations) {
        for (int i = 0; i < iterations; ++i) {
            m.lock_shared();
            const std::int32_t n = activity.fetch_add(1) + 1;
            if (n < 1 || n >= 10000) ++wrong;
            work();
            activity.fetch_sub(1);
            m.unlock_shared();
        }
        done.send(true);
    }
    void writer(int iterations) {
        for (int i = 0; i < iterations; ++i) {
            m.lock();
            if (activity.fetch_add(10000) != 0) ++wrong;
            work();
            activity.fetch_sub(10000);
            m.unlock();
        }
        done.send(true);
    }
};

void hammer_rwmutex(unsigned procs, int readers, int iterations) {
    dunlin::run({.max_procs = procs}, [=] {
        rw_hammer h;
        dunlin::go([&] { h.writer(iterations); });
        for (int i = 0; i < readers / 2; ++i) dunlin::go([&] { h.reader(iterations); });
        dunlin::go([&] { h.writer(iterations); });
        for (int i = readers / 2; i < readers; ++i) dunlin::go([&] { h.reader(iterations); });
        for (int i = 0; i < 2 + readers; ++i) h.done.recv();
        EXPECT_EQ(h.wrong, 0) << procs << " processors, " << readers << " readers";
        EXPECT_EQ(h.activity, 0);
        EXPECT_TRUE(h.m.try_lock());
        h.m.unlock();
    });
}

class GoRWMutexStress : public support::runtime_test {};

// SYN-13, go1.24 src/sync/rwmutex_test.go TestRWMutex, its second half
TEST_F(GoRWMutexStress, HammerRWMutex) {
    allow(120s);
    const int n = support::rounds(1000);
    constexpr std::pair<unsigned, int> combinations[] = {
        {1, 1}, {1, 3}, {1, 10}, {4, 1}, {4, 3}, {4, 10}, {10, 1}, {10, 3}, {10, 10}, {10, 5}};
    for (int round = 0; round < 5; ++round) {
        for (const auto& [procs, readers] : combinations) hammer_rwmutex(procs, readers, n);
    }
}

// SYN-14: eight readers that never stop do not keep a writer out.
TEST_P(GoSyncStress, AWriterGetsInAmongReadersThatNeverStop) {
    run([] {
        dunlin::shared_mutex m;
        std::atomic<bool> stop{false};
        std::atomic<int> inside{0}, wrong{0};
        dunlin::task_group group;
        for (int i = 0; i < 8; ++i) {
            group.go([&] {
                while (!stop) {
                    const std::shared_lock lock(m);
                    ++inside;
                    --inside;
                }
            });
        }
        dunlin::yield();
        const auto begin = dunlin::clock::now();
        for (int i = 0; i < 100; ++i) {
            const std::lock_guard guard(m);
            if (inside != 0) ++wrong;
        }
        const auto took = dunlin::clock::now() - begin;
        stop = true;
        group.wait();
        EXPECT_EQ(wrong, 0);
        EXPECT_LT(took, 5s);
    });
}

// ---- WaitGroup ------------------------------------------------------------------------------------------------------

// SYN-11, go1.24 src/sync/waitgroup_test.go testWaitGroup
void test_wait_group(dunlin::wait_group& wg1, dunlin::wait_group& wg2) {
    constexpr int n = 16;
    wg1.add(n);
    wg2.add(n);
    dunlin::chan<bool> exited(n);
    for (int i = 0; i < n; ++i) {
        dunlin::go([=]() mutable {
            wg1.done();
            wg2.wait();
            exited.send(true);
        });
    }
    wg1.wait();
    for (int i = 0; i < n; ++i) {
        bool v;
        ASSERT_EQ(exited.try_recv(v), dunlin::channel_status::would_block) << "WaitGroup released group too soon";
        wg2.done();
    }
    for (int i = 0; i < n; ++i) exited.recv();  // will block if the barrier fails to unlock someone
}

// SYN-11, go1.24 src/sync/waitgroup_test.go TestWaitGroup
TEST_P(GoSyncStress, TestWaitGroup) {
    run([] {
        for (int round = 0; round < support::rounds(100); ++round) {
            dunlin::wait_group wg1, wg2;
            // Used again and again to ensure barrier sanity.
            for (int i = 0; i < 8; ++i) test_wait_group(wg1, wg2);
        }
    });
}

// SYN-11, go1.24 src/sync/waitgroup_test.go TestWaitGroupRace, a hundred times as often. With go() for the goroutines,
// wait() returns early exactly when the count does not keep up with the members.
TEST_P(GoSyncStress, TestWaitGroupRace) {
    allow(60s);
    run([] {
        for (int i = 0; i < support::rounds(100'000) / (support::under_thread ? 5 : 1); ++i) {
            dunlin::wait_group wg;
            std::atomic<int> n{0};
            const auto member = [&n, wg]() mutable {
                n.fetch_add(1);
                wg.done();
            };
            wg.add(1);
            dunlin::go(member);
            wg.add(1);
            dunlin::go(member);
            wg.wait();
            ASSERT_EQ(n.load(), 2) << "Spurious wakeup from Wait";
        }
    });
}

// The same with many waiters, plain threads among the members.
TEST_P(GoSyncStress, TestWaitGroupRaceWithThreads) {
    allow(60s);
    run([] {
        for (int i = 0; i < support::rounds(2000); ++i) {
            dunlin::wait_group wg;
            std::atomic<int> n{0}, early{0};
            wg.add(3);
            const auto member = [&] {
                n.fetch_add(1);
                wg.done();
                wg.wait();
                if (n.load() != 3) ++early;
            };
            std::thread thread(member);
            dunlin::task_group group;
            group.go(member);
            group.go(member);
            wg.wait();
            ASSERT_EQ(n.load(), 3);
            group.wait();
            dunlin::blocking([&] { thread.join(); });
            ASSERT_EQ(early, 0);
        }
    });
}

// SYN-11, go1.24 src/sync/waitgroup_test.go TestWaitGroupMisuse
TEST_P(GoSyncStress, TestWaitGroupMisuse) {
    run([] {
        dunlin::wait_group wg;
        wg.add(1);
        wg.done();
        try {
            wg.done();
            ADD_FAILURE() << "Should panic";
        } catch (const std::logic_error& e) {
            EXPECT_NE(std::string(e.what()).find("negative wait_group counter"), std::string::npos) << e.what();
        }
    });
}

// go1.24 src/sync/waitgroup_test.go TestWaitGroupAlign is about 32-bit machines, TestWaitGroupGo (1.25) is the same as
// sync/wait_group_test.cpp's.

// ---- Pool -----------------------------------------------------------------------------------------------------------

class GoPool : public support::runtime_test {};

// SYN-17, go1.24 src/sync/pool_test.go TestPool. At P = 1: the shelves are the processors'.
TEST_F(GoPool, TestPool) {
    dunlin::run({.max_procs = 1}, [] {
        dunlin::pool<std::string> p;
        EXPECT_EQ(p.get(), nullptr) << "expected empty";
        p.put(std::make_unique<std::string>("a"));
        p.put(std::make_unique<std::string>("b"));
        // Go's private slot makes it "a", then "b"; here the last one is the first, always.
        EXPECT_EQ(*p.get(), "b");
        EXPECT_EQ(*p.get(), "a");
        EXPECT_EQ(p.get(), nullptr);

        // What is in the pool survives one cycle, not two.
        for (int i = 0; i < 100; ++i) p.put(std::make_unique<std::string>("c"));
        p.trim();
        const auto g = p.get();
        ASSERT_NE(g, nullptr) << "nothing there after the first cycle";
        EXPECT_EQ(*g, "c");
        p.trim();
        EXPECT_EQ(p.get(), nullptr) << "something there after the second cycle";
    });
}

// SYN-17, go1.24 src/sync/pool_test.go TestPoolNew
TEST_F(GoPool, TestPoolNew) {
    dunlin::run({.max_procs = 1}, [] {
        int i = 0;
        dunlin::pool<int> p([&] { return std::make_unique<int>(++i); });
        EXPECT_EQ(*p.get(), 1);
        EXPECT_EQ(*p.get(), 2);
        p.put(std::make_unique<int>(42));
        EXPECT_EQ(*p.get(), 42);
        EXPECT_EQ(*p.get(), 3);
    });
}

struct counted {
    static inline std::atomic<int> alive{0};
    std::atomic<int> owners{0};
    counted() { ++alive; }
    ~counted() { --alive; }
};

// SYN-17, go1.24 src/sync/pool_test.go TestPoolGC, TestPoolRelease: trim() lets everything go that was put before the
// last one.
TEST_P(GoSyncStress, TestPoolGC) {
    run([] {
        dunlin::pool<counted> p;
        constexpr int n = 100;
        for (int round = 0; round < 10; ++round) {
            dunlin::task_group group;
            for (int i = 0; i < n; ++i) group.go([&] { p.put(std::make_unique<counted>()); });
            group.wait();
            EXPECT_EQ(counted::alive, n);
            p.trim();
            EXPECT_EQ(counted::alive, n);
            p.trim();
            EXPECT_EQ(counted::alive, 0);
        }
        p.put(std::make_unique<counted>());
    });
    EXPECT_EQ(counted::alive, 0);
}

// SYN-17, go1.24 src/sync/pool_test.go TestPoolStress
TEST_P(GoSyncStress, TestPoolStress) {
    allow(120s);
    run([this] {
        constexpr int goroutines = 10;
        // A million each where they really run at the same time.
        const int n = support::rounds(procs() == 1 ? 200'000 : 1'000'000) / (support::under_thread ? 5 : 1);
        dunlin::pool<counted> p;
        std::atomic<int> wrong{0};
        std::atomic<bool> stop{false};
        dunlin::chan<bool> done;
        for (int i = 0; i < goroutines; ++i) {
            dunlin::go([&, n, done] {
                std::unique_ptr<counted> v;
                for (int k = 0; k < n; ++k) {
                    if (!v) {
                        v = std::make_unique<counted>();
                        v->owners = 1;
                    }
                    v->owners.fetch_sub(1);
                    p.put(std::move(v));
                    v = p.get();
                    if (v && v->owners.fetch_add(1) != 0) ++wrong;
                }
                v.reset();  // main does not wait for what comes after this
                done.send(true);
            });
        }
        dunlin::task<void> trimmer = dunlin::spawn([&] {
            for (; !stop; dunlin::sleep_for(1ms)) p.trim();
        });
        for (int i = 0; i < goroutines; ++i) done.recv();
        stop = true;
        trimmer.get();
        EXPECT_EQ(wrong, 0) << "somebody else's object";
    });
    EXPECT_EQ(counted::alive, 0);
}

// SYN-18, go1.24 src/sync/pool_test.go TestPoolDequeue, TestPoolChain. There is no such queue in ours, so this is the
// pool itself: one puts numbers, and takes some back; the others take what they can get. Each number comes out exactly
// once.
TEST_P(GoSyncStress, TestPoolDequeue) {
    allow(120s);
    run([this] {
        const int n = support::rounds(2'000'000) / (support::under_thread ? 5 : 1);
        dunlin::pool<int> p;
        std::vector<std::atomic<std::uint8_t>> have(static_cast<std::size_t>(n));
        std::atomic<int> taken{0}, consumed_by_others{0};
        const auto record = [&](const std::unique_ptr<int>& v) {
            have[static_cast<std::size_t>(*v)].fetch_add(1, std::memory_order_relaxed);
            ++taken;
        };
        dunlin::task_group group;
        for (unsigned i = 0; i < procs(); ++i) {
            group.go([&] {
                int fails = 0;
                while (taken < n) {
                    if (const auto v = p.get()) {
                        record(v);
                        ++consumed_by_others;
                        fails = 0;
                    } else if (++fails % 16 == 0) {
                        dunlin::yield();
                    }
                }
            });
        }
        for (int i = 0; i < n; ++i) {
            p.put(std::make_unique<int>(i));
            if (i % 10 == 0) {
                if (const auto v = p.get()) record(v);
            }
            if (i % 1000 == 0) dunlin::yield();
        }
        group.wait();
        EXPECT_EQ(taken, n);
        EXPECT_GT(consumed_by_others, 0);
        EXPECT_TRUE(std::all_of(have.begin(), have.end(), [](const auto& count) { return count == 1; }));
        EXPECT_EQ(p.get(), nullptr);
    });
}

}  // namespace
