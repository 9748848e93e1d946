// What decides whether a wake is made at once (sched/machines/turns.h): the measures by themselves, and programs that
// they are for.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <gtest/gtest.h>

#include "sched/machines/machine.h"
#include "sched/machines/turns.h"
#include "sched/machines/waits.h"
#include "support/build.h"
#include "support/cpu_waits.h"

namespace {

using namespace std::chrono_literals;
using namespace dunlin::sched;
using steady = std::chrono::steady_clock;

void compute(std::chrono::microseconds time) {
    for (const auto end = steady::now() + time; steady::now() < end;) {
    }
}

// A processor that is not in the scheduler's table, and a machine on which one goroutine runs.
class Turns : public testing::Test {
protected:
    static void SetUpTestSuite() { dunlin::run({.max_procs = 2}, [] {}); }
    void SetUp() override {
        begin_turns(p.get());
        p->turn_ns = unknown_turn_ns - 1;
        m->current.store(g.get());
    }
    // So many turns that took no time.
    void quick_turns(unsigned n) {
        p->counts.switches.add(n);
        note_turns(p.get(), nullptr);
    }
    void long_turn(std::chrono::microseconds time) {
        compute(time);
        p->counts.switches.add();
        note_turns(p.get(), m.get());
    }

    std::unique_ptr<processor> p = std::make_unique<processor>();
    std::unique_ptr<machine> m = std::make_unique<machine>();
    std::unique_ptr<goroutine> g = std::make_unique<goroutine>();
};

TEST_F(Turns, OfAProcessorThatNothingIsKnownAboutAreLong) {
    EXPECT_FALSE(has_short_turns(p.get()));
    EXPECT_TRUE(p->looks_at_push);
    quick_turns(100);
    EXPECT_TRUE(has_short_turns(p.get()));
}

TEST_F(Turns, ALongOneCountsAtOnceAndIsPaidBack) {
    quick_turns(10'000);
    ASSERT_TRUE(has_short_turns(p.get()));
    long_turn(500us);
    EXPECT_GE(p->turn_ns, 500'000u);
    EXPECT_TRUE(p->looks_at_push);
    const std::uint32_t before = p->turn_ns;
    quick_turns(10);
    EXPECT_GE(p->turn_ns, before - 10 * wake_cost_ns);
    EXPECT_FALSE(has_short_turns(p.get())) << "ten needless wakes have not cost what the mistake did";
    quick_turns(100'000);
    EXPECT_TRUE(has_short_turns(p.get()));
}

TEST_F(Turns, ThoseOfGoroutinesThatTalkCountWithAPart) {
    const auto begin = steady::now();
    quick_turns(10'000);
    const std::int64_t before = p->turn_ns;
    p->operations = 10'000'000;  // as many as make four seconds of talk
    long_turn(800us);
    const std::int64_t elapsed = (steady::now() - begin) / 1ns;  // more than 800 us where the machine is busy
    EXPECT_LE(p->turn_ns, std::max(before, elapsed / talk_factor));
    EXPECT_EQ(p->operations, 0u);
}

TEST_F(Turns, AGoroutineThatGoesOnAfterItHasReadiedLingers) {
    EXPECT_EQ(note_readying(p.get(), g.get(), true), 1u);
    long_turn(100us);
    const std::uint32_t lingers = g->marks.lingers();
    EXPECT_GE(lingers, 100'000 / wake_cost_ns);
    // It readies and parks at once: one less each time. Where the machine is busy, the turn may be no short one.
    const auto begin = steady::now();
    note_readying(p.get(), g.get(), true);
    long_turn(0us);
    if ((steady::now() - begin) / 1ns < short_turn_ns) {
        EXPECT_EQ(g->marks.lingers(), lingers - 1);
    } else {
        EXPECT_GE(g->marks.lingers(), lingers - 1);
    }
}

TEST_F(Turns, AGoroutineThatReadiesTheNextAfterLongLingersToo) {
    note_readying(p.get(), g.get(), true);
    compute(100us);
    note_readying(p.get(), g.get(), true);
    EXPECT_GE(g->marks.lingers(), 100'000 / wake_cost_ns);
}

TEST_F(Turns, OfManyThatOneReadiesAFewAreMeasured) {
    unsigned measured = 0;
    for (int i = 0; i < 1000; ++i) measured += note_readying(p.get(), g.get(), true) != 0 ? 1 : 0;
    EXPECT_GT(measured, 8u);
    EXPECT_LT(measured, 100u);
}

TEST_F(Turns, TheMarksOfAGoroutineAreApart) {
    g->marks.set_stamped(1'000'000'000);
    g->marks.set_lingers(1000);
    EXPECT_EQ(g->marks.lingers(), 255u);
    EXPECT_EQ(g->marks.stamped(), 0x3fffffu);
    EXPECT_FALSE(g->marks.measured());
    EXPECT_FALSE(g->marks.traced());
    g->marks.set_measured(true);
    EXPECT_EQ(g->marks.stamped(), 0x3fffffu);
    EXPECT_FALSE(g->marks.traced());
    g->marks.set_measured(false);
    g->marks.set_stamped(0);
    EXPECT_EQ(g->marks.lingers(), 255u);
    EXPECT_TRUE(g->marks.any());
}

TEST_F(Turns, AProcessorAloneMeasuresNothing) {
    dunlin::runtime::set_max_procs(1);
    forget_turns(p.get());
    EXPECT_TRUE(has_short_turns(p.get()));
    EXPECT_FALSE(p->looks_at_push);
    note_long_turn(p.get(), longest_turn_ns);  // by a monitor that was attentive before; nothing would take it back
    EXPECT_TRUE(has_short_turns(p.get()));
    EXPECT_FALSE(p->looks_at_push);
    dunlin::runtime::set_max_procs(2);
}

// ---- programs -------------------------------------------------------------------------------------------------------

constexpr int few_or = support::sanitized ? 40 : 400;

std::uint64_t steals() { return dunlin::runtime::stats().steals; }

// Main sends a job to each of four workers and takes four answers, again and again.
void fan(int rounds, std::chrono::microseconds work, const std::function<void()>& at_each_job) {
    constexpr int workers = 4;
    const dunlin::chan<int> jobs, answers;
    dunlin::wait_group wg;
    for (int i = 0; i < workers; ++i) {
        wg.go([&] {
            for (const int job : jobs) {
                compute(work);
                at_each_job();
                answers.send(job);
            }
        });
    }
    for (int r = 0; r < rounds; ++r) {
        for (int i = 0; i < workers; ++i) jobs.send(i);
        for (int i = 0; i < workers; ++i) answers.recv();
    }
    jobs.close();
    wg.wait();
}

TEST(TurnsOfPrograms, WorkersThatComputeRunOnBothProcessors) {
    dunlin::run({.max_procs = 2}, [] {
        std::atomic<unsigned> jobs_of[2] = {};
        fan(400, 100us, [&] {  // not fewer in slow builds: a thread that waits for a CPU misses some 10 ms of it
            const processor* p = current_machine()->p.load(std::memory_order_relaxed);
            if (p != nullptr && p->id < 2) jobs_of[p->id].fetch_add(1);
        });
        const unsigned least = std::min(jobs_of[0].load(), jobs_of[1].load());
        EXPECT_GE(least * 5, jobs_of[0] + jobs_of[1]) << jobs_of[0] << " and " << jobs_of[1];
    });
}

TEST(TurnsOfPrograms, GoroutinesThatTalkStayTogether) {
    if (support::sanitized) GTEST_SKIP() << "no turn is short there";
    dunlin::run({.max_procs = 2}, [] {
        const dunlin::chan<int> there, back;
        dunlin::wait_group wg;
        wg.go([&] {
            for (const int n : there) back.send(n);
        });
        const int rounds = few_or * 100;
        const std::uint64_t before = steals();
        for (int i = 0; i < rounds; ++i) {
            there.send(i);
            back.recv();
        }
        EXPECT_LT(steals() - before, static_cast<std::uint64_t>(rounds) / 10);
        there.close();
        wg.wait();
    });
}

double us_since(steady::time_point t) { return std::chrono::duration<double, std::micro>(steady::now() - t).count(); }

double median_of(std::vector<double>& of) {
    const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
    std::nth_element(of.begin(), middle, of.end());
    return *middle;
}

// It answers at once a hundred times, and then computes after it has woken its partner: found out the first time,
// expected from then on. What the threads wait for a CPU meanwhile is the kernel's.
TEST(TurnsOfPrograms, AGoroutineThatLingersNowAndThenIsNotTrustedAgain) {
    if (support::sanitized) GTEST_SKIP() << "nothing is quick there";
    dunlin::run({.max_procs = 2}, [] {
        const dunlin::chan<steady::time_point> there(1);
        const dunlin::chan<int> back;
        std::vector<double> late;
        double last = 0;
        dunlin::wait_group wg;
        wg.go([&] {
            for (const auto sent : there) {
                last = us_since(sent);
                back.send(1);
            }
        });
        constexpr int rounds = 200;
        const auto before = support::cpu_waits();  // not in the rounds: reading takes longer than a short turn
        for (int i = 0; i < rounds; ++i) {
            for (int k = 0; k < 100; ++k) {
                there.send(steady::now());
                back.recv();
            }
            there.send(steady::now());
            compute(3000us);
            back.recv();
            late.push_back(last);
        }
        const auto waits = std::chrono::duration<double, std::micro>(support::cpu_waits() - before) / rounds;
        there.close();
        wg.wait();
        EXPECT_LT(median_of(late) - waits.count(), 600) << "us from the wake until it runs; without memory 1000 to 2000";
    });
}

class WaitsWhileIdle : public testing::TestWithParam<unsigned> {};

TEST_P(WaitsWhileIdle, AreMeasuredAndShort) {
    const unsigned procs = GetParam();
    dunlin::run({.max_procs = procs}, [procs] {
        fan(20, 20us, [] {});
        const auto before = dunlin::runtime::stats().waits_while_idle;
        fan(few_or, 20us, [] {});
        const auto waits = dunlin::runtime::stats().waits_while_idle.since(before);
        EXPECT_GE(waits.total(), static_cast<std::uint64_t>(few_or));
        // With more processors than CPUs the woken thread waits for a CPU, which no scheduler of ours can give it.
        const bool crowded = procs > the_scheduler.cpus || support::sanitized;
        EXPECT_LE(waits.quantile_ns(0.5), crowded ? 10'000'000 : 20'000) << "ns";
        EXPECT_LE(waits.quantile_ns(0.5), waits.quantile_ns(0.99));
    });
}

INSTANTIATE_TEST_SUITE_P(Procs, WaitsWhileIdle, testing::Values(2u, 4u, 8u));

TEST(DurationHistogram, TellsQuantilesAndDifferences) {
    dunlin::runtime::duration_histogram h{{10, 20, 50}, {5, 4, 0, 1}};
    EXPECT_EQ(h.total(), 10u);
    EXPECT_EQ(h.quantile_ns(0), 10);
    EXPECT_EQ(h.quantile_ns(0.5), 10);
    EXPECT_EQ(h.quantile_ns(0.51), 20);
    EXPECT_EQ(h.quantile_ns(0.9), 20);
    EXPECT_EQ(h.quantile_ns(1), std::numeric_limits<std::int64_t>::max());
    const dunlin::runtime::duration_histogram older{{10, 20, 50}, {5, 0, 0, 1}};
    EXPECT_EQ(h.since(older).total(), 4u);
    EXPECT_EQ(h.since(h).quantile_ns(0.5), 0);
}

}  // namespace
