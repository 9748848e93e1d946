// While a processor is idle and an event is waited for, some thread sleeps in the poller (events_are_unwatched() of
// sched/machines/event_notice.h), even where no machine has left the poller for the idle list in the usual way.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <dunlin/dunlin.hpp>

#include "sched/data/types.h"

namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

std::array<int, 2> connected() {
    std::array<int, 2> ends{-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) throw std::system_error(errno, std::generic_category());
    return ends;
}

bool is_claimed() { return dunlin::sched::the_scheduler.poller_claimed.load() != 0; }

// The monitor watches the poller while goroutines compute and one waits for a descriptor. All of them end within its
// sleep, so it is still there when the last machine looks for a place in the poller.
TEST(Watched, ATimerAfterTheMonitorHasWatchedThePoller) {
    for (int round = 0; round < 10; ++round) {
        std::atomic<bool> asleep{false}, over{false};
        std::atomic<bool> claimed{false};
        std::thread looks([&] {
            while (!asleep) std::this_thread::sleep_for(1ms);
            std::this_thread::sleep_for(30ms);  // the monitor's own sleep in the poller lasts 10 ms at most
            while (!over && !claimed) {
                claimed = is_claimed();
                std::this_thread::sleep_for(1ms);
            }
        });
        dunlin::run({.max_procs = 1}, [&] {
            const auto ends = connected();
            dunlin::net::stream waits = dunlin::net::stream::adopt(ends[0]);
            auto [ctx, cancel] = dunlin::context::with_cancel({});
            dunlin::task<void> reader = dunlin::spawn([&waits, ctx = ctx] {
                char byte;
                EXPECT_THROW(waits.read_some(&byte, 1, ctx), dunlin::context_cancelled);
            });
            dunlin::sleep_for(5ms);
            const auto end = steady::now() + 50ms + round * 700us;
            dunlin::wait_group hogs;
            for (int i = 0; i < 3; ++i) {
                hogs.go([end] {
                    while (steady::now() < end) {}
                });
            }
            hogs.wait();
            cancel();
            reader.get();
            asleep = true;
            dunlin::sleep_for(300ms);
            over = true;
            ::close(ends[1]);
        });
        looks.join();
        EXPECT_TRUE(claimed) << "no thread sleeps until the timer is due, round " << round;
    }
}

// A world that starts again wakes a machine for what became runnable while no processor was idle, even if the monitor
// is in the poller: it does not search.
TEST(Watched, AGoroutineThatWaitsAsMoreProcessorsCome) {
    const auto ends = connected();
    bool got_in_time = false;
    dunlin::run({.max_procs = 1}, [&] {
        dunlin::net::stream s = dunlin::net::stream::adopt(ends[0]);
        std::atomic<bool> got{false};
        dunlin::task<void> reader = dunlin::spawn([&] {
            char byte;
            std::error_code ec;
            s.read_some(&byte, 1, ec);
            got = true;
        });
        dunlin::sleep_for(5ms);
        const auto compute = [&](std::chrono::milliseconds at_most) {
            for (const auto end = steady::now() + at_most; !got && steady::now() < end;) {}
        };
        compute(50ms);  // the monitor watches the poller from now on
        s.set_read_deadline(dunlin::clock::now());
        dunlin::runtime::set_max_procs(2);
        compute(2s);
        got_in_time = got;
        reader.get();
    });
    ::close(ends[1]);
    EXPECT_TRUE(got_in_time) << "an idle processor leaves a goroutine in the queue of one that computes";
}

TEST(Watched, AnIndependentGoroutineThatIsRunnableAsARunEnds) {
    int rounds = 0;
    for (int round = 0; round < 10; ++round) {
        const auto ends = connected();
        dunlin::chan<int> c(1);
        std::atomic<bool> sent{false};
        dunlin::future<int> independent = dunlin::async([c] { return *c.recv(); });
        dunlin::run({.max_procs = 1}, [&] {
            dunlin::go([fd = ends[0]] {
                char byte;
                dunlin::net::stream::adopt(fd).read_some(&byte, 1);
            });
            dunlin::sleep_for(5ms);
            dunlin::go([c, &sent] {
                c.send(1);
                sent = true;
                for (;;) std::atomic_signal_fence(std::memory_order_seq_cst);
            });
        });
        if (!sent) c.send(1);  // the run ended before it began
        rounds += sent;
        const bool ended = independent.wait_for(5s) == dunlin::future_status::ready;
        EXPECT_TRUE(ended) << "a goroutine stays in the queue beside an idle processor, round " << round;
        if (!ended) dunlin::go([] {});  // wakes a machine
        EXPECT_EQ(independent.get(), 1);
        ::close(ends[1]);
    }
    EXPECT_NE(rounds, 0) << "all runs ended too early";
}

// The median time of a request to a goroutine that answers them, which stays on its thread if `wired`.
steady::duration median_answer(bool wired) {
    const auto ends = connected();
    std::vector<steady::duration> took;
    std::thread client([&] {
        for (int i = 0; i < 200; ++i) {
            const auto begin = steady::now();
            char byte = 1;
            EXPECT_EQ(::write(ends[1], &byte, 1), 1);
            EXPECT_EQ(::read(ends[1], &byte, 1), 1);
            took.push_back(steady::now() - begin);
            std::this_thread::sleep_for(200us);  // until the runtime is idle
        }
        ::close(ends[1]);
    });
    dunlin::run({.max_procs = 1}, [&] {
        std::optional<dunlin::os_thread_lock> stays;
        if (wired) stays.emplace();
        dunlin::net::stream server = dunlin::net::stream::adopt(ends[0]);
        char byte;
        while (server.read_some(&byte, 1) == 1) server.write_some(&byte, 1);
    });
    client.join();
    std::nth_element(took.begin(), took.begin() + 100, took.end());
    return took[100];
}

// The machine that finds the goroutine gives its processor to the goroutine's thread, which cannot poll. What one or
// two rounds of the monitor find is a hundred times as late, so other load on the machine makes no difference.
TEST(Watched, ADescriptorOfAWiredGoroutine) {
    const auto unwired = median_answer(false), wired = median_answer(true);
    EXPECT_LT(wired, 10 * unwired + 500us);
}

}  // namespace
