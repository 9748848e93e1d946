// runtime::set_wait_histograms(): how long goroutines are runnable before they run, and how long waits last, by reason.
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

namespace runtime = dunlin::runtime;

class WaitHistograms : public support::each_p {};
EACH_P(WaitHistograms);

// While it lives they count.
class counting {
public:
    counting() : before_(runtime::set_wait_histograms(true)) {}
    ~counting() { runtime::set_wait_histograms(before_); }
    counting(const counting&) = delete;
    counting& operator=(const counting&) = delete;

private:
    bool before_;
};

runtime::duration_histogram park_times(const std::string& reason) {
    for (const runtime::wait_durations& d : runtime::stats().park_times) {
        if (d.reason == reason) return d.waits;
    }
    return {};
}

void compute(std::chrono::microseconds how_long) {
    const auto until = std::chrono::steady_clock::now() + how_long;
    while (std::chrono::steady_clock::now() < until) {
    }
}

TEST_P(WaitHistograms, OffNothingIsCounted) {
    run([] {
        const runtime::runtime_stats before = runtime::stats();
        dunlin::wait_group all;
        for (int i = 0; i < 500; ++i) all.go([] { dunlin::sleep_for(10us); });
        all.wait();
        const runtime::runtime_stats after = runtime::stats();
        EXPECT_EQ(after.scheduling_latency.total(), before.scheduling_latency.total());
        std::uint64_t slept = 0;
        for (const auto& d : after.park_times) slept += d.waits.total();
        for (const auto& d : before.park_times) slept -= d.waits.total();
        EXPECT_EQ(slept, 0u);
    });
}

TEST_P(WaitHistograms, SayWhetherTheyWereOn) {
    run([] {
        EXPECT_FALSE(runtime::set_wait_histograms(true));
        EXPECT_TRUE(runtime::set_wait_histograms(true));
        EXPECT_TRUE(runtime::set_wait_histograms(false));
        EXPECT_FALSE(runtime::set_wait_histograms(false));
    });
}

// OBS-08: a hundred goroutines of a millisecond each become ready at once on one processor.
TEST(WaitHistogramsOfOneProcessor, ManyThatAreReadyAtOnceWaitForEachOther) {
    dunlin::run({.max_procs = 1}, [] {
        const counting on;
        const runtime::duration_histogram before = runtime::stats().scheduling_latency;
        constexpr int rounds = 5;
        for (int round = 0; round < rounds; ++round) {
            dunlin::wait_group all;
            const dunlin::chan<int> start;
            for (int i = 0; i < 100; ++i) {
                all.go([=] {
                    start.recv();
                    compute(1ms);
                });
            }
            support::eventually([] { return runtime::stats().waiting >= 100; });
            start.close();
            all.wait();
        }
        const runtime::duration_histogram seen = runtime::stats().scheduling_latency.since(before);
        EXPECT_EQ(seen.total() % 8, 0u);
        EXPECT_GE(seen.total(), 8u * 30);  // some sixty of five hundred are drawn twice: when they are made, and here
        // The k-th begins k milliseconds after all of them were ready, at the earliest.
        EXPECT_GE(seen.quantile_ns(0.9), 20'000'000);
        EXPECT_GE(seen.total_ns, 8 * 10 * 20'000'000ll);
        EXPECT_EQ(seen.counts.size(), seen.limits_ns.size() + 1);
    });
}

TEST_P(WaitHistograms, WaitsAreCountedByTheirReason) {
    run([] {
        const counting on;
        const runtime::duration_histogram locks = park_times("sync.Mutex.Lock"), sleeps = park_times("sleep"),
                                          receives = park_times("chan receive");
        dunlin::mutex m;
        const dunlin::chan<int> c;
        dunlin::wait_group all;
        {
            const std::lock_guard guard(m);
            for (int i = 0; i < 4; ++i) {
                all.go([&] { const std::lock_guard mine(m); });
                all.go([&] { EXPECT_EQ(c.recv(), std::nullopt); });
            }
            support::eventually([] { return runtime::stats().waiting >= 8; });
            dunlin::sleep_for(100ms);
        }
        std::thread outside([&] { EXPECT_EQ(c.recv(), std::nullopt); });
        dunlin::sleep_for(1ms);
        c.close();
        all.wait();
        dunlin::blocking([&] { outside.join(); });
        const auto of = [](const char* reason, const runtime::duration_histogram& before) {
            const runtime::duration_histogram now = park_times(reason);
            return before.counts.empty() ? now : now.since(before);
        };
        const runtime::duration_histogram locked = of("sync.Mutex.Lock", locks);
        EXPECT_EQ(locked.total(), 4u);
        EXPECT_GE(locked.total_ns, 4 * 90'000'000ll);  // a hundred milliseconds of each
        EXPECT_GE(locked.quantile_ns(0.01), 50'000'000);
        EXPECT_GE(of("sleep", sleeps).total(), 2u);
        EXPECT_GE(of("chan receive", receives).total(), 4u);
    });
}

TEST_P(WaitHistograms, QueuesAreAsLongAsWhatIsInThem) {
    run([] {
        const counting on;
        const auto before = runtime::stats().run_queue_lengths;
        dunlin::wait_group all;
        for (int i = 0; i < 2000; ++i) all.go([] { dunlin::yield(); });
        all.wait();
        const auto after = runtime::stats().run_queue_lengths;
        ASSERT_EQ(after.size(), 10u);
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i < after.size(); ++i) seen += after[i] - before[i];
        EXPECT_GE(seen, 8u);
        EXPECT_EQ(seen % 8, 0u);
    });
}

// Beside a storm of everything, and beside a trace: no wait is longer than the test, none is negative.
TEST_P(WaitHistograms, MayBeSwitchedWhileGoroutinesGoOn) {
    run([] {
        const auto began = std::chrono::steady_clock::now();
        const runtime::duration_histogram before = runtime::stats().scheduling_latency;
        std::atomic<bool> enough{false};
        dunlin::wait_group all;
        dunlin::mutex m;
        const dunlin::chan<int> c(1);
        for (int i = 0; i < 4; ++i) {
            all.go([&] {
                while (!enough.load()) {
                    { const std::lock_guard guard(m); }
                    static_cast<void>(c.try_send(1));
                    static_cast<void>(c.try_recv());
                    dunlin::yield();
                    dunlin::sleep_for(5us);
                    dunlin::spawn([] {}).get();
                }
            });
        }
        std::thread outside([&] {
            while (!enough.load()) {
                dunlin::go([] {});
                std::this_thread::sleep_for(50us);
            }
        });
        for (int i = 0; i < 60; ++i) {
            runtime::set_wait_histograms(i % 2 == 0);
            dunlin::sleep_for(200us);
        }
        runtime::set_wait_histograms(true);
        const std::uint64_t so_far = runtime::stats().scheduling_latency.total();
        support::eventually([&] { return runtime::stats().scheduling_latency.total() != so_far; });
        runtime::set_wait_histograms(false);
        enough.store(true);
        all.wait();
        dunlin::blocking([&] { outside.join(); });
        const runtime::duration_histogram seen = runtime::stats().scheduling_latency.since(before);
        const auto took = std::chrono::steady_clock::now() - began;
        EXPECT_LE(seen.total_ns / static_cast<std::int64_t>(seen.total()), took / 1ns);
        EXPECT_FALSE(runtime::set_wait_histograms(false));
    });
}

}  // namespace
