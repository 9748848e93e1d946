// memory_bench.cpp - what a goroutine costs in memory, and memory that goroutines hand to each other. Twin:
// peers/go/memory.go.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <utility>

#include <dunlin/dunlin.hpp>

#include "churn.h"
#include "measure.h"
#include "registry.h"

namespace bench {
namespace {

using namespace std::chrono_literals;

void parked_memory(const settings& s, results& r) {
    const long goroutines = s.scaled(1'000'000);
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        const auto each = [goroutines](double total) { return total / static_cast<double>(goroutines); };
        dunlin::wait_group gate;
        gate.add(1);
        std::atomic<long> parked = 0;
        dunlin::wait_group all;

        const double rss_before = status_bytes("VmRSS");
        const double tables_before = status_bytes("VmPTE");
        const auto create_start = steady::now();
        for (long i = 0; i < goroutines; ++i) {
            all.go([&gate, &parked] {
                ++parked;
                gate.wait();
            });
        }
        while (parked < goroutines) dunlin::sleep_for(1ms);
        const double created_ns = ns_between(create_start, steady::now());
        dunlin::sleep_for(20ms);  // those that have counted themselves but do not wait yet
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
    });
}

/// One goroutine allocates values and another one frees them, over a channel.
void alloc_churn(const settings& s, results& r) {
    const churn c(s.scaled(200'000));
    dunlin::run([&] {
        const double ns = ns_per_operation(c.values(), [&] {
            const dunlin::chan<churn::value> values(churn::capacity);
            dunlin::go([&c, values] {
                c.produce([&values](churn::value v) { values.send(std::move(v)); });
                values.close();
            });
            c.expect_consumed([&values] { return values.recv(); });
        });
        r.add("time", ns, "ns");
        r.add("peak-rss", status_bytes("VmHWM") / 1e6, "MB");
    });
}

/// Calls `then` below frames that are in use, of 1 KiB each, as a program's own calls would have them. Returns the sum
/// of what the frames hold.
template <class F>
[[gnu::noinline]] long with_live_stack(long kib, const F& then) {
    volatile unsigned char frame[960];
    for (std::size_t i = 0; i < sizeof frame; i += 64) frame[i] = static_cast<unsigned char>(kib);
    long sum = 0;
    if (kib > 1) {
        sum = with_live_stack(kib - 1, then);
    } else {
        then();
    }
    return sum + frame[0];
}

/// Ten thousand goroutines that each have so much of their stack in use: they wait, then all of them yield in turn.
void live_stack(const settings& s, results& r, long kib) {
    const long goroutines = s.scaled(10'000), rounds = 20;
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        dunlin::wait_group gate;
        gate.add(1);
        std::atomic<long> parked = 0, sums = 0;
        dunlin::wait_group all;
        const double before = status_bytes("VmRSS") + status_bytes("VmPTE");
        for (long i = 0; i < goroutines; ++i) {
            all.go([&] {
                sums += with_live_stack(kib, [&] {
                    ++parked;
                    gate.wait();
                    for (long n = 0; n < rounds; ++n) dunlin::yield();
                });
            });
        }
        while (parked < goroutines) dunlin::sleep_for(1ms);
        dunlin::sleep_for(20ms);  // those that have counted themselves but do not wait yet
        r.add(
            "memory", (status_bytes("VmRSS") + status_bytes("VmPTE") - before) / static_cast<double>(goroutines), "B");
        const auto start = steady::now();
        gate.done();
        all.wait();
        r.add("switch", ns_between(start, steady::now()) / static_cast<double>(goroutines * rounds), "ns");
        expect("live-stack", sums, goroutines * (kib * (kib + 1) / 2));
    });
}

template <long Kib>
void live_stack_of(const settings& s, results& r) {
    live_stack(s, r, Kib);
}

const registered all[] = {
    registered({"alloc-churn", "values that one goroutine allocates and another one frees", alloc_churn}),
    registered({"live-stack-1", "10,000 goroutines with 1 KiB of stack in use", live_stack_of<1>}),
    registered({"live-stack-4", "the same with 4 KiB", live_stack_of<4>}),
    registered({"live-stack-16", "the same with 16 KiB", live_stack_of<16>}),
    registered({"live-stack-64", "the same with 64 KiB", live_stack_of<64>}),
    registered({"parked-memory", "memory of a million goroutines that are all parked at once", parked_memory}),
};

}  // namespace
}  // namespace bench
