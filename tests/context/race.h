// race.h - two functions that start at the same moment, many times: one on a goroutine, the other on another one or on
// a plain thread.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "support/runtime_test.h"

namespace support {

enum class opponent { goroutine, thread };

// For each i below `rounds`: prepare(i), then here(i) and there(i) at the same time, and, when both have returned,
// check(i). Not by starting a goroutine for each: a waiter for that one runs it itself, afterwards.
template <class Prepare, class Here, class There, class Check>
void race(int rounds, opponent who, Prepare prepare, Here here, There there, Check check) {
    std::atomic<int> started{0}, finished{0};
    // A short spin, so that both start together; then the CPU belongs to others, for there may be only one.
    const auto until = [who](const std::atomic<int>& number, int i, bool on_thread) {
        for (int spins = 0; number.load(std::memory_order_acquire) < i; ++spins) {
            if (spins < 200) continue;
            if (!on_thread) dunlin::yield();
            if (who == opponent::thread || spins % 512 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    };
    const auto run_there = [&] {
        for (int i = 0; i < rounds; ++i) {
            until(started, i + 1, who == opponent::thread);
            if (started.load(std::memory_order_acquire) > rounds) return;
            there(i);
            finished.store(i + 1, std::memory_order_release);
        }
    };
    std::thread thread;
    dunlin::task_group group;
    if (who == opponent::thread) {
        thread = std::thread(run_there);
    } else {
        group.go(run_there);
    }
    for (int i = 0; i < rounds && !testing::Test::HasFatalFailure(); ++i) {
        prepare(i);
        started.store(i + 1, std::memory_order_release);
        for (int delay = i % 100; delay > 0; --delay) std::atomic_signal_fence(std::memory_order_seq_cst);
        here(i);
        until(finished, i + 1, false);
        check(i);
    }
    started.store(rounds + 1, std::memory_order_release);
    if (thread.joinable()) thread.join();
    group.wait();
}

}  // namespace support
