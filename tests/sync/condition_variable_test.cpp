// condition_variable and condition_variable_any.
#include <chrono>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <vector>

#include <dunlin/condition_variable.hpp>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class ConditionVariable : public support::each_p {};
EACH_P(ConditionVariable);

TEST_P(ConditionVariable, WakesInTheOrderOfArrival) {
    run([] {
        for (int round = 0; round < support::rounds(50); ++round) {
            dunlin::mutex m;
            dunlin::condition_variable c;
            std::vector<int> order;
            int queued = 0;
            dunlin::task_group group;
            for (int i = 0; i < 20; ++i) {
                group.go([&, i] {
                    std::unique_lock lock(m);
                    ++queued;
                    c.wait(lock);
                    order.push_back(i);
                });
                support::eventually([&] { return std::lock_guard(m), queued == i + 1; });
            }
            for (std::size_t i = 0; i < 20; ++i) {
                c.notify_one();
                support::eventually([&] { return std::lock_guard(m), order.size() == i + 1; });
                ASSERT_EQ(order.back(), static_cast<int>(i));
            }
            group.wait();
        }
    });
}

template <class Condition, class M>
void queue_of_numbers(int rounds) {
    Condition c, room;
    M m;
    std::vector<int> queue;
    long sum = 0;
    int left = rounds * 3;
    auto producer = [&] {
        for (int i = 0; i < rounds; ++i) {
            std::unique_lock lock(m);
            room.wait(lock, [&] { return queue.size() < 4; });
            queue.push_back(i);
            lock.unlock();
            c.notify_one();
        }
    };
    auto consumer = [&] {
        for (;;) {
            std::unique_lock lock(m);
            if (!c.wait_for(lock, 20ms, [&] { return !queue.empty() || left == 0; })) continue;
            if (left == 0) return;
            sum += queue.back();
            queue.pop_back();
            if (--left == 0) c.notify_all();
            room.notify_one();
        }
    };
    std::vector<std::thread> threads;
    threads.emplace_back(producer);
    threads.emplace_back(consumer);
    dunlin::task_group group;
    for (int i = 0; i < 2; ++i) group.go(producer), group.go(consumer);
    group.wait();
    for (std::thread& t : threads) dunlin::blocking([&] { t.join(); });
    EXPECT_EQ(sum, 3L * rounds * (rounds - 1) / 2);
}

TEST_P(ConditionVariable, NoNotifyIsLost) {
    allow(60s);
    run([] {
        queue_of_numbers<dunlin::condition_variable, dunlin::mutex>(support::rounds(2000));
        queue_of_numbers<dunlin::condition_variable_any, dunlin::mutex>(support::rounds(1000));
        queue_of_numbers<dunlin::condition_variable_any, std::mutex>(support::rounds(1000));
    });
}

// A lock whose unlock() notifies: between W2 and W3, always.
struct notifies_when_unlocked {
    dunlin::mutex& mutex;
    dunlin::condition_variable_any& condition;
    void lock() { mutex.lock(); }
    void unlock() {
        mutex.unlock();
        condition.notify_one();
    }
};

TEST_P(ConditionVariable, ANotifyBetweenTheUnlockAndTheParkIsNotLost) {
    run([] {
        dunlin::mutex m;
        dunlin::condition_variable_any c;
        notifies_when_unlocked lock{m, c};
        lock.lock();
        c.wait(lock);
        EXPECT_FALSE(m.try_lock());
        m.unlock();
    });
}

// What a lock or a clock of the program does between W1 and W3, or W5 and W3.
struct hook {
    static inline std::function<void()> called;
    static inline int calls_before = 0;
    static void call() {
        if (calls_before-- == 0) called();
    }
};
struct hooked_lock {
    void lock() {}
    void unlock() { hook::call(); }
};
struct hooked_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<hooked_clock>;
    static constexpr bool is_steady = true;
    static time_point now() {
        hook::call();
        return time_point(1s);
    }
};

// A waiter gives up in the call of the hook, by `give_up`, when another one waits and notify(condition) was called.
// Returns whether the other one was notified.
template <class Notify, class Wait, class GiveUp>
bool other_is_notified(std::chrono::milliseconds patience, Notify notify, Wait wait, GiveUp give_up) {
    dunlin::mutex m;
    dunlin::condition_variable_any c;
    bool queued = false, was_notified = false;
    dunlin::wait_group all;
    const auto let_another_wait = [&] {
        all.go([&] {
            std::unique_lock lock(m);
            queued = true;
            was_notified = c.wait_for(lock, patience) == dunlin::cv_status::no_timeout;
        });
        support::eventually([&] { return std::lock_guard(m), queued; });
    };
    hook::called = [&] {
        notify(c, let_another_wait);
        give_up();
    };
    all.go([&] {
        try {
            wait(c);
        } catch (const std::runtime_error&) {
        }
    });
    all.wait();
    hook::called = nullptr;
    return was_notified;
}

TEST_P(ConditionVariable, ANotificationOfAWaiterThatGivesUpPassesToTheNext) {
    run([] {
        const auto notify = [](auto& c, auto& let_another_wait) {
            let_another_wait();
            c.notify_one();
        };
        const auto wait = [](auto& c) {
            hooked_lock lock;
            c.wait(lock);
        };
        const auto wait_on_clock = [](auto& c) {
            hooked_lock lock;
            c.wait_until(lock, hooked_clock::time_point());
        };
        const auto throws = [] { throw std::runtime_error("no"); };
        hook::calls_before = 0;
        EXPECT_TRUE(other_is_notified(10s, notify, wait, throws)) << "unlock() throws";
        hook::calls_before = 0;
        EXPECT_TRUE(other_is_notified(10s, notify, wait, [] { dunlin::exit_goroutine(); })) << "unlock() ends it";
        // Of the clock: before the wait is queued; after the unlock; when the time has come.
        hook::calls_before = 2;
        EXPECT_TRUE(other_is_notified(10s, notify, wait_on_clock, throws)) << "now() throws before it waits";
        hook::calls_before = 3;
        EXPECT_TRUE(other_is_notified(10s, notify, wait_on_clock, throws)) << "now() throws between two waits";
    });
}

TEST_P(ConditionVariable, ANotificationOfAllIsNotPassedOn) {
    run([] {
        const auto notify = [](auto& c, auto& let_another_wait) {
            c.notify_all();
            let_another_wait();
        };
        const auto wait = [](auto& c) {
            hooked_lock lock;
            c.wait(lock);
        };
        hook::calls_before = 0;
        EXPECT_FALSE(other_is_notified(20ms, notify, wait, [] { throw std::runtime_error("no"); }));
    });
}

TEST_P(ConditionVariable, NotifyAllWakesEachOnceInARound) {
    run([] {
        dunlin::mutex m;
        dunlin::condition_variable c, done;
        constexpr int count = 20;
        const int rounds = support::rounds(100);
        int round = 0, arrived = 0;
        dunlin::task_group group;
        for (int i = 0; i < count; ++i) {
            group.go([&] {
                std::unique_lock lock(m);
                for (int r = 0; r < rounds; ++r) {
                    if (++arrived == count) done.notify_one();
                    c.wait(lock);
                    EXPECT_EQ(round, r + 1);
                }
            });
        }
        for (int r = 0; r < rounds; ++r) {
            std::unique_lock lock(m);
            done.wait(lock, [&] { return arrived == count; });
            arrived = 0;
            ++round;
            c.notify_all();
        }
        group.wait();
    });
}

TEST_P(ConditionVariable, ALimitEndsTheWait) {
    run([] {
        dunlin::mutex m;
        dunlin::condition_variable c;
        std::unique_lock lock(m);
        EXPECT_EQ(c.wait_for(lock, 2ms), dunlin::cv_status::timeout);
        EXPECT_TRUE(lock.owns_lock());
        EXPECT_EQ(c.wait_until(lock, std::chrono::steady_clock::now() - 1s), dunlin::cv_status::timeout);
        EXPECT_FALSE(c.wait_for(lock, 1ms, [] { return false; }));
        EXPECT_TRUE(c.wait_for(lock, 0ms, [] { return true; }));
        std::unique_lock<dunlin::mutex> not_held(m, std::defer_lock);
        EXPECT_THROW(c.wait(not_held), std::system_error);
        c.notify_all();
    });
}

// The standard's waits with a stop_token, which ends them wherever it comes from.
TEST_P(ConditionVariable, AStopRequestEndsTheWait) {
    run([] {
        dunlin::mutex m;
        dunlin::condition_variable_any c;
        const auto waits = [&](std::stop_token token) {
            std::unique_lock lock(m);
            EXPECT_FALSE(c.wait(lock, token, [] { return false; }));
            EXPECT_TRUE(lock.owns_lock());
            EXPECT_FALSE(c.wait_for(lock, token, 1h, [] { return false; })) << "stop was requested before";
        };
        for (const bool by_thread : {false, true}) {
            std::stop_source stop;
            dunlin::task_group group;
            group.go([&] { waits(stop.get_token()); });
            std::thread thread([&] { waits(stop.get_token()); });
            dunlin::sleep_for(1ms);
            if (by_thread) {
                dunlin::blocking([&] { std::thread([&] { stop.request_stop(); }).join(); });
            } else {
                stop.request_stop();
            }
            group.wait();
            dunlin::blocking([&] { thread.join(); });
        }

        std::stop_source never;
        std::unique_lock lock(m);
        EXPECT_FALSE(c.wait_for(lock, never.get_token(), 1ms, [] { return false; }));
        EXPECT_FALSE(c.wait_until(lock, std::stop_token(), dunlin::clock::now() + 1ms, [] { return false; }));
        EXPECT_TRUE(c.wait_until(lock, never.get_token(), dunlin::clock::now() - 1s, [] { return true; }));
        for (const std::stop_token& token : {never.get_token(), std::stop_token()}) {
            bool ready = false;
            dunlin::go([&] {
                const std::scoped_lock changing(m);
                ready = true;
                c.notify_one();
            });
            EXPECT_TRUE(c.wait(lock, token, [&] { return ready; }));
        }
    });
}

TEST_P(ConditionVariable, StopRequestsAndNotifiesRace) {
    run([] {
        dunlin::mutex m;
        dunlin::condition_variable_any c;
        const int rounds = support::rounds(1000);
        for (int r = 0; r < rounds; ++r) {
            std::stop_source stop;
            bool ready = false;
            dunlin::task_group group;
            group.go([&] {
                std::unique_lock lock(m);
                EXPECT_TRUE(c.wait(lock, stop.get_token(), [&] { return ready; }) || stop.stop_requested());
            });
            group.go([&] {
                if (r % 2 == 0) stop.request_stop();
                {
                    const std::scoped_lock lock(m);
                    ready = true;
                }
                c.notify_one();
                stop.request_stop();
            });
            group.wait();
        }
    });
}

// Deadlines and notifies at the same time: no waiter is woken twice, no notify goes to one whose time is over.
TEST_P(ConditionVariable, LimitsAndNotifiesRace) {
    run([] {
        dunlin::mutex m;
        dunlin::condition_variable c;
        std::atomic<int> woken{0}, late{0}, left{4};
        dunlin::task_group group;
        const int rounds = support::rounds(1000);
        for (int i = 0; i < 4; ++i) {
            group.go([&] {
                for (int r = 0; r < rounds; ++r) {
                    std::unique_lock lock(m);
                    c.wait_for(lock, 20us) == dunlin::cv_status::timeout ? ++late : ++woken;
                }
                --left;
            });
        }
        while (left != 0) {
            c.notify_one();
            dunlin::yield();
        }
        group.wait();
        EXPECT_EQ(woken + late, 4 * rounds);
    });
}

TEST_P(ConditionVariable, MayBeDestroyedAfterTheNotify) {
    run([] {
        for (int round = 0; round < support::rounds(2000); ++round) {
            auto c = std::make_unique<dunlin::condition_variable>();
            dunlin::mutex m;
            bool ready = false, waits = false;
            auto t = dunlin::spawn([&] {
                std::unique_lock lock(m);
                waits = true;
                c->wait(lock);
                EXPECT_TRUE(ready);
            });
            support::eventually([&] { return std::lock_guard(m), waits; });
            {
                std::lock_guard lock(m);
                ready = true;
                c->notify_all();
                c.reset();
            }
            t.get();
        }
    });
}

TEST(ConditionVariableDeathTest, DestroyedWhileWaitedFor) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_DEATH(dunlin::run({.max_procs = 1}, [] {
        dunlin::mutex m;
        auto c = std::make_unique<dunlin::condition_variable>();
        dunlin::go([&] {
            std::unique_lock lock(m);
            c->wait(lock);
        });
        while (dunlin::runtime::stats().waiting == 0) dunlin::yield();
        c.reset();
    }), "a condition variable is destroyed while goroutines wait for it");
}

}  // namespace
