// What is in the global queue has its turn, whatever goroutines with a local queue do meanwhile.
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "sched/data/current.h"
#include "sched/data/types.h"
#include "sched/machines/handshake.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

std::chrono::nanoseconds cpu_time() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

class GlobalWait : public support::each_p {};

// On each processor two goroutines that ready each other, and one that comes every millisecond and begins a slice each
// time: the 61st slice is a long time to wait for. What a plain thread starts comes as a batch at the end of one of
// 10 ms. CPU time, so that a machine that is busy otherwise does not count.
TEST_P(GlobalWait, WhatAPlainThreadStartsDoesNotWaitForSixtyOneSlicesEach) {
    constexpr int started = 300;
    std::chrono::nanoseconds took{};
    run([&] {
        std::atomic<bool> stop{false};
        std::atomic<int> ran{0};
        std::vector<dunlin::chan<int>> values(procs());
        dunlin::wait_group others;
        for (auto& v : values) {
            others.go([&] {
                while (!stop) v.send(1);
                v.close();
            });
            others.go([&] {
                while (v.recv()) {
                }
            });
            others.go([&] {
                while (!stop) dunlin::sleep_for(1ms);
            });
        }
        const auto before = cpu_time();
        std::thread starter([&] {
            for (int i = 0; i < started; ++i) dunlin::go([&] { ++ran; });
        });
        while (ran < started) dunlin::sleep_for(1ms);
        took = cpu_time() - before;
        starter.join();
        stop = true;
        others.wait();
    });
    // At P = 1 three batches; at 60 ms each they took eighteen seconds.
    EXPECT_LT(took, started * 2ms);
}

EACH_P(GlobalWait);

using namespace dunlin::sched;

class GlobalWaitSteps : public support::runtime_test {
protected:
    // Not inlined: the goroutine may be on another thread than at the last call.
    [[gnu::noinline]] static processor* this_processor() { return processor_of(current_machine()); }
};

// The monitor ends a slice in the round in which it tells of a timer that is due. So the goroutine that the timer
// readies comes between two that ready each other, and has the last turn of their slice. It readies none.
TEST_F(GlobalWaitSteps, AGoroutineThatComesAsTheSliceEndsDoesNotLetOthersWaitForSlicesEach) {
    constexpr int started = 50;
    std::size_t left = started;
    dunlin::run({.max_procs = 1}, [&] {
        std::atomic<int> ran{0};
        dunlin::chan<int> comes;
        dunlin::wait_group others;
        others.go([&] {
            while (comes.recv()) {
            }
        });
        for (bool so = false; !so;) {
            ran = 0;
            dunlin::sleep_for(1ms);  // a new slice
            std::thread starter([&] {
                for (int i = 0; i < started; ++i) {
                    dunlin::go([&] {
                        if (ran++ == 0) left = the_scheduler.global_size();
                    });
                }
            });
            starter.join();
            processor* p = this_processor();
            p->slice.store(slice_state::over);
            comes.send(1);
            so = ran == 0 && p->run_next.load() != nullptr;
            support::eventually([&] { return ran == started; });
        }
        comes.close();
        others.wait();
    });
    EXPECT_EQ(left, 0u);
}

}  // namespace
