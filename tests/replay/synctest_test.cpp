// Go's synctest, for dunlin::sim: go1.24 src/internal/synctest/synctest_test.go, and TestFakeTime of
// src/runtime/time_test.go.
//
// OBS-10  time         A sleep, a timer, a deadline ends at its very moment, but for what choices take (see below).
// OBS-11  Wait         sim::wait(). P is 1: a simulation has one processor.
// OBS-12  deadlocks    result::kind and result::message; the program goes on, with P = 1, 2, 8.
// OBS-13  the outside  Nothing outside is waited for: it is a failure. Go's fatal errors of what crosses ("receive on
//                      synctest channel from outside bubble") have no counterpart: objects do not know of a
//                      simulation, and one that is used again afterwards is an ordinary one. Sockets:
//                      tests/replay/network_test.cpp, sim_network.AWaitForWhatNoPeerSendsIsADeadlock.
// OBS-14  fake clock   There is none for a whole process: a simulation is it.
// OBS-15  coroutines   Not offered: include/ has no generator, and nothing like Go's iter.Pull.
//
// The other cases of OBS: 01, 02 tests/runtime/goroutine_profile_test.cpp; 03 to 05 tests/tools/trace_test.py and
// tests/runtime/trace_test.cpp; 06 tests/crash/settings_test.cpp; 07 tests/runtime/metrics_test.cpp; 08
// tests/runtime/wait_histograms_test.cpp; 09 tests/runtime/dump_test.cpp; 16 tests/platform/cpu_count_test.cpp.
//
// A choice takes 200 ns of virtual time and a look at the clock 20 ns, so that loops end. With longest_delay = 0
// nothing else takes any. `slack` is more than all choices of one of these programs.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <dunlin/sim.hpp>

#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;
namespace sim = dunlin::sim;
using dunlin::clock;
using kind = sim::failure_kind;
using moment = clock::time_point;

constexpr auto slack = 100us;

class sim_synctest : public support::runtime_test {
protected:
    void SetUp() override {
        runtime_test::SetUp();
        allow(240s);
    }
};

sim::options exact(std::uint64_t seeds = 100, sim::search_strategy strategy = sim::random) {
    return {.seeds = support::sanitized ? seeds / 10 + 1 : seeds, .strategy = strategy, .longest_delay = 0ns};
}

void in_each_strategy(const std::function<void()>& f) {
    sim::check(exact(), f);
    sim::check(exact(100, sim::pct(3)), f);
}

// `what` is `wanted`, or later by no more than choices take.
void require_exactly(clock::duration what, clock::duration wanted, const std::string& of) {
    sim::require(what >= wanted && what < wanted + slack,
        of + " took " + std::to_string(what.count()) + " ns and not " + std::to_string(wanted.count()));
}

// How long f takes.
template <class F>
clock::duration time_of(F f) {
    const moment begin = clock::now();
    f();
    return clock::now() - begin;
}

// ---- OBS-10 ---------------------------------------------------------------------------------------------------------

// TestNow.
TEST_F(sim_synctest, EachExecutionBeginsAtTheSameTimeAndItsGoroutinesHaveOneClock) {
    std::vector<moment> begins;
    sim::check(exact(), [&] {
        const moment begin = clock::now();
        begins.push_back(begin);
        dunlin::go([=] { require_exactly(clock::now() - begin, 0s, "the start of a goroutine"); });
        dunlin::sleep_for(1s);
        require_exactly(clock::now() - begin, 1s, "a sleep");
    });
    EXPECT_EQ(begins, std::vector<moment>(begins.size(), begins.at(0)));
}

// TestTimerReadBeforeDeadline, TestTimerReadAfterDeadline, TestTimerRanInPast, TestTimerRunsImmediately.
TEST_F(sim_synctest, ATimerSaysWhenItWasDueAndItIsReceivedThen) {
    in_each_strategy([] {
        for (const clock::duration d : std::initializer_list<clock::duration>{0ns, 1ns, 1ms, 5s, 1h, 10'000h}) {
            const moment earliest = clock::now();
            const dunlin::timer soon(d);
            const moment latest = clock::now();
            const moment due = *soon.channel().recv();
            sim::require(due >= earliest + d && due <= latest + d, "the timer says when it was due");
            require_exactly(clock::now() - earliest, d, "a timer");
        }
        const moment earliest = clock::now() + 1s;
        const dunlin::timer past(1s);
        const moment latest = clock::now() + 1s;
        dunlin::sleep_for(2s);
        const auto due = past.channel().try_recv();
        sim::require(due && *due >= earliest && *due <= latest, "a timer that is past has its time ready");
        require_exactly(clock::now() - earliest, 1s, "what had been ready for a second");
    });
}

// TestTimerReset.
TEST_F(sim_synctest, AResetTimerIsExact) {
    in_each_strategy([] {
        const moment begin = clock::now();
        dunlin::timer t(1s);
        require_exactly(*t.channel().recv() - begin, 1s, "the first wait");
        sim::require(!t.reset(2s), "it was not pending");
        require_exactly(*t.channel().recv() - begin, 3s, "the second wait");
        t.reset(3s);
        dunlin::sleep_for(1s);
        sim::require(t.reset(3s), "it was pending");
        require_exactly(*t.channel().recv() - begin, 7s, "the third wait");
        t.reset(1s);
        sim::require(t.stop(), "it was pending");
        dunlin::sleep_for(1h);
        sim::require(!t.channel().try_recv().has_value(), "a timer that was stopped says nothing");
    });
}

// TestTimeAfter.
TEST_F(sim_synctest, WhatAfterFuncStartsBelongsToTheSimulation) {
    in_each_strategy([] {
        const moment begin = clock::now();
        int i = 0;
        dunlin::after_func(1s, [&] {
            require_exactly(clock::now() - begin, 1s, "after_func()");
            ++i;
            dunlin::go([&] {
                dunlin::sleep_for(1s);
                require_exactly(clock::now() - begin, 2s, "the goroutine of its function");
                ++i;
            });
        });
        dunlin::sleep_for(3s);
        sim::require(i == 2, "both have run");
    });
}

// TestTimerAfterBubbleExit.
TEST_F(sim_synctest, AFunctionThatIsNotDueAtTheEndNeverRuns) {
    bool ran = false;
    sim::check(exact(), [&] { dunlin::after_func(1s, [&] { ran = true; }); });
    EXPECT_FALSE(ran);
}

// TestTimerNondeterminism, TestSleepNondeterminism.
TEST_F(sim_synctest, WhatIsDueAtTheSameMomentComesInEitherOrder) {
    bool seen[2] = {}, woken[2] = {};
    sim::check(exact(200), [&] {
        const moment until = clock::now() + 1s;
        int first = -1;
        dunlin::task_group both;
        for (int i = 0; i < 2; ++i) {
            both.go([&first, until, i] {
                dunlin::sleep_until(until);
                if (first < 0) first = i;
            });
        }
        both.wait();
        woken[first] = true;
        const auto a = dunlin::after(1ns), b = dunlin::after(1ns);
        dunlin::sleep_for(1s);
        dunlin::select(dunlin::on_recv(a, [&](auto&&) { seen[0] = true; }),
            dunlin::on_recv(b, [&](auto&&) { seen[1] = true; }));
    });
    EXPECT_TRUE(woken[0] && woken[1]);
    EXPECT_TRUE(seen[0] && seen[1]);
}

// TestAfterFuncRunsImmediately.
TEST_F(sim_synctest, AFunctionThatIsDueAtOnceRunsBesideOneThatYields) {
    in_each_strategy([] {
        bool ran = false;
        const moment begin = clock::now();
        dunlin::after_func(0s, [&] { ran = true; });
        while (!ran) dunlin::yield();
        require_exactly(clock::now() - begin, 0s, "a function that is due at once");
    });
}

// TestTimerResetZeroDoNotHang.
TEST_F(sim_synctest, AResetToZeroIsReceivedOnce) {
    in_each_strategy([] {
        dunlin::timer t(0s);
        auto [ctx, cancel] = dunlin::with_cancel(dunlin::context::background());
        int received = 0;
        auto other = dunlin::spawn([&, ctx = ctx, c = t.channel()] {
            for (bool over = false; !over;) {
                dunlin::select(dunlin::on_recv(ctx.done(), [&](auto&&) { over = true; }),
                    dunlin::on_recv(c, [&](auto&&) { ++received; }));
            }
        });
        sim::wait();
        sim::require(received == 1, "the first time");
        t.reset(0s);
        sim::wait();
        sim::require(received == 2, "the second time");
        cancel();
        other.get();
    });
}

// An hour of each wait that has a limit, and 3600 ticks.
TEST_F(sim_synctest, AnHourOfEachKindOfWaitIsAnHour) {
    in_each_strategy([] {
        dunlin::timed_mutex held, own;
        dunlin::counting_semaphore<1> none(0);
        dunlin::condition_variable never;
        dunlin::chan<int> empty;
        held.lock();
        auto other = dunlin::spawn([&] {
            const auto hour = [](const char* of, auto f) { require_exactly(time_of(f), 1h, of); };
            hour("sleep_for", [] { dunlin::sleep_for(1h); });
            hour("sleep_until", [] { dunlin::sleep_until(clock::now() + 1h); });
            hour("a lock", [&] { sim::require(!held.try_lock_for(1h)); });
            hour("a semaphore", [&] { sim::require(!none.try_acquire_for(1h)); });
            hour("a select", [&] {
                dunlin::select(dunlin::on_recv(empty, [](auto&&) {}), dunlin::on_timeout(1h, [] {}));
            });
            hour("a context", [&] {
                auto [ctx, cancel] = dunlin::with_timeout(dunlin::context::background(), 1h);
                ctx.done().recv();
                sim::require(ctx.err() == dunlin::errc::deadline_exceeded);
            });
            hour("a condition", [&] {
                std::unique_lock lock(own);
                dunlin::condition_variable_any any;
                sim::require(any.wait_for(lock, 1h) == dunlin::cv_status::timeout);
            });
            const moment begin = clock::now();
            const dunlin::ticker second(1s);
            for (int i = 1; i <= 3600; ++i) {
                require_exactly(*second.channel().recv() - begin, i * 1s, "a tick");
            }
        });
        other.get();
        held.unlock();
    });
}

// "Wall time < 1 s for 1 h of fake time", so that a busy machine does not matter: time costs no choices.
TEST_F(sim_synctest, AnHourTakesAsManyChoicesAsANanosecond) {
    const auto steps_of = [](clock::duration d) {
        return sim::check(exact(), [d] {
            const dunlin::chan<int> done;
            dunlin::go([=] {
                dunlin::sleep_for(d);
                done.send(1);
            });
            done.recv();
        }).steps;
    };
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(steps_of(1h), steps_of(1ms));
    EXPECT_EQ(steps_of(100'000h), steps_of(1ms));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 1h);
}

// ---- OBS-11 ---------------------------------------------------------------------------------------------------------

// TestGoroutineWait, TestWait: a chain of a hundred goroutines has ended.
TEST_F(sim_synctest, WaitEndsWhenAllOthersHaveEnded) {
    in_each_strategy([] {
        bool done = false, one = false;
        dunlin::go([&] { one = true; });
        dunlin::chan<int> c;
        std::function<void()> f = [&] {
            const int count = *c.recv();
            if (count == 0) {
                done = true;
                return;
            }
            dunlin::go(f);
            c.send(count - 1);
        };
        dunlin::go(f);
        c.send(100);
        sim::wait();
        sim::require(done && one, "all have ended");
    });
}

// TestHappensBefore, as far as it is about Wait: also those that wait for another, and functions of timers.
TEST_F(sim_synctest, WaitEndsWhenAllOthersWait) {
    in_each_strategy([] {
        int v = 0;
        dunlin::chan<int> go_on;
        dunlin::wait_group all;
        for (int i = 0; i < 2; ++i) {
            all.go([&] {
                ++v;
                go_on.recv();
                ++v;
            });
            dunlin::after_func(0s, [&] {
                ++v;
                go_on.recv();
            });
        }
        sim::wait();
        sim::require(v == 4, "all have come to where they wait");
        go_on.close();
        all.wait();
        sim::require(v == 6, "and from there");
    });
}

// TestWait, TestTimerReadBeforeDeadline: no time passes, so what waits for a time does not happen.
TEST_F(sim_synctest, WaitTakesNoTime) {
    in_each_strategy([] {
        bool fired = false;
        const moment begin = clock::now();
        dunlin::after_func(slack, [&] { fired = true; });
        dunlin::go([] { dunlin::yield(); });
        for (int i = 0; i < 3; ++i) sim::wait();
        sim::require(!fired && clock::now() - begin < slack, "it is not yet time");
        dunlin::sleep_for(slack);
        sim::wait();
        sim::require(fired, "it was time");
    });
}

// Go panics where a second goroutine waits; here all of them go on together. One that yields, or could, is waited for.
TEST_F(sim_synctest, SeveralMayWait) {
    const sim::search_strategy each[] = {sim::random, sim::exhaustive(1)};
    for (const sim::search_strategy& how : each) {
        sim::check({.seeds = 20, .strategy = how}, [] {
            int busy = 3;
            dunlin::wait_group all;
            for (int i = 0; i < 3; ++i) {
                all.go([&] {
                    sim::wait();
                    sim::require(busy == 0, "waits before others are done");
                });
                all.go([&] {
                    dunlin::yield();
                    --busy;
                });
            }
            all.wait();
        });
    }
    EXPECT_THROW(sim::wait(), std::logic_error);
    dunlin::run([] { EXPECT_THROW(sim::wait(), std::logic_error); });
}

// TestCond.
TEST_F(sim_synctest, ConditionsAreNotifiedAtTheirTime) {
    in_each_strategy([] {
        dunlin::mutex m;
        dunlin::condition_variable changed;
        const moment begin = clock::now();
        int stage = 0;
        dunlin::go([&] {
            dunlin::sleep_for(1ms);
            {
                const std::lock_guard held(m);
                ++stage;
                changed.notify_one();
            }
            dunlin::sleep_for(1ms);
            const std::lock_guard held(m);
            ++stage;
            changed.notify_all();
        });
        std::unique_lock lock(m);
        changed.wait(lock);
        sim::require(stage == 1, "notify_one() ends one wait");
        require_exactly(clock::now() - begin, 1ms, "the first");
        bool waiter_done = false;
        dunlin::go([&] {
            std::unique_lock mine(m);
            if (stage == 1) changed.wait(mine);
            waiter_done = true;
        });
        changed.wait(lock);
        sim::require(stage == 2, "notify_all() ends the second");
        require_exactly(clock::now() - begin, 2ms, "the second");
        lock.unlock();
        sim::wait();
        sim::require(waiter_done, "notify_all() ends both");
    });
}

// TestWaitGroupInBubble, TestWaitGroupRacingAdds.
TEST_F(sim_synctest, AWaitGroupIsWaitedForAsLongAsItsMembersTake) {
    in_each_strategy([] {
        dunlin::wait_group slow, many;
        slow.go([] { dunlin::sleep_for(1s); });
        require_exactly(time_of([&] { slow.wait(); }), 1s, "the group");
        int ran = 0;
        for (int i = 0; i < 100; ++i) many.go([&] { ++ran; });
        many.wait();
        sim::require(ran == 100);
    });
}

// ---- OBS-12 ---------------------------------------------------------------------------------------------------------

class sim_synctest_p : public support::each_p {
protected:
    // Fails so, each time, and the program goes on: what runs afterwards is as it was.
    void expect(kind what, const std::string& message, const std::function<void()>& f) {
        const sim::result r = sim::explore(exact(3), f);
        EXPECT_EQ(r.kind, what) << r.report;
        EXPECT_EQ(r.message, message) << r.report;
        EXPECT_EQ(r.seed, 1u);
        EXPECT_EQ(r.executions, 1u);
        EXPECT_NE(r.report.find(message), std::string::npos) << r.report;
        EXPECT_EQ(run([] {
            dunlin::sleep_for(1us);
            return dunlin::spawn([] { return 7; }).get();
        }), 7);
        EXPECT_TRUE(sim::explore(exact(3), [] { dunlin::sleep_for(1h); }).ok());
        EXPECT_EQ(run([] { return dunlin::runtime::max_procs(); }), procs());
    }
};
EACH_P(sim_synctest_p);

const char* const asleep = "deadlock: all goroutines are asleep";
const char* const left = "the function has returned, and goroutines are left that do not end";

// TestDeadlockRoot.
TEST_P(sim_synctest_p, ADeadlockOfTheFunctionItself) {
    run([] { dunlin::yield(); });
    expect(kind::deadlock, asleep, [] { dunlin::select(); });
    expect(kind::deadlock, asleep, [] { dunlin::chan<int>().recv(); });
}

// TestDeadlockChild, TestDeadlockTicker: in Go no timer fires any more, here they do for options::grace.
TEST_P(sim_synctest_p, ADeadlockOfAGoroutineThatIsLeft) {
    expect(kind::leak, left, [] { dunlin::go([] { dunlin::select(); }); });
    int ticks = 0;
    const auto program = [&] {
        ticks = 0;
        dunlin::go([&] {
            for (const dunlin::ticker t(1s);; ++ticks) t.channel().recv();
        });
    };
    expect(kind::leak, left, program);
    EXPECT_EQ(ticks, 59);  // the ticker began after the minute of grace
}

// ---- OBS-13 ---------------------------------------------------------------------------------------------------------

const char* const outside = "a plain thread uses dunlin: it has made a goroutine runnable, or waits for one, and what "
                            "threads do has no seed";

// TestChannelFromOutsideBubble. What a plain thread does to a channel that a goroutine of the simulation waits on.
TEST_P(sim_synctest_p, AChannelThatAPlainThreadUsesIsAFailure) {
    using channel = dunlin::chan<int>;
    struct one {
        const char* what;
        std::function<void(const channel&)> outside, inside;
    };
    const channel never;
    const one all[] = {
        {"read closed", [](const channel& c) { c.close(); }, [](const channel& c) { c.recv(); }},
        {"read value", [](const channel& c) { c.send(0); }, [](const channel& c) { c.recv(); }},
        {"write value", [](const channel& c) { c.recv(); }, [](const channel& c) { c.send(0); }},
        {"select outside only", [](const channel& c) { c.close(); },
            [&](const channel& c) {
                dunlin::select(dunlin::on_recv(c, [](auto&&) {}), dunlin::on_recv(never, [](auto&&) {}));
            }},
        {"select mixed", [](const channel& c) { c.close(); },
            [](const channel& c) {
                const channel own;
                dunlin::select(dunlin::on_recv(c, [](auto&&) {}), dunlin::on_recv(own, [](auto&&) {}));
            }},
    };
    for (const one& o : all) {
        SCOPED_TRACE(o.what);
        const std::vector<channel> made(2);  // for the execution, and for its replay
        std::size_t used = 0;
        expect(kind::outside_thread, outside, [&] {
            const channel c = made.at(used++);
            dunlin::go([&o, c] { o.inside(c); });
            sim::wait();  // it waits
            std::thread([&o, c] { o.outside(c); }).join();
            dunlin::sleep_for(1h);
            sim::require(false, "the simulation has ended before");
        });
    }
}

// TestChannelFromOutsideBubble, TestWaitGroupOutOfBubble: what nothing inside will end is a deadlock at once, while Go
// waits for the outside; and it holds no time up.
TEST_P(sim_synctest_p, WhatIsOutsideIsNotWaitedFor) {
    const dunlin::chan<int> c;
    dunlin::wait_group group;
    dunlin::mutex held;
    group.add(1);
    std::thread([&] { held.lock(); }).join();
    expect(kind::deadlock, asleep, [&] { c.recv(); });
    expect(kind::deadlock, asleep, [&] { group.wait(); });
    expect(kind::deadlock, asleep, [&] { const std::lock_guard mine(held); });
    held.unlock();
    group.done();
    sim::check(exact(), [&] {
        dunlin::go([=] { c.recv(); });
        require_exactly(time_of([] { dunlin::sleep_for(1h); }), 1h, "a sleep beside one that waits for the outside");
        c.send(1);
    });
}

// A mutex that a plain thread gives back while a goroutine of the simulation waits for it.
TEST_P(sim_synctest_p, AMutexThatAPlainThreadUnlocksIsAFailure) {
    // Never destroyed: a goroutine that stands for good has it at the end.
    dunlin::mutex* next = new dunlin::mutex[2];
    std::thread([&] {
        next[0].lock();
        next[1].lock();
    }).join();
    expect(kind::outside_thread, outside, [&] {
        dunlin::mutex& m = *next++;
        dunlin::go([&] { m.lock(); });
        sim::wait();
        std::thread([&] { m.unlock(); }).join();
        dunlin::sleep_for(1h);
    });
}

// TestTimerFromOutsideBubble: one that something waits for already is refused, with all that is alive.
TEST_P(sim_synctest_p, ATimerThatIsArmedOutsideIsRefused) {
    bool ran = false;
    std::string said;
    dunlin::timer t = dunlin::after_func(1h, [&] { ran = true; });
    try {
        sim::check(exact(1), [] {});
    } catch (const std::logic_error& e) {
        said = e.what();
    }
    EXPECT_EQ(said, "dunlin::sim: a timer is armed already: a simulation begins with nothing (wait for them, or stop "
                    "them)");
    EXPECT_TRUE(t.stop());
    EXPECT_FALSE(ran);
    sim::check(exact(1), [] {});
}

// TestChannelMovedOutOfBubble, TestTimerFromInsideBubble: ordinary objects, in the next simulation and outside.
TEST_P(sim_synctest_p, WhatIsMovedOutIsAnOrdinaryObject) {
    dunlin::chan<int> c;
    dunlin::timer t;
    bool ran = false;
    sim::check(exact(1), [&] {
        c = dunlin::chan<int>(1);
        t = dunlin::after_func(1s, [&] { ran = true; });
        c.send(7);
    });
    sim::check(exact(1), [&] {
        sim::require(c.recv() == 7);
        c.send(8);
    });
    run([&] {
        EXPECT_EQ(c.recv(), 8);
        EXPECT_TRUE(t.stop());  // it has not run, and never will
    });
    EXPECT_FALSE(ran);
}

// A pipe whose other end a plain thread has: a wait for it is the kernel's.
TEST_P(sim_synctest_p, APipeIsAFailure) {
    expect(kind::outside_wait, "waits for a descriptor: sockets, pipes and files are the kernel's, which has no seed", [] {
        auto ends = dunlin::fs::pipe();
        char byte[1];
        ends.read_end.read_some(byte);
    });
}

// ---- OBS-14 ---------------------------------------------------------------------------------------------------------

// TestFakeTime: the clock jumps when all wait, and what is printed comes in the order of its times.
TEST_F(sim_synctest, OutputComesInTheOrderOfVirtualTime) {
    for (const sim::search_strategy strategy : {sim::random, sim::search_strategy(sim::pct(3))}) {
        sim::check({.seeds = 50, .strategy = strategy}, [] {
            testing::internal::CaptureStdout();
            const moment begin = clock::now();
            const auto print = [begin](const char* line) {
                const auto s = std::chrono::duration_cast<std::chrono::seconds>(clock::now() - begin);
                std::printf("%lld: %s\n", static_cast<long long>(s.count()), line);
            };
            print("line 1");
            dunlin::wait_group all;
            all.go([&] {
                dunlin::sleep_for(2h);
                print("line 5");
            });
            all.go([&] {
                dunlin::sleep_for(30min);
                print("line 2");
                dunlin::sleep_for(1h);
                print("line 4");
            });
            dunlin::sleep_for(1h);
            print("line 3");
            all.wait();
            sim::require(testing::internal::GetCapturedStdout() ==
                "0: line 1\n1800: line 2\n3600: line 3\n5400: line 4\n7200: line 5\n");
        });
    }
}

}  // namespace
