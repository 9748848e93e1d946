// Ordinary programs for surroundings that are not: little memory, few threads or descriptors, calls that are refused,
// a process that is stopped all the time.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <string_view>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "support/scenarios.h"

using namespace std::chrono_literals;

namespace {

void compute() {
    for (std::atomic<long> n{0};; n.fetch_add(1, std::memory_order_relaxed)) {
    }
}

int say(const char* what) {
    std::printf("%s\n", what);
    std::fflush(stdout);
    return 0;
}

// Channels, sleeps, calls that block with and without a word, goroutines by the hundred, one that only computes; each
// goes on until all have done something.
int work(bool computes) try {
    std::atomic<bool> stop{false};
    std::atomic<long> sent{0}, slept{0}, blocked{0}, called{0}, started{0};
    dunlin::run([&] {
        dunlin::chan<int> numbers;
        dunlin::wait_group all;
        if (computes) {
            all.go([&] {
                while (!stop) {
                }
            });
        }
        all.go([&] {
            for (; !stop; ++sent) numbers.send(1);
            numbers.close();
        });
        all.go([&] {
            while (numbers.recv()) {
            }
        });
        all.go([&] {
            for (; !stop; ++blocked) dunlin::blocking([] { usleep(1000); });
        });
        all.go([&] {
            for (; !stop; ++called) {
                usleep(500);
                dunlin::yield();  // what never calls the runtime keeps its thread, which may be the only one
            }
        });
        all.go([&] {
            for (; !stop; ++slept) dunlin::sleep_for(1ms);
        });
        all.go([&] {
            for (; !stop; ++started) {
                dunlin::wait_group some;
                for (int i = 0; i < 100; ++i) some.go([] { dunlin::yield(); });
                some.wait();
            }
        });
        while (sent < 10 || slept < 10 || blocked < 10 || called < 10 || started < 10) dunlin::sleep_for(5ms);
        stop = true;
        all.wait();
    });
    return say("worked");
} catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 3;
}

int echo() try {
    return dunlin::run([] {
        auto listener = dunlin::net::listen("tcp", "127.0.0.1:0");
        auto server = dunlin::spawn([&] {
            auto s = listener.accept();
            char text[2];
            s.write_all(text, s.read_some(text, sizeof text));
        });
        auto client = dunlin::net::dial("tcp", listener.local_address());
        client.write_all("ab", 2);
        char text[2];
        const auto size = client.read_some(text, sizeof text);
        server.get();
        return say(std::string_view(text, size) == "ab" ? "worked" : "wrong");
    });
} catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 3;
}

int accept_without_descriptors() {
    return dunlin::run([] {
        auto listener = dunlin::net::listen("tcp", "127.0.0.1:0");
        auto client = dunlin::net::dial("tcp", listener.local_address());
        rlimit before{};
        getrlimit(RLIMIT_NOFILE, &before);
        const rlimit none{3, before.rlim_max};
        setrlimit(RLIMIT_NOFILE, &none);
        auto server = dunlin::spawn([&] { listener.accept(); });
        dunlin::sleep_for(50ms);
        if (server.done()) return say("accepted");
        setrlimit(RLIMIT_NOFILE, &before);
        server.get();
        return say("worked");
    });
}

int main_thread_ends() {
    for (int i = 0; i < 3; ++i) dunlin::go(compute);
    dunlin::go([] {
        dunlin::sleep_for(100ms);
        say("worked");
        std::exit(0);
    });
    pthread_exit(nullptr);
}

int goroutine_ends_its_thread() {
    dunlin::run([] {
        dunlin::go([] { pthread_exit(nullptr); });
        dunlin::sleep_for(20s);
    });
    return say("it went on");
}

int children_at_any_moment() {
    std::atomic<bool> stop{false};
    std::atomic<int> bad{0};
    const auto make = [&bad](bool executes) {
        const pid_t child = fork();
        if (child == 0 && executes) execl("/bin/true", "true", nullptr);
        if (child == 0) _exit(executes ? 9 : 0);
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) ++bad;
    };
    dunlin::run([&] {
        dunlin::wait_group hogs, makers;
        for (int i = 0; i < 3; ++i) {
            hogs.go([&] {
                while (!stop) {
                    std::vector<std::vector<char>> blocks;
                    for (std::size_t size = 100; size < 200; ++size) blocks.emplace_back(size);
                }
            });
        }
        for (int m = 0; m < 4; ++m) {
            makers.go([&, m] {
                for (int i = 0; i < 25; ++i) make(m % 2 == 0);
            });
        }
        std::thread plain([&] {
            for (int i = 0; i < 25; ++i) make(true);
        });
        makers.wait();
        dunlin::blocking([&] { plain.join(); });
        stop = true;
        hogs.wait();
    });
    return say(bad == 0 ? "worked" : "children failed");
}

struct uses_the_runtime {
    ~uses_the_runtime() {
        dunlin::chan<int> numbers(1);
        dunlin::mutex mutex;
        for (int i = 0; i < 10; ++i) dunlin::go([] {});
        numbers.send(1);
        mutex.lock();
        mutex.unlock();
        say(numbers.recv() == 1 ? "destroyed" : "wrong");
    }
};

int exit_among_hogs() {
    static uses_the_runtime last;
    dunlin::run([] {
        for (int i = 0; i < 8; ++i) dunlin::go(compute);
        for (int i = 0; i < 3; ++i) {
            dunlin::go([] {
                dunlin::sleep_for(20ms);
                std::exit(0);
            });
        }
        dunlin::sleep_for(20s);
    });
    return 1;
}

constexpr support::scenario all[] = {
    {"work", [] { return work(true); }},
    {"work_that_calls", [] { return work(false); }},
    {"echo", echo},
    {"accept_without_descriptors", accept_without_descriptors},
    {"main_thread_ends", main_thread_ends},
    {"goroutine_ends_its_thread", goroutine_ends_its_thread},
    {"children_at_any_moment", children_at_any_moment},
    {"exit_among_hogs", exit_among_hogs},
};

}  // namespace

int main(int argc, char** argv) { return support::choose(argc, argv, all); }
