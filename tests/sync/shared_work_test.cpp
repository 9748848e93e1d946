// What goroutines share when they work together: weighted_semaphore, singleflight, retry_once_flag, a group's limit.
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "park/parking_lot.h"
#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;
using dunlin::context;
using dunlin::context_cancelled;

class WeightedSemaphore : public support::each_p {};
EACH_P(WeightedSemaphore);
class Singleflight : public support::each_p {};
EACH_P(Singleflight);
class RetryOnce : public support::each_p {};
EACH_P(RetryOnce);
class GroupLimit : public support::each_p {};
EACH_P(GroupLimit);

dunlin::cancellable done_context() {
    auto ctx = dunlin::with_cancel({});
    ctx.cancel();
    return ctx;
}

void until_waiting(const void* object, unsigned count) {
    support::eventually([&] { return dunlin::park::bucket_of(object).waiting == count; });
}

// ---- weighted_semaphore ---------------------------------------------------------------------------------------------

TEST_P(WeightedSemaphore, AThreadBehindAWaiterThatIsLeftBehindGoesOn) {
    dunlin::weighted_semaphore& s = *new dunlin::weighted_semaphore(10);
    s.acquire(1);
    std::thread behind;
    run([&] {
        dunlin::go([&] { s.acquire(10); });
        until_waiting(&s, 1);
        dunlin::go([&] { static_cast<void>(s.try_acquire_for(10, 1h)); });
        until_waiting(&s, 2);
        behind = std::thread([&] { s.acquire(4); });
        until_waiting(&s, 3);
    });
    behind.join();
    EXPECT_EQ(s.available(), 5);
    EXPECT_TRUE(s.try_acquire(5));
}

TEST_P(WeightedSemaphore, WhatCanBeHadAtOnceIsHadAndNothingMore) {
    run([] {
        dunlin::weighted_semaphore s(5);
        s.acquire(2);
        s.acquire(done_context());
        s.acquire(2, done_context());
        EXPECT_EQ(s.available(), 0);
        EXPECT_THROW(s.acquire(1, done_context()), context_cancelled);
        EXPECT_FALSE(s.try_acquire());
        EXPECT_TRUE(s.try_acquire(0));
        EXPECT_FALSE(s.try_acquire_for(1ms));
        EXPECT_FALSE(s.try_acquire_for(2, 1ms));
        EXPECT_FALSE(s.try_acquire_until(std::chrono::system_clock::now() + 1ms));
        s.release(3);
        EXPECT_FALSE(s.try_acquire(4));
        EXPECT_TRUE(s.try_acquire_for(2, -1s));
        EXPECT_TRUE(s.try_acquire_until(1, dunlin::clock::now() - 1s));
        EXPECT_THROW(s.acquire(-1), std::invalid_argument);
        EXPECT_THROW(s.release(-1), std::invalid_argument);
        EXPECT_FALSE(s.try_acquire(-1));
        EXPECT_THROW(dunlin::weighted_semaphore(-1), std::invalid_argument);
        s.release(1);
        EXPECT_THROW(s.release(std::numeric_limits<std::ptrdiff_t>::max()), std::overflow_error);
        EXPECT_EQ(s.available(), 1);
    });
}

TEST_P(WeightedSemaphore, AWaiterForManyIsNotPassed) {
    run([] {
        dunlin::weighted_semaphore s(2);
        std::vector<int> order;
        auto many = dunlin::spawn([&] {
            s.acquire(3);
            order.push_back(3);
            s.release(3);
        });
        until_waiting(&s, 1);
        EXPECT_FALSE(s.try_acquire(1)) << "somebody waits";
        EXPECT_THROW(s.acquire(1, done_context()), context_cancelled);
        auto one = dunlin::spawn([&] {
            s.acquire(1);
            order.push_back(1);
        });
        until_waiting(&s, 2);
        s.release(1);
        many.get();
        one.get();
        EXPECT_EQ(order, (std::vector<int>{3, 1}));
        EXPECT_EQ(s.available(), 2);
    });
}

// The one that gives up stood before others that want no more than there is.
TEST_P(WeightedSemaphore, OneThatGivesUpLetsTheNextPass) {
    run([] {
        for (const int way : {0, 1}) {
            dunlin::weighted_semaphore s(2);
            auto ctx = dunlin::with_cancel({});
            auto many = dunlin::spawn([&] {
                if (way == 0) {
                    EXPECT_THROW(s.acquire(3, ctx), context_cancelled);
                } else {
                    EXPECT_FALSE(s.try_acquire_for(3, 20ms));
                }
            });
            // Where it has given up before it was seen, the rest is easier.
            support::eventually([&] { return dunlin::park::bucket_of(&s).waiting == 1 || many.done(); });
            std::thread one([&] { s.acquire(1); });
            auto two = dunlin::spawn([&] { s.acquire(1); });
            if (way == 0) {
                until_waiting(&s, 3);
                ctx.cancel();
            }
            many.get();
            two.get();
            dunlin::blocking([&] { one.join(); });
            EXPECT_EQ(s.available(), 0);
        }
    });
}

TEST_P(WeightedSemaphore, CloseEndsAllWaits) {
    run([] {
        auto s = std::make_unique<dunlin::weighted_semaphore>(1);
        dunlin::task_group group;
        for (int i = 0; i < 4; ++i) group.go([&] { EXPECT_THROW(s->acquire(2), dunlin::semaphore_closed); });
        group.go([&] { EXPECT_THROW(s->try_acquire_for(2, 1h), dunlin::semaphore_closed); });
        until_waiting(s.get(), 5);
        EXPECT_FALSE(s->closed());
        s->close();
        s->close();
        group.wait();
        EXPECT_TRUE(s->closed());
        EXPECT_FALSE(s->try_acquire());
        EXPECT_THROW(s->try_acquire_for(1s), dunlin::semaphore_closed);
        s->release();
        try {
            s->acquire();
            ADD_FAILURE();
        } catch (const dunlin::semaphore_closed& e) {
            EXPECT_EQ(e.code(), dunlin::errc::closed);
        }
    });
}

// The other party is still inside release() or close() when the semaphore goes away.
TEST_P(WeightedSemaphore, MayBeDestroyedAsSoonAsTheAcquireHasReturned) {
    run([] {
        for (int round = 0; round < support::rounds(2000); ++round) {
            auto s = std::make_unique<dunlin::weighted_semaphore>(0);
            auto* raw = s.get();
            if (round % 2) {
                dunlin::go([raw] { raw->release(2); });
                s->acquire(2);
            } else {
                dunlin::go([raw] { raw->close(); });
                EXPECT_THROW(s->acquire(2), dunlin::semaphore_closed);
            }
        }
    });
}

TEST_P(WeightedSemaphore, LetsInNoMoreThanItsPermits) {
    run([] {
        constexpr int most = 7;
        dunlin::weighted_semaphore s(most);
        std::atomic<int> inside{0}, wrong{0};
        const int rounds = support::rounds(1500);
        const auto body = [&](int salt) {
            for (int i = 0; i < rounds; ++i) {
                const int n = 1 + (i * 5 + salt) % most;
                if (i % 3 == 0) {
                    if (!s.try_acquire_for(n, 30us)) continue;
                } else if (i % 7 == 0) {
                    if (!s.try_acquire(n)) continue;
                } else {
                    s.acquire(n);
                }
                if (inside.fetch_add(n) + n > most) ++wrong;
                if (i % 16 == 0) dunlin::yield();
                inside.fetch_sub(n);
                s.release(n);
            }
        };
        dunlin::task_group group;
        std::vector<std::thread> threads;
        for (int i = 0; i < 6; ++i) group.go(body, i);
        for (int i = 0; i < 2; ++i) threads.emplace_back(body, i + 6);
        group.wait();
        for (std::thread& t : threads) dunlin::blocking([&] { t.join(); });
        EXPECT_EQ(wrong, 0);
        EXPECT_EQ(s.available(), most);
    });
}

// ---- singleflight ---------------------------------------------------------------------------------------------------

// Called once for each look into the table, under its lock: so it says how many have come.
struct counting_hash {
    inline static std::atomic<int> calls{0};
    std::size_t operator()(const std::string& s) const {
        ++calls;
        return s.size();
    }
};

TEST_P(Singleflight, EqualCallsAtTheSameTimeAreMadeOnce) {
    run([] {
        dunlin::singleflight<std::string, int, counting_hash> flights;
        dunlin::latch go_on(1);
        dunlin::task_group group;
        group.go([&] {
            EXPECT_EQ(flights.call("key", [&] {
                go_on.wait();
                return 1;
            }), 1);
        });
        until_waiting(&go_on, 1);
        counting_hash::calls = 0;
        const auto ask = [&] { EXPECT_EQ(flights.call("key", [] { return -1; }), 1); };
        for (int i = 0; i < 8; ++i) group.go(ask);
        std::thread thread(ask);
        support::eventually([] { return counting_hash::calls == 9; });
        go_on.count_down();
        group.wait();
        dunlin::blocking([&] { thread.join(); });
        EXPECT_EQ(flights.call("key", [] { return 2; }), 2) << "nothing is kept";
        EXPECT_EQ(flights.call("other", [] { return 3; }), 3);
    });
}

TEST_P(Singleflight, TheCallersKeyMayChangeOrGoWhileTheFunctionRuns) {
    run([] {
        dunlin::singleflight<std::string, int> flights;
        auto key = std::make_unique<std::string>("a");
        EXPECT_EQ(flights.call(*key, [&] { return *key = "b", 1; }), 1);
        EXPECT_EQ(flights.call("a", [] { return 2; }), 2) << "nothing is kept";
        EXPECT_EQ(flights.call(*key, [&] { return key.reset(), 3; }), 3);
        EXPECT_EQ(flights.call("b", [] { return 4; }), 4);
        // Forgotten while it is under way, and begun anew.
        EXPECT_EQ(flights.call("c", [&] {
            flights.forget("c");
            return 5 + flights.call("c", [] { return 1; });
        }), 6);
        EXPECT_EQ(flights.call("c", [] { return 7; }), 7);
    });
}

struct failing_hash {
    static inline int calls_left = 0;
    std::size_t operator()(int key) const {
        if (calls_left-- == 0) throw std::runtime_error("no hash");
        return static_cast<std::size_t>(key);
    }
};

TEST_P(Singleflight, AHashThatThrowsKeepsNoResult) {
    run([] {
        dunlin::singleflight<int, int, failing_hash> flights;
        failing_hash::calls_left = 1000;
        EXPECT_EQ(flights.call(1, [] { return failing_hash::calls_left = 0, 1; }), 1);
        failing_hash::calls_left = 1000;
        EXPECT_EQ(flights.call(1, [] { return 2; }), 2);
        EXPECT_EQ(flights.call(1, [] { return 3; }), 3);
        failing_hash::calls_left = 0;
        EXPECT_THROW(flights.call(1, [] { return 4; }), std::runtime_error);
    });
}

TEST_P(Singleflight, ErrorsGoToAllAndNothingStays) {
    run([] {
        dunlin::singleflight<int, int> flights;
        dunlin::latch go_on(1);
        auto leader = dunlin::spawn([&] {
            return flights.call(1, [&]() -> int {
                go_on.wait();
                throw std::runtime_error("no");
            });
        });
        until_waiting(&go_on, 1);
        auto follower = dunlin::spawn([&] { return flights.call(1, [] { return 7; }); });
        auto timed = dunlin::spawn([&] { return flights.call_for(1, 1ms, [] { return 7; }); });
        EXPECT_EQ(timed.get(), std::nullopt);
        dunlin::yield();
        go_on.count_down();
        EXPECT_THROW(leader.get(), std::runtime_error);
        try {
            EXPECT_EQ(follower.get(), 7) << "it may have come after the end";
        } catch (const std::runtime_error& e) {
            EXPECT_STREQ(e.what(), "no");
        }
        EXPECT_EQ(flights.call(1, [] { return 8; }), 8);
        auto leaver = dunlin::spawn([&] { return flights.call(2, []() -> int { dunlin::exit_goroutine(); }); });
        EXPECT_THROW(leaver.get(), dunlin::goroutine_exited);
        EXPECT_EQ(flights.call(2, [] { return 9; }), 9);
    });
}

TEST_P(Singleflight, TheFirstThatGivesUpDoesNotDecideForTheOthers) {
    run([] {
        dunlin::latch go_on(1), landed(1);
        std::atomic<bool> started{false};
        {
            dunlin::singleflight<int, std::string> flights;
            auto ctx = dunlin::with_cancel({});
            const auto f = [&] {
                go_on.wait();
                return std::string("result");
            };
            auto first = dunlin::spawn([&] { return flights.call(1, f, ctx); });
            until_waiting(&go_on, 1);
            auto second = dunlin::spawn([&] { return flights.call(1, f, context()); });
            ctx.cancel();
            EXPECT_THROW(first.get(), context_cancelled);
            EXPECT_EQ(flights.call_until(1, std::chrono::system_clock::now() + 1ms, f), std::nullopt);
            EXPECT_THROW(flights.call(1, f, ctx), context_cancelled);
            go_on.count_down();
            EXPECT_EQ(second.get(), "result");
            EXPECT_THROW(flights.call(3, []() -> std::string { throw 1; }, ctx), context_cancelled) << "not started";
            EXPECT_EQ(flights.call_for(3, -1s, []() -> std::string { throw 1; }), std::nullopt) << "not started";
            EXPECT_EQ(flights.call_for(3, 1h, [] { return std::string("x"); }), "x");
            dunlin::singleflight<int, void> of_nothing;
            EXPECT_TRUE(of_nothing.call_for(1, 1h, [] {}));
            of_nothing.call(1, [] {});
            EXPECT_FALSE(of_nothing.call_for(1, -1s, [] {}));
            // The flight goes on without waiters, and the singleflight is gone.
            const auto slow = [&] {
                if (!started.exchange(true)) {
                    dunlin::sleep_for(2ms);
                    landed.count_down();
                }
                return std::string();
            };
            while (!started) static_cast<void>(flights.call_for(4, 100us, slow));
        }
        landed.wait();
    });
}

TEST_P(Singleflight, ForgottenCallsAreMadeAnew) {
    run([] {
        dunlin::singleflight<int, int> flights;
        dunlin::latch go_on(1);
        auto old = dunlin::spawn([&] {
            return flights.call(1, [&] {
                go_on.wait();
                return 1;
            });
        });
        until_waiting(&go_on, 1);
        flights.forget(1);
        EXPECT_EQ(flights.call(1, [] { return 2; }), 2);
        go_on.count_down();
        EXPECT_EQ(old.get(), 1);
    });
}

// ---- retry_once_flag ------------------------------------------------------------------------------------------------

TEST_P(RetryOnce, AFunctionThatFailsLeavesItOpen) {
    run([] {
        dunlin::retry_once_flag flag;
        EXPECT_THROW(dunlin::call_once(flag, [] { throw std::runtime_error("first"); }), std::runtime_error);
        EXPECT_FALSE(flag.done());
        dunlin::spawn([&] { flag.call([] { dunlin::exit_goroutine(); }); }).wait();
        EXPECT_FALSE(flag.done());
        int made = 0;
        dunlin::call_once(flag, [&](int by) { made += by; }, 1);
        dunlin::call_once(flag, [&](int by) { made += by; }, 1);
        flag.call([&] { ++made; }, done_context());
        EXPECT_TRUE(flag.call_for(-1s, [&] { ++made; }));
        EXPECT_TRUE(flag.call_until(std::chrono::system_clock::now() - 1s, [&] { ++made; }));
        EXPECT_EQ(made, 1);
        EXPECT_TRUE(flag.done());
    });
}

TEST_P(RetryOnce, OneAfterTheOtherTriesUntilOneSucceeds) {
    run([] {
        for (int round = 0; round < support::rounds(100); ++round) {
            dunlin::retry_once_flag flag;
            std::atomic<int> tries{0}, inside{0}, failed{0};
            const auto body = [&] {
                try {
                    flag.call([&] {
                        EXPECT_EQ(inside++, 0);
                        dunlin::yield();
                        const bool fails = ++tries < 4;
                        --inside;
                        if (fails) throw 1;
                    });
                    EXPECT_TRUE(flag.done());
                } catch (int) {
                    ++failed;
                }
            };
            dunlin::task_group group;
            for (int i = 0; i < 7; ++i) group.go(body);
            std::thread t(body);
            group.wait();
            dunlin::blocking([&] { t.join(); });
            ASSERT_EQ(tries, 4);
            ASSERT_EQ(failed, 3);
        }
    });
}

TEST_P(RetryOnce, WaitsForAnotherCanBeEnded) {
    run([] {
        dunlin::retry_once_flag flag;
        dunlin::latch go_on(1);
        auto slow = dunlin::spawn([&] { flag.call([&] { go_on.wait(); }); });
        until_waiting(&go_on, 1);
        EXPECT_THROW(flag.call([] {}, done_context()), context_cancelled);
        EXPECT_FALSE(flag.call_for(1ms, [] {}));
        EXPECT_FALSE(flag.call_until(std::chrono::system_clock::now() + 1ms, [] {}));
        go_on.count_down();
        slow.get();
        EXPECT_TRUE(flag.call_for(0s, [] {}));
    });
}

// ---- task_group: a limit --------------------------------------------------------------------------------------------

TEST_P(GroupLimit, NoMoreMembersThanItAtATime) {
    run([] {
        dunlin::task_group group;
        EXPECT_THROW(group.set_limit(0), std::invalid_argument);
        group.set_limit(3);
        std::atomic<int> inside{0}, wrong{0}, ended{0};
        for (int i = 0; i < 200; ++i) {
            group.go([&, i] {
                if (++inside > 3) ++wrong;
                if (i % 5 == 0) dunlin::yield();
                --inside;
                ++ended;
            });
        }
        group.wait();
        EXPECT_EQ(wrong, 0);
        EXPECT_EQ(ended, 200);

        dunlin::latch go_on(1);
        for (int i = 0; i < 3; ++i) group.go([&] { go_on.wait(); });
        EXPECT_THROW(group.set_limit(4), std::logic_error);
        EXPECT_FALSE(group.try_go([] { ADD_FAILURE(); }));
        EXPECT_FALSE(group.try_go_for(1ms, [] { ADD_FAILURE(); }));
        EXPECT_FALSE(group.try_go_until(std::chrono::system_clock::now() + 1ms, [] { ADD_FAILURE(); }));
        EXPECT_THROW(group.go(done_context(), [] { ADD_FAILURE(); }), context_cancelled);
        go_on.count_down();
        group.wait();
        EXPECT_TRUE(group.try_go([&] { ++ended; }));
        EXPECT_TRUE(group.try_go_for(-1s, [&] { ++ended; }));
        group.go(done_context(), [&](int by) { ended += by; }, 1);
        group.wait();
        EXPECT_EQ(ended, 203);
        group.set_limit(dunlin::task_group::no_limit);
        dunlin::latch all(20);
        for (int i = 0; i < 20; ++i) group.go([&] { all.arrive_and_wait(); });
        group.wait();
    });
}

// The end of a member gives its place to a go() that waits, and wakes the wait(): the member that go() starts is waited
// for.
TEST_P(GroupLimit, AGoThatWaitsForAPlaceIsWaitedFor) {
    run([] {
        for (int round = 0; round < support::rounds(200); ++round) {
            dunlin::task_group group;
            group.set_limit(1);
            dunlin::latch go_on(1);
            std::atomic<int> ended{0};
            group.go([&] {
                go_on.wait();
                ++ended;
            });
            dunlin::task<void> other = dunlin::spawn([&] {
                const auto f = [&] { ++ended; };
                switch (round % 4) {
                case 0: group.go(f); break;
                case 1: group.go(dunlin::with_cancel({}), f); break;
                case 2: EXPECT_TRUE(group.try_go_for(1h, f)); break;
                default: EXPECT_TRUE(group.try_go_until(std::chrono::steady_clock::now() + 1h, f));
                }
            });
            support::eventually([] { return dunlin::runtime::stats().waiting == 2; });
            go_on.count_down();
            group.wait();
            ASSERT_EQ(ended, 2) << round;
            other.get();
            EXPECT_THROW(group.set_limit(0), std::invalid_argument);
            group.set_limit(2);
        }
    });
}

// A place is given back whatever ends the member, and by one that could not be started.
TEST_P(GroupLimit, PlacesComeBack) {
    run([] {
        dunlin::task_group group;
        group.set_limit(1);
        group.go([] { throw std::runtime_error("member"); });
        group.go([] { dunlin::exit_goroutine(); });
        EXPECT_THROW(group.go(std::function<void()>()), std::invalid_argument);
        struct cannot_be_copied_now {
            cannot_be_copied_now() = default;
            cannot_be_copied_now(const cannot_be_copied_now&) { throw 1; }
            void operator()() const {}
        } const f;
        EXPECT_THROW(group.go(f), int);
        int ran = 0;
        group.go([&] { ++ran; });
        EXPECT_THROW(group.wait(), std::runtime_error);
        EXPECT_EQ(ran, 1);
    });
}

}  // namespace
