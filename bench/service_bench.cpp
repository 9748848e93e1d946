// service_bench.cpp - a server whose requests look something up, compute, or call a library that blocks its thread,
// beside hogs. Twins: peers/go/mixed_service_cgo.go, peers/cpp/threads.cpp.

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

/// A server that listens and has a goroutine for each connection, until it is destroyed.
class service {
public:
    service() : table_(make_service_table()), listener_(dunlin::net::listen("tcp", "127.0.0.1:0")) {
        serving_.go([this] {
            std::error_code ec;
            for (;;) {
                dunlin::net::stream connection = listener_.accept(ec);
                if (ec) return;
                serving_.go([this, c = std::move(connection)]() mutable { serve(std::move(c), table_); });
            }
        });
    }
    service(const service&) = delete;
    service& operator=(const service&) = delete;
    ~service() {
        listener_.close();
        serving_.wait();
    }

    int port() const { return listener_.local_address().port(); }

private:
    const std::vector<std::uint64_t> table_;
    dunlin::net::listener listener_;
    dunlin::wait_group serving_;
};

/// Beside it one goroutine for each processor that never stops computing.
void mixed_service(const settings& s, results& r) {
    const unsigned procs = dunlin::runtime::max_procs();
    const service server;
    dunlin::wait_group hogging;
    std::vector<worker> hogs(procs);
    std::atomic<bool> stop = false;
    for (worker& h : hogs) hogging.go([&h, &stop] { h.work_until(stop); });
    const auto start = steady::now();
    run_load(r, "mixed", server.port(), getpid(), mixed_load_words(s, procs));
    double units = 0;
    for (const worker& h : hogs) units += static_cast<double>(h.units.load(std::memory_order_relaxed));
    r.add("hogs", ns_between(start, steady::now()) * procs / units / 1e3, "us");
    stop = true;
    hogging.wait();
}

void open_loop(const settings& s, results& r) {
    const service server;
    run_load(r, "open", server.port(), getpid(), open_load_words(s, dunlin::runtime::max_procs()));
}

const registered all[] = {
    registered({"mixed-service", "requests with CPU bursts and a blocking library, beside hogs", mixed_service}),
    registered({"open-loop", "requests with 20 us of work, due at fixed times, at parts of the capacity", open_loop}),
};

}  // namespace
}  // namespace bench
