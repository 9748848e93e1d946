// The thread maker, with real threads and without a runtime: what it is asked for while at work must be done as well.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "platform/clock.h"
#include "platform/membarrier.h"
#include "sched/data/event_source.h"
#include "sched/data/hooks.h"
#include "sched/machines/machine.h"
#include "sched/machines/processor.h"
#include "sched/monitor/thread_maker.h"
#include "support/comes_true.h"

namespace {

using namespace std::chrono_literals;
using namespace dunlin::sched;
using support::comes_true;

std::atomic<int> forgotten{0}, printed{0}, threads_begun{0};

std::atomic<std::int64_t> deadline_ns{0};
std::atomic<int> slept_for_it{0};

// No event ever, and a deadline if the test sets one; it counts one of the wishes.
struct quiet_source : event_source {
    void* make_events() override { return nullptr; }
    unsigned collect(processor*, std::int64_t) noexcept override { return 0; }
    std::int64_t next_deadline(const processor*) const noexcept override { return deadline_ns; }
    void move(processor*, processor*) noexcept override {}
    bool has_waiters() const noexcept override { return false; }
    unsigned poll() noexcept override { return 0; }
    void wait(std::int64_t until_ns, event_batch&) noexcept override {
        slept_for_it += until_ns == deadline_ns;
        std::this_thread::sleep_for(1ms);
    }
    unsigned deliver(const event_batch&) noexcept override { return 0; }
    void interrupt() noexcept override {}
    void forget_all() noexcept override {}
    void forget_lost() noexcept override { forgotten.fetch_add(1); }
};
quiet_source the_source;

// A request is cleared before it is served, not after: one that comes in between is another's, and is not made again.
TEST(ThreadMaker, ServesWhatItIsAskedForWhileItServesAnother) {
    if (thread_maker_threads() != 0) GTEST_SKIP() << "the first request of a process is not made twice";
    dunlin::platform::init_barriers();
    the_scheduler.events = &the_source;
    hooks.machine_thread = [](bool begins) noexcept { threads_begun.fetch_add(begins); };
    set_max_procs(1);
    // Both are there when it looks for the first time.
    want_spare_machine();
    want_printed([] {
        // On its thread: it has seen the two, and has not yet made the thread.
        if (printed.fetch_add(1) != 0) return;
        want_spare_machine();
        want_lost_forgotten();
    });
    ASSERT_TRUE(start_thread_maker());
    EXPECT_TRUE(comes_true([] { return forgotten == 1; })) << "the request is gone";
    EXPECT_TRUE(comes_true([] { return threads_begun == 2; })) << "the request for a second thread is gone";
    EXPECT_TRUE(comes_true([] { return the_scheduler.idle_machine_count == 2; }));
    EXPECT_EQ(printed, 1);
    // A timer found no machine to wake, and asked for one. Now there are enough, but all have looked before.
    deadline_ns = dunlin::platform::now_ns() + 3'600'000'000'000;
    want_spare_machine();
    EXPECT_TRUE(comes_true([] { return slept_for_it != 0; })) << "no machine sleeps until the timer is due";
}

}  // namespace
