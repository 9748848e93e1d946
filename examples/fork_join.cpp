// fork_join.cpp - divide, spawn, join: a sort that is parallel all the way down.
#include <algorithm>
#include <cstdio>
#include <random>
#include <span>
#include <vector>

#include <dunlin/dunlin.hpp>

// Sorts the left half in a goroutine of its own and the right half here. A child that no thread has begun when it is
// waited for runs right here, as a call, so small pieces cost little; the cut-off is for the speed of the sort.
void parallel_sort(std::span<int> values) {
    if (values.size() < 2'000) {
        std::sort(values.begin(), values.end());
        return;
    }
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    {
        dunlin::task<void> left = dunlin::spawn([=] { parallel_sort({values.begin(), middle}); });
        parallel_sort({middle, values.end()});
        left.get();  // rethrows what the child threw
    }
    std::inplace_merge(values.begin(), middle, values.end());
}

int main() {
    std::vector<int> values(1'000'000);
    std::generate(values.begin(), values.end(), std::mt19937(42));
    dunlin::run([&] { parallel_sort(values); });
    const bool sorted = std::is_sorted(values.begin(), values.end());
    const dunlin::runtime::runtime_stats stats = dunlin::runtime::stats();
    std::printf("sorted: %s; %llu children ran on their parent's stack, %llu were stolen\n", sorted ? "yes" : "no",
                static_cast<unsigned long long>(stats.in_place_joins), static_cast<unsigned long long>(stats.stolen));
    return sorted ? 0 : 1;
}
