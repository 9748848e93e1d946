// dunlin_guard: the hot paths, each a fixed number of times, for callgrind to count their instructions.
// bench/driver/guard.py runs it and compares.
//
// Each path runs twice. The first time allocates, binds stacks, lets locks find their owner; the counters are cleared,
// and the second time counts. So many operations are made that what begins and ends them is less than a hundredth.
// Output: a line "NAME OPERATIONS" for each path, and a dump of callgrind's with the same name.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>

#include <dunlin/condition_variable.hpp>
#include <dunlin/dunlin.hpp>
#include <dunlin/fs.hpp>
#include <dunlin/mutex.hpp>
#include <dunlin/semaphore.hpp>

#include "platform/valgrind.h"

namespace {

using namespace std::chrono_literals;

// The requests of valgrind/callgrind.h. Without callgrind they do nothing, and nothing is counted.
constexpr std::uintptr_t callgrind = 'C' << 24 | 'T' << 16;
void clear_counters() { dunlin::platform::ask_valgrind(callgrind + 1, 0); }
void dump_counters(const char* name) {
    dunlin::platform::ask_valgrind(callgrind + 3, 0, reinterpret_cast<std::uintptr_t>(name));
}

void expect(bool good, const char* what) {
    if (good) return;
    std::fprintf(stderr, "dunlin_guard: %s\n", what);
    std::exit(1);
}

template <class Batch>
void count(const char* name, long operations, Batch&& batch) {
    batch();
    clear_counters();
    batch();
    dump_counters(name);
    std::printf("%s %ld\n", name, operations);
}

// ---- the scheduler --------------------------------------------------------------------------------------------------

void yield_among(long goroutines, long yields) {
    dunlin::wait_group wg;
    for (long i = 0; i < goroutines; ++i) {
        wg.go([=] {
            for (long n = 0; n < yields; ++n) dunlin::yield();
        });
    }
    wg.wait();
}

void spawn_join(long rounds) {
    long sum = 0;
    for (long i = 0; i < rounds; ++i) sum += dunlin::spawn([] { return 1; }).get();
    expect(sum == rounds, "spawn-join: a child did not return its value");
}

void wait_group(long rounds) {
    dunlin::wait_group wg;
    long sum = 0;
    for (long i = 0; i < rounds; ++i) {
        wg.go([&sum] { ++sum; });
        wg.wait();
    }
    expect(sum == rounds, "wait-group: a child did not run");
}

void spawn_many(long goroutines) {
    dunlin::wait_group wg;
    for (long i = 0; i < goroutines; ++i) wg.go([] {});
    wg.wait();
}

/// Each gets a stack of its own, since none can go on before the last one has begun.
void park_many(long goroutines) {
    dunlin::wait_group ready, all;
    ready.add(1);
    for (long i = 0; i < goroutines; ++i) all.go([&ready] { ready.wait(); });
    dunlin::yield();
    ready.done();
    all.wait();
}

// ---- divide and conquer ---------------------------------------------------------------------------------------------

long fib(long n) {
    if (n < 2) return n;
    auto a = dunlin::spawn([=] { return fib(n - 1); });
    const long b = fib(n - 2);
    return a.get() + b;
}
constexpr long fib_argument = 18, fib_value = 2584, fib_calls = 8361;

long skynet(long number, long leaves) {
    if (leaves == 1) return number;
    constexpr long branches = 10;
    long results[branches];
    const long part = leaves / branches;
    dunlin::task_group group;
    for (long i = 0; i < branches; ++i)
        group.go([&results, i, number, part] { results[i] = skynet(number + i * part, part); });
    group.wait();
    long sum = 0;
    for (const long result : results) sum += result;
    return sum;
}
constexpr long skynet_leaves = 10'000, skynet_goroutines = 11'110;

// ---- channels -------------------------------------------------------------------------------------------------------

void ping_pong(long rounds) {
    dunlin::chan<long> request, reply;
    dunlin::go([=] {
        for (long n : request) reply.send(n + 1);
        reply.close();
    });
    long sum = 0;
    for (long i = 0; i < rounds; ++i) {
        request.send(i);
        sum += *reply.recv();
    }
    request.close();
    expect(!reply.recv() && sum == rounds * (rounds + 1) / 2, "ping-pong: a reply is wrong");
}

void buffered(long values) {
    dunlin::chan<long> c(128);
    dunlin::go([=] {
        for (long n = 0; n < values; ++n) c.send(n);
        c.close();
    });
    long got = 0;
    for (long n : c) got += n >= 0;
    expect(got == values, "buffered: a value is missing");
}

void select_of_4(long values) {
    const dunlin::chan<long> a, b, c, d;
    for (const auto& out : {a, b, c, d}) {
        dunlin::go([=] {
            for (long n = 0; n < values / 4; ++n) out.send(1);
        });
    }
    long sum = 0;
    const auto add = [&sum](std::optional<long> n) { sum += *n; };
    for (long n = 0; n < values; ++n)
        dunlin::select(
            dunlin::on_recv(a, add), dunlin::on_recv(b, add), dunlin::on_recv(c, add), dunlin::on_recv(d, add));
    expect(sum == values, "select-4: a value is missing");
}

// ---- locks ----------------------------------------------------------------------------------------------------------

void mutex(long rounds) {
    static dunlin::mutex lock;
    for (long i = 0; i < rounds; ++i) {
        lock.lock();
        lock.unlock();
    }
}

/// Two take turns, so each waits once in each round.
void condition(long rounds) {
    dunlin::mutex lock;
    dunlin::condition_variable changed;
    int turn = 0;
    const auto play = [&](int me) {
        for (long i = 0; i < rounds; ++i) {
            std::unique_lock hold(lock);
            changed.wait(hold, [&] { return turn == me; });
            turn = 1 - me;
            changed.notify_one();
        }
    };
    dunlin::wait_group wg;
    wg.go([&] { play(1); });
    play(0);
    wg.wait();
}

void semaphore(long rounds) {
    dunlin::counting_semaphore<> s(1);
    for (long i = 0; i < rounds; ++i) {
        s.acquire();
        s.release();
    }
}

// ---- time and descriptors -------------------------------------------------------------------------------------------

void timer_stop(long rounds) {
    for (long i = 0; i < rounds; ++i) {
        dunlin::timer t(1h);
        expect(!t.channel().is_nil() && t.stop(), "timer-stop: it was not pending");
    }
}

void after_func_stop(long rounds) {
    for (long i = 0; i < rounds; ++i)
        expect(dunlin::after_func(1h, [] {}).stop(), "after-func-stop: it was not pending");
}

/// All wake up at one moment, when all have long been asleep: what the time is does not matter for what is done.
void sleep_together(long goroutines) {
    dunlin::wait_group wg;
    const auto end = dunlin::clock::now() + 400ms;
    for (long i = 0; i < goroutines; ++i) wg.go([end] { dunlin::sleep_until(end); });
    wg.wait();
}

/// A byte to and fro through two pipes: each read finds nothing, waits, and is woken by the poller.
void pipe_echo(long rounds) {
    dunlin::fs::pipe there, back;
    dunlin::wait_group wg;
    wg.go([&] {
        char byte;
        for (long i = 0; i < rounds; ++i) {
            there.read_end.read_some(&byte, 1);
            back.write_end.write_some(&byte, 1);
        }
    });
    char byte = 0;
    for (long i = 0; i < rounds; ++i) {
        there.write_end.write_some(&byte, 1);
        back.read_end.read_some(&byte, 1);
    }
    wg.wait();
}

void count_all() {
    count("yield", 10'000, [] { yield_among(2, 5'000); });
    count("yield-500", 10'000, [] { yield_among(500, 20); });
    count("spawn-join", 5'000, [] { spawn_join(5'000); });
    count("wait-group", 5'000, [] { wait_group(5'000); });
    count("spawn-many", 10'000, [] { spawn_many(10'000); });
    count("park-many", 500, [] { park_many(500); });
    count("fib", fib_calls, [] { expect(fib(fib_argument) == fib_value, "fib: wrong result"); });
    count("task-group", skynet_goroutines,
        [] { expect(skynet(0, skynet_leaves) == skynet_leaves * (skynet_leaves - 1) / 2, "task-group: wrong sum"); });
    count("ping-pong", 5'000, [] { ping_pong(5'000); });
    count("buffered", 10'000, [] { buffered(10'000); });
    count("select-4", 4'000, [] { select_of_4(4'000); });
    count("mutex", 20'000, [] { mutex(20'000); });
    count("condition", 3'000, [] { condition(3'000); });
    count("semaphore", 10'000, [] { semaphore(10'000); });
    count("timer-stop", 4'000, [] { timer_stop(4'000); });
    count("after-func-stop", 4'000, [] { after_func_stop(4'000); });
    count("sleep", 1'000, [] { sleep_together(1'000); });
    count("pipe-echo", 2'000, [] { pipe_echo(2'000); });
}

}  // namespace

int main() {
    setenv("DUNLIN_MAXPROCS", "1", 1);
    setenv("DUNLIN_PREEMPTION", "off", 1);  // valgrind is slow, and no goroutine here computes for long
    dunlin::run(count_all);
}
