// sight_bench.cpp - what it costs the others to be looked at. No twins: the others have nothing to look with, or look
// at other things.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <sstream>
#include <thread>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "measure.h"
#include "registry.h"

namespace bench {
namespace {

/// A goroutine that computes, and notes the longest time for which it did not.
class held_up {
public:
    void run() {
        auto last = steady::now();
        while (!enough_.load(std::memory_order_relaxed)) {
            const auto now = steady::now();
            if (now - last > longest_) longest_ = now - last;
            last = now;
            if (asked_.load(std::memory_order_acquire)) {
                answer_ms_.store(std::chrono::duration<double, std::milli>(longest_).count());
                longest_ = {};
                asked_.store(false, std::memory_order_release);
            }
        }
    }
    /// On a plain thread: the longest since the last question.
    double ask_ms() {
        asked_.store(true, std::memory_order_release);
        while (asked_.load(std::memory_order_acquire)) std::this_thread::sleep_for(std::chrono::microseconds(50));
        return answer_ms_.load();
    }
    void end() { enough_.store(true); }

private:
    steady::duration longest_{};
    std::atomic<bool> enough_{false}, asked_{false};
    std::atomic<double> answer_ms_{0};
};

void dump_held_up(const settings& s, results& r) {
    const long parked = s.scaled(10'000);
    dunlin::run([&] {
        const dunlin::chan<int> silent;
        dunlin::wait_group waiting;
        for (long i = 0; i < parked; ++i) waiting.go([silent] { silent.recv(); });
        while (static_cast<long>(dunlin::runtime::stats().waiting) < parked) dunlin::yield();
        held_up computing;
        std::vector<double> quiet_ms, dumped_ms;
        std::thread dumper([&] {
            for (int i = 0; i < 50; ++i) {
                std::this_thread::sleep_for(std::chrono::milliseconds(3));
                quiet_ms.push_back(computing.ask_ms());
                std::ostringstream text;
                dunlin::runtime::dump(text);
                dumped_ms.push_back(computing.ask_ms());
            }
            computing.end();
        });
        computing.run();
        dunlin::blocking([&] { dumper.join(); });
        r.add("p50", percentile(dumped_ms, 0.50), "ms");
        r.add("p90", percentile(dumped_ms, 0.90), "ms");
        r.add("not-dumped-p90", percentile(quiet_ms, 0.90), "ms");
        silent.close();
        waiting.wait();
    });
}

const registered all[] = {
    registered({"dump-10k", "how long a dump of 10,000 parked goroutines holds up one that computes", dump_held_up}),
};

}  // namespace
}  // namespace bench
