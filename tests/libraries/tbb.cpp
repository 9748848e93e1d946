// tbb.cpp - oneTBB: goroutines call its parallel algorithms, and so work as its threads.
#include <numeric>
#include <tbb/parallel_for.h>
#include <tbb/parallel_reduce.h>
#include <tbb/task_group.h>
#include <tbb/version.h>
#include <vector>

#include "libraries/library.h"

int main() {
    libraries::program p(std::string("oneTBB ") + TBB_runtime_version());
    libraries::in_goroutines({.goroutines = 200, .rounds = 3}, [](int i, int) {
        std::vector<long> numbers(20'000);
        tbb::parallel_for(std::size_t{0}, numbers.size(),
            [&](std::size_t k) { numbers[k] = static_cast<long>(k) * i; });
        const long sum = tbb::parallel_reduce(
            tbb::blocked_range<std::size_t>(0, numbers.size()), 0L,
            [&](const tbb::blocked_range<std::size_t>& r, long s) {
                for (std::size_t k = r.begin(); k != r.end(); ++k) s += numbers[k];
                return s;
            },
            std::plus<long>());
        libraries::expect(sum == 199'990'000L * i, "sum %ld", sum);
        tbb::task_group group;
        std::atomic<int> done{0};
        for (int k = 0; k < 50; ++k) group.run([&] { ++done; });
        group.wait();
        libraries::expect(done == 50, "%d tasks", done.load());
    });
    return p.result();
}
