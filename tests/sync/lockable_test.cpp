// The locks and the others of the library in the hands of the standard's templates, and one object of each kind used by
// goroutines and plain threads together.
#include <array>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <dunlin/barrier.hpp>
#include <dunlin/condition_variable.hpp>
#include <dunlin/future.hpp>
#include <dunlin/latch.hpp>
#include <dunlin/mutex.hpp>
#include <dunlin/once.hpp>
#include <dunlin/pool.hpp>
#include <dunlin/semaphore.hpp>
#include <dunlin/shared_mutex.hpp>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

// ---- the standard's named requirements ([thread.req.lockable]) ------------------------------------------------------

template <class L>
concept basic_lockable = requires(L m) {
    m.lock();
    m.unlock();
};
template <class L>
concept lockable = basic_lockable<L> && requires(L m) {
    { m.try_lock() } -> std::same_as<bool>;
};
template <class L>
concept timed_lockable =
    lockable<L> && requires(L m, std::chrono::nanoseconds d, std::chrono::system_clock::time_point t) {
        { m.try_lock_for(d) } -> std::same_as<bool>;
        { m.try_lock_until(t) } -> std::same_as<bool>;
    };
template <class L>
concept shared_lockable = requires(L m) {
    m.lock_shared();
    { m.try_lock_shared() } -> std::same_as<bool>;
    m.unlock_shared();
};
template <class L>
concept shared_timed_lockable =
    shared_lockable<L> && requires(L m, std::chrono::nanoseconds d, std::chrono::system_clock::time_point t) {
        { m.try_lock_shared_for(d) } -> std::same_as<bool>;
        { m.try_lock_shared_until(t) } -> std::same_as<bool>;
    };

static_assert(timed_lockable<dunlin::mutex> && timed_lockable<dunlin::timed_mutex> && !shared_lockable<dunlin::mutex>);
static_assert(timed_lockable<dunlin::recursive_mutex> && timed_lockable<dunlin::recursive_timed_mutex> &&
              !shared_lockable<dunlin::recursive_mutex>);
static_assert(timed_lockable<dunlin::shared_mutex> && shared_timed_lockable<dunlin::shared_mutex> &&
              shared_timed_lockable<dunlin::shared_timed_mutex>);

// Mutex: default-constructible, destructible, neither copyable nor movable.
template <class... T>
constexpr bool are_in_place = ((!std::copy_constructible<T> && !std::move_constructible<T> &&
                                !std::is_copy_assignable_v<T> && !std::is_move_assignable_v<T>)&&...);
static_assert(are_in_place<dunlin::mutex, dunlin::recursive_mutex, dunlin::shared_mutex, dunlin::condition_variable,
    dunlin::condition_variable_any>);
static_assert(are_in_place<dunlin::counting_semaphore<>, dunlin::binary_semaphore, dunlin::latch, dunlin::barrier<>,
    dunlin::once_flag, dunlin::pool<int>>);
template <class... T>
constexpr bool begin_free = (std::is_nothrow_default_constructible_v<T> && ...);
static_assert(begin_free<dunlin::mutex, dunlin::recursive_mutex, dunlin::shared_mutex, dunlin::once_flag>);
static_assert(begin_free<dunlin::condition_variable, dunlin::condition_variable_any>);
static_assert(std::movable<dunlin::future<int>> && !std::copyable<dunlin::future<int>>);
static_assert(std::movable<dunlin::promise<int>> && !std::copyable<dunlin::promise<int>>);

// Usable before any constructor has run.
constinit dunlin::mutex static_mutex;
constinit dunlin::recursive_mutex static_recursive_mutex;
constinit dunlin::shared_mutex static_shared_mutex;
constinit dunlin::once_flag static_once_flag;
constinit dunlin::counting_semaphore<> static_semaphore(1);

// The member types and constants that generic code asks for.
static_assert(dunlin::counting_semaphore<7>::max() >= 7 && dunlin::binary_semaphore::max() >= 1 &&
              dunlin::latch::max() >= 1 && dunlin::barrier<>::max() >= 1);
static_assert(std::same_as<dunlin::binary_semaphore, dunlin::counting_semaphore<1>>);
static_assert(std::movable<dunlin::barrier<>::arrival_token>);

class Lockable : public support::each_p {};
EACH_P(Lockable);

// ---- one at a time under the standard's guards ----------------------------------------------------------------------

// The body runs in goroutines and in plain threads, at the same time, with a number of its own each.
template <class Body>
void in_both_worlds(int goroutines, int threads, Body body) {
    std::vector<std::thread> all;
    {
        dunlin::task_group group;
        for (int i = 0; i < threads; ++i) all.emplace_back([&body, i, goroutines] { body(goroutines + i); });
        for (int i = 0; i < goroutines; ++i) group.go([&body, i] { body(i); });
        group.wait();
    }
    for (std::thread& t : all) dunlin::blocking([&] { t.join(); });
}

// What a lock protects: a number that is no atomic, and a look whether another is inside.
struct guarded {
    long count = 0;
    std::atomic<int> inside{0}, wrong{0};

    void touch(int i = 1) {
        if (inside.fetch_add(1) != 0) ++wrong;
        ++count;
        if (i % 64 == 0) dunlin::yield();
        inside.fetch_sub(1);
    }
};

template <class M>
void under_standard_guards(M& m) {
    guarded g;
    const int rounds = support::rounds(1000);
    std::atomic<int> late{0};
    in_both_worlds(4, 2, [&](int) {
        for (int i = 0; i < rounds; ++i) {
            switch (i % 6) {
            case 0: {
                const std::lock_guard guard(m);
                g.touch(i);
                break;
            }
            case 1: {
                std::unique_lock lock(m);
                g.touch(i);
                lock.unlock();
                lock.lock();
                const std::unique_lock moved = std::move(lock);
                break;
            }
            case 2: {
                const std::scoped_lock guard(m);
                g.touch(i);
                break;
            }
            case 3: {
                std::unique_lock lock(m, std::try_to_lock);
                while (!lock.owns_lock()) {
                    dunlin::yield();
                    static_cast<void>(lock.try_lock());
                }
                g.touch(i);
                break;
            }
            case 4: {
                const std::unique_lock lock(m, 10s);
                if (!lock.owns_lock()) {
                    ++late;
                    break;
                }
                g.touch(i);
                break;
            }
            default: {
                m.lock();
                const std::lock_guard guard(m, std::adopt_lock);
                g.touch(i);
                break;
            }
            }
        }
    });
    EXPECT_EQ(late, 0);
    EXPECT_EQ(g.wrong, 0);
    EXPECT_EQ(g.count, 6L * rounds);
}

TEST_P(Lockable, TheGuardsOfTheStandardTakeEachMutex) {
    allow(60s);
    run([] {
        dunlin::mutex m;
        under_standard_guards(m);
        dunlin::recursive_mutex r;
        under_standard_guards(r);
        dunlin::shared_mutex s;
        under_standard_guards(s);
    });
}

TEST_P(Lockable, StaticObjectsNeedNoConstructor) {
    run([] {
        under_standard_guards(static_mutex);
        under_standard_guards(static_recursive_mutex);
        under_standard_guards(static_shared_mutex);
        dunlin::call_once(static_once_flag, [] {});
        static_semaphore.acquire();
        static_semaphore.release();
    });
}

// Two and three at once, in every order: none waits for ever.
TEST_P(Lockable, ScopedLockOfSeveralHasNoDeadlock) {
    allow(60s);
    run([] {
        dunlin::mutex a, b;
        dunlin::recursive_mutex c;
        guarded ga, gb, gc;
        const int rounds = support::rounds(1000);
        in_both_worlds(5, 2, [&](int who) {
            for (int i = 0; i < rounds; ++i) {
                switch ((who + i) % 6) {
                case 0: {
                    const std::scoped_lock both(a, b);
                    ga.touch(), gb.touch(i);
                    break;
                }
                case 1: {
                    const std::scoped_lock both(b, a);
                    ga.touch(i), gb.touch();
                    break;
                }
                case 2: {
                    const std::scoped_lock all(a, b, c);
                    ga.touch(), gb.touch(), gc.touch(i);
                    break;
                }
                case 3: {
                    const std::scoped_lock all(c, b, a);
                    ga.touch(i), gb.touch(), gc.touch();
                    break;
                }
                case 4: {
                    std::unique_lock one(b, std::defer_lock);
                    std::unique_lock two(c, std::defer_lock);
                    std::lock(two, one);
                    gb.touch(i), gc.touch();
                    break;
                }
                default: {
                    if (std::try_lock(a, c) != -1) {
                        dunlin::yield();
                        break;
                    }
                    ga.touch(), gc.touch();
                    a.unlock();
                    c.unlock();
                    break;
                }
                }
            }
        });
        EXPECT_EQ(ga.wrong + gb.wrong + gc.wrong, 0);
        EXPECT_TRUE(a.try_lock() && b.try_lock() && c.try_lock());
        a.unlock(), b.unlock(), c.unlock();
    });
}

TEST_P(Lockable, ScopedLockMixesOursAndTheStandards) {
    allow(60s);
    run([] {
        dunlin::mutex ours;
        std::mutex theirs;
        dunlin::shared_mutex shared;
        guarded g;
        const int rounds = support::rounds(500);
        in_both_worlds(3, 2, [&](int who) {
            for (int i = 0; i < rounds; ++i) {
                // There is no yield inside: the standard's belongs to the thread.
                if (who % 2 == 0) {
                    const std::scoped_lock all(ours, theirs, shared);
                    g.touch(1);
                } else {
                    const std::scoped_lock all(shared, theirs, ours);
                    g.touch(1);
                }
            }
        });
        EXPECT_EQ(g.wrong, 0);
        EXPECT_EQ(g.count, 5L * rounds);
    });
}

TEST_P(Lockable, SharedLockTakesAShare) {
    allow(60s);
    run([] {
        dunlin::shared_mutex m;
        guarded g;
        std::atomic<int> reading{0}, wrong{0};
        const int rounds = support::rounds(1000);
        in_both_worlds(6, 2, [&](int who) {
            for (int i = 0; i < rounds; ++i) {
                if (who % 4 == 0) {
                    const std::unique_lock lock(m);
                    if (reading != 0) ++wrong;
                    g.touch(i);
                    continue;
                }
                std::shared_lock lock(m, std::defer_lock);
                switch (i % 3) {
                case 0: lock.lock(); break;
                case 1: wrong += !lock.try_lock_for(10s); break;
                default:
                    while (!lock.try_lock()) dunlin::yield();
                    break;
                }
                ++reading;
                if (g.inside != 0) ++wrong;
                if (i % 64 == 0) dunlin::yield();
                --reading;
            }
        });
        EXPECT_EQ(g.wrong + wrong, 0);
        EXPECT_EQ(g.count, 2L * rounds);
        std::shared_lock first(m), second(m);
        EXPECT_FALSE(std::unique_lock(m, std::try_to_lock).owns_lock());
        EXPECT_FALSE(std::unique_lock(m, 1ms).owns_lock());
    });
}

// ---- condition variables --------------------------------------------------------------------------------------------

// A queue with a lock and a condition of any two kinds: what is put in comes out, once. Producers and consumers in both
// worlds.
template <class Condition, class Lock, class Mutex>
void queue_with(int rounds) {
    Mutex m;
    Condition changed;
    std::vector<int> items;
    long taken = 0;
    int producing = 4;
    std::atomic<long> sum{0};
    in_both_worlds(4, 4, [&](int who) {
        if (who % 2 == 0) {
            for (int i = 1; i <= rounds; ++i) {
                const Lock lock(m);
                items.push_back(i);
                changed.notify_one();
            }
            const Lock lock(m);
            if (--producing == 0) changed.notify_all();
            return;
        }
        for (;;) {
            Lock lock(m);
            changed.wait(lock, [&] { return !items.empty() || producing == 0; });
            if (items.empty()) return;
            sum += items.back();
            items.pop_back();
            ++taken;
        }
    });
    EXPECT_EQ(taken, 4L * rounds);
    EXPECT_EQ(sum, 4L * rounds * (rounds + 1) / 2);
}

TEST_P(Lockable, ConditionVariablesTakeOursAndTheStandardsLocks) {
    allow(60s);
    run([] {
        const int rounds = support::rounds(500);
        queue_with<dunlin::condition_variable, std::unique_lock<dunlin::mutex>, dunlin::mutex>(rounds);
        queue_with<dunlin::condition_variable_any, std::unique_lock<dunlin::mutex>, dunlin::mutex>(rounds);
        queue_with<dunlin::condition_variable_any, std::unique_lock<dunlin::recursive_mutex>, dunlin::recursive_mutex>(
            rounds);
        queue_with<dunlin::condition_variable_any, std::unique_lock<dunlin::shared_mutex>, dunlin::shared_mutex>(
            rounds);
        queue_with<dunlin::condition_variable_any, std::unique_lock<std::mutex>, std::mutex>(rounds);
    });
}

// The standard's waits on the thread; goroutines give their processor away as in any call that blocks.
TEST_P(Lockable, TheStandardsConditionVariableTakesOurMutex) {
    allow(60s);
    run([] {
        queue_with<std::condition_variable_any, std::unique_lock<dunlin::mutex>, dunlin::mutex>(support::rounds(100));
    });
}

TEST_P(Lockable, ConditionVariableAnyTakesAMutexItselfAndAShare) {
    run([] {
        dunlin::shared_mutex m;
        dunlin::condition_variable_any changed;
        bool ready = false;
        std::atomic<int> together{0};
        in_both_worlds(4, 3, [&](int who) {
            if (who == 0) {
                dunlin::sleep_for(2ms);
                const std::lock_guard guard(m);
                ready = true;
                changed.notify_all();
            } else if (who % 2 == 0) {
                m.lock();
                changed.wait(m, [&] { return ready; });
                m.unlock();
            } else {
                std::shared_lock lock(m);
                EXPECT_TRUE(changed.wait_for(lock, 10s, [&] { return ready; }));
                ++together;
            }
        });
        EXPECT_EQ(together, 3);
    });
}

// ---- one object, two worlds -----------------------------------------------------------------------------------------

TEST_P(Lockable, OneSemaphoreInBothWorlds) {
    run([] {
        dunlin::counting_semaphore<3> s(3);
        std::atomic<int> inside{0}, wrong{0};
        in_both_worlds(6, 3, [&](int who) {
            for (int i = 0; i < support::rounds(1000); ++i) {
                if ((i + who) % 5 == 0) {
                    wrong += !s.try_acquire_for(10s);
                } else {
                    s.acquire();
                }
                if (++inside > 3) ++wrong;
                if (i % 16 == 0) dunlin::yield();
                --inside;
                s.release();
            }
        });
        EXPECT_EQ(wrong, 0);
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(s.try_acquire());
        EXPECT_FALSE(s.try_acquire());
    });
}

TEST_P(Lockable, OneLatchInBothWorlds) {
    run([] {
        for (int round = 0; round < support::rounds(100); ++round) {
            dunlin::latch l(7);
            std::atomic<int> arrived{0}, early{0};
            in_both_worlds(5, 2, [&](int who) {
                ++arrived;
                if (who % 3 == 0) {
                    l.arrive_and_wait();
                } else {
                    l.count_down();
                    if (who % 3 == 1) {
                        l.wait();
                    } else if (!l.wait_for(10s)) {
                        ++early;
                    }
                }
                if (arrived != 7) ++early;
            });
            ASSERT_EQ(early, 0);
        }
    });
}

TEST_P(Lockable, OneBarrierInBothWorlds) {
    allow(60s);
    run([] {
        const int phases = support::rounds(300);
        int completed = 0;
        auto completion = [&]() noexcept { ++completed; };
        dunlin::barrier<decltype(completion)> b(6, completion);
        std::array<std::atomic<int>, 6> at{};
        std::atomic<int> wrong{0};
        in_both_worlds(4, 2, [&](int who) {
            for (int phase = 1; phase <= phases; ++phase) {
                at[static_cast<std::size_t>(who)] = phase;
                b.arrive_and_wait();
                for (const auto& other : at) wrong += other < phase;
            }
        });
        EXPECT_EQ(wrong, 0);
        EXPECT_EQ(completed, phases);
    });
}

TEST_P(Lockable, OneOnceFlagInBothWorlds) {
    run([] {
        for (int round = 0; round < support::rounds(100); ++round) {
            dunlin::once_flag once;
            int value = 0;
            const auto kept = dunlin::once_value([] {
                dunlin::yield();
                return std::make_unique<int>(5);
            });
            std::atomic<int> wrong{0};
            in_both_worlds(4, 2, [&](int) {
                dunlin::call_once(once, [&] {
                    dunlin::yield();
                    ++value;
                });
                wrong += value != 1;
                wrong += *kept() != 5;
            });
            ASSERT_EQ(wrong, 0);
        }
    });
}

TEST_P(Lockable, FuturesAcrossTheWorlds) {
    run([] {
        for (int round = 0; round < support::rounds(200); ++round) {
            dunlin::promise<std::unique_ptr<int>> from_thread, from_goroutine;
            dunlin::future<std::unique_ptr<int>> at_goroutine = from_thread.get_future(),
                                                 at_thread = from_goroutine.get_future();
            int received = 0;
            std::thread t([&, p = std::move(from_thread)]() mutable {
                p.set_value(std::make_unique<int>(1));
                received = *at_thread.get();
            });
            dunlin::task<int> task = dunlin::spawn([&, p = std::move(from_goroutine)]() mutable {
                p.set_value(std::make_unique<int>(2));
                return *at_goroutine.get();
            });
            ASSERT_EQ(task.get(), 1);
            dunlin::blocking([&] { t.join(); });
            ASSERT_EQ(received, 2);
        }
    });
}

TEST_P(Lockable, OnePoolInBothWorlds) {
    run([] {
        struct object {
            std::atomic<int> owners{0};
        };
        dunlin::pool<object> p([] { return std::make_unique<object>(); });
        std::atomic<int> wrong{0};
        in_both_worlds(4, 3, [&](int) {
            for (int i = 0; i < support::rounds(2000); ++i) {
                auto one = p.get(), two = p.get();
                wrong += one->owners.fetch_add(1) != 0;
                wrong += two->owners.fetch_add(1) != 0;
                if (i % 100 == 0) dunlin::yield();
                one->owners.fetch_sub(1);
                two->owners.fetch_sub(1);
                p.put(std::move(one));
                p.put(std::move(two));
                if (i % 500 == 0) p.trim();
            }
        });
        EXPECT_EQ(wrong, 0);
    });
}

// What is handed from goroutine to thread and back, by one object after the other: each orders what happens before it.
TEST_P(Lockable, WhatHappensBeforeIsSeenAfterwards) {
    run([] {
        for (int round = 0; round < support::rounds(200); ++round) {
            int value = 0;  // no atomic: a sanitizer would see it
            dunlin::binary_semaphore s(0);
            dunlin::latch l(1);
            dunlin::wait_group wg;
            dunlin::mutex m;
            dunlin::condition_variable changed;
            bool said = false;
            wg.add();
            std::thread t([&] {
                s.acquire();
                ++value;
                l.count_down();
                wg.wait();
                ++value;
                const std::lock_guard guard(m);
                said = true;
                changed.notify_one();
            });
            ++value;
            s.release();
            l.wait();
            ++value;
            wg.done();
            {
                std::unique_lock lock(m);
                changed.wait(lock, [&] { return said; });
                ++value;
            }
            ASSERT_EQ(value, 5);
            dunlin::blocking([&] { t.join(); });
        }
    });
}

}  // namespace
