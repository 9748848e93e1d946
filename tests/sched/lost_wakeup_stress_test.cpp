// Goroutines and plain threads submit work in random patterns to a runtime that is about to fall asleep, and everything
// goes idle again: thousands of times. A wake-up that is lost (sched/machines/wake.h) stops a round for ever; the
// watchdog says so after 30 s and shows every goroutine.
#include <barrier>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

void compute_for(std::chrono::nanoseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < until) {}
}

class LostWakeupStress : public support::each_p {
protected:
    // A round has ended, and the next must within 30 s.
    void progress(int round) {
        if (round % 100 == 0) allow(30s);
    }

    // Nothing runs any more: then no count is left over.
    void TearDown() override {
        each_p::TearDown();
        allow(30s);
        support::eventually_on_thread([] {
            const dunlin::runtime::runtime_stats s = dunlin::runtime::stats();
            return s.spinning_threads == 0 && s.idle_procs == s.max_procs && s.global_queue == 0;
        });
        each_p::TearDown();
    }
};

EACH_P(LostWakeupStress);

// A submission that a searching machine has not seen, and that believes the search: two at a time, at random distances
// of up to a sleep and a wake-up.
TEST_P(LostWakeupStress, TwoPlainThreadsAndARuntimeThatFallsAsleep) {
    dunlin::runtime::set_max_procs(procs());
    const int rounds = support::rounds(4000);
    std::atomic<int> done{0};
    std::barrier both(2);
    const auto submit = [&](unsigned which) {
        std::minstd_rand random(procs() * 2 + which);
        for (int round = 1; round <= rounds; ++round) {
            both.arrive_and_wait();
            const auto distance = std::chrono::microseconds(random() % 60);
            if (random() % 8 == 0) std::this_thread::sleep_for(distance);
            else compute_for(distance);
            dunlin::go([&] { done.fetch_add(1); });
            both.arrive_and_wait();
            support::eventually_on_thread([&] { return done.load() >= 2 * round; });
            if (which == 0) progress(round);
        }
    };
    std::jthread a(submit, 0), b(submit, 1);
    a.join();
    b.join();
    EXPECT_EQ(done.load(), 2 * rounds);
}

// What was submitted into run_next must be fetched by another machine: its own processor computes until it has run.
TEST_P(LostWakeupStress, AGoroutineThatComputesUntilItsChildHasRun) {
    if (procs() == 1) GTEST_SKIP() << "takes two processors";
    run([this] {
        std::minstd_rand random(procs());
        for (int round = 0; round < support::rounds(1500); ++round) {
            if (random() % 4 == 0) dunlin::sleep_for(std::chrono::microseconds(random() % 100));
            // Children that are run by their own processor: so the wake for the next one is left to the monitor.
            for (unsigned k = static_cast<unsigned>(random() % 8); k != 0; --k) dunlin::spawn([] {}).get();
            std::atomic<bool> has_run{false};
            dunlin::task<void> child = dunlin::spawn([&] { has_run = true; });
            while (!has_run) {}
            child.get();
            progress(round);
        }
    });
}

// Bursts from a plain thread and from goroutines, of children that compute, yield, sleep, or have children.
TEST_P(LostWakeupStress, RandomBurstsFromGoroutinesAndPlainThreads) {
    dunlin::runtime::set_max_procs(procs());
    const int rounds = support::rounds(3000);
    std::atomic<int> submitted{0}, done{0};
    std::function<void(unsigned)> live = [&](unsigned seed) {
        std::minstd_rand random(seed + 1);
        random.discard(3);
        switch (random() % 6) {
            case 0: compute_for(std::chrono::microseconds(random() % 20)); break;
            case 1: dunlin::yield(); break;
            case 2: dunlin::sleep_for(std::chrono::microseconds(random() % 50)); break;
            case 3:
                if (seed % 64 < 4) break;
                for (unsigned k = 0; k < 3; ++k) {
                    submitted.fetch_add(1);
                    dunlin::go([&live, k] { live(k); });
                }
                break;
            default: break;
        }
        done.fetch_add(1);
    };
    std::barrier all(2);
    const auto submit = [&](unsigned which) {
        std::minstd_rand random(procs() * 2 + which);
        for (int round = 0; round < rounds; ++round) {
            all.arrive_and_wait();
            if (random() % 2) compute_for(std::chrono::microseconds(random() % 30));
            const unsigned burst = random() % 4 ? 1 : static_cast<unsigned>(random() % 40);
            for (unsigned i = 0; i < burst; ++i) {
                submitted.fetch_add(1);
                dunlin::go([&live, seed = static_cast<unsigned>(random())] { live(seed); });
            }
            all.arrive_and_wait();
            support::eventually_on_thread([&] { return done.load() == submitted.load(); });
            if (which == 0) progress(round);
        }
    };
    std::jthread a(submit, 0), b(submit, 1);
    a.join();
    b.join();
    EXPECT_EQ(done.load(), submitted.load());
    support::eventually_on_thread([] { return dunlin::runtime::num_goroutines() == 0; });  // `live` must outlive them
}

}  // namespace
