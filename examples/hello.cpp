// hello.cpp - a hundred thousand things at once.
#include <cstdio>

#include <dunlin/dunlin.hpp>

using namespace std::chrono_literals;

int main() {
    return dunlin::run([] {
        dunlin::wait_group sleepers;
        for (int i = 0; i < 100'000; ++i) sleepers.go([] { dunlin::sleep_for(200ms); });
        std::printf("%zu goroutines, %u processors\n", dunlin::runtime::num_goroutines(), dunlin::runtime::max_procs());
        sleepers.wait();
        std::puts("all have slept");
        return 0;
    });
}
