// page_scene.cpp - a program with a page: receivers that wait, a hot lock, two that wait for each other's locks, and
// with COMPUTE one that computes.
// Usage: page_scene [GOROUTINES [TOKEN [COMPUTE]]]. Prints the page's address, and goes on until its input ends.
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unistd.h>

#include <dunlin/debug.hpp>
#include <dunlin/dunlin.hpp>

using namespace std::chrono_literals;

namespace scene {

[[gnu::noinline]] int waits_for_orders(const dunlin::chan<int>& from, int number) {
    const int got = from.recv().value_or(number);
    return got + number;
}

[[gnu::noinline]] int has_hot_lock(dunlin::mutex& m, int number) {
    const std::lock_guard guard(m);
    dunlin::sleep_for(200us);
    return number + 1;
}

volatile unsigned sum = 0;
[[gnu::noinline]] void computes() {
    for (unsigned i = 0; i < 1'000'000; ++i) sum = sum * 31 + i;
}

}  // namespace scene

int main(int argc, char** argv) {
    const int count = argc > 1 ? std::atoi(argv[1]) : 100;
    dunlin::debug::serve_options options;
    if (argc > 2) options.token = argv[2];
    dunlin::run([&] {
        dunlin::runtime::set_block_profile_rate(1us);
        dunlin::runtime::set_mutex_profile_fraction(1);
        const dunlin::debug::server page = dunlin::debug::serve("127.0.0.1:0", options);
        const dunlin::chan<int> orders;
        for (int i = 0; i < count; ++i) {
            const char* shard = i % 2 == 0 ? "even" : "odd";
            dunlin::go({.labels = {{"shard", shard}}}, [=] { scene::waits_for_orders(orders, i); });
        }
        dunlin::mutex hot;
        for (int i = 0; i < 4; ++i) {
            dunlin::go({.name = "worker " + std::to_string(i)}, [&hot, i] {
                for (;;) scene::has_hot_lock(hot, i);
            });
        }
        dunlin::mutex left, right;
        dunlin::latch both(2);
        const auto takes = [&both](dunlin::mutex& first, dunlin::mutex& second) {
            const std::lock_guard guard(first);
            both.arrive_and_wait();
            const std::lock_guard other(second);
        };
        dunlin::go({.name = "left then right"}, [&] { takes(left, right); });
        dunlin::go({.name = "right then left"}, [&] { takes(right, left); });
        if (argc > 3) {
            dunlin::go({.name = "hog"}, [] {
                for (;;) scene::computes();
            });
        }
        dunlin::sleep_for(50ms);
        std::puts(page.url().c_str());
        std::fflush(stdout);
        char byte;
        while (dunlin::blocking([&] { return ::read(0, &byte, 1); }) > 0) {
        }
        std::_Exit(0);
    });
}
