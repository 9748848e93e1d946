// forkjoin.h - the boards and matrices that forkjoin_bench.cpp and peers/cpp compute, so that both have the same
// compiled.

#pragma once

#include <array>

namespace bench {

inline constexpr int board_max = 14;
using board = std::array<signed char, board_max>;  // the row of the queen in each column

inline bool free_place(const board& queens, int column, int row) {
    for (int c = 0; c < column; ++c) {
        const int distance = column - c;
        if (queens[c] == row || queens[c] == row - distance || queens[c] == row + distance) return false;
    }
    return true;
}

/// A square part of three matrices whose rows are `stride` long: c += a * b.
struct product {
    const int* a;
    const int* b;
    int* c;
    int size;
    int stride;

    /// Its sizes are integers as its cells are. Copies of them cannot be among what is written, so nothing is read
    /// anew.
    static void small(const int* a, const int* b, int* c, const int size, const int stride) {
        for (int i = 0; i < size; ++i) {
            int* sums = c + i * stride;
            for (int k = 0; k < size; ++k) {
                const int factor = a[i * stride + k];
                const int* factors = b + k * stride;
                for (int j = 0; j < size; ++j) sums[j] += factor * factors[j];
            }
        }
    }

    void small() const { small(a, b, c, size, stride); }

    /// The quarter of c in `row` and `column` (0 or 1), as far as column and row `inner` of a's and b's quarters go.
    product quarter(int row, int column, int inner) const {
        const int half = size / 2;
        const int down = half * stride;
        return {a + row * down + inner * half, b + inner * down + column * half, c + row * down + column * half, half,
            stride};
    }
};

inline constexpr int matmul_small_size = 32;

}  // namespace bench
