// stalls.cpp - parts 11 to 13: goroutines that compute or block do not stop the others.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <netdb.h>
#include <numeric>
#include <poll.h>
#include <unistd.h>
#include <vector>

#include "parts.h"

namespace tour {

namespace {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;

// How late a goroutine wakes that sleeps 1 ms again and again, sorted.
std::vector<nanoseconds> lateness_of_a_sleeper(nanoseconds for_how_long, const char* what) {
    std::vector<nanoseconds> late;
    const stopwatch watch;
    progress p(what, static_cast<std::uint64_t>(for_how_long.count()));
    while (watch.elapsed() < for_how_long) {
        const auto from = dunlin::clock::now();
        dunlin::sleep_for(1ms);
        late.push_back(dunlin::clock::now() - from - 1ms);
        p.show(static_cast<std::uint64_t>(watch.elapsed().count()));
    }
    std::sort(late.begin(), late.end());
    return late;
}

nanoseconds part_of(const std::vector<nanoseconds>& sorted, double share) {
    return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(share * static_cast<double>(sorted.size())))];
}

void say_lateness(const std::vector<nanoseconds>& late) {
    say("a goroutine slept 1 ms %zu times beside them; late by %s in the median, %s at the 99th percentile, %s at most",
        late.size(), readable(part_of(late, 0.5)).c_str(), readable(part_of(late, 0.99)).c_str(),
        readable(late.back()).c_str());
}

// One step of a hog: 2 us of arithmetic, no call.
std::uint64_t step(std::uint64_t x) {
    for (int i = 0; i < 2000; ++i) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        asm volatile("" : "+r"(x));
    }
    return x;
}

struct hog {
    std::uint64_t x = 1;
    std::uint64_t steps = 0;
};

bool did_it_right(const hog& h) {
    std::uint64_t x = 1;
    for (std::uint64_t i = 0; i < h.steps; ++i) x = step(x);
    return x == h.x;
}

}  // namespace

void hogs(const options& o) {
    explain(
        "Twice as many goroutines as processors compute for seconds and never call the runtime. A scheduler that waits for them to\n"
        "yield is lost. Here their processors are taken after 10 ms (1 ms if another has just been woken), they are stopped by a signal\n"
        "on their own thread, and go on there when their turn comes.");
    const auto before = dunlin::runtime::stats().hand_offs;
    std::vector<hog> all;
    std::vector<nanoseconds> late;
    dunlin::run([&] {
        all.resize(2 * dunlin::runtime::max_procs());
        std::atomic<bool> stop{false};
        dunlin::wait_group group;
        for (hog& h : all) {
            group.go([&stop, &h] {
                hog mine;
                while (!stop.load(std::memory_order_relaxed)) {
                    mine.x = step(mine.x);
                    ++mine.steps;
                }
                h = mine;
            });
        }
        late = lateness_of_a_sleeper(o.quick ? 300ms : 2s, "hogs compute");
        stop = true;
        group.wait();
    });
    const auto after = dunlin::runtime::stats().hand_offs;
    std::uint64_t most = 0, least = ~std::uint64_t{0};
    for (const hog& h : all) {
        most = std::max(most, h.steps);
        least = std::min(least, h.steps);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        say("hog %zu %s %s steps", i, bar(static_cast<double>(all[i].steps) / static_cast<double>(most)).c_str(),
            with_commas(all[i].steps).c_str());
    }
    say_lateness(late);
    say("processors taken from hogs %s times (%s of them early, for the sleeper); hogs stopped by a signal %s times",
        with_commas(after.from_hogs - before.from_hogs).c_str(), with_commas(after.urgent - before.urgent).c_str(),
        with_commas(after.preemptions - before.preemptions).c_str());
    claim(after.from_hogs > before.from_hogs, "processors were taken from goroutines that never called the runtime");
    claim(part_of(late, 0.5) < 5ms, "the sleeper's median delay is below half a time slice");
    claim(least * 2 > most, "no hog got less than half of what another got");
    claim(std::all_of(all.begin(), all.end(), did_it_right), "every hog computed what it computes undisturbed");
}

void blocking_calls(const options&) {
    explain(
        "A thousand goroutines each make a call that blocks its thread for 1 ms, inside dunlin::blocking(). The processor goes to the next\n"
        "goroutine on another thread; threads that come back are used again, and given back when they are not needed.");
    constexpr int calls = 1000;
    dunlin::run([&] {
        const auto before = dunlin::runtime::stats();
        unsigned most_threads = 0;
        std::atomic<bool> done{false};
        const stopwatch watch;
        dunlin::wait_group watcher, group;
        watcher.go([&] {
            while (!done) {
                most_threads = std::max(most_threads, dunlin::runtime::stats().threads);
                dunlin::sleep_for(500us);
            }
        });
        for (int i = 0; i < calls; ++i) {
            group.go([] { dunlin::blocking([] { return usleep(1000); }); });
        }
        group.wait();
        const nanoseconds took = watch.elapsed();
        done = true;
        watcher.wait();
        const auto after = dunlin::runtime::stats();
        most_threads = std::max(most_threads, after.threads);
        say("%d calls of 1 ms one after the other would take %s; they took %s with %u threads", calls,
            readable(calls * 1ms).c_str(), readable(took).c_str(), most_threads);
        say("the processor was handed on at once %s times, taken by the monitor %s times",
            with_commas(after.hand_offs.at_once - before.hand_offs.at_once).c_str(),
            with_commas(after.hand_offs.from_blocking - before.hand_offs.from_blocking).c_str());
        claim(took < 500ms, "a thousand calls of 1 ms took less than half of their sum");
        claim(most_threads <= 1100, "at most 1100 threads were needed");
        const stopwatch idle;
        while (dunlin::runtime::stats().threads > 20 && idle.elapsed() < 8s) dunlin::sleep_for(50ms);
        say("%s later %u threads are left", readable(idle.elapsed()).c_str(), dunlin::runtime::stats().threads);
        claim(dunlin::runtime::stats().threads <= 20, "threads that are not needed are given back");
    });
}

namespace {

// Calls as a library makes them that has never heard of goroutines. Each blocks its thread for some milliseconds.
struct foreign_library {
    std::mutex mutex;
    std::condition_variable changed;

    void sleep() { usleep(5000); }
    void wait_for_input() {
        int ends[2];
        if (pipe(ends) != 0) std::abort();
        pollfd p{ends[0], POLLIN, 0};
        failed += poll(&p, 1, 7) != 0;
        close(ends[0]);
        close(ends[1]);
    }
    void wait_for_a_lock() {
        const std::lock_guard guard(mutex);
        usleep(3000);
    }
    void wait_for_a_condition() {
        std::unique_lock lock(mutex);
        changed.wait_for(lock, 4ms);
    }
    void resolve() {
        addrinfo* found = nullptr;
        if (getaddrinfo("localhost", nullptr, nullptr, &found) == 0) freeaddrinfo(found);
    }

    std::atomic<int> failed{0};
};

}  // namespace

void unannounced(const options& o) {
    explain(
        "Goroutines use a library that sleeps, polls, waits for a std::mutex and a condition variable, and resolves names, without a\n"
        "word to the scheduler. It notices that their threads are asleep, and hands their processors on.");
    dunlin::run([&] {
        const auto before = dunlin::runtime::stats().hand_offs;
        foreign_library library;
        std::atomic<bool> stop{false};
        std::atomic<std::uint64_t> calls{0};
        dunlin::wait_group group;
        void (foreign_library::*const ways[])() = {&foreign_library::sleep, &foreign_library::wait_for_input,
            &foreign_library::wait_for_a_lock, &foreign_library::wait_for_a_condition, &foreign_library::resolve};
        for (unsigned i = 0; i < 2 * std::size(ways); ++i) {
            group.go([&, way = ways[i % std::size(ways)]] {
                while (!stop) {
                    (library.*way)();
                    ++calls;
                }
            });
        }
        const std::vector<nanoseconds> late = lateness_of_a_sleeper(o.quick ? 300ms : 2s, "the library blocks");
        stop = true;
        group.wait();
        const auto after = dunlin::runtime::stats().hand_offs;
        say("%s blocking calls on %u processors; %s processors taken from sleeping threads",
            with_commas(calls.load()).c_str(), dunlin::runtime::max_procs(),
            with_commas(after.from_blocked - before.from_blocked).c_str());
        say_lateness(late);
        claim(part_of(late, 0.5) < 3ms, "the sleeper's median delay is far below the length of the calls");
        claim(library.failed == 0, "no call was interrupted (EINTR)");
        claim(after.from_blocked > before.from_blocked, "sleeping threads lost their processors");
    });
}

}  // namespace tour
