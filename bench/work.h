// work.h - work whose length is known: a loop of dependent steps, and how long one of them takes here. Twin:
// peers/go/work.go.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

/// Computes without a call. Each step needs the one before, so no compiler shortens it.
inline std::uint64_t compute(std::uint64_t x, long steps) {
    for (long step = 0; step < steps; ++step) x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}

/// What compute() returns, in as many squarings as the number of steps has digits: an answer is checked for next to
/// nothing.
std::uint64_t computed(std::uint64_t x, long steps);

/// How many steps of compute() take a microsecond: the best of many tries, which is what the machine does
/// undisturbed. Takes about 20 ms.
double steps_per_us();

/// How long each piece of work of a workload is: all alike, or one in ten, chosen from a fixed seed, takes ten times as
/// long.
class pieces {
public:
    pieces(double us, bool skewed);

    double us(long piece) const { return us_ * factor(piece); }
    double mean_us() const;

    /// Does a piece of work that takes `x` and gives what follows from it.
    std::uint64_t work(std::uint64_t x, long piece) const { return compute(x, steps_ * factor(piece)); }
    /// The same, without the work.
    std::uint64_t worked(std::uint64_t x, long piece) const { return computed(x, steps_ * factor(piece)); }

private:
    long factor(long piece) const { return factors_[static_cast<std::size_t>(piece) % factors_.size()]; }

    double us_;
    long steps_;
    std::vector<long> factors_;
};

}  // namespace bench
