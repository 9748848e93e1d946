// service_bench.cpp - a server whose requests look something up, compute, or call a library that blocks its thread, beside hogs. Twin:
// peers/go/mixed_service_cgo.go. bench/load/mixed_load.c sends the requests, says how a message looks and checks every answer.

#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <dunlin/net.hpp>

#include "hogs.h"
#include "measure.h"
#include "registry.h"
#include "under_load.h"
#include "work.h"

namespace bench {
namespace {

/// 64 bytes, the same in both directions but for the value.
struct message {
    std::uint64_t number;
    std::uint32_t kind;
    std::uint32_t amount;
    std::uint64_t value;
    std::array<unsigned char, 40> rest;
};
static_assert(sizeof(message) == 64);

enum message_kind : std::uint32_t { lookup, burst, library };

/// A function as of any C library: it knows nothing of the runtime, and the runtime is told nothing of it.
[[gnu::noinline]] std::uint64_t call_library(std::uint64_t value, std::uint32_t us) {
    const timespec t{0, static_cast<long>(us) * 1000};
    nanosleep(&t, nullptr);
    return ~value;
}

constexpr std::size_t table_size = 4096;

std::vector<std::uint64_t> make_table() {
    std::vector<std::uint64_t> table(table_size);
    splitmix64 random(1);
    for (std::uint64_t& entry : table) entry = random.next();
    return table;
}

void serve(dunlin::net::stream connection, const std::vector<std::uint64_t>& table) {
    std::error_code ec;
    for (message m; connection.read_exactly(&m, sizeof m, ec) == sizeof m;) {
        switch (m.kind) {
        case lookup: m.value = table[m.value % table_size]; break;
        case burst: m.value = compute(m.value, m.amount); break;
        case library: m.value = call_library(m.value, m.amount); break;
        default: fail("mixed-service: a request of no kind");
        }
        connection.write_all(&m, sizeof m);
    }
    if (ec != dunlin::errc::end_of_file) fail("mixed-service: a connection has failed: " + ec.message());
}

/// A goroutine for each connection, and for each processor one that never stops computing.
void mixed_service(const settings& s, results& r) {
    const unsigned procs = dunlin::runtime::max_procs();
    const std::vector<std::uint64_t> table = make_table();
    dunlin::net::listener listener = dunlin::net::listen("tcp", "127.0.0.1:0");
    dunlin::wait_group serving, hogging;
    serving.go([&] {
        std::error_code ec;
        for (;;) {
            dunlin::net::stream connection = listener.accept(ec);
            if (ec) return;
            serving.go([&table, c = std::move(connection)]() mutable { serve(std::move(c), table); });
        }
    });
    std::vector<worker> hogs(procs);
    std::atomic<bool> stop = false;
    for (worker& h : hogs) hogging.go([&h, &stop] { h.work_until(stop); });
    const auto start = steady::now();
    std::vector<std::string> words = {"--connections", "256", "--rate", std::to_string(2000 * procs), "--seconds", s.quick ? "0.5" : "4"};
    if (procs > 1) words.push_back("--free");  // several processors on one CPU would never run at once
    run_load(r, "mixed", listener.local_address().port(), getpid(), words);
    double units = 0;
    for (const worker& h : hogs) units += static_cast<double>(h.units.load(std::memory_order_relaxed));
    r.add("hogs", ns_between(start, steady::now()) * procs / units / 1e3, "us");
    stop = true;
    hogging.wait();
    listener.close();
    serving.wait();
}

const registered all[] = {
    registered({"mixed-service", "requests with CPU bursts and a blocking library, beside hogs", mixed_service}),
};

}  // namespace
}  // namespace bench
