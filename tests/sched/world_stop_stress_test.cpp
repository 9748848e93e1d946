// The world is stopped and started in a loop, by changes of the number of processors and by dumps, while goroutines
// call into the runtime from computing: processors are taken from their machines by the handshake and given back. A
// machine with two processors, or a processor without a machine, shows as a stop that never ends, or as goroutines that
// never run.
#include <sstream>
#include <thread>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class WorldStopStress : public support::each_p {
protected:
    void progress(int round) {
        if (round % 500 == 0) allow(30s);
    }

    // Goroutines that compute, and spawn others between; until stop().
    void start_load(int goroutines) {
        for (int i = 0; i < goroutines; ++i) {
            dunlin::go([this, i] {
                for (std::uint64_t n = 0; !stop_; ++n) {
                    for (std::atomic<int> work{0}; work.load(std::memory_order_relaxed) < 300;
                         work.store(work + 1, std::memory_order_relaxed)) {}
                    spawned_.fetch_add(1);
                    dunlin::go([this] { ended_.fetch_add(1); });
                    if (n % 64 == static_cast<std::uint64_t>(i)) dunlin::yield();
                    // So few that a machine without sanitizer does not drown in them.
                    while (!stop_ && spawned_ - ended_ > 1000) dunlin::yield();
                }
                left_.fetch_add(1);
            });
        }
    }
    void stop_load(int goroutines) {
        allow(30s);
        const std::uint64_t before = ended_;
        support::eventually_on_thread([&] { return ended_ > before; });  // they still run
        stop_ = true;
        support::eventually_on_thread([&] { return left_ == goroutines && ended_ == spawned_; });
    }

    std::atomic<bool> stop_{false};
    std::atomic<int> left_{0};
    std::atomic<std::uint64_t> spawned_{0}, ended_{0};
};

EACH_P(WorldStopStress);

TEST_P(WorldStopStress, ChangesOfMaxProcsAgainstGoroutinesThatCallInFromOutside) {
    dunlin::runtime::set_max_procs(procs());
    start_load(2);
    for (int round = 0; round < support::rounds(5000); ++round) {
        dunlin::runtime::set_max_procs(procs() + (round & 1));
        progress(round);
    }
    stop_load(2);
}

TEST_P(WorldStopStress, DumpsAgainstGoroutinesThatCallInFromOutside) {
    dunlin::runtime::set_max_procs(procs());
    start_load(3);
    for (int round = 0; round < support::rounds(300); ++round) {
        std::ostringstream text;
        dunlin::runtime::dump(text);
        EXPECT_NE(text.str().find("goroutine"), std::string::npos);
        if (round % 20 == 0) allow(30s);
    }
    stop_load(3);
}

TEST_P(WorldStopStress, SeveralThreadsStopTheWorldAtTheSameTime) {
    dunlin::runtime::set_max_procs(procs());
    start_load(2);
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < 3; ++i) {
        threads.emplace_back([this, i] {
            for (int round = 0; round < support::rounds(1000); ++round)
                dunlin::runtime::set_max_procs(procs() + (static_cast<unsigned>(round) + i) % 3);
        });
    }
    allow(60s);
    threads.clear();
    stop_load(2);
}

}  // namespace
