// Goroutines that compute without a processor are stopped, however many there are and however little CPU time each of
// them gets (look_at_detached() in sched/monitor/detached.cpp).
#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "sched/machines/processor.h"
#include "support/comes_true.h"
#include "support/runtime_test.h"

namespace {

using dunlin::runtime::stats;
using support::comes_true;

class WithoutProcessor : public support::each_p {
protected:
    void SetUp() override { allow(support::sanitized ? std::chrono::seconds(300) : std::chrono::seconds(60)); }
};
EACH_P(WithoutProcessor);

// While the world stands still for long, all preempted goroutines are let go, since one of them may hold a lock for
// which the thread waits that has stopped it. Each gets a fiftieth of a CPU then.
TEST_P(WithoutProcessor, ManyThatWereLetGoAreAllStoppedAgain) {
    const unsigned hogs = std::clamp(50 * std::thread::hardware_concurrency(), 100u, 400u), left_out = procs() + 4;
    run([&] {
        std::atomic<bool> stop{false};
        dunlin::wait_group all;
        for (unsigned i = 0; i < hogs; ++i) {
            all.go([&] {
                while (!stop.load(std::memory_order_relaxed)) {
                }
            });
        }
        std::thread plain([&] {
            const auto stopped = [&] { return stats().hand_offs.preempted_now + left_out >= hogs; };
            EXPECT_TRUE(comes_true(stopped));
            const std::uint64_t thaws = stats().hand_offs.thaws;
            std::promise<void> are_let_go;
            std::thread watcher([&] {
                const auto& now = dunlin::sched::the_scheduler.hand_offs;
                EXPECT_TRUE(comes_true([&] { return now.thaws.get() >= thaws + hogs / 2; }));
                are_let_go.set_value();
            });
            dunlin::sched::stop_world();
            are_let_go.get_future().wait();  // as for a lock
            dunlin::sched::start_world();
            watcher.join();
            EXPECT_TRUE(comes_true(stopped)) << "they compute on without processors";
            stop = true;
        });
        dunlin::blocking([&] { plain.join(); });
        all.wait();
    });
}

}  // namespace
