// channels.cpp - part 10: channels, select, locks and contexts, between goroutines and with plain threads.
#include <cstdint>
#include <thread>
#include <vector>

#include "parts.h"

namespace tour {

namespace {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;

// How often a goroutine has parked since the runtime started.
std::uint64_t parks() {
    std::uint64_t sum = 0;
    for (const auto& p : dunlin::runtime::stats().procs) sum += p.parks;
    return sum;
}

void ping_pong(int rounds) {
    dunlin::chan<int> there, back;
    dunlin::go([=] {
        for (int v : there) back.send(v + 1);
    });
    int v = 0;
    const stopwatch watch;
    for (int i = 0; i < rounds; ++i) {
        there.send(v);
        v = *back.recv();
    }
    const nanoseconds each = watch.elapsed() / rounds;
    there.close();
    say("%s round trips over two unbuffered channels: %s each", with_commas(static_cast<std::uint64_t>(rounds)).c_str(),
        bold(readable(each)).c_str());
    claim(v == rounds, "every value came back increased by one");
}

// The chain of goroutines that lets through what none of their primes divides.
int prime_by_sieve(int number, std::size_t& goroutines) {
    auto [ctx, cancel] = dunlin::with_cancel(dunlin::context::background());
    const auto until_cancelled = [](auto work) {
        dunlin::go([work] {
            try {
                for (;;) work();
            } catch (const dunlin::context_cancelled&) {
            }
        });
    };
    dunlin::chan<int> numbers;
    auto next = std::make_shared<int>(1);
    until_cancelled([=, ctx = ctx] { numbers.send(++*next, ctx); });
    dunlin::receiver<int> in = numbers;
    int prime = 0;
    for (int i = 0; i < number; ++i) {
        prime = *in.recv();
        dunlin::chan<int> out;
        until_cancelled([=, ctx = ctx] {
            const int n = *in.recv(ctx);
            if (n % prime != 0) out.send(n, ctx);
        });
        in = out;
    }
    goroutines = dunlin::runtime::num_goroutines();
    cancel();
    return prime;
}

void sieve(int number, int expected) {
    std::size_t goroutines = 0;
    const stopwatch watch;
    const int prime = prime_by_sieve(number, goroutines);
    say("the sieve of %zu goroutines took %s; one cancel() ended them all", goroutines,
        readable(watch.elapsed()).c_str());
    claim(prime == expected, "prime number %d is %d", number, prime);
    settle();
}

void idle_select(int count) {
    dunlin::chan<int> never, end;
    dunlin::wait_group group;
    for (int i = 0; i < count; ++i) {
        group.go([=] {
            dunlin::select(dunlin::on_recv(never), dunlin::on_send(dunlin::chan<int>::nil(), 1), dunlin::on_recv(end));
        });
    }
    dunlin::sleep_for(20ms);
    // Not the process's CPU time: the monitor may be giving back the stacks of an earlier part.
    const std::uint64_t before = parks();
    dunlin::sleep_for(200ms);
    const std::uint64_t times = parks() - before;
    end.close();
    const stopwatch watch;
    group.wait();
    say("%d goroutines in select for 200 ms, in which goroutines parked %s times, the one that sleeps here included;"
        " a close() woke them in %s", count, with_commas(times).c_str(), readable(watch.elapsed()).c_str());
    claim(times < static_cast<std::uint64_t>(count) / 100, "an idle select really waits");
}

void one_mutex_for_two_worlds(long each) {
    dunlin::mutex mutex;
    long count = 0;
    const auto work = [&] {
        for (long i = 0; i < each; ++i) {
            const std::lock_guard guard(mutex);
            ++count;
        }
    };
    dunlin::wait_group group;
    for (int i = 0; i < 4; ++i) group.go(work);
    std::vector<std::jthread> threads;
    for (int i = 0; i < 2; ++i) threads.emplace_back(work);
    group.wait();
    threads.clear();
    claim(count == 6 * each,
        "4 goroutines and 2 std::threads counted to %s under one dunlin::mutex, by std::lock_guard",
        with_commas(static_cast<std::uint64_t>(count)).c_str());
}

void one_deadline_for_all(int count) {
    const auto ctx = dunlin::with_timeout(dunlin::context::background(), 50ms);
    std::atomic<int> in_time{0};
    dunlin::wait_group group;
    const stopwatch watch;
    for (int i = 0; i < count; ++i) {
        group.go([&, i] {
            try {
                if (i % 2 == 0) {
                    dunlin::chan<int>().recv(ctx);
                } else {
                    dunlin::sleep_for(1h, ctx);
                }
            } catch (const dunlin::context_cancelled& e) {
                if (e.code() == dunlin::errc::deadline_exceeded) ++in_time;
            }
        });
    }
    group.wait();
    say("%d goroutines waited with one context of 50 ms; the last was told after %s", count,
        readable(watch.elapsed()).c_str());
    claim(in_time.load() == count, "all of them got errc::deadline_exceeded");
}

}  // namespace

void channels(const options& o) {
    explain(
        "Goroutines hand values to each other over channels, wait for several at once by select, share locks with plain\n"
        "threads, and stop when a context says so. A goroutine that waits is parked, and woken once, with its result.");
    dunlin::run([&] {
        ping_pong(o.quick ? 20'000 : 200'000);
        o.quick ? sieve(100, 541) : sieve(300, 1987);
        idle_select(1'000);
        one_mutex_for_two_worlds(o.quick ? 10'000 : 100'000);
        one_deadline_for_all(o.quick ? 1'000 : 10'000);
    });
}

}  // namespace tour
