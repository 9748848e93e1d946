// joins.cpp - part 8: a waiter runs the child that has not begun, on its own stack: a spawn for the price of a
// call.
#include <algorithm>
#include <thread>

#include "parts.h"

namespace tour {

namespace {

using stats = dunlin::runtime::processor_stats;

constexpr int n = 27;
constexpr int fib_n = 196'418;
constexpr std::uint64_t spawns = 317'810;  // calls with n >= 2

int fib(int i) {
    if (i < 2) return i;
    auto one = dunlin::spawn([i] { return fib(i - 1); });
    const int two = fib(i - 2);
    return one.get() + two;
}

std::chrono::nanoseconds time_of_a_thread() {
    constexpr int threads = 200;
    const stopwatch watch;
    for (int i = 0; i < threads; ++i) std::thread([] {}).join();
    return watch.elapsed() / threads;
}

struct figures {
    int result = 0;
    std::uint64_t created = 0, in_place = 0, stolen = 0;
    std::chrono::nanoseconds each{};
};

figures measure() {
    figures f;
    f.result = fib(20);  // warm
    const dunlin::runtime::runtime_stats before = dunlin::runtime::stats();
    const stopwatch watch;
    f.result = fib(n);
    f.each = watch.elapsed() / spawns;
    settle();
    const dunlin::runtime::runtime_stats after = dunlin::runtime::stats();
    f.created = growth(before, after, &stats::created);
    f.in_place = growth(before, after, &stats::in_place_joins);
    f.stolen = growth(before, after, &stats::stolen);
    return f;
}

void show(const char* processors, const figures& f) {
    const double share = static_cast<double>(f.in_place) / static_cast<double>(f.created);
    say("%-15s fib(%d) = %s   %s spawns, %s each", processors, n,
        with_commas(static_cast<std::uint64_t>(f.result)).c_str(), with_commas(f.created).c_str(),
        bold(readable(f.each)).c_str());
    say("                %s %.2f %% ran on the waiter's stack, %s were stolen", bar(share).c_str(), 100 * share,
        with_commas(f.stolen).c_str());
}

void compare() {
    figures one;
    {
        const one_processor alone;
        one = measure();
    }
    const figures all = measure();
    const std::chrono::nanoseconds thread = time_of_a_thread();
    show("one processor", one);
    show("all processors", all);
    say("A std::thread, started and joined, takes %s here: %.0f times as long.", readable(thread).c_str(),
        static_cast<double>(thread.count()) /
            static_cast<double>(std::max<std::chrono::nanoseconds::rep>(1, one.each.count())));
    claim(one.result == fib_n && all.result == fib_n, "fib(%d) is %s, both times", n, with_commas(fib_n).c_str());
    claim(one.created == spawns && all.created == spawns, "a goroutine was started for every one of %s calls",
        with_commas(spawns).c_str());
    claim(one.in_place >= spawns / 100 * 99,
        "with one processor ninety-nine of a hundred children ran in place (now and then another goroutine has a turn)");
    claim(all.in_place >= spawns / 10 * 9, "with all of them at least nine of ten did");
}

}  // namespace

void joins_in_place(const options&) {
    explain(
        "fib(n) spawns a goroutine for fib(n - 1), computes fib(n - 2) itself, and waits. If the child has not begun by\n"
        "then, and was not stolen, waiting means: run it right here. So divide-and-conquer may spawn at every step.");
    dunlin::run(compare);
}

}  // namespace tour
