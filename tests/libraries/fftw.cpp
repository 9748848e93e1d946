// fftw.cpp - FFTW: plans are made under a lock, as it asks for, and executed by all.
#include <cmath>
#include <fftw3.h>
#include <mutex>

#include "libraries/library.h"

int main() {
    libraries::program p(fftw_version);
    libraries::in_goroutines({.goroutines = 100, .rounds = 3}, [](int i, int) {
        static std::mutex planner;
        const int n = 4096 + i;
        fftw_complex* data = fftw_alloc_complex(static_cast<std::size_t>(n));
        planner.lock();
        fftw_plan there = fftw_plan_dft_1d(n, data, data, FFTW_FORWARD, FFTW_ESTIMATE),
            back = fftw_plan_dft_1d(n, data, data, FFTW_BACKWARD, FFTW_ESTIMATE);
        planner.unlock();
        for (int k = 0; k < n; ++k) data[k][0] = k, data[k][1] = -k;
        fftw_execute(there);
        fftw_execute(back);
        double most = 0;
        for (int k = 0; k < n; ++k) most = std::fmax(most,
            std::fabs(data[k][0] / n - k) + std::fabs(data[k][1] / n + k));
        libraries::expect(most < 1e-8, "there and back is wrong by %g", most);
        planner.lock();
        fftw_destroy_plan(there);
        fftw_destroy_plan(back);
        planner.unlock();
        fftw_free(data);
    });
    return p.result();
}
