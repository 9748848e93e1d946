// scale_real WORKLOAD PROCS [SIZE]: nanoseconds that the workload takes on this machine, what it has done, and for how
// long its threads have waited for a CPU, summed: others used them meanwhile.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <dunlin/dunlin.hpp>

#include "scale/workloads.h"

namespace {

using clock_type = std::chrono::steady_clock;

double loops_per_ns = 1;
clock_type::time_point begun, ended;
std::int64_t waited_ns = 0;

// By all threads, so far.
std::int64_t waits_for_cpus_ns() {
    std::int64_t sum = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream file(thread.path() / "schedstat");
        std::int64_t ran = 0, waited = 0;
        if (file >> ran >> waited) sum += waited;
    }
    return sum;
}

[[gnu::noinline]] void turn(double loops) {
    for (long i = static_cast<long>(loops); i > 0; --i) asm volatile("" : "+r"(i));
}

// By a count, not by the clock: what others take of the CPU is not computing.
void calibrate() {
    for (int i = 0; i < 20; ++i) {
        const auto before = clock_type::now();
        turn(1e6);
        const double rate = 1e6 / std::chrono::duration<double, std::nano>(clock_type::now() - before).count();
        if (i == 0 || rate > loops_per_ns) loops_per_ns = rate;
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const auto procs = static_cast<unsigned>(std::atoi(argv[2]));
    calibrate();
    const dunlin_scale::host h{[](std::int64_t ns) { turn(static_cast<double>(ns) * loops_per_ns); },
        [] {
            waited_ns = -waits_for_cpus_ns();
            begun = clock_type::now();
        },
        [] {
            ended = clock_type::now();
            waited_ns += waits_for_cpus_ns();
        }};
    for (const dunlin_scale::workload& w : dunlin_scale::workloads()) {
        if (std::string_view(w.name) != argv[1]) continue;
        const unsigned size = argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : w.real_size;
        std::uint64_t operations = 0;
        dunlin::run({.max_procs = procs}, [&] { operations = w.run(procs, size, h); });
        std::printf("%lld %llu %lld\n",
            static_cast<long long>(std::chrono::duration_cast<std::chrono::nanoseconds>(ended - begun).count()),
            static_cast<unsigned long long>(operations), static_cast<long long>(waited_ns));
        return 0;
    }
    return 2;
}
