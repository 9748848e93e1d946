// tbb.cpp - dunlin's workloads that fork and join, on oneTBB: tasks, which run to their end on the stack of a thread
// and cannot wait for each other otherwise.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <tbb/global_control.h>
#include <tbb/parallel_invoke.h>
#include <tbb/task_group.h>
#include <tbb/version.h>

#include "../../forkjoin.h"
#include "../../measure.h"
#include "../../registry.h"

namespace bench {
namespace {

void spawn_join(const settings& s, results& r) {
    const long rounds = s.scaled(100'000);
    const double ns = ns_per_operation(rounds, [&] {
        tbb::task_group group;
        long sum = 0;
        for (long i = 0; i < rounds; ++i) {
            group.run([&sum] { sum += 1; });
            group.wait();
        }
        expect("spawn-join", sum, rounds);
    });
    r.add("time", ns, "ns");
}

void spawn_million(const settings& s, results& r) {
    const long tasks = s.scaled(1'000'000);
    const auto batch = [tasks] {
        tbb::task_group group;
        for (long i = 0; i < tasks; ++i) group.run([] {});
        group.wait();
    };
    const auto start = steady::now();
    batch();
    const double first = ns_between(start, steady::now()) / static_cast<double>(tasks);
    r.add("time", ns_per_operation(tasks, batch), "ns");
    r.add("first", first, "ns");
    r.add("peak-rss", status_bytes("VmHWM") / 1e6, "MB");
}

long fib(long n) {
    if (n < 2) return n;
    long a = 0;
    tbb::task_group group;
    group.run([&a, n] { a = fib(n - 1); });
    const long b = fib(n - 2);
    group.wait();
    return a + b;
}

long fib_invoke(long n) {
    if (n < 2) return n;
    long a = 0, b = 0;
    tbb::parallel_invoke([&a, n] { a = fib_invoke(n - 1); }, [&b, n] { b = fib_invoke(n - 2); });
    return a + b;
}

template <long (*Fib)(long)>
void fib_30(const settings& s, results& r) {
    const double ns = ns_per_operation(1, [&] { expect("fib", Fib(s.quick ? 25 : 30), s.quick ? 75'025 : 832'040); });
    r.add("time", ns / 1e6, "ms");
}

constexpr long skynet_branches = 10;

long skynet(long number, long leaves) {
    if (leaves == 1) return number;
    long results[skynet_branches];
    const long part = leaves / skynet_branches;
    tbb::task_group group;
    for (long i = 0; i < skynet_branches; ++i)
        group.run([&results, i, number, part] { results[i] = skynet(number + i * part, part); });
    group.wait();
    long sum = 0;
    for (const long result : results) sum += result;
    return sum;
}

void skynet_task_group(const settings& s, results& r) {
    const long leaves = s.scaled(1'000'000);
    const double ns = ns_per_operation(1, [&] { expect("skynet-tg", skynet(0, leaves), sum_below(leaves)); });
    r.add("time", ns / 1e6, "ms");
}

long nqueens(board queens, int column, int size) {
    if (column == size) return 1;
    long results[board_max];
    int children = 0;
    tbb::task_group group;
    for (int row = 0; row < size; ++row) {
        if (!free_place(queens, column, row)) continue;
        queens[column] = static_cast<signed char>(row);
        group.run(
            [&result = results[children++], queens, column, size] { result = nqueens(queens, column + 1, size); });
    }
    group.wait();
    long sum = 0;
    for (int i = 0; i < children; ++i) sum += results[i];
    return sum;
}

void nqueens_12(const settings& s, results& r) {
    const double ns =
        ns_per_operation(1, [&] { expect("nqueens", nqueens({}, 0, s.quick ? 10 : 12), s.quick ? 724 : 14'200); });
    r.add("time", ns / 1e6, "ms");
}

void matmul(const product whole) {
    if (whole.size <= matmul_small_size) {
        whole.small();
        return;
    }
    // One after the other, so that no two tasks add to one quarter at a time.
    for (const int inner : {0, 1}) {
        const auto quarter = [&whole, inner](int row, int column) {
            return [part = whole.quarter(row, column, inner)] { matmul(part); };
        };
        tbb::parallel_invoke(quarter(0, 0), quarter(0, 1), quarter(1, 0), quarter(1, 1));
    }
}

void matmul_1024(const settings& s, results& r) {
    const int size = s.quick ? 256 : 1024;
    const std::vector<int> a(static_cast<std::size_t>(size * size), 1);
    const std::vector<int> b(a);
    std::vector<int> c(a.size());
    const double ns = ns_per_operation(1, [&] {
        c.assign(a.size(), 0);
        matmul({a.data(), b.data(), c.data(), size, size});
        for (const int cell : c) expect("matmul", cell, size);
    });
    r.add("time", ns / 1e6, "ms");
}

const registered all[] = {
    registered({"spawn-join", "run one task and wait for it, one after the other", spawn_join}),
    registered({"spawn-million", "run a million tasks, then wait for all", spawn_million}),
    registered({"fib", "fib(30), one task_group per call", fib_30<fib>}),
    registered({"fib-invoke", "fib(30), one parallel_invoke per call", fib_30<fib_invoke>}),
    registered(
        {"skynet-tg", "a tree of ten branches and a million leaves, one task_group per node", skynet_task_group}),
    registered({"nqueens", "all places for 12 queens on a board of 12 x 12, one task_group per node", nqueens_12}),
    registered({"matmul", "a product of matrices of 1024 x 1024, in quarters down to 32 x 32", matmul_1024}),
};

using limit = tbb::global_control;

/// P threads, the main one among them.
void use_procs(int procs) {
    static std::unique_ptr<limit> in_force;
    in_force = std::make_unique<limit>(limit::max_allowed_parallelism, static_cast<std::size_t>(procs));
}

}  // namespace

const program this_program = {
    "onetbb",
    [] { return std::string(TBB_runtime_version()) + "; g++ " __VERSION__; },
    use_procs,
    [] { return static_cast<int>(limit::active_value(limit::max_allowed_parallelism)); },
};

}  // namespace bench
