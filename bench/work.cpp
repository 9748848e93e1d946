#include "work.h"

#include <algorithm>

#include "measure.h"

namespace bench {

std::uint64_t computed(std::uint64_t x, long steps) {
    std::uint64_t factor = 6364136223846793005u, term = 1442695040888963407u;
    for (; steps != 0; steps >>= 1) {
        if ((steps & 1) != 0) x = x * factor + term;
        term *= factor + 1;
        factor *= factor;
    }
    return x;
}

double steps_per_us() {
    constexpr int tries = 100;
    constexpr long steps = 200'000;  // about 0.2 ms
    double best_ns = 0;
    std::uint64_t x = 1;
    for (int i = 0; i < tries; ++i) {
        const auto start = steady::now();
        x = compute(x, steps);
        [[maybe_unused]] volatile std::uint64_t kept = x;
        const double took_ns = ns_between(start, steady::now());
        best_ns = i == 0 ? took_ns : std::min(best_ns, took_ns);
    }
    return static_cast<double>(steps) / (best_ns / 1e3);
}

pieces::pieces(double us, bool skewed) : us_(us), steps_(static_cast<long>(us * steps_per_us())), factors_(1000, 1) {
    splitmix64 random(1);
    for (long& factor : factors_) {
        if (skewed && random.next() % 10 == 0) factor = 10;
    }
}

double pieces::mean_us() const {
    double sum = 0;
    for (const long factor : factors_) sum += us_ * static_cast<double>(factor);
    return sum / static_cast<double>(factors_.size());
}

}  // namespace bench
