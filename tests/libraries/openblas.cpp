// openblas.cpp - OpenBLAS, which shares its products among threads of its own and keeps buffers for callers.
#include <cblas.h>
#include <vector>

#include "libraries/library.h"

int main() {
    libraries::program p(openblas_get_config());
    libraries::in_goroutines({.goroutines = 60, .rounds = 3}, [](int i, int) {
        const int n = 96 + i;
        const std::size_t size = static_cast<std::size_t>(n) * static_cast<std::size_t>(n);
        std::vector<double> a(size, 1.0), b(size, 2.0), c(size, 5.0);
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1.0, a.data(), n, b.data(), n, 1.0, c.data(),
            n);
        bool good = true;
        for (const double value : c) good = good && value == 2.0 * n + 5.0;
        libraries::expect(good, "a product of %d rows", n);
    });
    return p.result();
}
