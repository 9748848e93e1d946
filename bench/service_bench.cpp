// service_bench.cpp - a server whose requests look something up, compute, or call a library that blocks its thread, beside
// hogs. Twins: peers/go/mixed_service_cgo.go, peers/cpp/threads.cpp.

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <dunlin/net.hpp>

#include "hogs.h"
#include "measure.h"
#include "registry.h"
#include "service.h"
#include "under_load.h"

namespace bench {
namespace {

void serve(dunlin::net::stream connection, const std::vector<std::uint64_t>& table) {
    std::error_code ec;
    for (message m; connection.read_exactly(&m, sizeof m, ec) == sizeof m;) {
        answer(m, table);
        connection.write_all(&m, sizeof m);
    }
    if (ec != dunlin::errc::end_of_file) fail("mixed-service: a connection has failed: " + ec.message());
}

/// A goroutine for each connection, and for each processor one that never stops computing.
void mixed_service(const settings& s, results& r) {
    const unsigned procs = dunlin::runtime::max_procs();
    const std::vector<std::uint64_t> table = make_service_table();
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
    run_load(r, "mixed", listener.local_address().port(), getpid(), mixed_load_words(s, procs));
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
