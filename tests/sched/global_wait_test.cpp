// What is in the global queue has its turn, whatever goroutines with a local queue do meanwhile.
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

std::chrono::nanoseconds cpu_time() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

class GlobalWait : public support::runtime_test {};

// Two goroutines that ready each other, and a third that comes every millisecond and begins a slice each time: the
// 61st slice is a long time to wait for. What a plain thread starts comes as a batch at the end of one of 10 ms. CPU
// time, so that a machine that is busy otherwise does not count.
TEST_F(GlobalWait, WhatAPlainThreadStartsDoesNotWaitForSixtyOneSlicesEach) {
    constexpr int started = 300;
    std::chrono::nanoseconds took{};
    dunlin::run({.max_procs = 1}, [&] {
        std::atomic<bool> stop{false};
        std::atomic<int> ran{0};
        dunlin::chan<int> values;
        dunlin::wait_group chain;
        chain.go([&] {
            while (!stop) values.send(1);
            values.close();
        });
        chain.go([&] {
            while (values.recv()) {
            }
        });
        const auto before = cpu_time();
        std::thread starter([&] {
            for (int i = 0; i < started; ++i) dunlin::go([&] { ++ran; });
        });
        while (ran < started) dunlin::sleep_for(1ms);
        took = cpu_time() - before;
        starter.join();
        stop = true;
        chain.wait();
    });
    // Three batches; at 60 ms each they took eighteen seconds.
    EXPECT_LT(took, started * 2ms);
}

}  // namespace
