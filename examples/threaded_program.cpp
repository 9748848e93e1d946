// threaded_program.cpp - goroutines in a program that has threads already: no run(), no initialisation; threads and
// goroutines make the same calls, on the same objects.
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
            requests.wait();  // blocks this plain thread
        });
    }
    threads.clear();

    // A std::thread asks, a goroutine answers, and either side may wait.
    dunlin::chan<int> questions, answers;
    dunlin::go([=] {
        for (int q : questions) answers.send(q * 7);
    });
    int answer = 0;
    std::jthread([&] {
        questions.send(6);
        dunlin::select(dunlin::on_recv(answers, [&](std::optional<int> a) { answer = *a; }), dunlin::on_timeout(10s));
        questions.close();
    }).join();

    std::printf("%d requests, answer %d\n", handled.load(), answer);
    return handled == 4'000 && answer == 42 ? 0 : 1;
}
