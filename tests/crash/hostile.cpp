// Ordinary programs for surroundings that are not: little memory, few threads or descriptors, calls that are refused,
// a process that is stopped all the time.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <pthread.h>
#include <string>
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

[[noreturn]] void say_and_end(const std::exception& e) {
    std::printf("%s\n", e.what());
    std::fflush(stdout);
    std::_Exit(3);
}

// Channels, sleeps, calls that block with and without a word, goroutines by the hundred, one that only computes; each
// goes on until all have done something.
class workload {
public:
    void start(bool computes) {
        if (computes) {
            all_.go([this] {
                while (!stop_) {
                }
            });
        }
        all_.go([this] {
            for (; !stop_; ++sent_) numbers_.send(1);
            numbers_.close();
        });
        all_.go([this] {
            while (numbers_.recv()) {
            }
        });
        all_.go([this] {
            for (; !stop_; ++blocked_) dunlin::blocking([] { usleep(1000); });
        });
        all_.go([this] {
            for (; !stop_; ++called_) {
                usleep(500);
                dunlin::yield();  // what never calls the runtime keeps its thread, which may be the only one
            }
        });
        all_.go([this] {
            for (; !stop_; ++slept_) dunlin::sleep_for(1ms);
        });
        all_.go([this] {
            for (; !stop_; ++started_) {
                dunlin::wait_group some;
                for (int i = 0; i < 100; ++i) some.go([] { dunlin::yield(); });
                some.wait();
            }
        });
    }
    void end_when_all_have_done_something() {
        while (sent_ < 10 || slept_ < 10 || blocked_ < 10 || called_ < 10 || started_ < 10) dunlin::sleep_for(5ms);
        stop_ = true;
        all_.wait();
    }

private:
    std::atomic<bool> stop_{false};
    std::atomic<long> sent_{0}, slept_{0}, blocked_{0}, called_{0}, started_{0};
    dunlin::chan<int> numbers_;
    dunlin::wait_group all_;
};

int work(bool computes) try {
    dunlin::run([computes] {
        workload w;
        try {
            w.start(computes);
            w.end_when_all_have_done_something();
        } catch (const std::bad_alloc& e) {
            say_and_end(e);  // while w is there, which the others use
        }
    });
    return say("worked");
} catch (const std::exception& e) { say_and_end(e); }

// Five hundred wait at once: each needs a stack.
int many() try {
    dunlin::run([] {
        dunlin::chan<int> gate;
        dunlin::wait_group all;
        std::atomic<int> begun{0};
        for (int i = 0; i < 500; ++i) {
            all.go([&] {
                ++begun;
                gate.recv();
            });
        }
        while (begun < 500) dunlin::sleep_for(1ms);
        gate.close();
        all.wait();
    });
    return say("worked");
} catch (const std::exception& e) { say_and_end(e); }

int echo() try {
    return dunlin::run([] {
        auto listener = dunlin::net::listen("tcp", "127.0.0.1:0");
        auto server = dunlin::spawn([&] {
            auto s = listener.accept();
            char text[2];
            s.write_all(text, s.read_some(text, sizeof text));
        });
        auto client = dunlin::net::dial("tcp", listener.local_address());
        dunlin::sleep_for(5ms);  // the server waits for the text: else nothing might ever poll
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

// ---- goroutines that have the dynamic linker's lock -----------------------------------------------------------------

// A library whose constructor calls `f`.
void load_one_that_calls(void (*f)()) {
    setenv("DUNLIN_TEST_CALLBACK", std::to_string(reinterpret_cast<std::uintptr_t>(f)).c_str(), 1);
    const auto library = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libcalls_back.so";
    if (dlopen(library.c_str(), RTLD_NOW) == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        std::_Exit(4);
    }
}

// Each goroutine that computes needs a thread of its own, and one of them is what the constructor waits for.
int constructor_that_waits() {
    static std::atomic<bool> may_end{false};
    dunlin::run([] {
        dunlin::wait_group all;
        all.go([] {
            load_one_that_calls([] {
                while (!may_end) usleep(1000);
            });
        });
        for (int i = 0; i < 12; ++i) {
            all.go([] {
                while (!may_end) {
                }
            });
        }
        all.go([] {
            dunlin::sleep_for(50ms);
            may_end = true;
        });
        all.wait();
    });
    return say("worked");
}

// The goroutine stands still in the constructor when its run() has returned.
int left_in_a_constructor() {
    dunlin::run([] {
        dunlin::go([] {
            load_one_that_calls([] {
                const auto end = std::chrono::steady_clock::now() + 300ms;
                while (std::chrono::steady_clock::now() < end) {
                }
            });
        });
        dunlin::sleep_for(50ms);
    });
    for (int i = 0; i < 10; ++i) {
        dunlin::run([] {
            for (int k = 0; k < 4; ++k) dunlin::go(compute);
            dunlin::sleep_for(10ms);
        });
    }
    return say("worked");
}

constexpr support::scenario all[] = {
    {"constructor_that_waits", constructor_that_waits},
    {"left_in_a_constructor", left_in_a_constructor},
    {"work", [] { return work(true); }},
    {"work_that_calls", [] { return work(false); }},
    {"many", many},
    {"echo", echo},
    {"accept_without_descriptors", accept_without_descriptors},
    {"main_thread_ends", main_thread_ends},
    {"goroutine_ends_its_thread", goroutine_ends_its_thread},
    {"children_at_any_moment", children_at_any_moment},
    {"exit_among_hogs", exit_among_hogs},
};

}  // namespace

int main(int argc, char** argv) { return support::choose(argc, argv, all); }
