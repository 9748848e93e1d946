// boost_fiber.cpp - dunlin's workloads on Boost.Fiber: fibers on stacks of their own, that never leave their thread
// (round_robin, its default).
//
// P = 1 is that form. With more there is its work_stealing, one scheduler in each thread, for what has many fibers to
// run at a time. Not for what uses unbuffered channels: those of Boost 1.74 let a receiver in another thread make a
// sender runnable that has not stopped running yet.
//
// Where Boost.Fiber has several usual forms, the fastest is taken: joined or counted rather than asked for a future,
// and started by launch::dispatch (the child runs at once and its parent waits in the queue) where that is faster than
// launch::post.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/fiber/algo/work_stealing.hpp>
#include <boost/fiber/buffered_channel.hpp>
#include <boost/fiber/condition_variable.hpp>
#include <boost/fiber/fiber.hpp>
#include <boost/fiber/fixedsize_stack.hpp>
#include <boost/fiber/mutex.hpp>
#include <boost/fiber/operations.hpp>
#include <boost/fiber/pooled_fixedsize_stack.hpp>
#include <boost/fiber/unbuffered_channel.hpp>
#include <boost/version.hpp>

#include "../../measure.h"
#include "../../registry.h"

namespace bench {
namespace {

using namespace std::chrono_literals;
namespace fibers = boost::fibers;
using fibers::launch;

int processors = 1;

// The smallest that Boost allows is 8 KiB. The pool of stacks has no lock, so it is for one thread; with more of them
// each stack is allocated.
constexpr std::size_t stack_bytes = 16 * 1024;

template <class Body>
fibers::fiber start(launch how, Body&& body) {
    if (processors == 1) {
        static fibers::pooled_fixedsize_stack pool(stack_bytes, 32, 4096);
        return fibers::fiber(how, std::allocator_arg, pool, std::forward<Body>(body));
    }
    return fibers::fiber(how, std::allocator_arg, fibers::fixedsize_stack(stack_bytes), std::forward<Body>(body));
}

/// For the fibers of one thread.
class wait_group {
public:
    void add(long n) { count_ += n; }
    void done() {
        if (--count_ == 0) none_left_.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex_);
        none_left_.wait(lock, [this] { return count_ == 0; });
    }
    template <class Body>
    void go(launch how, Body&& body) {
        add(1);
        start(how, [this, body = std::forward<Body>(body)]() mutable {
            body();
            done();
        }).detach();
    }

private:
    long count_ = 0;
    fibers::mutex mutex_;
    fibers::condition_variable none_left_;
};

/// Runs `body` in the main fiber, with a scheduler in each of P threads.
template <class Body>
void run(Body&& body) {
    if (processors == 1) {
        body();
        return;
    }
    std::mutex mutex;
    fibers::condition_variable_any ended;
    bool end = false;
    std::vector<std::thread> others;
    const auto take_part = [] {
        fibers::use_scheduling_algorithm<fibers::algo::work_stealing>(static_cast<unsigned>(processors));
    };
    for (int i = 1; i < processors; ++i) {
        others.emplace_back([&] {
            take_part();
            std::unique_lock lock(mutex);
            ended.wait(lock, [&end] { return end; });
        });
    }
    take_part();
    body();
    {
        const std::lock_guard lock(mutex);
        end = true;
    }
    ended.notify_all();
    for (std::thread& other : others) other.join();
}

// ---- the scheduler's own steps --------------------------------------------------------------------------------------

void yield_among(results& r, long goroutines, long yields) {
    run([&] {
        const double ns = ns_per_operation(goroutines * yields, [&] {
            std::vector<fibers::fiber> all;
            for (long i = 0; i < goroutines; ++i) {
                all.push_back(start(launch::post, [=] {
                    for (long n = 0; n < yields; ++n) boost::this_fiber::yield();
                }));
            }
            for (fibers::fiber& f : all) f.join();
        });
        r.add("time", ns, "ns");
    });
}

void yield_2(const settings& s, results& r) { yield_among(r, 2, s.scaled(100'000)); }
void yield_1000(const settings& s, results& r) { yield_among(r, 1000, s.scaled(500)); }

void spawn_join(const settings& s, results& r) {
    const long rounds = s.scaled(100'000);
    const double ns = ns_per_operation(rounds, [&] {
        long sum = 0;
        for (long i = 0; i < rounds; ++i) {
            long value = 0;
            start(launch::dispatch, [&value] { value = 1; }).join();
            sum += value;
        }
        expect("spawn-join", sum, rounds);
    });
    r.add("time", ns, "ns");
}

void spawn_million(const settings& s, results& r) {
    const long goroutines = s.scaled(1'000'000);
    const auto batch = [goroutines] {
        wait_group wg;
        for (long i = 0; i < goroutines; ++i) wg.go(launch::dispatch, [] {});
        wg.wait();
    };
    const auto begin = steady::now();
    batch();
    const double first = ns_between(begin, steady::now()) / static_cast<double>(goroutines);
    r.add("time", ns_per_operation(goroutines, batch), "ns");
    r.add("first", first, "ns");
    r.add("peak-rss", status_bytes("VmHWM") / 1e6, "MB");
}

// ---- channels -------------------------------------------------------------------------------------------------------

void ping_pong(const settings& s, results& r) {
    const long rounds = s.scaled(200'000);
    const double ns = ns_per_operation(rounds, [&] {
        fibers::unbuffered_channel<long> request, reply;
        fibers::fiber other = start(launch::post, [&] {
            for (const long n : request) reply.push(n + 1);
            reply.close();
        });
        long sum = 0;
        for (long i = 0; i < rounds; ++i) {
            request.push(i);
            sum += reply.value_pop();
        }
        request.close();
        other.join();
        expect("ping-pong", sum, sum_below(rounds) + rounds);
    });
    r.add("time", ns, "ns");
}

// One slot stays empty: it holds 127 values.
constexpr std::size_t buffer = 128;

void buffered(const settings& s, results& r, long senders, long receivers) {
    const long each = s.scaled(1'000'000) / senders;
    run([&] {
        const double ns = ns_per_operation(senders * each, [&] {
            fibers::buffered_channel<long> c(buffer);
            std::vector<fibers::fiber> sending, receiving;
            for (long i = 0; i < senders; ++i) {
                sending.push_back(start(launch::post, [&c, each] {
                    for (long n = 0; n < each; ++n) c.push(n);
                }));
            }
            std::vector<long> sums(static_cast<std::size_t>(receivers));
            for (long& result : sums) {
                receiving.push_back(start(launch::post, [&c, &result] {
                    long sum = 0;
                    for (const long n : c) sum += n;
                    result = sum;
                }));
            }
            for (fibers::fiber& f : sending) f.join();
            c.close();
            for (fibers::fiber& f : receiving) f.join();
            long sum = 0;
            for (const long part : sums) sum += part;
            expect("buffered", sum, senders * sum_below(each));
        });
        r.add("time", ns, "ns");
    });
}

void buffered_1_1(const settings& s, results& r) { buffered(s, r, 1, 1); }
void buffered_4_4(const settings& s, results& r) { buffered(s, r, 4, 4); }

void ring(const settings& s, results& r) {
    constexpr std::size_t length = 503;
    const long hops = s.scaled(200'000);
    std::deque<fibers::unbuffered_channel<long>> links(length);
    fibers::unbuffered_channel<long> winner;
    std::vector<fibers::fiber> members;
    for (std::size_t i = 0; i < length; ++i) {
        members.push_back(start(
            launch::post, [&in = links[i], &out = links[(i + 1) % length], number = static_cast<long>(i + 1), &winner] {
                for (const long token : in) {
                    if (token == 0) {
                        winner.push(number);
                    } else {
                        out.push(token - 1);
                    }
                }
            }));
    }
    const double ns = ns_per_operation(hops, [&] {
        links[0].push(hops);
        expect("ring", winner.value_pop(), hops % static_cast<long>(length) + 1);
    });
    for (auto& link : links) link.close();
    for (fibers::fiber& f : members) f.join();
    r.add("time", ns, "ns");
}

// ---- locks, memory, time --------------------------------------------------------------------------------------------

void count_under_lock(results& r, long goroutines, long total) {
    const long each = total / goroutines;
    run([&] {
        const double ns = ns_per_operation(goroutines * each, [&] {
            fibers::mutex lock;
            long counter = 0;
            std::vector<fibers::fiber> all;
            for (long i = 0; i < goroutines; ++i) {
                all.push_back(start(launch::post, [&lock, &counter, each] {
                    for (long n = 0; n < each; ++n) {
                        lock.lock();
                        ++counter;
                        lock.unlock();
                    }
                }));
            }
            for (fibers::fiber& f : all) f.join();
            expect("mutex", counter, goroutines * each);
        });
        r.add("time", ns, "ns");
    });
}

void mutex_uncontended(const settings& s, results& r) { count_under_lock(r, 1, s.scaled(1'000'000)); }
void mutex_8(const settings& s, results& r) { count_under_lock(r, 8, s.scaled(1'000'000)); }

void parked_memory(const settings& s, results& r) {
    const long goroutines = s.scaled(1'000'000);
    const auto each = [goroutines](double total) { return total / static_cast<double>(goroutines); };
    wait_group gate, all;
    gate.add(1);
    long parked = 0;

    const double rss_before = status_bytes("VmRSS");
    const double tables_before = status_bytes("VmPTE");
    const auto create_start = steady::now();
    for (long i = 0; i < goroutines; ++i) {
        all.go(launch::dispatch, [&gate, &parked] {
            ++parked;
            gate.wait();
        });
    }
    while (parked < goroutines) boost::this_fiber::sleep_for(1ms);
    const double created_ns = ns_between(create_start, steady::now());
    const double resident = each(status_bytes("VmRSS") - rss_before);
    const double tables = each(status_bytes("VmPTE") - tables_before);

    const auto end_start = steady::now();
    gate.done();
    all.wait();
    const double ended_ns = ns_between(end_start, steady::now());

    r.add("memory", resident + tables, "B");
    r.add("resident", resident, "B");
    r.add("page-tables", tables, "B");
    r.add("create", each(created_ns), "ns");
    r.add("end", each(ended_ns), "ns");
}

void sleep_overshoot(const settings& s, results& r) {
    std::vector<double> overshoot_us(static_cast<std::size_t>(s.scaled(1000)));
    for (double& over_us : overshoot_us) {
        const auto begin = steady::now();
        boost::this_fiber::sleep_for(100us);
        over_us = ns_between(begin + 100us, steady::now()) / 1e3;
    }
    r.add("p50", percentile(overshoot_us, 0.50), "us");
    r.add("p99", percentile(overshoot_us, 0.99), "us");
}

constexpr bool in_one_thread = true;

const registered all[] = {
    registered({"yield", "two fibers yield to each other", yield_2, in_one_thread}),
    registered({"yield1000", "a thousand fibers yield in turn", yield_1000}),
    registered({"spawn-join", "start one fiber and join it, one after the other", spawn_join, in_one_thread}),
    registered({"spawn-million", "start a million fibers, then wait for all", spawn_million, in_one_thread}),
    registered({"ping-pong", "a value to another fiber and back over unbuffered channels", ping_pong, in_one_thread}),
    registered({"buffered-1-1", "one sender, one receiver, a channel of capacity 128", buffered_1_1, in_one_thread}),
    registered({"buffered-4-4", "four senders, four receivers, a channel of capacity 128", buffered_4_4}),
    registered({"ring", "a value goes round 503 fibers over unbuffered channels", ring, in_one_thread}),
    registered({"mutex", "one fiber locks and unlocks a mutex", mutex_uncontended, in_one_thread}),
    registered({"mutex-8", "eight fibers lock and unlock one mutex", mutex_8}),
    registered(
        {"sleep-overshoot", "how much longer than 100 us a sleep of 100 us takes", sleep_overshoot, in_one_thread}),
};

/// Whether a million fibers that wait have room: up to three pages each.
bool is_large_machine() {
    return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)) > 16e9;
}

const bool registered_if_large = [] {
    if (!is_large_machine()) return false;
    registered({"parked-memory", "memory of a million fibers that all wait at once", parked_memory, in_one_thread});
    return true;
}();

}  // namespace

const program this_program = {
    "boost.fiber",
    [] {
        std::string version = "Boost " BOOST_LIB_VERSION;
        std::replace(version.begin(), version.end(), '_', '.');
        return version + "; g++ " __VERSION__;
    },
    [](int procs) { processors = procs; },
    [] { return processors; },
};

}  // namespace bench
