// scene.cpp - goroutines in every state, to be looked at by a debugger. Usage: scene RECEIVERS [abort | profile FILE];
// with -RECEIVERS each has a name. Or one fault by itself: scene deadlock | circle | leak | contention BLOCK MUTEX
// PROCESSORS (writes the two profiles) | cpu FILE PROCESSORS (writes the profile).
//
// Prints "ready" when all of them are where they shall be, and then waits to be killed, or aborts. Each function has a
// name of its own that the tests look for in the stacks.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <dunlin/dunlin.hpp>

using namespace std::chrono_literals;

namespace scene {  // not an anonymous one: lldb 14 prints names in those without what matters

static std::atomic<int> computing{0};
static std::atomic<bool> enough{false};

[[gnu::noinline]] int receive_for_ever(const dunlin::chan<int>& from, int number) {
    const int got = from.recv().value_or(number);
    return got + number;  // not a tail call
}

[[gnu::noinline]] int outer_receiver(const dunlin::chan<int>& from, int number) {
    return receive_for_ever(from, number) + 1;
}

[[gnu::noinline]] void sleep_long(int hours) {
    const std::string kept = "kept on the stack " + std::to_string(hours);
    dunlin::sleep_for(std::chrono::hours(hours));
    std::puts(kept.c_str());
}

[[gnu::noinline]] void wait_for_lock(dunlin::mutex& m) {
    m.lock();
    m.unlock();
}

[[gnu::noinline]] unsigned burn_the_cpu(unsigned x) {
    ++computing;
    while (!enough.load(std::memory_order_relaxed)) x = x * 1664525u + 1013904223u;
    return x;
}

[[gnu::noinline]] long read_for_ever(int descriptor) {
    char byte;
    const long n = dunlin::blocking([&] { return ::read(descriptor, &byte, 1); });
    return n + 1;
}

[[gnu::noinline]] void block_on_thread_stack(int descriptor) {
    char byte;
    const long n = dunlin::on_thread_stack([&] { return ::read(descriptor, &byte, 1); });
    if (n < 0) std::puts("no read");
}

[[gnu::noinline]] int wait_for_child(const dunlin::chan<int>& from) {
    dunlin::task<int> child = dunlin::spawn([from] { return receive_for_ever(from, 7); });
    return child.get() + 1;  // runs it in place
}

[[gnu::noinline]] void main_waits(bool aborts) {
    if (aborts) std::abort();
    dunlin::sleep_for(10h);
}

[[gnu::noinline]] void transfer(dunlin::mutex& from, dunlin::mutex& to) {
    const std::lock_guard first(from);
    dunlin::sleep_for(10ms);
    const std::lock_guard second(to);
}

// Two goroutines lock two mutexes in two orders; the program goes on for as long, unless it is what all wait for.
void lock_in_two_orders(std::chrono::seconds how_long) {
    dunlin::run([=] {
        dunlin::mutex anna, bert;
        dunlin::go({.name = "anna to bert"}, [&] { transfer(anna, bert); });
        dunlin::go({.name = "bert to anna"}, [&] { transfer(bert, anna); });
        if (how_long == 0s) dunlin::chan<int>().recv();
        dunlin::sleep_for(how_long);
        std::_Exit(0);  // the mutexes are held for ever
    });
}

void leave_receivers() {
    dunlin::run({.report_leaks = true}, [] {
        const dunlin::chan<int> silent;
        for (int i = 0; i < 3; ++i) dunlin::go([silent, i] { outer_receiver(silent, i); });
        dunlin::sleep_for(10ms);
    });
}

// The answer comes when none waits for it any more.
[[gnu::noinline]] void ask_for_a_moment() {
    const dunlin::chan<int> answer;
    dunlin::go({.name = "answers too late"}, [answer] {
        dunlin::sleep_for(5ms);
        answer.send(42);
    });
    answer.recv_for(1ms);
}

void lose_some() {
    dunlin::run([] {
        for (int i = 0; i < 10; ++i) dunlin::spawn(ask_for_a_moment).get();
        dunlin::sleep_for(20ms);
    });
}

[[gnu::noinline]] unsigned work_under_lock(dunlin::mutex& m, std::chrono::microseconds how_long) {
    const std::lock_guard guard(m);
    const auto until = std::chrono::steady_clock::now() + how_long;
    unsigned rounds = 0;
    while (std::chrono::steady_clock::now() < until) ++rounds;
    dunlin::sleep_for(how_long);  // the others come by with one processor too
    return rounds;
}

[[gnu::noinline]] unsigned use_hot_lock(dunlin::mutex& m) { return work_under_lock(m, 200us) + 1; }

[[gnu::noinline]] int use_cold_lock(dunlin::mutex& m, int n) {
    const std::lock_guard guard(m);
    dunlin::yield();
    return n + 1;
}

// Eight goroutines with a lock that each wants most of the time, and one that they seldom meet at.
int contend(const char* block, const char* mutex, unsigned processors) {
    bool good = true;
    dunlin::run({.max_procs = processors}, [&] {
        dunlin::runtime::set_block_profile_rate(1ns);
        dunlin::runtime::set_mutex_profile_fraction(1);
        dunlin::mutex hot, cold;
        dunlin::wait_group all;
        for (int i = 0; i < 8; ++i) {
            all.go({.name = i == 0 ? "first" : "", .labels = {{"kind", i % 2 == 0 ? "even" : "odd"}}}, [&, i] {
                for (int k = 0; k < 40; ++k) use_hot_lock(hot), use_cold_lock(cold, i);
            });
        }
        all.wait();
        std::ofstream block_file(block, std::ios::binary), mutex_file(mutex, std::ios::binary);
        dunlin::runtime::block_profile(block_file);
        dunlin::runtime::mutex_profile(mutex_file);
        block_file.close(), mutex_file.close();
        good = block_file && mutex_file;
    });
    return good ? 0 : 1;
}

// Three quarters of the CPU time in one function, of two users, a quarter in another.
[[gnu::noinline]] std::uint64_t multiply(std::uint64_t from, long times) {
    for (long i = 0; i < times; ++i) from = from * 6364136223846793005 + 1442695040888963407;
    return from;
}
[[gnu::noinline]] std::uint64_t expensive(std::uint64_t n, long times) { return multiply(n, 3 * times) + 1; }
[[gnu::noinline]] std::uint64_t cheap(std::uint64_t n, long times) { return multiply(n, times) + 1; }

int burn(const char* file, unsigned processors) {
    std::atomic<std::uint64_t> sum{0};
    dunlin::run({.max_procs = processors}, [&] {
        dunlin::runtime::start_cpu_profile(200);
        std::vector<dunlin::task<void>> users;
        for (const char* user : {"anna", "bert"}) {
            const dunlin::go_options named{.name = "worker", .labels = {{"user", user}}};
            users.push_back(dunlin::spawn(named, [&sum, user] {
                const auto cpu = [] {
                    timespec t;
                    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
                    return t.tv_sec * 1000 + t.tv_nsec / 1'000'000;
                };
                // Never twice as long: the kernel looks at the timer at its ticks, and would always meet one function.
                std::minstd_rand random(static_cast<unsigned>(user[0]));
                std::uniform_int_distribution<long> times(20'000, 180'000);
                for (const auto begin = cpu(); cpu() - begin < 3000;) {
                    const long n = times(random);
                    sum += expensive(sum, n) + cheap(sum, n);
                }
            }));
        }
        for (dunlin::task<void>& u : users) u.get();
        std::ofstream out(file, std::ios::binary);
        dunlin::runtime::stop_cpu_profile(out);
    });
    return sum == 0;
}

}  // namespace scene

using namespace scene;

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "deadlock") lock_in_two_orders(0s);
    if (what == "circle") lock_in_two_orders(3s);
    if (what == "leak") return leave_receivers(), 0;
    if (what == "lost") return lose_some(), 0;
    if (what == "contention" && argc == 5) return contend(argv[2], argv[3], static_cast<unsigned>(std::atoi(argv[4])));
    if (what == "cpu" && argc == 4) return burn(argv[2], static_cast<unsigned>(std::atoi(argv[3])));
    const int asked = argc > 1 ? std::atoi(argv[1]) : 10, receivers = std::abs(asked);
    const bool aborts = argc > 2 && std::string(argv[2]) == "abort";
    int pipe_ends[2];
    if (::pipe(pipe_ends) != 0) return 1;
    dunlin::run({.max_procs = 2}, [&] {
        const dunlin::chan<int> silent;
        for (int i = 0; i < receivers; ++i) {
            dunlin::go(
                {.name = asked < 0 ? "receiver" + std::to_string(i) : ""}, [silent, i] { outer_receiver(silent, i); });
        }
        dunlin::go({.name = "sleeper", .labels = {{"user", "anna"}, {"odd", "\"\\\x01\xff\xc3\xa9"}}},
            [] { sleep_long(9); });
        dunlin::mutex held;
        held.lock();
        dunlin::go({.name = "locker"}, [&held] { wait_for_lock(held); });
        dunlin::go({.name = "reader"}, [&] { read_for_ever(pipe_ends[0]); });
        dunlin::go({.name = "borrower"}, [&] { block_on_thread_stack(pipe_ends[0]); });
        dunlin::go({.name = "parent"}, [&] { wait_for_child(silent); });
        for (int i = 0; i < 4; ++i)
            dunlin::go({.name = "hog" + std::to_string(i)}, [i] { burn_the_cpu(static_cast<unsigned>(i)); });
        while (computing.load() != 4) dunlin::sleep_for(5ms);  // and those that wait are counted
        while (dunlin::runtime::stats().waiting < static_cast<std::size_t>(receivers) + 4) dunlin::sleep_for(5ms);
        dunlin::sleep_for(50ms);
        if (argc > 3 && std::string(argv[2]) == "profile") {
            std::ofstream file(argv[3], std::ios::binary);
            dunlin::runtime::goroutine_profile(file);
            file.close();
            std::_Exit(file ? 0 : 1);
        }
        // Four compute on two processors, one of which runs this. Until two of them have stopped: the other processor
        // goes on with one of the two at most before the program aborts.
        while (dunlin::runtime::stats().preempted < 2) dunlin::sleep_for(5ms);
        std::puts("ready");
        std::fflush(stdout);
        main_waits(aborts);
    });
}
