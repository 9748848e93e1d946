// Programs for tests/tools/trace_test.py. Usage: trace_scene WHAT [PROCESSORS], with DUNLIN_TRACE.
#include <dunlin/dunlin.hpp>
#include <dunlin/trace.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace std::chrono_literals;

namespace scene {

std::atomic<std::uint64_t> sum{0};

[[gnu::noinline]] void burn(std::chrono::microseconds how_long) {
    const auto until = std::chrono::steady_clock::now() + how_long;
    while (std::chrono::steady_clock::now() < until) sum.fetch_add(1, std::memory_order_relaxed);
}

void ping_pong(int rounds) {
    dunlin::chan<int> there, back;
    dunlin::task<void> other = dunlin::spawn([=] {
        for (int i = 0; i < rounds; ++i) back.send(*there.recv());
    });
    for (int i = 0; i < rounds; ++i) {
        there.send(i);
        (void)back.recv();
    }
    other.get();
}

std::uint64_t fib(unsigned n) {
    if (n < 2) return n;
    dunlin::task<std::uint64_t> a = dunlin::spawn([n] { return fib(n - 1); });
    const std::uint64_t b = fib(n - 2);
    return a.get() + b;
}

// A little of everything that changes a goroutine's state.
void chaos(int rounds) {
    dunlin::mutex m;
    dunlin::wait_group done;
    for (int k = 0; k < 8; ++k) {
        done.go([&, k] {
            for (int i = 0; i < rounds; ++i) {
                switch ((i + k) % 8) {
                case 0: ping_pong(5); break;
                case 1: dunlin::yield(); break;
                case 2: dunlin::sleep_for(50us); break;
                case 3: dunlin::blocking([] { usleep(100); }); break;
                case 4: sum += fib(8); break;
                case 5: {
                    const std::lock_guard guard(m);
                    burn(5us);
                    if (i % 3 == 0) dunlin::yield();
                    break;
                }
                case 6: {
                    dunlin::chan<int> a(1), b;
                    a.send(1);
                    (void)dunlin::select(dunlin::on_recv(a, [](auto) {}), dunlin::on_recv(b, [](auto) {}));
                    break;
                }
                case 7: {
                    const dunlin::trace::task request("request");
                    const dunlin::trace::region part("part");
                    dunlin::trace::message("seen", "a message");
                    dunlin::spawn([] { burn(3us); }).get();
                    break;
                }
                }
            }
        });
    }
    for (int k = 0; k < 3; ++k) {
        done.go([] {
            for (int i = 0; i < 3; ++i) burn(30ms);  // longer than a slice
        });
    }
    std::thread plain([&] {
        for (int i = 0; i < rounds; ++i) {
            dunlin::go([] { sum.fetch_add(1); });
            if (i % 16 == 0) std::this_thread::sleep_for(100us);
        }
    });
    done.wait();
    dunlin::on_thread_stack([&] { plain.join(); });
}

// One request of ten is slow: its helper waits for a lock that another one holds.
void slow_request() {
    dunlin::mutex database;
    dunlin::go(dunlin::go_options{.name = "backup"}, [&] {
        dunlin::sleep_for(5ms);
        const std::lock_guard guard(database);
        burn(60ms);
    });
    for (int i = 0; i < 10; ++i) {
        const dunlin::trace::task request("GET /" + std::to_string(i));
        const dunlin::trace::region answer("answer", 30ms);
        dunlin::go_options named{.name = "helper"};
        dunlin::spawn(named, [&] {
            const std::lock_guard guard(database);
            burn(200us);
        }).get();
        dunlin::sleep_for(2ms);
    }
    dunlin::sleep_for(300ms);  // for the recorder's file
}

}  // namespace scene

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "chaos";
    const unsigned procs = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 2;
    dunlin::run({.max_procs = procs}, [&] {
        if (what == "chaos") scene::chaos(60);
        if (what == "slow") scene::slow_request();
        if (what == "many") {
            for (int i = 0; i < 200; ++i) scene::chaos(8);
        }
        if (what == "pingpong") scene::ping_pong(argc > 3 ? std::atoi(argv[3]) : 100000);
        if (what == "crash") {
            scene::ping_pong(100);
            std::abort();
        }
        if (what == "deadlock") {
            scene::ping_pong(100);
            (void)dunlin::chan<int>().recv();
        }
        if (what == "killed") {
            scene::chaos(20);
            dunlin::sleep_for(200ms);
            kill(getpid(), SIGKILL);
        }
        if (what == "recorder") {
            scene::chaos(100);
            std::ofstream out(argv[3], std::ios::binary);
            dunlin::trace::write_recorder(out);
        }
        if (what == "stops") {  // of the world, while all yield
            std::atomic<bool> over{false};
            dunlin::wait_group yielders;
            for (int i = 0; i < 6; ++i) {
                yielders.go([&] {
                    while (!over.load()) {
                        scene::burn(5us);
                        dunlin::yield();
                    }
                });
            }
            for (int i = 0; i < 200; ++i) {
                std::ostringstream nowhere;
                dunlin::runtime::dump(nowhere);
                dunlin::sleep_for(50us);
            }
            over.store(true);
            yielders.wait();
        }
        if (what == "snapshots") {  // while events go on
            dunlin::wait_group others;
            others.go([] { scene::chaos(100); });
            for (int i = 0; i < 10; ++i) {
                std::ofstream out(std::string(argv[3]) + "." + std::to_string(i), std::ios::binary);
                dunlin::trace::write_recorder(out);
                dunlin::sleep_for(5ms);
            }
            others.wait();
        }
    });
}
