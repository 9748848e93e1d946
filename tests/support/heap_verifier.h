// heap_verifier.h - looks at the heaps of timers all the time, while a test does what could break them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

#include "sched/data/types.h"
#include "timer/heap.h"

namespace support {

// All heaps of the runtime are as they should be. For plain threads.
inline bool heaps_valid() {
    const auto& s = dunlin::sched::the_scheduler;
    for (std::uint32_t i = 0, made = s.procs_made.load(); i < made; ++i) {
        if (!static_cast<dunlin::timers::timer_heap*>(s.processor_at(i)->events)->valid()) return false;
    }
    return true;
}

class heap_verifier {
public:
    heap_verifier() : thread_([this] {
        while (!end_.load()) {
            EXPECT_TRUE(heaps_valid());
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    }) {}
    ~heap_verifier() {
        end_ = true;
        thread_.join();
        EXPECT_TRUE(heaps_valid());
    }

private:
    std::atomic<bool> end_{false};
    std::thread thread_;
};

}  // namespace support
