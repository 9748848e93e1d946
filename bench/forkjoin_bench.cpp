// forkjoin_bench.cpp - divide and conquer with a goroutine per call. Twin: peers/go/forkjoin.go.
// Sizes and shapes follow the public suite tzcnt/runtime-benchmarks.

#include <array>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "measure.h"
#include "registry.h"

namespace bench {
namespace {

long fib(long n) {
    if (n < 2) return n;
    auto a = dunlin::spawn([=] { return fib(n - 1); });
    const long b = fib(n - 2);
    return a.get() + b;
}

void fib_30(const settings& s, results& r) {
    const long n = s.quick ? 25 : 30;
    const long expected = s.quick ? 75'025 : 832'040;
    dunlin::run([&] {
        const double ns = ns_per_operation(1, [&] {
            if (fib(n) != expected) fail("fib: wrong result");
        });
        r.add("time", ns / 1e6, "ms");
    });
}

constexpr long skynet_branches = 10;

long skynet(long number, long leaves) {
    if (leaves == 1) return number;
    long results[skynet_branches];
    const long part = leaves / skynet_branches;
    dunlin::task_group group;
    for (long i = 0; i < skynet_branches; ++i)
        group.go([&results, i, number, part] { results[i] = skynet(number + i * part, part); });
    group.wait();
    long sum = 0;
    for (const long result : results) sum += result;
    return sum;
}

void skynet_task_group(const settings& s, results& r) {
    const long leaves = s.scaled(1'000'000);
    dunlin::run([&] {
        const double ns = ns_per_operation(1, [&] {
            if (skynet(0, leaves) != leaves * (leaves - 1) / 2) fail("skynet-tg: wrong sum");
        });
        r.add("time", ns / 1e6, "ms");
    });
}

constexpr int board_max = 12;
using board = std::array<signed char, board_max>;  // the row of the queen in each column

bool free_place(const board& queens, int column, int row) {
    for (int c = 0; c < column; ++c) {
        const int distance = column - c;
        if (queens[c] == row || queens[c] == row - distance || queens[c] == row + distance) return false;
    }
    return true;
}

long nqueens(board queens, int column, int size) {
    if (column == size) return 1;
    long results[board_max];
    int children = 0;
    dunlin::task_group group;
    for (int row = 0; row < size; ++row) {
        if (!free_place(queens, column, row)) continue;
        queens[column] = static_cast<signed char>(row);
        group.go([&result = results[children++], queens, column, size] { result = nqueens(queens, column + 1, size); });
    }
    group.wait();
    long sum = 0;
    for (int i = 0; i < children; ++i) sum += results[i];
    return sum;
}

void nqueens_12(const settings& s, results& r) {
    const int size = s.quick ? 10 : 12;
    const long expected = s.quick ? 724 : 14'200;
    dunlin::run([&] {
        const double ns = ns_per_operation(1, [&] {
            if (nqueens({}, 0, size) != expected) fail("nqueens: wrong number of solutions");
        });
        r.add("time", ns / 1e6, "ms");
    });
}

// A square part of three matrices whose rows are `stride` long: c += a * b.
struct product {
    const int* a;
    const int* b;
    int* c;
    int size;
    int stride;

    void small() const {
        for (int i = 0; i < size; ++i) {
            int* sums = c + i * stride;
            for (int k = 0; k < size; ++k) {
                const int factor = a[i * stride + k];
                const int* factors = b + k * stride;
                for (int j = 0; j < size; ++j) sums[j] += factor * factors[j];
            }
        }
    }

    // The quarter of c in `row` and `column` (0 or 1), as far as column and row `inner` of a's and b's quarters go.
    product quarter(int row, int column, int inner) const {
        const int half = size / 2;
        const int down = half * stride;
        return {a + row * down + inner * half, b + inner * down + column * half, c + row * down + column * half, half,
            stride};
    }
};

constexpr int matmul_small_size = 32;

void matmul(const product& whole) {
    if (whole.size <= matmul_small_size) {
        whole.small();
        return;
    }
    // Two groups one after the other, so that nobody adds to a quarter while another does.
    for (const int inner : {0, 1}) {
        dunlin::task_group group;
        for (const int row : {0, 1}) {
            for (const int column : {0, 1}) group.go([part = whole.quarter(row, column, inner)] { matmul(part); });
        }
        group.wait();
    }
}

void matmul_1024(const settings& s, results& r) {
    const int size = s.quick ? 256 : 1024;
    const std::vector<int> a(static_cast<std::size_t>(size * size), 1);
    const std::vector<int> b(a);
    std::vector<int> c(a.size());
    dunlin::run([&] {
        const double ns = ns_per_operation(1, [&] {
            c.assign(a.size(), 0);
            matmul({a.data(), b.data(), c.data(), size, size});
            for (const int cell : c) {
                if (cell != size) fail("matmul: wrong product");
            }
        });
        r.add("time", ns / 1e6, "ms");
    });
}

const registered all[] = {
    registered({"fib", "fib(30), one spawn per call", fib_30}),
    registered(
        {"skynet-tg", "a tree of ten branches and a million leaves, one task_group per node", skynet_task_group}),
    registered({"nqueens", "all places for 12 queens on a board of 12 x 12, one task_group per node", nqueens_12}),
    registered({"matmul", "a product of matrices of 1024 x 1024, in quarters down to 32 x 32", matmul_1024}),
};

}  // namespace
}  // namespace bench
