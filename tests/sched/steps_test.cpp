// Steps of the scheduler's protocols that only a rare moment needs, each in that moment, which the test makes by hand:
// processors and machines without the threads of a runtime, a source of events that acts between two steps, and a
// barrier that brings out what was held back (support/barrier_trap.h). The models (tests/model) prove the protocols;
// these fail when the code leaves the step out. docs/proofs.md says which test stands for which step.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "sched/data/event_source.h"
#include "sched/goroutines/goroutine.h"
#include "sched/machines/event_notice.h"
#include "sched/machines/machine.h"
#include "sched/machines/processor.h"
#include "sched/machines/wake.h"
#include "sched/queues/global_queue.h"
#include "sched/work/find_work.h"
#include "support/barrier_trap.h"
#include "support/comes_true.h"

namespace {

using namespace std::chrono_literals;
using namespace dunlin::sched;
using support::comes_true;

// No event ever, or one timer of one processor; what else is to happen when it is asked.
struct quiet_source : event_source {
    std::function<void()> when_asked_for_waiters;
    const processor* has_timer = nullptr;  // it is due
    std::function<void()> when_it_fires;
    std::atomic<int> interrupts{0};

    void* make_events() override { return nullptr; }
    unsigned collect(processor*, std::int64_t) noexcept override {
        has_timer = nullptr;
        when_it_fires();
        return 1;
    }
    std::int64_t next_deadline(const processor* p) const noexcept override { return p == has_timer ? 1 : 0; }
    void move(processor*, processor*) noexcept override {}
    bool has_waiters() const noexcept override {
        if (when_asked_for_waiters) when_asked_for_waiters();
        return false;
    }
    unsigned poll() noexcept override { return 0; }
    void wait(std::int64_t, event_batch&) noexcept override {}
    unsigned deliver(const event_batch&) noexcept override { return 0; }
    void interrupt() noexcept override { interrupts.fetch_add(1); }
    void forget_all() noexcept override {}
    void forget_lost() noexcept override {}
};

class SchedulerSteps : public testing::Test {
protected:
    // A machine whose thread is in search of work.
    struct searcher {
        std::unique_ptr<machine> m = std::make_unique<machine>();
        goroutine* found = nullptr;
        std::atomic<bool> done{false};
        std::jthread thread;
    };

    void SetUp() override {
        dunlin::platform::init_barriers();
        s.events = &source_;
    }

    void TearDown() override {
        source_.when_asked_for_waiters = nullptr;
        EXPECT_EQ(s.retirers.load(), 0u);
        EXPECT_EQ(s.global.size(), 0u);
        EXPECT_EQ(s.idle_machine_count, 0u);
        EXPECT_EQ(s.idle_and_spinning.load(), s.max_procs * one_idle);
    }

    processor* take_idle() {
        const std::scoped_lock guard(s.lock);
        return take_idle_processor();
    }

    void put_idle(processor* p) {
        const std::scoped_lock guard(s.lock);
        put_idle_processor(p, false);
    }

    void set_procs(std::uint32_t n) {
        set_max_procs(n);
        ASSERT_EQ(s.idle_and_spinning.load(), n * one_idle);
    }

    // With a processor of its own, outside the tick at which the poller is asked first.
    processor* give_processor(machine& m) {
        processor* p = take_idle();
        p->tick.store(1);
        give(p, &m);
        m.last_p = nullptr;  // so it tells whether it gets another
        return p;
    }

    void give_up_processor(machine& m) {
        if (m.p.load() != nullptr) put_idle(release_processor(&m));
    }

    static void search(searcher& w) {
        set_current_machine(w.m.get());
        w.found = find_work(w.m.get());
        set_current_machine(nullptr);
        w.done = true;
    }

    std::uint32_t sleeping() const { return s.idle_machine_count; }

    // Ends those that sleep, and gives back what the others have.
    void end(searcher& w) {
        while (!w.done) {
            end_idle_machines(1);
            std::this_thread::sleep_for(50us);
        }
        w.thread.join();
        give_up_processor(*w.m);
    }

    goroutine* g(std::size_t i) { return &all_[i]; }

    scheduler& s = the_scheduler;
    quiet_source& source_ = the_source;

private:
    static inline quiet_source the_source;  // the scheduler keeps it
    std::unique_ptr<goroutine[]> all_ = std::make_unique<goroutine[]>(400);
};

// R1 looks at the global queue under the lock: what was put there after the search keeps the machine from giving its
// processor up. (R3 would find it too, for the price of two more turns with the lock, and of a barrier if another
// processor runs.)
TEST_F(SchedulerSteps, AMachineKeepsItsProcessorForWhatCameIntoTheGlobalQueueAfterItsSearch) {
    set_procs(1);
    machine m;
    processor* p = give_processor(m);
    source_.when_asked_for_waiters = [&] {  // by the search, after it has looked at the global queue
        source_.when_asked_for_waiters = nullptr;
        push_global(g(0));
    };
    set_current_machine(&m);
    EXPECT_EQ(find_work(&m), g(0));
    set_current_machine(nullptr);
    EXPECT_EQ(m.p.load(), p);
    EXPECT_EQ(m.last_p, nullptr) << "it gave its processor up, and had to get one again";
    give_up_processor(m);
}

// A thief that has fired the timers of another processor has work of its own. find_local() may not give it any of it,
// here because it is a preempted goroutine's turn; if it went on to steal, its queue would have no room for that.
TEST_F(SchedulerSteps, AProcessorWithWorkOfItsOwnStealsNothing) {
    constexpr std::uint32_t own = 230, others = 100;
    set_procs(2);
    machine m, busy;
    processor* const mine = give_processor(m);
    processor* const victim = give_processor(busy);
    source_.has_timer = victim;
    source_.when_it_fires = [&] {
        for (std::uint32_t i = 0; i < own; ++i) EXPECT_TRUE(mine->queue.push(g(i)));
        for (std::uint32_t i = 0; i < others; ++i) EXPECT_TRUE(victim->queue.push(g(own + i)));
        mine->slice.store(slice_state::preempted_turn);
    };
    set_current_machine(&m);
    EXPECT_EQ(find_work(&m), g(0));
    set_current_machine(nullptr);
    EXPECT_EQ(m.p.load(), mine);
    EXPECT_EQ(m.last_p, nullptr) << "it gave its processor up with work in the queue, and had to get one again";
    EXPECT_EQ(victim->queue.size(), others);
    EXPECT_EQ(mine->queue.size(), own - 1);
    for (std::uint32_t i = 1; i < own; ++i) EXPECT_EQ(mine->queue.pop(), g(i));
    while (victim->queue.pop() != nullptr) {}
    give_up_processor(m);
    give_up_processor(busy);
}

// R2. What was submitted lies in the buffer of the submitter's CPU, and the submitter has seen no idle processor: the
// barrier brings it out, and R3 finds it.
TEST_F(SchedulerSteps, AMachineThatRetiresFindsWhatOnlyTheBarrierMakesVisible) {
    if (!support::barriers_can_be_trapped()) GTEST_SKIP() << "membarrier or seccomp is not available";
    set_procs(2);
    machine submitter;
    processor* busy = give_processor(submitter);
    searcher w;
    give_processor(*w.m);
    w.thread = std::jthread([&] {
        if (!support::trap_barriers([&] { busy->queue.push(g(0)); })) return;
        search(w);
    });
    EXPECT_TRUE(comes_true([&] { return w.done || sleeping() == 1; }));
    EXPECT_EQ(sleeping(), 0u) << "it fell asleep over a goroutine that can run";
    end(w);
    EXPECT_EQ(w.found, g(0));
    while (busy->queue.pop() != nullptr) {}
    give_up_processor(submitter);
}

// J1. A second machine retires while the first is at its barrier, which may have begun too early for the second: the
// first has to make another one, and what that brings out is found by it.
TEST_F(SchedulerSteps, AMachineThatRetiresWhileAnotherIsAtItsBarrierHasItMakeOneMore) {
    if (!support::barriers_can_be_trapped()) GTEST_SKIP() << "membarrier or seccomp is not available";
    set_procs(3);
    machine submitter;
    processor* busy = give_processor(submitter);
    searcher first, second;
    give_processor(*first.m);
    give_processor(*second.m);
    std::atomic<bool> at_barrier{false};
    int barriers = 0;
    first.thread = std::jthread([&] {
        const auto action = [&] {
            if (++barriers == 1) {
                at_barrier = true;
                EXPECT_TRUE(comes_true([&] { return sleeping() == 1; }));  // the second one relies on this one
            } else if (barriers == 2) {
                busy->queue.push(g(0));
            }
        };
        if (!support::trap_barriers(action)) return;
        search(first);
    });
    second.thread = std::jthread([&] {
        while (!at_barrier) std::this_thread::sleep_for(50us);
        search(second);
    });
    EXPECT_TRUE(comes_true([&] { return first.done || sleeping() == 2; }));
    end(first);
    at_barrier = true;  // whatever has happened
    end(second);
    EXPECT_EQ(first.found, g(0)) << "both fell asleep over a goroutine that can run";
    while (busy->queue.pop() != nullptr) {}
    give_up_processor(submitter);
}

// The look under the lock before the idle list. A goroutine and an idle processor were put aside, for want of a
// sleeping machine, after this one had looked: it is the only one that can come for them.
TEST_F(SchedulerSteps, AMachineThatIsAboutToSleepLooksOnceMoreForWhatWasPutAside) {
    set_procs(1);
    searcher w;
    push_global(g(0));
    w.thread = std::jthread([&] {
        set_current_machine(w.m.get());
        sleep_until_handed_a_processor(w.m.get());
        set_current_machine(nullptr);
        w.done = true;
    });
    EXPECT_TRUE(comes_true([&] { return w.done || sleeping() == 1; }));
    EXPECT_EQ(sleeping(), 0u) << "it fell asleep with an idle processor and a goroutine at hand";
    end(w);
    const std::scoped_lock guard(s.lock);
    while (s.global.pop_front() != nullptr) {}
}

// timer_added(): the sleeper in the poller must not sleep past the new deadline, and need not be woken for a later one.
// 0: it has not yet said until when.
TEST_F(SchedulerSteps, ATimerInterruptsASleeperThatWouldSleepPastItAndNoOther) {
    set_procs(1);
    s.poller_claimed.store(1);
    struct {
        std::int64_t sleeps_until, deadline;
        int interrupts;
    } const cases[] = {{1000, 999, 1}, {1000, 1000, 0}, {1000, 1001, 0}, {0, 999, 1}};
    for (const auto& c : cases) {
        source_.interrupts = 0;
        s.poll_until_ns.store(c.sleeps_until);
        timer_added(c.deadline);
        EXPECT_EQ(source_.interrupts, c.interrupts) << c.deadline << " while it sleeps until " << c.sleeps_until;
    }
    s.poll_until_ns.store(0);
    s.poller_claimed.store(0);
}

// T3. A taker that gives up takes its T1 back: else the machine goes through enter_slow(), and its lock, at each of its
// calls from now on.
TEST_F(SchedulerSteps, ATakerThatGivesUpLeavesTheMachineAsItWas) {
    set_procs(1);
    machine m;
    processor* p = give_processor(m);
    ASSERT_EQ(m.in_runtime.load(), 1u);
    for (const bool patient : {true, false}) {
        p->retake.lock();
        EXPECT_FALSE(take_locked(p, patient));
        p->retake.unlock();
        EXPECT_EQ(m.taken.load(), 0u);
        EXPECT_EQ(m.p.load(), p);
        EXPECT_EQ(p->owner.load(), &m);
    }
    leave(&m);
    EXPECT_TRUE(try_take(p));
    EXPECT_EQ(m.p.load(), nullptr);
    EXPECT_EQ(m.taken.load(), 1u);
    put_idle(p);
}

// T2 and T3. The machine has entered (E1), which only the barrier makes visible, and has seen nothing of T1: the taker
// has to see it, and to give up.
TEST_F(SchedulerSteps, ATakerGivesUpWhenTheBarrierShowsThatTheMachineHasEntered) {
    if (!support::barriers_can_be_trapped()) GTEST_SKIP() << "membarrier or seccomp is not available";
    set_procs(1);
    machine m;
    processor* p = give_processor(m);
    leave(&m);
    std::jthread([&] {
        if (!support::trap_barriers([&] { m.in_runtime.store(1); })) return;
        EXPECT_FALSE(try_take(p));
    }).join();
    EXPECT_EQ(m.taken.load(), 0u);
    EXPECT_EQ(m.p.load(), p);
    EXPECT_EQ(p->owner.load(), &m);
    m.in_runtime.store(1);
    if (m.p.load() == nullptr) give(p, &m);
    give_up_processor(m);
}

}  // namespace
