// hogs.h - the work of goroutines that compute without a call, of hogs_bench.cpp and of peers/cpp.

#pragma once

#include <atomic>
#include <cstdint>

namespace bench {

/// About a tenth of a millisecond without a call. Each step needs the one before, so no compiler shortens it.
inline std::uint64_t work_unit(std::uint64_t x) {
    for (int step = 0; step < 100'000; ++step) x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}

/// One goroutine's (or thread's) work. A cache line each, so that counting disturbs no other.
struct alignas(64) worker {
    std::atomic<long> units = 0;
    std::uint64_t value = 1;  // kept, so that the work is not in vain

    void work() {
        value = work_unit(value);
        units.store(units.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    void work_until(const std::atomic<bool>& stop) {
        while (!stop.load(std::memory_order_relaxed)) work();
    }
};

}  // namespace bench
