// Timers and tickers: what stop and reset say and do, in every state of a timer, from goroutines and plain threads.
// tests/go/time_sleep_test.cpp and time_tick_test.cpp are the ports of Go's own tests, tests/chan/after_func_test.cpp
// is about after_func().
#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

using dunlin::clock;
using dunlin::receiver;
using dunlin::ticker;
using dunlin::timer;
using dunlin::channel_status;
using times = receiver<clock::time_point>;

class Timer : public support::each_p {};
EACH_P(Timer);
class PlainThreadTimer : public support::runtime_test {};

bool nothing_there(const times& c) { return c.try_recv().status() == channel_status::would_block; }

template <class Exception, class F>
std::string message_of(F&& f) {
    try {
        f();
    } catch (const Exception& e) {
        return e.what();
    }
    return "nothing was thrown";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// A loop that polls sees each tick first: it must leave it to the receiver that waits.
TEST_P(Timer, AReceiverThatWaitsIsNotOvertaken) {
    run([] {
        const ticker t(5ms);
        std::atomic<int> waited{0};
        int polled = 0;  // ticks that come before it waits again
        auto waiter = dunlin::spawn([&] {
            for (; waited < 20; ++waited) t.channel().recv();
        });
        while (waited < 20 && polled < 20) {
            if (t.channel().try_recv()) ++polled;
            dunlin::yield();
        }
        EXPECT_LT(polled, 20);
        waiter.get();
    });
}

// ---- stop and reset -------------------------------------------------------------------------------------------------

TEST_P(Timer, StopOfAPendingOneSaysTrueOnce) {
    run([] {
        for (const bool looked_at : {false, true}) {
            timer t(1h);
            if (looked_at) {
                EXPECT_TRUE(nothing_there(t.channel()));
            }
            EXPECT_TRUE(t.stop());
            EXPECT_FALSE(t.stop());
            EXPECT_TRUE(nothing_there(t.channel()));
            EXPECT_FALSE(t.stop());
        }
    });
}

TEST_P(Timer, AValueThatWasNotReceivedIsPendingStill) {
    run([] {
        for (const bool looked_at : {false, true}) {
            timer t(1ns);
            times c;
            if (looked_at) c = t.channel();
            dunlin::sleep_for(1ms);
            EXPECT_TRUE(t.stop()) << "due, not received";
            EXPECT_TRUE(nothing_there(t.channel())) << "nothing old after stop()";
            EXPECT_FALSE(t.reset(1ns));
            dunlin::sleep_for(1ms);
            EXPECT_TRUE(t.reset(1h)) << "due, not received";
            EXPECT_TRUE(nothing_there(t.channel())) << "nothing old after reset()";
            EXPECT_TRUE(t.stop());
        }
    });
}

// A select that looks at the timer and takes another case leaves the value where it is.
TEST_P(Timer, AValueThatASelectHasOnlySeenIsPendingStill) {
    run([] {
        int stopped = 0;
        for (int i = 0; i < 200; ++i) {
            timer t(0s);
            const times c = t.channel();
            dunlin::chan<int> other(1);
            other.send(1);
            bool received = false;
            dunlin::select(dunlin::on_recv(c, [&] { received = true; }), dunlin::on_recv(other));
            EXPECT_EQ(t.stop(), !received);
            EXPECT_TRUE(nothing_there(c));
            stopped += !received;
        }
        EXPECT_GT(stopped, 20);
        EXPECT_LT(stopped, 180);
    });
}

TEST_P(Timer, OneThatWasReceivedIsNotPending) {
    run([] {
        timer t(1ms);
        EXPECT_TRUE(t.channel().recv());
        EXPECT_FALSE(t.stop());
        EXPECT_FALSE(t.reset(1ms));
        EXPECT_TRUE(t.channel().recv());
        EXPECT_FALSE(t.reset(1h));
        EXPECT_TRUE(t.stop());
    });
}

TEST_P(Timer, TheValueIsTheTimeAtWhichItWasDue) {
    run([] {
        for (int i = 0; i < 50; ++i) {
            const auto before = clock::now();
            timer t(500us);
            const auto after = clock::now();
            if (i % 3 == 0) dunlin::sleep_for(2ms);  // received late
            const auto value = t.channel().recv().value();
            EXPECT_GE(clock::now(), value);
            EXPECT_GE(value, before + 500us);
            EXPECT_LE(value, after + 500us);
            const auto again = clock::now();
            t.reset(200us);
            EXPECT_GE(t.channel().recv().value(), again + 200us);
        }
    });
}

TEST_P(Timer, ItsChannelSeemsEmptyAndIsNeverClosed) {
    run([] {
        timer t(0s);
        ticker k(1ns);
        const times a = dunlin::after(0s);
        dunlin::sleep_for(100us);
        for (const times& c : {t.channel(), k.channel(), a}) {
            EXPECT_FALSE(c.is_nil());
            EXPECT_EQ(c.len(), 0u);
            EXPECT_EQ(c.cap(), 0u);
            EXPECT_FALSE(c.closed());
            EXPECT_TRUE(c.try_recv());
            EXPECT_EQ(c.len(), 0u);
        }
        t.stop();
        k.stop();
        EXPECT_FALSE(t.channel().closed());
        EXPECT_FALSE(k.channel().closed());
        EXPECT_EQ(t.channel(), t.channel());
        EXPECT_EQ(k.channel(), k.channel());
    });
}

TEST_P(Timer, ItsChannelMayBeAskedForLate) {
    run([] {
        const auto begin = clock::now();
        timer due(1ms);
        dunlin::sleep_for(3ms);
        const auto value = due.channel().try_recv();
        ASSERT_TRUE(value) << "it was due";
        EXPECT_GE(*value, begin + 1ms);
        EXPECT_LE(*value, clock::now() - 1ms) << "the time at which it was due, not at which it was asked";

        timer stopped(1ns);
        EXPECT_TRUE(stopped.stop());
        EXPECT_TRUE(nothing_there(stopped.channel()));
        EXPECT_FALSE(stopped.reset(1ns));
        EXPECT_TRUE(stopped.channel().recv());

        timer restarted(1h);
        EXPECT_TRUE(restarted.reset(1ns));
        EXPECT_TRUE(restarted.channel().recv());

        timer put_off(1ns);
        EXPECT_TRUE(put_off.reset(1h));
        EXPECT_TRUE(nothing_there(put_off.channel()));
    });
}

// ---- durations ------------------------------------------------------------------------------------------------------

TEST_P(Timer, ZeroAndNegativeDurationsFireAtOnce) {
    run([] {
        const auto at_once = [](auto d) {
            EXPECT_TRUE(timer(d).channel().try_recv());
            EXPECT_TRUE(timer(d).channel().recv());
            EXPECT_TRUE(dunlin::after(d).try_recv());
            EXPECT_TRUE(dunlin::after(d).recv());
            timer t(1h);
            EXPECT_TRUE(t.reset(d));
            EXPECT_TRUE(t.channel().try_recv());
            // While there is a receiver, it has to go through a heap.
            t.reset(1h);
            std::optional<clock::time_point> value;
            dunlin::wait_group wg;
            wg.go([&] { value = t.channel().recv(); });
            dunlin::sleep_for(200us);
            t.reset(d);
            wg.wait();
            EXPECT_TRUE(value);
            EXPECT_FALSE(t.stop());
        };
        at_once(0s);
        at_once(-1ns);
        at_once(-1h);
        at_once(std::chrono::nanoseconds::min());
        at_once(std::chrono::hours::min());
        at_once(std::chrono::duration<double>(-1e300));
    });
}

TEST_P(Timer, TheLongestDurationsNeverFire) {
    run([] {
        const auto never = [](auto d) {
            timer t(d);
            EXPECT_FALSE(t.channel().recv_for(1ms));
            EXPECT_TRUE(t.reset(d));
            EXPECT_FALSE(t.channel().recv_for(1ms));
            EXPECT_FALSE(dunlin::after(d).recv_for(1ms));
            ticker k(d);
            EXPECT_FALSE(k.channel().recv_for(1ms));
            EXPECT_TRUE(k.reset(d));
            EXPECT_TRUE(k.stop());
            EXPECT_TRUE(t.stop());
            EXPECT_FALSE(t.reset(0s));
            EXPECT_TRUE(t.channel().recv());
        };
        never(std::chrono::nanoseconds::max());
        never(std::chrono::nanoseconds::max() - 1ns);
        never(std::chrono::hours::max());
        never(std::chrono::duration<double>(1e300));
    });
}

TEST_P(Timer, IsNeverEarly) {
    run([] {
        dunlin::wait_group wg;
        for (int g = 0; g < 40; ++g) {
            wg.go([g] {
                for (int i = 0; i < support::rounds(100); ++i) {
                    const auto d = std::chrono::nanoseconds((g * 7919 + i * 104'729) % 1'000'000);
                    const auto begin = clock::now();
                    dunlin::after(d).recv();
                    ASSERT_GE(clock::now() - begin, d);
                }
            });
        }
        wg.wait();
    });
}

// ---- handles --------------------------------------------------------------------------------------------------------

TEST_P(Timer, MovesWithItsChannel) {
    run([] {
        for (const bool looked_at : {false, true}) {
            timer a(1ms);
            times c;
            if (looked_at) c = a.channel();
            timer b(std::move(a));
            if (looked_at) {
                EXPECT_EQ(b.channel(), c);
            }
            EXPECT_TRUE(b.channel().recv());
            EXPECT_TRUE(contains(message_of<std::logic_error>([&] { a.stop(); }), "called on uninitialized Timer"));
            EXPECT_TRUE(a.channel().is_nil());

            timer other(1ms);
            times of_other;
            if (looked_at) of_other = other.channel();
            timer stopped(1ns);
            stopped.stop();
            other = std::move(stopped);
            EXPECT_FALSE(other.stop()) << "it is the one that was stopped";
            EXPECT_FALSE(other.reset(1ns));
            EXPECT_TRUE(other.channel().recv());
            if (looked_at) {
                EXPECT_FALSE(of_other.recv_for(3ms)) << "the one that was overwritten is stopped";
            }

            timer& same = other;
            other.reset(1ns);
            other = std::move(same);
            EXPECT_TRUE(other.channel().recv());

            a = timer(1ns);
            EXPECT_TRUE(a.channel().recv());
        }
    });
}

TEST_P(Timer, DroppingTheTimerStopsIt) {
    run([] {
        times of_timer, of_ticker, due, ticked;
        {
            timer t(1ms), u(1ns);
            ticker k(1ms), l(1ns);
            of_timer = t.channel();
            of_ticker = k.channel();
            due = u.channel();
            ticked = l.channel();
            dunlin::sleep_for(100us);
        }
        EXPECT_TRUE(nothing_there(due));
        EXPECT_TRUE(nothing_there(ticked));
        EXPECT_FALSE(of_timer.recv_for(5ms));
        EXPECT_FALSE(of_ticker.recv_for(5ms));
    });
}

TEST_P(Timer, OneThatWasNeverStartedThrows) {
    run([] {
        timer t;
        EXPECT_TRUE(t.channel().is_nil());
        const auto stop = message_of<std::logic_error>([&] { t.stop(); });
        const auto reset = message_of<std::logic_error>([&] { t.reset(1s); });
        EXPECT_TRUE(contains(stop, "stop") && contains(stop, "called on uninitialized Timer")) << stop;
        EXPECT_TRUE(contains(reset, "reset") && contains(reset, "called on uninitialized Timer")) << reset;
    });
}

TEST_P(Timer, TickersWithoutAPeriodThrow) {
    run([] {
        const auto make = [](auto d) { return message_of<std::invalid_argument>([d] { ticker k(d); }); };
        EXPECT_EQ(make(0s), "non-positive interval for NewTicker");
        EXPECT_EQ(make(-1ns), "non-positive interval for NewTicker");
        EXPECT_EQ(make(std::chrono::hours::min()), "non-positive interval for NewTicker");
        ticker k(1ms);
        EXPECT_EQ(message_of<std::invalid_argument>([&] { k.reset(0s); }), "non-positive interval for Ticker.Reset");
        EXPECT_EQ(message_of<std::invalid_argument>([&] { k.reset(-1h); }), "non-positive interval for Ticker.Reset");
        EXPECT_TRUE(k.channel().recv()) << "it goes on as it was";

        ticker moved(std::move(k));
        EXPECT_TRUE(moved.channel().recv());
        EXPECT_TRUE(k.channel().is_nil());
        EXPECT_FALSE(k.stop());
        EXPECT_TRUE(contains(message_of<std::logic_error>([&] { k.reset(1s); }), "called on uninitialized"));
        const times c = moved.channel();
        moved = ticker(1h);
        EXPECT_FALSE(c.recv_for(3ms)) << "the one that was overwritten is stopped";
        EXPECT_TRUE(moved.stop());
        EXPECT_FALSE(moved.stop());
    });
}

// ---- tickers --------------------------------------------------------------------------------------------------------

TEST_P(Timer, TicksAreMultiplesOfThePeriodAndNeverBunched) {
    run([] {
        constexpr auto period = 2ms;
        const auto before = clock::now();
        ticker k(period);
        const auto after = clock::now();
        const times c = k.channel();
        auto last = c.recv().value();
        EXPECT_GE(last, before + period);
        EXPECT_LE(last, after + period);
        for (int i = 0; i < 20; ++i) {
            if (i % 4 == 0) dunlin::sleep_for(5 * period);
            const auto reading = clock::now();
            const auto first = c.recv().value();
            EXPECT_GE(clock::now(), first);
            EXPECT_EQ((first - last) % period, 0ns);
            EXPECT_GE(first - last, period);
            last = c.recv().value();
            EXPECT_GE(last, reading) << "after one that was late, the next is one to come";
            EXPECT_EQ((last - first) % period, 0ns);
        }
    });
}

TEST_P(Timer, TickerResetTakesEffectAtOnce) {
    run([] {
        ticker k(1h);
        const times c = k.channel();
        EXPECT_TRUE(nothing_there(c));
        const auto begin = clock::now();
        EXPECT_TRUE(k.reset(1ms));
        EXPECT_GE(c.recv().value(), begin + 1ms);
        EXPECT_TRUE(c.recv());
        dunlin::sleep_for(2ms);
        EXPECT_TRUE(k.reset(1h));
        EXPECT_TRUE(nothing_there(c));
        EXPECT_TRUE(k.stop());
        EXPECT_FALSE(k.stop());
        EXPECT_FALSE(k.reset(1ms)) << "it starts again after stop()";
        EXPECT_TRUE(c.recv());
        EXPECT_TRUE(c.recv());
        dunlin::sleep_for(2ms);
        EXPECT_TRUE(k.stop());
        EXPECT_FALSE(c.recv_for(3ms)) << "an unread tick is dropped";
    });
}

// ---- who waits ------------------------------------------------------------------------------------------------------

TEST_P(Timer, OfManyWaitersOneGetsTheValue) {
    run([] {
        timer t(1h);
        const times c = t.channel();
        constexpr int n = 50;
        std::atomic<int> received{0}, over{0};
        dunlin::chan<int> stop;
        dunlin::wait_group wg;
        for (int i = 0; i < n; ++i) {
            wg.go([&, i] {
                if (i % 2 == 0) {
                    dunlin::select(dunlin::on_recv(c, [&] { received.fetch_add(1); }),
                        dunlin::on_recv(stop, [&] { over.fetch_add(1); }));
                } else {
                    // Gives up now and then, so that the first and the last of the waiters change.
                    while (!c.recv_for(std::chrono::microseconds(50 + i * 10))) {
                        if (stop.closed()) return static_cast<void>(over.fetch_add(1));
                    }
                    received.fetch_add(1);
                }
            });
        }
        for (int round = 1; round <= 20; ++round) {
            t.reset(std::chrono::microseconds(round * 20));
            support::eventually([&] { return received.load() == round; });
            EXPECT_FALSE(t.stop());
        }
        stop.close();
        wg.wait();
        EXPECT_EQ(received.load(), 20);
        EXPECT_EQ(over.load(), n - 20);
    });
}

TEST_P(Timer, EachOfManyWaitersForATickerGetsATick) {
    run([] {
        ticker k(50us);
        const times c = k.channel();
        dunlin::wait_group wg;
        std::vector<std::vector<clock::time_point>> ticks(30);
        for (auto& mine : ticks) {
            wg.go([&mine, c] {
                for (int i = 0; i < 10; ++i) mine.push_back(c.recv().value());
            });
        }
        wg.wait();
        std::vector<clock::time_point> all;
        for (const auto& mine : ticks) all.insert(all.end(), mine.begin(), mine.end());
        std::sort(all.begin(), all.end());
        EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end()) << "no tick was received twice";
    });
}

TEST_P(Timer, WaitersFollowItsResets) {
    run([] {
        timer t(1h);
        const times c = t.channel();
        std::atomic<int> received{0};
        dunlin::wait_group wg;
        for (int i = 0; i < 2; ++i) {
            wg.go([&] {
                if (c.recv()) received.fetch_add(1);
            });
        }
        dunlin::sleep_for(1ms);
        EXPECT_TRUE(t.reset(2h));
        EXPECT_TRUE(t.stop());
        EXPECT_FALSE(t.stop()) << "they wait for nothing now";
        dunlin::sleep_for(1ms);
        EXPECT_EQ(received.load(), 0);
        const auto begin = clock::now();
        EXPECT_FALSE(t.reset(3ms));
        support::eventually([&] { return received.load() == 1; });
        EXPECT_GE(clock::now() - begin, 3ms);
        EXPECT_FALSE(t.stop());
        EXPECT_FALSE(t.reset(0s));
        wg.wait();
        EXPECT_EQ(received.load(), 2);
    });
}

// ---- races ----------------------------------------------------------------------------------------------------------

// stop() says true, or a receiver gets the value: one of the two, always.
TEST_P(Timer, StopSaysTrueExactlyWhenNoReceiverGetsTheValue) {
    run([] {
        int stopped = 0, received = 0;
        for (int i = 0; i < support::rounds(10'000); ++i) {
            timer t(std::chrono::nanoseconds(i * 7 % 5000));
            const times c = t.channel();
            dunlin::chan<int> over;
            dunlin::task<bool> reader = dunlin::spawn([&] {
                bool got = false;
                dunlin::select(dunlin::on_recv(c, [&] { got = true; }), dunlin::on_recv(over));
                return got;
            });
            for (int k = i % 3; k > 0; --k) dunlin::yield();
            const bool was = t.stop();
            const bool drained = !nothing_there(c);
            over.close();
            const bool got = reader.get();
            ASSERT_FALSE(drained) << "nothing after stop()";
            ASSERT_NE(was, got) << "round " << i;
            ++(was ? stopped : received);
        }
        EXPECT_GT(stopped + received, 0);
    });
}

// The last handles go away while it fires: the heap holds none.
TEST_P(Timer, ChannelsMayGoAwayWhileTheyFire) {
    allow(60s);
    run([] {
        dunlin::wait_group wg;
        for (unsigned g = 0; g < 16; ++g) {
            wg.go([g] {
                for (int i = 0; i < support::rounds(5000); ++i) {
                    const auto d = std::chrono::nanoseconds(1 + (i * 37 + static_cast<int>(g) * 101) % 20'000);
                    dunlin::select(
                        dunlin::on_recv(dunlin::after(d)), dunlin::on_recv(dunlin::after(d)), dunlin::on_timeout(d));
                    timer t(d);
                    t.channel().recv_for(d);
                    dunlin::after(d).recv();
                }
            });
        }
        wg.wait();
    });
}

TEST_P(Timer, MayBeStoppedAndResetByMany) {
    run([] {
        timer t(1ns);
        const times c = t.channel();
        std::atomic<long> received{0};
        std::atomic<bool> end{false};
        dunlin::wait_group writers, readers;
        for (int g = 0; g < 4; ++g) {
            writers.go([&, g] {
                for (int i = 0; i < support::rounds(5000); ++i) {
                    if (i % 5 == g) t.stop();
                    t.reset(std::chrono::nanoseconds(i * 11 % 3000));
                }
            });
            readers.go([&] {
                while (!end.load()) received.fetch_add(c.recv_for(100us) ? 1 : 0);
            });
        }
        writers.wait();
        const long before = received.load();
        t.reset(0s);
        support::eventually([&] { return received.load() > before; });
        end = true;
        readers.wait();
        // What was counted above may have been a writer's, counted late: now there is one receiver, and it has this
        // one.
        t.reset(0s);
        EXPECT_TRUE(c.recv_for(10s));
        EXPECT_FALSE(t.stop());
    });
}

// ---- plain threads, and no run() ------------------------------------------------------------------------------------

TEST_F(PlainThreadTimer, WaitsWithoutRun) {
    const auto begin = clock::now();
    EXPECT_GE(timer(2ms).channel().recv().value(), begin + 2ms);
    EXPECT_GE(clock::now(), begin + 2ms);
    EXPECT_FALSE(timer(1h).channel().recv_for(2ms));
    EXPECT_TRUE(dunlin::after(0s).try_recv());
    ticker k(500us);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(k.channel().recv());
    EXPECT_TRUE(k.stop());
    bool timed_out = false;
    const times never = dunlin::after(1h);
    const std::size_t taken =
        dunlin::select(dunlin::on_recv(never), dunlin::on_recv(dunlin::after(1ms), [&] { timed_out = true; }));
    EXPECT_EQ(taken, 1u);
    EXPECT_TRUE(timed_out);
}

TEST_F(PlainThreadTimer, IsSharedByThreadsAndGoroutines) {
    ticker k(100us);
    timer t(1h);
    const times ticks = k.channel(), once = t.channel();
    std::atomic<int> received{0}, of_timer{0};
    std::vector<std::thread> threads;
    const auto body = [&] {
        for (int i = 0; i < 20; ++i) received.fetch_add(ticks.recv() ? 1 : 0);
        of_timer.fetch_add(once.recv() ? 1 : 0);
    };
    for (int i = 0; i < 4; ++i) threads.emplace_back(body);
    dunlin::run({.max_procs = 4}, [&] {
        dunlin::wait_group wg;
        for (int i = 0; i < 4; ++i) wg.go(body);
        support::eventually([&] { return received.load() == 160; });
        for (int i = 1; i <= 8; ++i) {
            t.reset(10us);
            support::eventually([&] { return of_timer.load() == i; });
        }
        wg.wait();
    });
    for (auto& thread : threads) thread.join();
}

TEST_F(PlainThreadTimer, OutlivesRun) {
    timer across(1h);
    ticker k(1ms);
    const times c = across.channel();
    std::optional<times> made_inside;
    std::optional<timer> number_inside;
    std::optional<clock::time_point> got_by_thread;
    std::thread waits([&] { got_by_thread = c.recv(); });
    dunlin::run({.max_procs = 2}, [&] {
        dunlin::go([c] { c.recv(); });  // these wait still when run() returns
        dunlin::go([c = k.channel()] {
            for (;;) c.recv();
        });
        made_inside = dunlin::after(5ms);
        number_inside.emplace(5ms);
        dunlin::sleep_for(2ms);
    });
    EXPECT_TRUE(k.channel().recv());
    EXPECT_TRUE(k.channel().recv());
    EXPECT_TRUE(made_inside->recv());
    EXPECT_TRUE(across.reset(1ms));
    waits.join();
    EXPECT_TRUE(got_by_thread) << "and not the goroutine that is no more";
    dunlin::run({.max_procs = 2}, [&] {
        EXPECT_TRUE(k.channel().recv());
        EXPECT_TRUE(number_inside->channel().recv());
        EXPECT_FALSE(across.reset(1ms));
        EXPECT_TRUE(c.recv());
        EXPECT_TRUE(k.reset(2ms));
        EXPECT_TRUE(k.channel().recv());
    });
    EXPECT_TRUE(k.stop());
    EXPECT_FALSE(across.stop());
}

}  // namespace
