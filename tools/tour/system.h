// system.h - what the tour asks the operating system: memory, the kernel's name, other programs.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace tour {

/// Of this process, in bytes, from /proc/self/status.
struct memory {
    std::size_t resident = 0;     // VmRSS
    std::size_t page_tables = 0;  // VmPTE
    std::size_t all() const { return resident + page_tables; }
};
memory memory_now();

/// Bytes that this process may still use: what the machine and its cgroup have left.
std::size_t memory_left();

/// "Linux 6.1.0 x86_64".
std::string kernel();
unsigned processors_online();

/// What a program wrote and how it ended.
struct outcome {
    bool started = false;
    int status = -1;   // exit status; 128 + the signal's number if it was killed
    std::string text;  // what it wrote to the one of stdout and stderr that was asked for
    std::chrono::nanoseconds took{};
};
enum class listen_to { out,
    err };
/// Runs a program (looked up in PATH) with `input` on its stdin and waits for it.
outcome run_program(const std::vector<std::string>& command, const std::string& input, listen_to which);

}  // namespace tour
