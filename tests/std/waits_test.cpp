// [thread.condition], [thread.sema], [thread.coord]: what is waited for, clause by clause.
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <shared_mutex>
#include <stop_token>
#include <system_error>
#include <type_traits>

#include "std/worlds.h"

using namespace worlds;

namespace {

class Condition : public each_world {};
EACH_WORLD(Condition);
class Semaphore : public each_world {};
EACH_WORLD(Semaphore);
class Latch : public each_world {};
EACH_WORLD(Latch);
class Barrier : public each_world {};
EACH_WORLD(Barrier);

// ---- [thread.condition.condvar], [thread.condition.condvarany] -----------------------------------------------------

// A lock that is basic_lockable and nothing more, and counts.
struct counting_lock {
    dunlin::mutex m;
    int locks = 0, unlocks = 0;
    void lock() {
        m.lock();
        ++locks;
    }
    void unlock() {
        ++unlocks;
        m.unlock();
    }
};

// Both types by the same clauses: `Lock` is what is waited with.
template <class C, class Lock, class Mutex, class Start>
void waits_and_is_notified(Start start) {
    static_assert(
        !std::is_copy_constructible_v<C> && !std::is_move_constructible_v<C> && !std::is_copy_assignable_v<C>);
    static_assert(!std::is_aggregate_v<C> && std::is_nothrow_default_constructible_v<C>);
    static constinit C made_by_the_compiler;
    made_by_the_compiler.notify_all();
    static_assert(noexcept(std::declval<C&>().notify_one()) && noexcept(std::declval<C&>().notify_all()));
    Mutex m;
    C c;
    c.notify_one();  // no waiter there: nothing
    c.notify_all();
    int permits = 0, waiting = 0, through = 0;
    const auto locked = [&m](auto f) {
        Lock l(m);
        return f();
    };
    {
        const auto all = start(5, [&](int i) {
            Lock l(m);
            ++waiting;
            switch (i) {
            case 0: c.wait(l, [&] { return truth{permits > 0}; }); break;
            case 1: while (permits == 0) c.wait(l); break;
            case 2: EXPECT_TRUE(c.wait_for(l, 1h, [&] { return truth{permits > 0}; })); break;
            case 3: EXPECT_TRUE(c.wait_until(l, std::chrono::system_clock::now() + 1h, [&] { return permits; })); break;
            default:
                while (permits == 0)
                    EXPECT_EQ(c.wait_until(l, std::chrono::steady_clock::now() + 1h), dunlin::cv_status::no_timeout);
            }
            --permits;
            ++through;
        });
        until([&] {
            return locked([&] { return waiting == 5; });
        });  // a wait gives the lock back in the step that makes it wait
        for (int n = 1; n <= 3; ++n) {
            locked([&] { ++permits; });
            c.notify_one();
            until([&] { return locked([&] { return through == n; }); });
        }
        locked([&] { permits += 2; });
        c.notify_all();
    }
    EXPECT_EQ(through, 5);
}

TEST_P(Condition, WaitsUntilNotified) {
    inside([this] {
        const auto workers = [this](int n, const std::function<void(int)>& f) { return start(n, f); };
        using std::unique_lock;
        waits_and_is_notified<dunlin::condition_variable, unique_lock<dunlin::mutex>, dunlin::mutex>(workers);
        waits_and_is_notified<dunlin::condition_variable_any, unique_lock<dunlin::mutex>, dunlin::mutex>(workers);
        waits_and_is_notified<dunlin::condition_variable_any, unique_lock<dunlin::recursive_mutex>,
            dunlin::recursive_mutex>(workers);
        waits_and_is_notified<dunlin::condition_variable_any, unique_lock<dunlin::shared_mutex>, dunlin::shared_mutex>(
            workers);
        waits_and_is_notified<dunlin::condition_variable_any, unique_lock<counting_lock>, counting_lock>(workers);
    });
}

template <class C>
void ends_in_time() {
    dunlin::mutex m;
    C c;
    std::unique_lock l(m);
    int asked = 0;
    const auto never = [&] {
        ++asked;
        EXPECT_TRUE(l.owns_lock()) << "a predicate is called with the lock held";
        return truth{false};
    };
    const auto steady = std::chrono::steady_clock::now() + 2ms;
    EXPECT_EQ(c.wait_until(l, steady), dunlin::cv_status::timeout);
    EXPECT_GE(std::chrono::steady_clock::now(), steady);
    const auto wall = std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now()) + 2ms;
    EXPECT_FALSE(c.wait_until(l, wall, never));
    EXPECT_GE(std::chrono::system_clock::now(), wall);
    EXPECT_EQ(c.wait_for(l, -1s), dunlin::cv_status::timeout);
    EXPECT_EQ(c.wait_until(l, std::chrono::system_clock::time_point::min()), dunlin::cv_status::timeout);
    asked = 0;
    EXPECT_FALSE(c.wait_for(l, std::chrono::duration<float, std::milli>(1), never));
    EXPECT_EQ(asked, 2) << "before the wait and after it";
    EXPECT_TRUE(c.wait_for(l, 0s, [] { return truth{true}; })) << "a predicate that holds needs no time";
    c.wait(l, [] { return truth{true}; });
    EXPECT_TRUE(l.owns_lock() && !m.try_lock());
}

TEST_P(Condition, WaitsEndInTimeWithTheLockHeld) {
    inside([] {
        ends_in_time<dunlin::condition_variable>();
        ends_in_time<dunlin::condition_variable_any>();
    });
}

TEST_P(Condition, AnExceptionOfThePredicateLeavesWithTheLockHeld) {
    inside([] {
        dunlin::mutex m;
        dunlin::condition_variable c;
        std::unique_lock l(m);
        EXPECT_THROW(c.wait(l, []() -> bool { throw 1; }), int);
        int calls = 0;
        EXPECT_THROW(c.wait_for(l, 1ms, [&]() -> bool { return ++calls == 2 ? throw 1 : false; }), int);
        EXPECT_TRUE(l.owns_lock());
        std::unique_lock<dunlin::mutex> none;
        expect_code(std::errc::operation_not_permitted, [&] { c.wait(none); });
    });
}

TEST_P(Condition, AnyLockIsGivenBackAndTakenAgainOnceEach) {
    inside([this] {
        counting_lock m;
        dunlin::condition_variable_any c;
        bool ready = false;
        m.lock();
        auto other = start([&] {
            m.lock();
            ready = true;
            m.unlock();
            c.notify_one();
        });
        while (!ready) c.wait(m);
        EXPECT_EQ(m.locks - m.unlocks, 1);
        m.unlock();
        other.join();
        dunlin::shared_mutex shared;
        std::shared_lock share(shared);
        EXPECT_EQ(c.wait_for(share, 1ms), dunlin::cv_status::timeout);
        EXPECT_TRUE(share.owns_lock());
    });
}

// [thread.condition.condvar]: it may be destroyed when all have been notified, though they have not returned.
TEST_P(Condition, MayBeDestroyedOnceAllAreNotified) {
    inside([this] {
        for (int round = 0; round < support::rounds(50); ++round) {
            dunlin::mutex m;
            auto c = std::make_unique<dunlin::condition_variable>();
            int waiting = 0;
            bool go = false;
            const auto all = start(3, [&](int) {
                std::unique_lock l(m);
                ++waiting;
                dunlin::condition_variable& mine = *c;
                while (!go) mine.wait(l);
            });
            until([&] {
                const std::scoped_lock l(m);
                return waiting == 3;
            });
            const std::scoped_lock l(m);
            go = true;
            c->notify_all();
            c.reset();
        }
    });
}

// [thread.condvarany.intwait]
TEST_P(Condition, StopTokensEndWaits) {
    inside([this] {
        dunlin::mutex m;
        dunlin::condition_variable_any c;
        std::stop_source stop;
        std::atomic<int> waiting{0};
        {
            const auto all = start(4, [&](int i) {
                std::unique_lock l(m);
                const auto never = [&] {
                    waiting |= 1 << i;
                    return truth{false};
                };
                switch (i) {
                case 0: EXPECT_FALSE(c.wait(l, stop.get_token(), never)); break;
                case 1: EXPECT_FALSE(c.wait_for(l, stop.get_token(), 1h, never)); break;
                case 2:
                    EXPECT_FALSE(c.wait_until(l, stop.get_token(), std::chrono::system_clock::now() + 1h, never));
                    break;
                default: EXPECT_FALSE(c.wait_for(l, stop.get_token(), 1ms, never)) << "the time may be over first";
                }
                EXPECT_TRUE(l.owns_lock());
            });
            until([&] { return waiting == 15; });
            stop.request_stop();
        }
        std::unique_lock l(m);
        int asked = 0;
        EXPECT_TRUE(c.wait(l, stop.get_token(), [&] { return truth{++asked == 1}; }))
            << "stop was requested: what the predicate says, once";
        EXPECT_EQ(asked, 1);
        EXPECT_FALSE(c.wait_for(l, std::stop_token(), 1ms, [] { return false; }))
            << "a token that cannot stop anything";
        std::stop_source other;
        EXPECT_FALSE(c.wait_until(l, other.get_token(), std::chrono::steady_clock::now() - 1s, [] { return false; }));
        EXPECT_TRUE(c.wait_until(l, other.get_token(), std::chrono::steady_clock::now() - 1s, [] { return true; }));
    });
}

// ---- [thread.sema] -------------------------------------------------------------------------------------------------

TEST_P(Semaphore, CountsPermits) {
    static_assert(dunlin::counting_semaphore<7>::max() >= 7 && dunlin::binary_semaphore::max() >= 1 &&
                  dunlin::counting_semaphore<>::max() > 1'000'000);
    static_assert(std::is_same_v<dunlin::binary_semaphore, dunlin::counting_semaphore<1>> &&
                  !std::is_copy_constructible_v<dunlin::binary_semaphore>);
    static_assert(!std::is_convertible_v<std::ptrdiff_t, dunlin::counting_semaphore<>>);
    static_assert(noexcept(std::declval<dunlin::binary_semaphore&>().try_acquire()));
    inside([this] {
        dunlin::counting_semaphore<10> s(2);
        s.acquire();
        EXPECT_TRUE(s.try_acquire());
        EXPECT_FALSE(s.try_acquire());
        EXPECT_FALSE(s.try_acquire_for(-1s));
        const auto t = std::chrono::system_clock::now() + 1ms;
        EXPECT_FALSE(s.try_acquire_until(t));
        EXPECT_GE(std::chrono::system_clock::now(), t);
        s.release(0);
        EXPECT_FALSE(s.try_acquire());
        std::atomic<int> through{0};
        {
            const auto all = start(6, [&](int i) {
                if (i % 3 == 0) {
                    s.acquire();
                } else if (i % 3 == 1) {
                    EXPECT_TRUE(s.try_acquire_for(1h));
                } else {
                    EXPECT_TRUE(s.try_acquire_until(std::chrono::steady_clock::now() + 1h));
                }
                ++through;
            });
            s.release(4);
            until([&] { return through == 4; });
            a_while();
            EXPECT_EQ(through, 4);
            s.release();
            s.release();
        }
        s.release(10);
        EXPECT_TRUE(s.try_acquire_until(std::chrono::steady_clock::time_point::min()))
            << "what is there is had whatever the time";
    });
}

TEST_P(Semaphore, ABinaryOneOrdersTwo) {
    inside([this] {
        dunlin::binary_semaphore ping(0), pong(0);
        int plain = 0;
        const int rounds = support::rounds(300);
        auto other = start([&] {
            for (int r = 0; r < rounds; ++r) {
                ping.acquire();
                ++plain;
                pong.release();
            }
        });
        for (int r = 0; r < rounds; ++r) {
            ++plain;
            ping.release();
            pong.acquire();
            EXPECT_EQ(plain, 2 * (r + 1));
        }
        other.join();
    });
}

// ---- [thread.latch] ------------------------------------------------------------------------------------------------

TEST_P(Latch, OpensOnceForAll) {
    static_assert(!std::is_copy_constructible_v<dunlin::latch> &&
                  !std::is_convertible_v<std::ptrdiff_t, dunlin::latch> && dunlin::latch::max() >= 1'000'000);
    static_assert(noexcept(std::declval<const dunlin::latch&>().try_wait()));
    inside([this] {
        dunlin::latch none(0);
        EXPECT_TRUE(none.try_wait());
        none.wait();
        none.arrive_and_wait(0);
        for (int round = 0; round < support::rounds(40); ++round) {
            auto l = std::make_unique<dunlin::latch>(7);
            std::array<int, 4> plain{};
            std::atomic<int> left{4};
            const auto all = start(4, [&](int i) {
                dunlin::latch& mine = *l;
                plain[static_cast<std::size_t>(i)] = 1;
                if (i == 0) {
                    mine.arrive_and_wait(2);
                } else if (i == 1) {
                    mine.count_down(3);
                    std::as_const(mine).wait();
                } else {
                    mine.arrive_and_wait();
                }
                EXPECT_TRUE(mine.try_wait());
                EXPECT_EQ(std::accumulate(plain.begin(), plain.end(), 0), 4);
                if (--left == 0) l.reset();  // the other waits have returned
            });
        }
    });
}

// ---- [thread.barrier] ----------------------------------------------------------------------------------------------

TEST_P(Barrier, GoesThroughPhaseAfterPhase) {
    static_assert(
        !std::is_copy_constructible_v<dunlin::barrier<>> && !std::is_convertible_v<std::ptrdiff_t, dunlin::barrier<>>);
    static_assert(
        dunlin::barrier<>::max() >= 1'000'000 && std::is_move_constructible_v<dunlin::barrier<>::arrival_token>);
    inside([this] {
        constexpr int n = 4;
        const int phases = support::rounds(100);
        std::array<int, n> plain{};
        int completed = 0, sum = 0;
        struct completion {
            std::array<int, n>& in;
            int &count, &out;
            std::unique_ptr<int> only_movable = nullptr;
            void operator()() noexcept {
                ++count;
                out = std::accumulate(in.begin(), in.end(), 0);
            }
        };
        dunlin::barrier b(n, completion{plain, completed, sum});
        {
            const auto all = start(n, [&](int i) {
                for (int p = 1; p <= 2 * phases; p += 2) {
                    plain[static_cast<std::size_t>(i)] = p;
                    if ((i + p / 2) % 2 == 0) {
                        b.arrive_and_wait();
                    } else {
                        auto token = b.arrive();
                        b.wait(std::move(token));
                    }
                    EXPECT_EQ(completed, p)
                        << "the completion function has been called once for each phase, before any wait of it returns";
                    EXPECT_EQ(sum, n * p) << "after all arrivals";
                    b.arrive_and_wait();  // none writes while others look
                }
            });
        }
        EXPECT_EQ(completed, 2 * phases);
    });
}

TEST_P(Barrier, ArrivalsOfManyDropsAndOldTokens) {
    inside([this] {
        dunlin::barrier b(5);
        auto token = b.arrive(4);
        auto last = start([&] { static_cast<void>(b.arrive()); });
        b.wait(std::move(token));
        last.join();
        auto old = b.arrive(2);
        auto dropped = start([&] { b.arrive_and_drop(); });
        dropped.join();
        static_cast<void>(b.arrive(2));
        b.wait(std::move(old));
        EXPECT_THROW(static_cast<void>(b.arrive(5)), std::logic_error) << "four from now on (std: undefined)";
        auto four = b.arrive(4);
        b.wait(std::move(four));
        for (int i = 0; i < 4; ++i) b.arrive_and_drop();
        dunlin::barrier<> one(1);
        for (int i = 0; i < 3; ++i) one.arrive_and_wait();
    });
}

}  // namespace
