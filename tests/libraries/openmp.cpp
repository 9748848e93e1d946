// openmp.cpp - OpenMP: a goroutine that enters a parallel region is the first of a team of threads.
#include <omp.h>
#include <vector>

#include "libraries/library.h"

int main() {
    libraries::program p("OpenMP " + std::to_string(_OPENMP));
    omp_set_num_threads(2);
    libraries::in_goroutines({.goroutines = 100, .rounds = 2}, [](int i, int) {
        std::vector<long> numbers(20'000);
        long sum = 0;
        int team = 0;
#pragma omp parallel num_threads(2)
        {
#pragma omp single
            team = omp_get_num_threads();
#pragma omp for
            for (std::size_t k = 0; k < numbers.size(); ++k) numbers[k] = static_cast<long>(k) * i;
#pragma omp for reduction(+ : sum)
            for (std::size_t k = 0; k < numbers.size(); ++k) sum += numbers[k];
        }
        libraries::expect(sum == 199'990'000L * i && team == 2, "sum %ld, team of %d", sum, team);
    });
    return p.result();
}
