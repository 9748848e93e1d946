// workloads.h - what is measured on virtual CPUs (simulated.cpp) and on real ones (real.cpp): the same code.
//
// Each does as much for each CPU, however many there are: where nothing is in the way an operation takes as much of
// their time.
#pragma once

#include <cstdint>
#include <span>

namespace dunlin_scale {

// What runs it: of the simulation, or of a thread's CPU.
struct host {
    void (*compute)(std::int64_t ns);
    // What happens between the two counts.
    void (*begin)();
    void (*end)();
};

struct workload {
    const char* name;
    const char* operation;                       // what is counted
    // In the main goroutine of a run() with so many processors. As many operations as it returns.
    std::uint64_t (*run)(unsigned procs, unsigned size, const host& h);
    // For each CPU; microseconds for what goes on and on. In curves, and where real CPUs are compared with virtual
    // ones.
    unsigned size;
    unsigned real_size, simulated_size;          // 0: they are not
};

std::span<const workload> workloads() noexcept;

}  // namespace dunlin_scale
