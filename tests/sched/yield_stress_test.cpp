// Yields while other machines empty the queues: a goroutine that has put itself into a queue, and finds no other to run
// instead, may have been taken itself.
#include <thread>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class YieldStress : public support::each_p {};

EACH_P(YieldStress);

// It went on running when the global queue had become empty meanwhile, while another machine executed it as well. The
// runtime ends the process when it sees that in a goroutine's state.
TEST_P(YieldStress, AGoroutineThatYieldsIsRunByOneMachine) {
    dunlin::runtime::set_max_procs(procs());
    std::atomic<bool> stop{false};
    std::atomic<int> left{0};
    std::atomic<std::uint64_t> yields{0}, pushed{0}, ran{0};
    for (int i = 0; i < 3; ++i) {
        dunlin::go([&] {
            while (!stop) {
                dunlin::yield();
                yields.fetch_add(1, std::memory_order_relaxed);
            }
            left.fetch_add(1);
        });
    }
    // Single goroutines for the global queue, which is empty again soon.
    const auto push = [&] {
        while (!stop) {
            pushed.fetch_add(1);
            dunlin::go([&] { ran.fetch_add(1); });  // release: main ends its life afterwards
            for (std::atomic<int> pause{0}; pause < 200; pause = pause + 1) {}
        }
    };
    std::vector<std::jthread> threads;
    for (int k = 0; k < 2; ++k) threads.emplace_back(push);
    std::this_thread::sleep_for(support::sanitized ? 500ms : 2000ms);
    stop = true;
    threads.clear();
    support::eventually_on_thread([&] { return left == 3 && ran == pushed; });
}

}  // namespace
