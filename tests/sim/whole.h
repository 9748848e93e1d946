// whole.h - whole programs as cases: the real run() on virtual threads (docs/decisions/048-whole-programs.md).
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "sim/cases.h"

namespace dunlin::inline v0_1::sim_cases {

inline constexpr std::int64_t us = 1'000, ms = 1'000'000;

struct program {
    unsigned max_procs = 2;
    bool has_threads = true;          // an earlier run() has made some
    bool monitor_sleeps = false;      // nothing has been done for a while
    bool lacks_threads = false;       // a processor may be idle because there is no thread for it
    bool prepares_itself = false;     // main calls explorer::prepared(), and lets the plain threads begin
    leftovers at_end = leftovers::stop;
    std::function<void()> main;
    std::vector<std::function<void()>> plain_threads = {};  // begin when main may
    std::function<void()> afterwards = {};                  // on the thread that has called run()
};

explorer::case_function whole(program p);

void let_plain_threads_begin();
// The goroutine is one that goes on after it has started others, and the monitor is not attentive to it
// (sched/machines/turns.h, wake.h):
// what it starts from here on is work for others at once. The other machines are asleep.
void linger();

// What stands in memory, which no thread need see under `cxx`: for what is required, not for what a program does.
template <class Look>
auto as_it_stands(Look look) {
    platform::access_checker* const before = std::exchange(platform::checker_of_thread, nullptr);
    const auto value = look();
    platform::checker_of_thread = before;
    return value;
}
template <class T>
T in_memory(const platform::atomic<T>& a) {
    return as_it_stands([&] { return a.load(std::memory_order_relaxed); });
}

// What a goroutine has on its stack: wherever it goes on, it finds what it has left.
class own_value {
public:
    void touch() { n_.set(n_.get() + 1); }
    int touched() const { return n_.get(); }

private:
    explorer::variable<int> n_{0, "what a goroutine has on its stack"};
};

// Drawn orders, so many of each, under all memories.
std::vector<explorer::options> drawn(std::size_t executions, std::size_t max_steps = 100'000);
// The same where no thread is kept from its CPU for long: what the runtime does on time is on time, and what only the
// monitor's next round puts right is late.
std::vector<explorer::options> punctually(std::size_t executions);
// Without cxx, under which a hint may stay unseen for longer than the monitor waits.
std::vector<explorer::options> seen_in_time(std::size_t executions);

}  // namespace dunlin::sim_cases
