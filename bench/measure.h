// measure.h - repetition, percentiles, and what the kernel says about this process. Twin: peers/go/measure.go.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

using steady = std::chrono::steady_clock;

inline double ns_between(steady::time_point start, steady::time_point end) {
    return std::chrono::duration<double, std::nano>(end - start).count();
}

inline long sum_below(long n) { return n * (n - 1) / 2; }

/// Sorts `samples`. The value between two neighbours is interpolated.
double percentile(std::vector<double>& samples, double q);

inline constexpr std::size_t batches_min = 2;
inline double measured_ns_min = 300e6;  // --seconds: more

/// Runs `batch`, which carries out `operations`, once unmeasured and then until both limits above are met; the median
/// of the batches, in nanoseconds per operation, counts.
template <class Batch>
double ns_per_operation(long operations, Batch&& batch) {
    batch();
    std::vector<double> samples;
    for (double total = 0; samples.size() < batches_min || total < measured_ns_min;) {
        const auto start = steady::now();
        batch();
        const double took = ns_between(start, steady::now());
        total += took;
        samples.push_back(took / static_cast<double>(operations));
    }
    return percentile(samples, 0.5);
}

/// A field of /proc/self/status that is given in kB, for example VmRSS, VmHWM or VmPTE.
double status_bytes(const char* field);

/// User and system time of this process up to now.
double cpu_seconds();

/// The random sequence that both languages use, so that both sleep for the same times.
class splitmix64 {
public:
    explicit splitmix64(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }

private:
    std::uint64_t state_;
};

}  // namespace bench
