// net_bench.cpp - sockets and pipes. Twins: peers/go/net.go and, straight on the system's calls, peers/c. The load is bench/load's, in a process of its own.

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <dunlin/net.hpp>

#include "measure.h"
#include "registry.h"

namespace bench {
namespace {

/// Runs bench/load's program with these words behind its kind and port, and passes its metrics on. Blocks the thread: not for goroutines.
void run_load(results& r, const std::string& kind, const dunlin::net::address& server, const std::vector<std::string>& words) {
    const char* named = std::getenv("DUNLIN_BENCH_LOAD");
    std::string command = named != nullptr ? named : "build/bench-peers/net_load";
    command += " " + kind + " " + std::to_string(server.port()) + " --server " + std::to_string(getpid());
    for (const std::string& word : words) command += " " + word;
    std::FILE* lines = popen(("exec " + command).c_str(), "re");
    if (lines == nullptr) fail("no process for " + command);
    std::array<char, 32> metric, unit;
    double value = 0;
    while (std::fscanf(lines, "%31s %lf %31s", metric.data(), &value, unit.data()) == 3) r.add(metric.data(), value, unit.data());
    if (pclose(lines) != 0) fail("the load has failed: " + command);
}

void echo_one(dunlin::net::stream connection) {
    std::array<char, 1024> buffer;
    while (const std::size_t n = connection.read_some(buffer)) connection.write_all(buffer.data(), n);
}

/// Accepts connections and sends back what comes in, a goroutine for each, while `load` runs in the calling thread.
template <class Load>
void with_echo_server(Load&& load) {
    dunlin::net::listener listener = dunlin::net::listen("tcp", "127.0.0.1:0");
    dunlin::go([&listener] {
        std::error_code ec;
        for (;;) {
            dunlin::net::stream connection = listener.accept(ec);
            if (ec) return;
            dunlin::go([c = std::move(connection)]() mutable { echo_one(std::move(c)); });
        }
    });
    load(listener.local_address());
    listener.close();
}

void echo(const settings& s, results& r, const std::string& connections) {
    with_echo_server([&](const dunlin::net::address& server) { run_load(r, "echo", server, {"--connections", connections, "--seconds", s.quick ? "0.1" : "1"}); });
}

void echo_64(const settings& s, results& r) { echo(s, r, "64"); }
void echo_1000(const settings& s, results& r) { echo(s, r, "1000"); }

void echo_syscalls(const settings& s, results& r) {
    with_echo_server([&](const dunlin::net::address& server) { run_load(r, "echo", server, {"--calls", "--requests", std::to_string(s.scaled(20'000))}); });
}

void echo_10m(const settings& s, results& r) {
    with_echo_server([&](const dunlin::net::address& server) { run_load(r, "echo", server, {"--requests", std::to_string(s.scaled(10'000'000))}); });
}

const registered all[] = {
    registered({"echo-64", "an echo server for 64 connections", echo_64}),
    registered({"echo-1000", "an echo server for 1000 connections", echo_1000}),
    registered({"echo-syscalls", "system calls for each echo", echo_syscalls}),
    registered({"echo-10m", "ten million echoes, none lost and none twice", echo_10m}),
};

}  // namespace
}  // namespace bench
