// Programs for tests/tools/trace_test.py. Usage: trace_scene WHAT [PROCESSORS], with DUNLIN_TRACE.
#include <dunlin/dunlin.hpp>
#include <dunlin/trace.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <shared_mutex>
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
            done.go([] { sum.fetch_add(1); });
            if (i % 16 == 0) std::this_thread::sleep_for(100us);
        }
    });
    dunlin::on_thread_stack([&] { plain.join(); });
    done.wait();  // also for the last that the plain thread started: a run() that ends freezes what it leaves
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

// Go's futile-wakeup.go, and the same for locks. Each call that may wait is a region of the name of its kind.
template <class F>
void waits(const char* kind, F f) {
    const dunlin::trace::region here(kind);
    f();
}

void channels(dunlin::wait_group& done, int rounds) {
    const dunlin::chan<int> c(1), unbuffered, c1, c2;
    for (int k = 0; k < 2; ++k) {
        const auto loop = [&](const char* kind, auto f) {
            done.go([=] {
                for (int i = 0; i < rounds; ++i) {
                    dunlin::yield();
                    waits(kind, f);
                }
            });
        };
        for (const dunlin::chan<int>& one : {c, unbuffered}) {
            loop("chan", [=] { one.send(0); });
            loop("chan", [=] { (void)one.recv(); });
        }
        loop("select", [=] { dunlin::select(dunlin::on_send(c1, 0, [] {}), dunlin::on_send(c2, 0, [] {})); });
        loop("select", [=] { dunlin::select(dunlin::on_recv(c1, [](auto) {}), dunlin::on_recv(c2, [](auto) {})); });
    }
}

void locks(int rounds) {
    dunlin::mutex m;
    dunlin::shared_mutex rw;
    dunlin::counting_semaphore<1> one(1);
    dunlin::wait_group done;
    const auto loop = [&](const char* kind, std::chrono::microseconds hold, auto take, auto give_back) {
        for (int k = 0; k < 4; ++k) {
            done.go([=] {
                for (int i = 0; i < rounds; ++i) {
                    waits(kind, take);
                    burn(hold);
                    if (i % 8 == k) dunlin::yield();
                    give_back();
                }
            });
        }
    };
    loop("mutex", 300us, [&] { m.lock(); }, [&] { m.unlock(); });
    done.wait();
    loop("shared_mutex", 5us, [&] { rw.lock(); }, [&] { rw.unlock(); });
    loop("shared_mutex", 5us, [&] { rw.lock_shared(); }, [&] { rw.unlock_shared(); });
    loop("semaphore", 5us, [&] { one.acquire(); }, [&] { one.release(); });
    done.wait();
}

// A wait without a condition: it ends by a notification, or is wrong.
void conditions(int rounds) {
    dunlin::mutex m;
    dunlin::condition_variable changed;
    int waiting = 0, notified = 0, woken = 0;
    dunlin::wait_group done;
    for (int k = 0; k < 4; ++k) {
        done.go([&] {
            for (int i = 0; i < rounds; ++i) {
                std::unique_lock lock(m);
                ++waiting;
                waits("cond", [&] { changed.wait(lock); });
                if (++woken > notified) std::abort();
            }
        });
    }
    while (notified < 4 * rounds) {
        {
            const std::lock_guard lock(m);
            if (notified % 3 == 0 && waiting > 1) {
                notified += std::exchange(waiting, 0);
                changed.notify_all();
            } else if (waiting > 0) {
                --waiting;
                ++notified;
                changed.notify_one();
            }
        }
        dunlin::yield();
    }
    done.wait();
}

// Go's gomaxprocs.go: up and down, while the world is stopped for something else. In each region every processor that
// there is has run something.
void resize() {
    std::atomic<bool> over{false};
    dunlin::wait_group others;
    others.go([&] {
        while (!over.load()) {
            std::ostringstream nowhere;
            dunlin::runtime::dump(nowhere);
            dunlin::sleep_for(1ms);
        }
    });
    for (const unsigned n : {1u, 2u, 4u, 8u, 8u, 4u, 2u, 1u}) {
        dunlin::runtime::set_max_procs(n);
        while (dunlin::runtime::num_goroutines() > 2) dunlin::yield();  // those of before have ended
        const dunlin::trace::region here("processors " + std::to_string(n));
        const auto before = dunlin::runtime::stats().procs;
        for (bool all = false; !all;) {
            dunlin::wait_group burning;
            for (unsigned i = 0; i < 2 * n; ++i) burning.go([] { burn(200us); });
            burning.wait();
            const auto now = dunlin::runtime::stats().procs;
            all = true;
            for (unsigned i = 0; i < n; ++i) all = all && now[i].ended > (i < before.size() ? before[i].ended : 0);
        }
    }
    over.store(true);
    others.wait();
}

// Go's wait-on-pipe.go. Three wait for a pipe when the trace begins: in the kernel unannounced, in blocking(), and as
// the runtime has it; and three more begin to.
void pipes(const std::string& file) {
    int raw[4][2];
    for (auto& ends : raw) {
        if (pipe(ends) != 0) std::abort();
    }
    std::vector<dunlin::fs::pipe> own(2);
    dunlin::wait_group done;
    const auto named = [&](const char* name, auto f) { done.go(dunlin::go_options{.name = name}, f); };
    std::atomic<std::size_t> reads{0};
    const auto read_one = [&reads](int fd) {
        char byte[1];
        ++reads;
        if (read(fd, byte, 1) != 1) std::abort();
    };
    const auto begin = [&](std::size_t k, const std::string& name) {
        named((name + " unannounced").c_str(), [=, &raw] { read_one(raw[2 * k][0]); });
        named((name + " blocking").c_str(), [=, &raw] { dunlin::blocking([&] { read_one(raw[2 * k + 1][0]); }); });
        named((name + " descriptor").c_str(), [=, &own] {
            char byte[1];
            if (own[k].read_end.read_some(byte) != 1) std::abort();
        });
        // Until all three wait. The time that this takes has no limit: with one processor, main goes on when the
        // monitor has taken it from the thread that sleeps in read().
        while (reads != 2 * (k + 1) || dunlin::runtime::stats().poll.waiting != k + 1) dunlin::sleep_for(1ms);
    };
    begin(0, "old");
    dunlin::trace::start(file);
    begin(1, "new");
    for (auto& ends : raw) (void)!write(ends[1], "x", 1);
    for (auto& ends : own) ends.write_end.write_all("x");
    done.wait();
    while (dunlin::runtime::num_goroutines() > 1) dunlin::yield();
    dunlin::trace::stop();
}

// Go's TestSignalTrace.
void signals(int rounds) {
    const dunlin::receiver<int> hups = dunlin::signal_channel({SIGHUP});
    const dunlin::chan<int> next;
    dunlin::wait_group listener;
    listener.go(dunlin::go_options{.name = "listener"}, [=] {
        for (int i = 0; i < rounds; ++i) {
            next.send(i);
            if (hups.recv() != SIGHUP) std::abort();
        }
    });
    for (int i = 0; i < rounds; ++i) {
        (void)next.recv();
        dunlin::sleep_for(200us);
        kill(getpid(), SIGHUP);
    }
    listener.wait();
}

// Go's TestSchedPauseMetrics: what stops the world, a region each.
void pauses() {
    std::ostringstream nowhere;
    const auto one = [](const char* name, auto f) {
        const dunlin::trace::region here(name);
        f();
    };
    one("nothing", [] { dunlin::yield(); });
    one("set_max_procs", [] { dunlin::runtime::set_max_procs(dunlin::runtime::max_procs() + 1); });
    one("goroutine_profile", [&] { dunlin::runtime::goroutine_profile(nowhere); });
    one("dump", [&] { dunlin::runtime::dump(nowhere); });
    one("set_wait_histograms", [] { dunlin::runtime::set_wait_histograms(true); });
    one("stats", [] { (void)dunlin::runtime::stats(); });
}

// Some wait, some compute, some have never begun, some are in a call, when their run() returns.
void leave_some() {
    static dunlin::chan<int> never;
    for (int i = 0; i < 8; ++i) {
        dunlin::go([] { (void)never.recv(); });
        dunlin::go([] {
            for (;;) burn(100us);
        });
        dunlin::go([] {
            for (;;) dunlin::yield();
        });
        dunlin::go([] { dunlin::blocking([] { usleep(20'000); }); });
        dunlin::go([] { dunlin::sleep_for(1h); });
    }
    dunlin::sleep_for(15ms);
    for (int i = 0; i < 8; ++i) dunlin::go([] { burn(10us); });
}

// More threads than the recorder has blocks; then it is written.
void crowd(const std::string& file) {
    dunlin::trace::start_recorder({.bytes = 256 << 10});
    std::atomic<bool> over{false};
    dunlin::wait_group all;
    for (int i = 0; i < 40; ++i) {
        all.go([&] {
            while (!over.load()) {
                dunlin::blocking([] { usleep(300); });
                dunlin::yield();
            }
        });
    }
    dunlin::sleep_for(100ms);
    std::ofstream out(file, std::ios::binary);
    dunlin::trace::write_recorder(out);
    over.store(true);
    all.wait();
}

}  // namespace scene

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "chaos";
    const unsigned procs = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 2;
    for (int i = 0; what == "ends" && i < 5; ++i) {
        dunlin::run({.max_procs = procs}, scene::leave_some);
    }
    dunlin::run({.max_procs = procs}, [&] {
        if (what == "chaos") scene::chaos(60);
        if (what == "slow") scene::slow_request();
        if (what == "crowd") scene::crowd(argv[3]);
        if (what == "exit") {
            dunlin::trace::start(argv[3]);
            scene::chaos(8);
            std::exit(0);
        }
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
        if (what == "futile") {
            dunlin::wait_group done;
            scene::channels(done, 500);
            done.wait();
            scene::locks(40);
            scene::conditions(200);
        }
        if (what == "resize") scene::resize();
        if (what == "pipes") scene::pipes(argv[3]);
        if (what == "signals") scene::signals(100);
        if (what == "pauses") scene::pauses();
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
