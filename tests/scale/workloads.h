// workloads.h - what is measured on virtual CPUs (simulated.cpp) and on real ones (real.cpp): the same code.
//
// Each does as much for each CPU, however many there are: where nothing is in the way the time stays the same.
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
    unsigned size;                               // in curves
    unsigned real_size, simulated_size;          // where the two are compared: a real run takes a while
};

std::span<const workload> workloads() noexcept;

}  // namespace dunlin_scale
