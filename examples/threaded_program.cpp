// threaded_program.cpp - goroutines in a program that has threads already: no run(), no initialisation, the same calls from both worlds.
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include <dunlin/dunlin.hpp>

using namespace std::chrono_literals;

int main() {
    std::atomic<int> handled{0};
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            dunlin::wait_group requests;
            for (int i = 0; i < 1'000; ++i) {
                requests.go([&] {
                    dunlin::sleep_for(1ms);  // parks the goroutine
                    ++handled;
                });
            }
            requests.wait();  // blocks this thread, which is a plain one
        });
    }
    threads.clear();
    const int answer = dunlin::spawn([] { return 6 * 7; }).get();
    std::printf("%d requests, answer %d\n", handled.load(), answer);
    return handled == 4'000 && answer == 42 ? 0 : 1;
}
