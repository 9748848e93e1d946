// cpu_waits.h - how long the threads of this process have waited for a CPU: the kernel's part of a lateness, which on a
// busy machine is the larger one. Linux counts it for each thread (/proc/PID/task/TID/schedstat, second number).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>

namespace support {

// Of those that live, together. Zero where the kernel does not count it.
inline std::chrono::nanoseconds cpu_waits() {
    std::int64_t all = 0;
    std::error_code gone;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", gone)) {
        std::int64_t ran = 0, waited = 0;
        std::ifstream(task.path() / "schedstat") >> ran >> waited;
        all += waited;
    }
    return std::chrono::nanoseconds(all);
}

}  // namespace support
