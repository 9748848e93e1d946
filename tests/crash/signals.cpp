// Programs that wait for a second while another process sends them signals: SYN-19, go1.24
// src/runtime/semasleep_test.go.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <dirent.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dunlin/dunlin.hpp>
#include <dunlin/latch.hpp>
#include <dunlin/mutex.hpp>
#include <dunlin/semaphore.hpp>

#include "support/scenarios.h"

using namespace std::chrono_literals;

namespace {

// A process that sends SIGIO to every thread of this one. To be started before there are threads.
pid_t start_sender(std::chrono::microseconds period) {
    struct sigaction ignored {};
    ignored.sa_handler = [](int) {};  // without SA_RESTART: every wait in the kernel ends
    sigaction(SIGIO, &ignored, nullptr);
    const pid_t target = getpid(), sender = fork();
    if (sender != 0) return sender;
    const std::string tasks = "/proc/" + std::to_string(target) + "/task";
    while (getppid() == target) {
        usleep(static_cast<useconds_t>(period.count()));
        DIR* const list = opendir(tasks.c_str());
        if (list == nullptr) break;
        while (const dirent* entry = readdir(list)) {
            if (const int tid = std::atoi(entry->d_name); tid > 0) syscall(SYS_tgkill, target, tid, SIGIO);
        }
        closedir(list);
    }
    _exit(0);
}

// Prints how long `wait` took, in milliseconds.
template <class Wait>
int under_signals(std::chrono::microseconds period, Wait wait) {
    const pid_t sender = start_sender(period);
    const auto begin = std::chrono::steady_clock::now();
    wait();
    const auto end = std::chrono::steady_clock::now();
    kill(sender, SIGKILL);
    waitpid(sender, nullptr, 0);
    std::printf(
        "%lld\n", static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(end - begin).count()));
    return 0;
}

int timer_under_signals() {
    return under_signals(200ms, [] { dunlin::run([] { dunlin::after(1s).recv(); }); });
}

int sleep_under_frequent_signals() {
    return under_signals(2ms, [] { dunlin::run([] { dunlin::sleep_for(1s); }); });
}

int limit_under_signals() {
    return under_signals(200ms, [] { dunlin::run([] { dunlin::counting_semaphore<>(0).try_acquire_for(1s); }); });
}

// A plain thread waits in the kernel itself.
int thread_under_signals() {
    return under_signals(200ms, [] {
        dunlin::mutex m;
        m.lock();
        std::thread([&] { m.try_lock_for(1s); }).join();
        m.unlock();
    });
}

int thread_under_frequent_signals() {
    return under_signals(2ms, [] { std::thread([] { dunlin::latch(1).wait_for(1s); }).join(); });
}

constexpr support::scenario scenarios[] = {
    {"timer_under_signals", timer_under_signals},
    {"sleep_under_frequent_signals", sleep_under_frequent_signals},
    {"limit_under_signals", limit_under_signals},
    {"thread_under_signals", thread_under_signals},
    {"thread_under_frequent_signals", thread_under_frequent_signals},
};

}  // namespace

int main(int argc, char** argv) { return support::choose(argc, argv, scenarios); }
