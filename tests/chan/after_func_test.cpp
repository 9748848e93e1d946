// after_func(): what stop and reset say is what happens, however close they come to the moment.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

using dunlin::after_func;
using dunlin::clock;
using dunlin::timer;

class AfterFunc : public support::each_p {};
EACH_P(AfterFunc);
class PlainThreadAfterFunc : public support::runtime_test {};

void wait_for(const std::atomic<int>& runs, int n) {
    support::eventually([&] { return runs.load() >= n; });
}

// Due at once, its function runs before reset() has returned.
TEST_P(AfterFunc, ItsFunctionMayDestroyItWhileItIsBeingReset) {
    run([] {
        for (int i = 0; i < support::rounds(5000); ++i) {
            auto* t = new timer;
            std::atomic<int> runs{0};
            *t = after_func(1h, [&runs, t] {
                delete t;
                runs.fetch_add(1);
            });
            EXPECT_TRUE(t->reset(0ns));
            wait_for(runs, 1);
        }
    });
}

TEST_P(AfterFunc, RunsOnceInAGoroutineOfItsOwn) {
    run([] {
        std::atomic<int> runs{0};
        clock::time_point ran_at;
        dunlin::chan<int> go_on;
        const auto begin = clock::now();
        const timer t = after_func(1ms, [&] {
            ran_at = clock::now();
            runs.fetch_add(1);
            go_on.recv();  // it may block
            runs.fetch_add(1);
        });
        EXPECT_TRUE(t.channel().is_nil());
        wait_for(runs, 1);
        EXPECT_GE(ran_at - begin, 1ms);
        go_on.send(1);
        wait_for(runs, 2);
        dunlin::sleep_for(3ms);
        EXPECT_EQ(runs.load(), 2);
    });
}

TEST_P(AfterFunc, RunsAtOnceAfterZeroAndNegativeDurationsAndNeverAfterTheLongest) {
    run([] {
        std::atomic<int> runs{0}, never{0};
        const auto count = [&runs] { runs.fetch_add(1); };
        after_func(0s, count);
        after_func(-1ns, count);
        after_func(-1h, count);
        after_func(std::chrono::nanoseconds::min(), count);
        after_func(std::chrono::hours::min(), count);
        after_func(std::chrono::duration<double>(-1e300), count);
        timer late = after_func(1h, count);
        EXPECT_TRUE(late.reset(-1s));
        timer t = after_func(std::chrono::nanoseconds::max(), [&] { never.fetch_add(1); });
        timer u = after_func(std::chrono::duration<double>(1e300), [&] { never.fetch_add(1); });
        wait_for(runs, 7);
        dunlin::sleep_for(2ms);
        EXPECT_EQ(runs.load(), 7);
        EXPECT_EQ(never.load(), 0);
        EXPECT_TRUE(t.stop());
        EXPECT_TRUE(u.reset(0s));
        wait_for(never, 1);
    });
}

TEST_P(AfterFunc, DroppingTheTimerDoesNotStopIt) {
    run([] {
        std::atomic<int> runs{0};
        after_func(1ms, [&] { runs.fetch_add(1); });
        {
            timer t = after_func(1ms, [&] { runs.fetch_add(1); });
            timer u = std::move(t);
            t = after_func(1ms, [&] { runs.fetch_add(1); });
            u = timer();
        }
        wait_for(runs, 3);
    });
}

TEST_P(AfterFunc, AStoppedOneDoesNotRunUntilItIsReset) {
    run([] {
        std::atomic<int> runs{0};
        timer t = after_func(1ms, [&] { runs.fetch_add(1); });
        if (t.stop()) {
            EXPECT_FALSE(t.stop());
            dunlin::sleep_for(3ms);
            EXPECT_EQ(runs.load(), 0);
            EXPECT_FALSE(t.reset(100us));
        }
        wait_for(runs, 1);
        EXPECT_FALSE(t.stop());
        for (int i = 2; i < 50; ++i) {
            EXPECT_FALSE(t.reset(std::chrono::microseconds(i))) << "it has been started";
            wait_for(runs, i);
        }
        EXPECT_FALSE(t.reset(1h));
        EXPECT_TRUE(t.reset(2h));
        EXPECT_TRUE(t.stop());
        EXPECT_EQ(runs.load(), 49);
    });
}

// From inside it: it is not pending any more, and may be started again. Go's idiom for what runs now and then.
TEST_P(AfterFunc, MayResetItself) {
    run([] {
        std::atomic<int> runs{0};
        dunlin::chan<int> ready;
        timer t;
        t = after_func(0s, [&] {
            if (runs.load() == 0) ready.recv();  // `t` is there now
            EXPECT_FALSE(t.stop());
            if (runs.fetch_add(1) < 20) {
                EXPECT_FALSE(t.reset(10us));
            }
        });
        ready.send(1);
        wait_for(runs, 21);
        dunlin::sleep_for(1ms);
        EXPECT_EQ(runs.load(), 21);
    });
}

// Reset does not wait for the one that runs.
TEST_P(AfterFunc, MayRunSeveralTimesAtOnce) {
    run([] {
        std::atomic<int> inside{0}, ended{0};
        dunlin::chan<int> go_on;
        timer t = after_func(0s, [&] {
            inside.fetch_add(1);
            go_on.recv();
            ended.fetch_add(1);
        });
        for (int i = 1; i < 10; ++i) {
            wait_for(inside, i);
            EXPECT_FALSE(t.reset(0s));
        }
        wait_for(inside, 10);
        go_on.close();
        wait_for(ended, 10);
    });
}

TEST_P(AfterFunc, TakesWhatCanOnlyBeMovedAndDestroysItInTheEnd) {
    run([] {
        std::atomic<int> runs{0};
        const auto watched = std::make_shared<int>(0);
        const auto gone = [&] { support::eventually([&] { return watched.use_count() == 1; }); };
        after_func(0s, [&runs, w = watched, only = std::make_unique<int>(1)] { runs.fetch_add(*only); });
        wait_for(runs, 1);
        gone();
        {
            timer t = after_func(1h, [w = watched] {});
            EXPECT_EQ(watched.use_count(), 2);
            EXPECT_TRUE(t.stop());
            EXPECT_EQ(watched.use_count(), 2) << "it may be reset";
        }
        EXPECT_EQ(watched.use_count(), 1);
        {
            timer t = after_func(0s, [&runs, w = watched] { runs.fetch_add(1); });
            wait_for(runs, 2);
            EXPECT_FALSE(t.reset(0s));
        }
        wait_for(runs, 3);
        gone();
    });
}

// What it destroys may call the runtime.
TEST_P(AfterFunc, DestructorsMayWait) {
    run([] {
        struct sleeper {
            std::atomic<int>* ended;
            ~sleeper() {
                dunlin::sleep_for(100us);
                dunlin::yield();
                ended->fetch_add(1);
            }
        };
        std::atomic<int> ended{0};
        after_func(0s, [s = std::make_shared<sleeper>(&ended)] {});
        { after_func(1h, [s = std::make_shared<sleeper>(&ended)] {}).stop(); }
        wait_for(ended, 2);
    });
}

TEST_P(AfterFunc, OfNothingThrows) {
    run([] {
        void (*null)() = nullptr;
        EXPECT_THROW(after_func(1s, null), std::invalid_argument);
        EXPECT_THROW(after_func(1s, std::function<void()>()), std::invalid_argument);
    });
}

// ---- races ----------------------------------------------------------------------------------------------------------

TEST_P(AfterFunc, StopSaysTrueExactlyWhenItNeverRuns) {
    run([] {
        const int n = support::rounds(10'000);
        std::vector<std::atomic<int>> runs(static_cast<std::size_t>(n));
        std::vector<char> stopped(runs.size());
        for (std::size_t i = 0; i < runs.size(); ++i) {
            const auto d = std::chrono::nanoseconds(i * 13 % 4000);
            timer t = after_func(d, [&mine = runs[i]] { mine.fetch_add(1); });
            if (i % 4 == 1) dunlin::yield();
            // As late as possible: at the moment itself.
            for (const auto until = clock::now() + d * (i % 3) / 2; clock::now() < until;) {}
            stopped[i] = t.stop();
            EXPECT_FALSE(t.stop());
        }
        const auto decided = [&] {
            for (std::size_t i = 0; i < runs.size(); ++i) {
                if (!stopped[i] && runs[i].load() == 0) return false;
            }
            return true;
        };
        support::eventually(decided);
        dunlin::sleep_for(2ms);
        for (std::size_t i = 0; i < runs.size(); ++i) ASSERT_EQ(runs[i].load(), stopped[i] ? 0 : 1) << i;
    });
}

// Several that stop the same: one of them, or the run.
TEST_P(AfterFunc, OfSeveralStopsOneSaysTrue) {
    run([] {
        for (int i = 0; i < support::rounds(2000); ++i) {
            std::atomic<int> runs{0}, stops{0};
            timer t = after_func(std::chrono::nanoseconds(i * 17 % 8000), [&] { runs.fetch_add(1); });
            dunlin::wait_group wg;
            for (int k = 0; k < 3; ++k) wg.go([&] { stops.fetch_add(t.stop() ? 1 : 0); });
            wg.wait();
            support::eventually([&] { return runs.load() + stops.load() >= 1; });
            ASSERT_EQ(runs.load() + stops.load(), 1);
        }
    });
}

// Each time that reset (or stop) says false, it has run once more than before.
TEST_P(AfterFunc, ResetSaysTrueExactlyWhenItHasPutOffARun) {
    run([] {
        for (int round = 0; round < 10; ++round) {
            std::atomic<int> runs{0}, started{1};
            timer t = after_func(1us, [&] { runs.fetch_add(1); });
            dunlin::wait_group wg;
            for (int k = 0; k < 3; ++k) {
                wg.go([&, k] {
                    for (int i = 0; i < support::rounds(2000); ++i) {
                        const bool stop = k == 0 && i % 7 == 0;
                        const bool was = stop ? t.stop() : t.reset(std::chrono::nanoseconds(i * 31 % 5000));
                        if (stop && was) started.fetch_sub(1);
                        if (!stop && !was) started.fetch_add(1);
                    }
                });
            }
            wg.wait();
            if (t.stop()) started.fetch_sub(1);
            support::eventually([&] { return runs.load() >= started.load(); });
            dunlin::sleep_for(100us);
            ASSERT_EQ(runs.load(), started.load());
        }
    });
}

TEST_P(AfterFunc, TimersMayGoAwayWhileTheyFire) {
    run([] {
        std::atomic<int> runs{0};
        const int n = support::rounds(20'000);
        dunlin::wait_group wg;
        for (int g = 0; g < 4; ++g) {
            wg.go([&, g] {
                for (int i = g; i < n; i += 4) {
                    timer t = after_func(std::chrono::nanoseconds(i * 3 % 3000), [&] { runs.fetch_add(1); });
                    if (i % 2 == 0 && t.stop()) runs.fetch_add(1);
                }
            });
        }
        wg.wait();
        wait_for(runs, n);
        EXPECT_EQ(runs.load(), n);
    });
}

// ---- plain threads, and no run() ------------------------------------------------------------------------------------

TEST_F(PlainThreadAfterFunc, RunsWithoutRun) {
    std::atomic<int> runs{0};
    timer t = after_func(1ms, [&] { runs.fetch_add(1); });
    support::eventually_on_thread([&] { return runs.load() == 1; });
    EXPECT_FALSE(t.stop());
    EXPECT_FALSE(t.reset(1h));
    EXPECT_TRUE(t.reset(0s));
    support::eventually_on_thread([&] { return runs.load() == 2; });
    std::vector<std::thread> threads;
    std::atomic<int> stops{0};
    for (int k = 0; k < 4; ++k) {
        threads.emplace_back([&, k] {
            for (int i = 0; i < support::rounds(2000); ++i) {
                timer mine = after_func(std::chrono::microseconds((i + k) % 100), [&] { runs.fetch_add(1); });
                if (i % 2 == 0) stops.fetch_add(mine.stop() ? 1 : 0);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    const int all = 2 + 4 * support::rounds(2000);
    support::eventually_on_thread([&] { return runs.load() + stops.load() >= all; });
    EXPECT_EQ(runs.load() + stops.load(), all);
}

// As goroutines do, what is pending ends with run(): it counts as stopped, once. The timer may be used again, and the
// function goes with it.
TEST_F(PlainThreadAfterFunc, PendingOnesAreForgottenWhenRunReturns) {
    std::atomic<int> runs{0};
    std::optional<timer> t;
    std::vector<timer> many;
    const auto begin = std::chrono::steady_clock::now();
    dunlin::run({.max_procs = 4}, [&] {
        t.emplace(after_func(1h, [&] { runs.fetch_add(1); }));
        dunlin::wait_group wg;  // in the heap of whichever processor
        dunlin::chan<timer> made(100);
        for (int i = 0; i < 100; ++i) {
            wg.go([&] { made.send(after_func(20ms, [&] { runs.fetch_add(1); })); });
        }
        wg.wait();
        for (int i = 0; i < 100; ++i) many.push_back(std::move(*made.recv()));
    });
    const bool in_time = std::chrono::steady_clock::now() - begin < 20ms;
    const int ran_inside = runs.load();  // a busy machine may have taken more than 20 ms
    dunlin::run({.max_procs = 4}, [] { dunlin::sleep_for(40ms); });
    EXPECT_EQ(runs.load(), ran_inside);
    EXPECT_TRUE(t->stop()) << "it was not started and never will be";
    EXPECT_FALSE(t->stop());
    dunlin::run({.max_procs = 4}, [&] {
        EXPECT_FALSE(t->reset(0s));
        wait_for(runs, ran_inside + 1);
        int were_pending = 0;
        for (timer& one : many) were_pending += one.reset(100us) ? 1 : 0;
        // One that was due when run() returned may have started a goroutine, which was then forgotten before it ran.
        EXPECT_LE(were_pending, 100 - ran_inside);
        if (in_time) {
            EXPECT_EQ(were_pending, 100);
        }
        wait_for(runs, ran_inside + 101);
    });
    EXPECT_EQ(runs.load(), ran_inside + 101);
}

TEST_F(PlainThreadAfterFunc, AForgottenFunctionIsDestroyedWithItsTimer) {
    const auto alive = std::make_shared<int>(1);
    std::vector<timer> dropped, stopped, moved;
    dunlin::run({.max_procs = 4}, [&] {
        for (std::vector<timer>* each : {&dropped, &stopped, &moved}) each->push_back(after_func(1h, [alive] {}));
    });
    EXPECT_EQ(alive.use_count(), 4);
    dropped.clear();
    EXPECT_EQ(alive.use_count(), 3);
    EXPECT_TRUE(stopped[0].stop());
    stopped.clear();
    EXPECT_EQ(alive.use_count(), 2);
    EXPECT_TRUE(moved[0].reset(2h));
    EXPECT_TRUE(moved[0].stop());
    moved[0] = timer();
    EXPECT_EQ(alive.use_count(), 1);
}

}  // namespace
