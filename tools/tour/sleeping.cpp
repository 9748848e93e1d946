// sleeping.cpp - part 9: how late sleepers wake.
#include <algorithm>
#include <vector>

#include "parts.h"

namespace tour {

namespace {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;

constexpr int sleepers = 8;
constexpr int sleeps_each = 250;

// 100 us to 2 ms, in an order of its own for each sleeper.
nanoseconds duration_of(int sleeper, int i) {
    return 100us + 1900us * ((sleeper * 37 + i * 83) % sleeps_each) / (sleeps_each - 1);
}

std::vector<nanoseconds> sleep_and_measure() {
    std::vector<nanoseconds> late(sleepers * sleeps_each);
    dunlin::wait_group group;
    for (int s = 0; s < sleepers; ++s) {
        group.go([&late, s] {
            for (int i = 0; i < sleeps_each; ++i) {
                const nanoseconds d = duration_of(s, i);
                const auto from = dunlin::clock::now();
                dunlin::sleep_for(d);
                late[static_cast<std::size_t>(s * sleeps_each + i)] = dunlin::clock::now() - from - d;
            }
        });
    }
    group.wait();
    std::sort(late.begin(), late.end());
    return late;
}

// `late` is sorted.
void draw(const std::vector<nanoseconds>& late) {
    constexpr nanoseconds edges[] = {5us, 10us, 20us, 50us, 100us, 200us, 500us, 1ms, 5ms, nanoseconds::max()};
    auto from = late.begin();
    nanoseconds low{0};
    for (const nanoseconds high : edges) {
        const auto to = std::lower_bound(from, late.end(), high);
        const auto count = to - from;
        const std::string range =
            high == nanoseconds::max() ? "more" : text("%s to %s", readable(low).c_str(), readable(high).c_str());
        if (count > 0) {
            say("%22s late  %s %5td", range.c_str(),
                bar(static_cast<double>(count) / static_cast<double>(late.size())).c_str(), count);
        }
        from = to;
        low = high;
    }
}

void show() {
    const std::vector<nanoseconds> late = sleep_and_measure();
    say("%zu sleeps of 100 us to 2 ms by %d goroutines at the same time", late.size(), sleepers);
    draw(late);
    const nanoseconds median = late[late.size() / 2], p99 = late[late.size() * 99 / 100];
    say("late by        %s (median), %s (99 of 100), %s (worst; this machine may have had other things to do)",
        bold(readable(median)).c_str(), readable(p99).c_str(), readable(late.back()).c_str());
    claim(late.front() >= 0ns, "none woke early; the most exact one was %s late", readable(late.front()).c_str());
    claim(median < 1ms, "nothing is rounded to milliseconds");
}

}  // namespace

void sleeping(const options&) {
    explain(
        "A goroutine that sleeps costs no thread: it stands in a heap of timers, and the last idle thread sleeps until\n"
        "the earliest one is due. Deadlines are nanoseconds.");
    dunlin::run(show);
}

}  // namespace tour
