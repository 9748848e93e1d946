// Ports of Go's own tests of package sync, under Go's names. once: once_test.cpp; what runs long: sync_stress_test.cpp;
// misuse that ends the process: crash/sync_test.cpp.
#include <array>
#include <mutex>
#include <shared_mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include <dunlin/condition_variable.hpp>
#include <dunlin/mutex.hpp>
#include <dunlin/semaphore.hpp>
#include <dunlin/shared_mutex.hpp>

#include "support/runtime_test.h"

using namespace std::chrono_literals;
using dunlin::channel_status;

namespace {

class GoSync : public support::each_p {};
EACH_P(GoSync);

template <class T>
bool is_empty(dunlin::chan<T>& c) {
    T v{};
    return c.try_recv(v) == channel_status::would_block;
}

// ---- mutex ----------------------------------------------------------------------------------------------------------

// SYN-04, go1.24 src/sync/mutex_test.go TestMutex
TEST_P(GoSync, TestMutex) {
    run([] {
        dunlin::mutex m;
        m.lock();
        EXPECT_FALSE(m.try_lock()) << "TryLock succeeded with mutex locked";
        m.unlock();
        EXPECT_TRUE(m.try_lock()) << "TryLock failed with mutex unlocked";
        m.unlock();

        dunlin::chan<bool> done;
        int count = 0;  // m
        std::atomic<int> expected{0}, inside{0}, together{0};
        for (int i = 0; i < 10; ++i) {
            dunlin::go([&, done] {
                for (int k = 0; k < 1000; ++k) {
                    if (k % 3 != 0) {
                        m.lock();
                    } else if (!m.try_lock()) {
                        continue;
                    }
                    if (inside.fetch_add(1) != 0) ++together;
                    ++count;
                    ++expected;
                    inside.fetch_sub(1);
                    m.unlock();
                }
                done.send(true);
            });
        }
        for (int i = 0; i < 10; ++i) done.recv();
        EXPECT_EQ(together, 0);
        EXPECT_EQ(count, expected);
        EXPECT_GE(count, 10 * 666);
    });
}

// go1.24 src/sync/mutex_test.go TestMutexFairness
TEST_P(GoSync, TestMutexFairness) {
    run([] {
        dunlin::mutex mu;
        dunlin::chan<bool> stop, done(1), stopped;
        dunlin::go([&mu, stop, stopped] {
            do {
                mu.lock();
                dunlin::sleep_for(100us);
                mu.unlock();
            } while (!stop.closed());
            stopped.send(true);
        });
        dunlin::go([&mu, done] {
            for (int i = 0; i < 10; ++i) {
                dunlin::sleep_for(100us);
                mu.lock();
                mu.unlock();
            }
            done.send(true);
        });
        EXPECT_TRUE(done.recv_for(10s).has_value()) << "can't acquire Mutex in 10 seconds";
        stop.close();
        stopped.recv();
    });
}

// SYN-06, go1.24 src/sync/mutex_test.go TestSemaphore. Through what is there for users: ours is no internal of the
// mutex.
TEST_P(GoSync, TestSemaphore) {
    run([] {
        for (const int permits : {1, 3}) {
            dunlin::counting_semaphore<> s(permits);
            std::atomic<int> inside{0}, most{0};
            dunlin::chan<bool> done;
            for (int i = 0; i < 10; ++i) {
                dunlin::go([&, done] {
                    for (int k = 0; k < 1000; ++k) {
                        s.acquire();
                        const int now = ++inside;
                        for (int before = most; now > before && !most.compare_exchange_weak(before, now);) {}
                        if (k % 16 == 0) dunlin::yield();
                        --inside;
                        s.release();
                    }
                    done.send(true);
                });
            }
            for (int i = 0; i < 10; ++i) done.recv();
            EXPECT_LE(most, permits);
            for (int i = 0; i < permits; ++i) EXPECT_TRUE(s.try_acquire()) << i;
            EXPECT_FALSE(s.try_acquire());
        }
    });
}

// ---- condition variables --------------------------------------------------------------------------------------------

using lock_type = std::unique_lock<dunlin::mutex>;

// SYN-07, go1.24 src/sync/cond_test.go TestCondSignal
TEST_P(GoSync, TestCondSignal) {
    run([] {
        dunlin::mutex m;
        dunlin::condition_variable c;
        constexpr int n = 2;
        dunlin::chan<bool> running(n), awake(n);
        dunlin::wait_group all;
        for (int i = 0; i < n; ++i) {
            all.go([&] {
                lock_type lock(m);
                running.send(true);
                c.wait(lock);
                awake.send(true);
            });
        }
        for (int i = 0; i < n; ++i) running.recv();
        for (int i = 0; i < n; ++i) {
            ASSERT_TRUE(is_empty(awake)) << "goroutine not asleep";
            {
                const std::lock_guard guard(m);
                c.notify_one();
            }
            awake.recv();  // will deadlock if no goroutine wakes up
            ASSERT_TRUE(is_empty(awake)) << "too many goroutines awake";
        }
        c.notify_one();
        all.wait();
    });
}

// SYN-08, go1.24 src/sync/cond_test.go TestCondSignalGenerations
TEST_P(GoSync, TestCondSignalGenerations) {
    run([] {
        dunlin::mutex m;
        dunlin::condition_variable c;
        constexpr int n = 100;
        dunlin::chan<bool> running(n);
        dunlin::chan<int> awake(n);
        dunlin::wait_group all;
        for (int i = 0; i < n; ++i) {
            all.go([&, i] {
                lock_type lock(m);
                running.send(true);
                c.wait(lock);
                awake.send(i);
            });
            if (i > 0) {
                ASSERT_EQ(awake.recv(), i - 1) << "wrong goroutine woke up";
            }
            running.recv();
            const std::lock_guard guard(m);
            c.notify_one();
        }
        EXPECT_EQ(awake.recv(), n - 1);
        all.wait();
    });
}

// SYN-08: the order, with all of them waiting at the same time.
TEST_P(GoSync, SignalWakesInTheOrderOfArrival) {
    run([] {
        dunlin::mutex m;
        dunlin::condition_variable c;
        constexpr int n = 100;
        dunlin::chan<bool> running;
        dunlin::chan<int> awake;
        dunlin::wait_group all;
        for (int i = 0; i < n; ++i) {
            all.go([&, i] {
                lock_type lock(m);
                running.send(true);
                c.wait(lock);
                lock.unlock();
                awake.send(i);
            });
            running.recv();
            const std::lock_guard guard(m);  // it waits when the mutex is free
        }
        for (int i = 0; i < n; ++i) {
            c.notify_one();
            ASSERT_EQ(awake.recv(), i);
        }
        all.wait();
    });
}

// SYN-09, go1.24 src/sync/cond_test.go TestCondBroadcast
TEST_P(GoSync, TestCondBroadcast) {
    allow(60s);
    run([] {
        dunlin::mutex m;
        dunlin::condition_variable c;
        constexpr int n = 200;
        const int rounds = support::rounds(n);
        dunlin::chan<int> running(n), awake(n);
        bool exit = false;
        dunlin::wait_group all;
        for (int g = 0; g < n; ++g) {
            all.go([&, g] {
                lock_type lock(m);
                while (!exit) {
                    running.send(g);
                    c.wait(lock);
                    awake.send(g);
                }
            });
        }
        for (int round = 0; round < rounds; ++round) {
            for (int i = 0; i < n; ++i) running.recv();
            if (round == rounds - 1) {
                const std::lock_guard guard(m);
                exit = true;
            }
            ASSERT_TRUE(is_empty(awake)) << "goroutine not asleep";
            {
                const std::lock_guard guard(m);
                c.notify_all();
            }
            std::array<bool, n> seen{};
            for (int i = 0; i < n; ++i) {
                const auto g = static_cast<std::size_t>(awake.recv().value());
                ASSERT_FALSE(std::exchange(seen[g], true)) << "goroutine woke up twice";
            }
        }
        EXPECT_TRUE(is_empty(running)) << "goroutine did not exit";
        c.notify_all();
        all.wait();
    });
}

// SYN-10, go1.24 src/sync/cond_test.go TestRace
TEST_P(GoSync, TestRace) {
    run([] {
        for (int round = 0; round < support::rounds(300); ++round) {
            int x = 0;
            dunlin::mutex m;
            dunlin::condition_variable c;
            dunlin::chan<bool> done;
            dunlin::go([&, done] {
                {
                    lock_type lock(m);
                    x = 1;
                    c.wait(lock);
                    EXPECT_EQ(x, 2);
                    x = 3;
                    c.notify_one();
                }
                done.send(true);
            });
            dunlin::go([&, done] {
                {
                    lock_type lock(m);
                    while (x != 1) {
                        lock.unlock();
                        dunlin::yield();
                        lock.lock();
                    }
                    x = 2;
                    c.notify_one();
                }
                done.send(true);
            });
            dunlin::go([&, done] {
                {
                    lock_type lock(m);
                    while (x != 2 && x != 3) {
                        lock.unlock();
                        dunlin::yield();
                        lock.lock();
                    }
                    if (x == 2) {
                        c.wait(lock);
                        EXPECT_EQ(x, 3);
                    }
                }
                done.send(true);
            });
            for (int i = 0; i < 3; ++i) done.recv();
        }
    });
}

// go1.24 src/sync/cond_test.go TestCondSignalStealing: a later waiter must not take the notify of an earlier one.
TEST_P(GoSync, TestCondSignalStealing) {
    run([] {
        for (int i = 0; i < support::rounds(1000); ++i) {
            dunlin::mutex m;
            dunlin::condition_variable c;
            dunlin::chan<bool> ch;
            dunlin::wait_group racers;
            dunlin::go([&, ch] {
                {
                    lock_type lock(m);
                    ch.send(true);
                    c.wait(lock);
                }
                ch.send(true);
            });
            ch.recv();
            m.lock();
            m.unlock();
            // The waiter waits. Two race: one notifies all, the other waits too, and may or may not be notified; the
            // first has to be.
            bool done = false;
            racers.go([&] { c.notify_all(); });
            racers.go([&] {
                lock_type lock(m);
                while (!done) c.wait(lock);
            });
            ch.recv();
            m.lock();
            done = true;
            m.unlock();
            c.notify_all();
            racers.wait();
        }
    });
}

// SYN-10, go1.24 src/sync/cond_test.go TestCondCopy: Go finds it out when it runs. Here it does not compile.
template <class T>
constexpr bool stays_where_it_is = !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
                                   !std::is_move_constructible_v<T> && !std::is_move_assignable_v<T>;
static_assert(stays_where_it_is<dunlin::condition_variable> && stays_where_it_is<dunlin::condition_variable_any>);
static_assert(stays_where_it_is<dunlin::mutex> && stays_where_it_is<dunlin::recursive_mutex> &&
              stays_where_it_is<dunlin::shared_mutex>);
static_assert(stays_where_it_is<dunlin::counting_semaphore<>>);

// ---- shared_mutex ---------------------------------------------------------------------------------------------------

// SYN-12, go1.24 src/sync/rwmutex_test.go TestParallelReaders
void parallel_readers(unsigned readers, unsigned procs) {
    dunlin::run({.max_procs = procs}, [readers] {
        dunlin::shared_mutex m;
        dunlin::chan<bool> locked, unlock, done;
        for (unsigned i = 0; i < readers; ++i) {
            dunlin::go([&m, locked, unlock, done] {
                m.lock_shared();
                locked.send(true);
                unlock.recv();
                m.unlock_shared();
                done.send(true);
            });
        }
        for (unsigned i = 0; i < readers; ++i) locked.recv();  // all of them have it
        EXPECT_FALSE(m.try_lock());
        for (unsigned i = 0; i < readers; ++i) unlock.send(true);
        for (unsigned i = 0; i < readers; ++i) done.recv();
        EXPECT_TRUE(m.try_lock());
        m.unlock();
    });
}

class GoRWMutex : public support::runtime_test {};

TEST_F(GoRWMutex, TestParallelReaders) {
    parallel_readers(1, 4);
    parallel_readers(3, 4);
    parallel_readers(4, 2);
}

// SYN-12: with readers that compute until all of them have it.
TEST_F(GoRWMutex, SpinningReadersHaveItTogether) {
    for (const unsigned readers : {1u, 3u, 4u}) {
        dunlin::run({.max_procs = readers + 1}, [readers] {
            for (int round = 0; round < support::rounds(20); ++round) {
                dunlin::shared_mutex m;
                std::atomic<unsigned> inside{0};
                dunlin::task_group group;
                for (unsigned i = 0; i < readers; ++i) {
                    group.go([&] {
                        const std::shared_lock lock(m);
                        ++inside;
                        while (inside < readers) {}
                    });
                }
                group.wait();
                EXPECT_EQ(inside, readers);
            }
        });
    }
}

// SYN-13, go1.24 src/sync/rwmutex_test.go TestRWMutex
TEST_P(GoSync, TestRWMutex) {
    run([] {
        dunlin::shared_mutex m;
        m.lock();
        EXPECT_FALSE(m.try_lock()) << "TryLock succeeded with mutex locked";
        EXPECT_FALSE(m.try_lock_shared()) << "TryRLock succeeded with mutex locked";
        m.unlock();
        EXPECT_TRUE(m.try_lock()) << "TryLock failed with mutex unlocked";
        m.unlock();
        EXPECT_TRUE(m.try_lock_shared()) << "TryRLock failed with mutex unlocked";
        EXPECT_TRUE(m.try_lock_shared()) << "TryRLock failed with mutex rlocked";
        EXPECT_FALSE(m.try_lock()) << "TryLock succeeded with mutex rlocked";
        m.unlock_shared();
        m.unlock_shared();
    });
}

// go1.24 src/sync/rwmutex_test.go TestRLocker: a share is a lock of its own, here std::shared_lock.
TEST_P(GoSync, TestRLocker) {
    run([] {
        dunlin::shared_mutex wl;
        dunlin::chan<bool> wlocked(1), rlocked(1);
        std::shared_lock<dunlin::shared_mutex> first(wl, std::defer_lock), second(wl, std::defer_lock);
        constexpr int n = 10;
        dunlin::wait_group all;
        all.go([&] {
            for (int i = 0; i < n; ++i) {
                first.lock();
                second.lock();
                rlocked.send(true);
                wl.lock();
                wlocked.send(true);
            }
        });
        for (int i = 0; i < n; ++i) {
            rlocked.recv();
            first.unlock();
            EXPECT_TRUE(is_empty(wlocked)) << "RLocker() didn't read-lock it";
            second.unlock();
            wlocked.recv();
            EXPECT_TRUE(is_empty(rlocked)) << "RLocker() didn't respect the write lock";
            wl.unlock();
        }
        all.wait();
    });
}

// SYN-14: all readers that stand in the queue when a writer unlocks get in before the next writer, which came before
// them.
TEST_P(GoSync, ReadersThatWaitGetInBeforeTheNextWriter) {
    run([] {
        for (int round = 0; round < support::rounds(30); ++round) {
            constexpr unsigned writers = 3, readers = 10;
            dunlin::shared_mutex m;
            std::atomic<unsigned> in{0};
            std::vector<unsigned> seen;  // m
            dunlin::task_group group;
            m.lock();
            const auto until_waiting = [](std::size_t n) {
                support::eventually([n] { return dunlin::runtime::stats().waiting == n; });
            };
            for (unsigned i = 0; i < writers; ++i) {
                group.go([&] {
                    const std::lock_guard guard(m);
                    seen.push_back(in);
                });
            }
            until_waiting(writers);
            for (unsigned i = 0; i < readers; ++i) {
                group.go([&] {
                    const std::shared_lock lock(m);
                    ++in;
                });
            }
            until_waiting(writers + readers);
            EXPECT_EQ(in, 0u);
            m.unlock();
            group.wait();
            ASSERT_EQ(seen, std::vector<unsigned>(writers, readers));
        }
    });
}

}  // namespace
