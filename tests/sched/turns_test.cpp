// What decides whether a wake is made at once (sched/machines/turns.h): the measures by themselves, and programs that
// they are for.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <gtest/gtest.h>

#include "platform/clock.h"
#include "sched/machines/machine.h"
#include "sched/machines/turns.h"
#include "sched/machines/waits.h"
#include "sched/machines/wake.h"
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
    std::uint64_t stood_for = 0;
    for (int i = 0; i <= 992; ++i) {
        const std::uint32_t n = note_readying(p.get(), g.get(), true);
        measured += n != 0 ? 1 : 0;
        stood_for += n;
    }
    EXPECT_GT(measured, 8u);
    EXPECT_LT(measured, 100u);
    EXPECT_EQ(stood_for, 993u);
}

TEST_F(Turns, TheFirstThatOneReadiesStandsForItselfWhetherOthersAreFreeOrNot) {
    EXPECT_EQ(note_readying(p.get(), g.get(), false), 1u);
    EXPECT_EQ(note_readying(p.get(), g.get(), true), 1u);
}

TEST_F(Turns, AStampInAShortTurnStandsForTurnsWithoutOne) {
    quick_turns(100'000);
    ASSERT_TRUE(has_short_turns(p.get()));
    turns_to_stamp_for(p.get());
    p->counts.switches.add(100);
    EXPECT_EQ(turns_to_stamp_for(p.get()), 100u);
    // The next one would have been looked at after so many turns: there has been none in the rest.
    quick_turns(100'000);
    EXPECT_TRUE(p->looks_at_push);
    EXPECT_EQ(turns_to_stamp_for(p.get()), turns_between_stamps + turns_between_looks);
    // Nor has any in the looks of a machine that finds nothing.
    p->counts.switches.add(100);
    begin_turns(p.get());
    EXPECT_EQ(turns_to_stamp_for(p.get()), 0u);
    // Those that a lingering goroutine readies in a short turn are stamped by themselves.
    p->counts.switches.add(3);
    note_readying(p.get(), g.get(), true);
    EXPECT_EQ(turns_to_stamp_for(p.get()), 2u);
    // Goroutines that are readied in long turns are stamped one by one.
    const auto begin = steady::now();
    quick_turns(10);
    const bool quick = (steady::now() - begin) / 1ns < short_turn_ns;  // where the machine is busy one may be long
    long_turn(500us);
    for (int i = 0; i < 100; ++i) long_turn(0us);
    ASSERT_FALSE(has_short_turns(p.get()));
    const std::uint32_t stamped = turns_to_stamp_for(p.get());
    EXPECT_LE(stamped, 11u);
    if (quick) {
        EXPECT_EQ(stamped, 11u) << "those before them, and the one that was to be a short turn";
    }
}

// ---- trials ---------------------------------------------------------------------------------------------------------

// Turns of which the length is given, not measured: each took so long, for so many steps.
class Trials : public Turns {
protected:
    void turn(std::chrono::nanoseconds took, std::uint32_t operations) {
        const std::int64_t now = dunlin::platform::now_ns();
        p->turns_since_ns = now - took.count();
        p->trial.looked_ns = now - took.count();
        p->operations = operations;
        p->counts.switches.add();
        note_turns(p.get(), m.get());
    }
    // 1 us a step. If the thread loses its CPU for less than 10 ms in turn(), that is still no work.
    void turn_of_spread_goroutines() { turn(10ms, 10'000); }
    // Looks like one that took no time.
    void quick_turn() {
        p->trial.looked_ns = dunlin::platform::now_ns() + 10'000'000'000;
        p->operations = 1'000'000;
        p->counts.switches.add();
        note_turns(p.get(), m.get());
    }
    void begin_a_trial() {
        p->trial.not_before_ns = 0;
        for (unsigned i = 0; i < turn_trial::looked_at; ++i) turn_of_spread_goroutines();
        ASSERT_EQ(p->trial.now, turn_trial::phase::settles);
    }
};

TEST_F(Trials, BeginWhereStepsMayBeLongBecauseTwoProcessorsShareThem) {
    for (unsigned i = 0; i < turn_trial::looked_at; ++i) turn(10ms, 100);  // they work: 100 us a step
    EXPECT_FALSE(p->trial.under_way());
    for (unsigned i = 0; i < turn_trial::looked_at; ++i) turn(10ms, 10'000'000);  // they talk
    EXPECT_FALSE(p->trial.under_way());
    for (unsigned i = 1; i < turn_trial::looked_at; ++i) turn_of_spread_goroutines();
    EXPECT_FALSE(p->trial.under_way());
    turn_of_spread_goroutines();
    EXPECT_TRUE(p->trial.under_way());
    EXPECT_TRUE(has_short_turns(p.get()));
    EXPECT_FALSE(p->looks_at_push);
}

// Short turns after a long one pay for it: they are not tried.
TEST_F(Trials, DoNotBeginAfterShortTurns) {
    for (unsigned i = 0; i < 4 * turn_trial::looked_at; ++i) {
        p->turn_ns = longest_turn_ns;
        turn(1us, 0);
        ASSERT_FALSE(p->trial.under_way());
    }
}

TEST_F(Trials, BeginByTheMeanOfManySteps) {
    for (unsigned i = 1; i < turn_trial::looked_at; ++i) turn_of_spread_goroutines();
    turn(10s, 100);  // one of them works
    EXPECT_FALSE(p->trial.under_way());
}

TEST_F(Trials, ThatFindTalkLeaveTurnsShort) {
    begin_a_trial();
    for (unsigned i = 0; i < turn_trial::settling; ++i) {
        EXPECT_EQ(p->trial.now, turn_trial::phase::settles);
        quick_turn();
    }
    for (unsigned i = 0; i < turn_trial::measured; ++i) {
        EXPECT_EQ(p->trial.now, turn_trial::phase::measures);
        quick_turn();
    }
    EXPECT_FALSE(p->trial.under_way());
    EXPECT_TRUE(has_short_turns(p.get()));
    EXPECT_LE(p->trial.not_before_ns, dunlin::platform::now_ns() + turn_trial::first_pause_ns);
}

TEST_F(Trials, ThatFindWorkComeLessOften) {
    for (std::int64_t pause = 2 * turn_trial::first_pause_ns; pause <= 4 * turn_trial::longest_pause_ns; pause *= 2) {
        begin_a_trial();
        for (unsigned i = 1; i < turn_trial::settling + turn_trial::measured; ++i) quick_turn();
        ASSERT_EQ(p->trial.now, turn_trial::phase::measures);
        p->trial.seen_ns = 0;
        const std::int64_t begin = dunlin::platform::now_ns();
        turn(10s, 100);
        EXPECT_FALSE(p->trial.under_way());
        EXPECT_FALSE(has_short_turns(p.get()));
        EXPECT_GE(p->trial.not_before_ns, begin + std::min(pause, turn_trial::longest_pause_ns));
        p->trial.not_before_ns = std::numeric_limits<std::int64_t>::max();
        for (unsigned i = 0; i < 2 * turn_trial::looked_at; ++i) turn_of_spread_goroutines();
        EXPECT_FALSE(p->trial.under_way()) << "before its time";
    }
    begin_a_trial();
    const std::int64_t longest = p->trial.pause_ns;
    for (unsigned i = 0; i < turn_trial::settling + turn_trial::measured; ++i) quick_turn();
    EXPECT_EQ(p->trial.pause_ns, longest / 4) << "one has found talk";
}

// 1 us for a step of each of two processors is as fast as half of that for one: the gain must be more.
TEST_F(Trials, FindNothingWhereOneProcessorDoesAsMuchAsTwo) {
    begin_a_trial();
    for (unsigned i = 0; i < turn_trial::settling; ++i) quick_turn();
    for (unsigned i = 0; i < turn_trial::measured; ++i) turn(90us, 179);
    EXPECT_FALSE(p->trial.under_way());
    EXPECT_FALSE(has_short_turns(p.get()));
}

TEST_F(Trials, ThatEndEarlyLeaveTurnsAsLongAsTheyWere) {
    p->turn_ns = 8000;
    for (unsigned i = 0; i < turn_trial::looked_at; ++i) {
        p->turn_ns = std::min<std::uint32_t>(p->turn_ns, 8000);
        turn_of_spread_goroutines();
    }
    ASSERT_TRUE(p->trial.under_way());
    p->trial.turn_ns_before = 8000;
    for (int i = 0; i < 4; ++i) quick_turn();
    note_long_turn(p.get(), short_turn_ns);
    quick_turn();
    EXPECT_FALSE(p->trial.under_way());
    EXPECT_EQ(p->turn_ns, 8000u);
}

TEST_F(Trials, AreOverWhenTheNumberOfProcessorsChanges) {
    begin_a_trial();
    forget_turns(p.get());
    EXPECT_FALSE(p->trial.under_way());
    EXPECT_FALSE(keeps_together(p.get()));
}

TEST_F(Trials, AreForgottenWhenGoroutinesWork) {
    begin_a_trial();
    for (unsigned i = 0; i < turn_trial::settling + turn_trial::measured; ++i) quick_turn();
    ASSERT_TRUE(keeps_together(p.get()));
    turn(10ms, 100);
    p->turn_ns = 0;
    EXPECT_FALSE(keeps_together(p.get()));
}

// A machine that searches makes looks, too.
TEST_F(Trials, CountTheTurnsOfGoroutines) {
    begin_a_trial();
    for (int i = 0; i < 1000; ++i) {
        p->counts.switches.add();
        note_turns(p.get(), nullptr);
    }
    EXPECT_EQ(p->trial.now, turn_trial::phase::settles);
}

TEST_F(Trials, EndWithALongTurn) {
    begin_a_trial();
    turn(10ms, 1);
    EXPECT_FALSE(p->trial.under_way());
    EXPECT_GE(p->turn_ns, deferred_wait_ns);
    EXPECT_TRUE(p->looks_at_push);
}

TEST_F(Trials, EndWhenAThiefFindsALongTurn) {
    begin_a_trial();
    note_long_turn(p.get(), unknown_turn_ns);
    quick_turn();
    EXPECT_FALSE(p->trial.under_way());
    EXPECT_FALSE(has_short_turns(p.get()));
}

// Else the first wake that one of them makes at once would spread them again.
TEST_F(Trials, ForgiveThoseThatHaveLingered) {
    g->marks.set_lingers(10);
    begin_a_trial();
    note_marks(p.get(), g.get());
    EXPECT_FALSE(p->looks_at_push);
    EXPECT_EQ(g->marks.lingers(), 10u) << "it is not known yet why";
    for (unsigned i = 0; i < turn_trial::settling + turn_trial::measured; ++i) quick_turn();
    note_marks(p.get(), g.get());
    EXPECT_EQ(g->marks.lingers(), 0u);
    EXPECT_FALSE(p->looks_at_push);
    p->turn_ns = short_turn_ns;
    g->marks.set_lingers(10);
    note_marks(p.get(), g.get());
    EXPECT_EQ(g->marks.lingers(), 10u);
    EXPECT_TRUE(p->looks_at_push);
}

TEST_F(Trials, FindNothingWhileAllProcessorsAreBusy) {
    begin_a_trial();
    auto& word = the_scheduler.idle_and_spinning;
    while (word.load() != 2 * one_idle) std::this_thread::yield();  // the machines of the last run() have retired
    word.fetch_sub(2 * one_idle);
    for (unsigned i = 0; i < turn_trial::settling + turn_trial::measured; ++i) quick_turn();
    word.fetch_add(2 * one_idle);
    EXPECT_FALSE(p->trial.under_way());
    EXPECT_FALSE(has_short_turns(p.get())) << "those that work may be on another one";
    EXPECT_FALSE(keeps_together(p.get()));
}

// ---- marks, and one processor ---------------------------------------------------------------------------------------

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
    p->counts.switches.add(100);
    forget_turns(p.get());
    EXPECT_EQ(turns_to_stamp_for(p.get()), 0u) << "nothing was stamped in those turns, nor stood for";
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

std::uint64_t longer_than(const dunlin::runtime::duration_histogram& h, std::int64_t ns) {
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < h.counts.size(); ++i) {
        if (i >= h.limits_ns.size() || h.limits_ns[i] > ns) n += h.counts[i];
    }
    return n;
}

TEST_P(WaitsWhileIdle, AreMeasuredAndShort) {
    const unsigned procs = GetParam();
    dunlin::run({.max_procs = procs}, [procs] {
        fan(20, 20us, [] {});
        const auto before = dunlin::runtime::stats().waits_while_idle;
        const auto cpu_waits_before = support::cpu_waits();
        fan(few_or, 20us, [] {});
        const auto waits = dunlin::runtime::stats().waits_while_idle.since(before);
        const auto cpu_waits = std::max(support::cpu_waits() - cpu_waits_before, 0ns);  // threads may have ended
        // Four jobs and four answers in each round, and each is received by a goroutine that has waited for it.
        EXPECT_GE(waits.total(), static_cast<std::uint64_t>(few_or));
        const std::uint64_t most = 8 * few_or + procs * (turns_between_stamps + turns_between_looks);
        EXPECT_LE(waits.total(), most) << "more waits than there were";
        // With more processors than CPUs the woken thread waits for a CPU, which no scheduler of ours can give it; and
        // so it does where another process has the second CPU. The kernel counts that.
        const bool crowded = procs > the_scheduler.cpus || support::sanitized;
        const std::int64_t limit_ns = crowded ? 10'000'000 : 20'000;
        const auto kernels = static_cast<std::uint64_t>(cpu_waits / 1ns / limit_ns);
        if (kernels >= waits.total() / 2) GTEST_SKIP() << "the threads waited for a CPU for " << cpu_waits / 1us << " us";
        EXPECT_LE(longer_than(waits, limit_ns), waits.total() / 2 + kernels);
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
