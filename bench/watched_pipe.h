// watched_pipe.h - what pipe-wake measures with, in net_bench.cpp and in peers/cpp.

#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "measure.h"
#include "registry.h"

namespace bench {

/// A pipe with a goroutine that reads from it, and when it last did.
struct watched_pipe {
    std::array<int, 2> ends{};
    std::atomic<std::int64_t> ran_at_ns = 0;

    watched_pipe() {
        if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) fail("pipe-wake: no pipe");
    }
    static std::int64_t now_ns() { return std::chrono::nanoseconds(steady::now().time_since_epoch()).count(); }
    void note() { ran_at_ns = now_ns(); }

    /// Writes a byte: how long until the reader runs.
    double wake_us(std::chrono::nanoseconds asleep_for) {
        std::this_thread::sleep_for(asleep_for);
        ran_at_ns = 0;
        const std::int64_t written_at_ns = now_ns();
        if (write(ends[1], "", 1) != 1) fail("pipe-wake: the pipe is full");
        while (ran_at_ns == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
        return static_cast<double>(ran_at_ns - written_at_ns) / 1e3;
    }
    void close_write() { close(ends[1]); }
};

}  // namespace bench
