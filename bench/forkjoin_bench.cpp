// forkjoin_bench.cpp - divide and conquer with a goroutine per call. Twin: peers/go/forkjoin.go.
// The shapes are those of the public suite github.com/tzcnt/runtime-benchmarks; `suite-*` has its sizes too.

#include <cstddef>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "forkjoin.h"
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
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
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
    group.go_n(skynet_branches,
        [&results, number, part](std::size_t i) { results[i] = skynet(number + static_cast<long>(i) * part, part); });
    group.wait();
    long sum = 0;
    for (const long result : results) sum += result;
    return sum;
}

void skynet_task_group(const settings& s, results& r) {
    const long leaves = s.scaled(1'000'000);
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        const double ns = ns_per_operation(1, [&] {
            if (skynet(0, leaves) != leaves * (leaves - 1) / 2) fail("skynet-tg: wrong sum");
        });
        r.add("time", ns / 1e6, "ms");
    });
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
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        const double ns = ns_per_operation(1, [&] {
            if (nqueens({}, 0, size) != expected) fail("nqueens: wrong number of solutions");
        });
        r.add("time", ns / 1e6, "ms");
    });
}

/// By value: what it computes with may then stay in registers while it writes integers to memory.
void matmul(const product whole) {
    if (whole.size <= matmul_small_size) {
        whole.small();
        return;
    }
    // Two groups one after the other, so that no two goroutines add to one quarter at a time.
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
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
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

// ---- as in the suite: its sizes, a run that does not count, and one that does ---------------------------------------

template <class Run>
void measure_once(results& r, Run&& run) {
    const auto start = steady::now();
    run();
    r.add("time", ns_between(start, steady::now()) / 1e6, "ms");
}

void suite_fib(const settings& s, results& r) {
    const long n = s.quick ? 30 : 39;
    const long expected = s.quick ? 832'040 : 63'245'986;
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        if (fib(30) != 832'040) fail("suite-fib: wrong result");
        measure_once(r, [&] {
            if (fib(n) != expected) fail("suite-fib: wrong result");
        });
    });
}

void suite_skynet(const settings& s, results& r) {
    const long leaves = s.quick ? 1'000'000 : 100'000'000;
    const auto run = [leaves] {
        if (skynet(0, leaves) != leaves * (leaves - 1) / 2) fail("suite-skynet: wrong sum");
    };
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        run();
        measure_once(r, run);
    });
}

void suite_nqueens(const settings& s, results& r) {
    const int size = s.quick ? 11 : 14;
    const long expected = s.quick ? 2'680 : 365'596;
    const auto run = [size, expected] {
        if (nqueens({}, 0, size) != expected) fail("suite-nqueens: wrong number of solutions");
    };
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        run();
        measure_once(r, run);
    });
}

/// The suite makes the matrices within the time that it measures, and checks the product after it.
void suite_matmul(const settings& s, results& r) {
    const int size = s.quick ? 512 : 2048;
    const auto cells = static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
    std::vector<int> c;
    const auto run = [&] {
        const std::vector<int> a(cells, 1), b(cells, 1);
        c = std::vector<int>(cells, 0);
        matmul({a.data(), b.data(), c.data(), size, size});
    };
    const auto check = [&] {
        for (const int cell : c) {
            if (cell != size) fail("suite-matmul: wrong product");
        }
    };
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        run();
        check();
        measure_once(r, run);
        check();
    });
}

const registered all[] = {
    registered({"fib", "fib(30), one spawn per call", fib_30}),
    registered(
        {"skynet-tg", "a tree of ten branches and a million leaves, one task_group per node", skynet_task_group}),
    registered({"nqueens", "all places for 12 queens on a board of 12 x 12, one task_group per node", nqueens_12}),
    registered({"matmul", "a product of matrices of 1024 x 1024, in quarters down to 32 x 32", matmul_1024}),
    registered({"suite-fib", "fib(39) as in runtime-benchmarks", suite_fib}),
    registered({"suite-skynet", "skynet with 100 million leaves as in runtime-benchmarks", suite_skynet}),
    registered({"suite-nqueens", "14 queens as in runtime-benchmarks", suite_nqueens}),
    registered({"suite-matmul", "matrices of 2048 x 2048 as in runtime-benchmarks", suite_matmul}),
};

}  // namespace
}  // namespace bench
