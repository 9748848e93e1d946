// net_bench.cpp - sockets and pipes. Twins: peers/go/net.go and, straight on the system's calls, peers/c. The load is
// bench/load's, in a process of its own.

#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <dunlin/net.hpp>

#include "measure.h"
#include "net_bench.h"
#include "registry.h"
#include "under_load.h"
#include "watched_pipe.h"

namespace bench {
namespace {

// ---- echo -----------------------------------------------------------------------------------------------------------

void echo_one(dunlin::net::stream connection) {
    std::array<char, 1024> buffer;
    while (const std::size_t n = connection.read_some(buffer)) connection.write_all(buffer.data(), n);
}

}  // namespace

void echo_under(results& r, const std::string& kind, const std::vector<std::string>& words) {
    dunlin::net::listener listener = dunlin::net::listen("tcp", "127.0.0.1:0");
    dunlin::wait_group accepting;
    accepting.go([&listener] {
        std::error_code ec;
        for (;;) {
            dunlin::net::stream connection = listener.accept(ec);
            if (ec) return;
            dunlin::go([c = std::move(connection)]() mutable { echo_one(std::move(c)); });
        }
    });
    run_load(r, kind, listener.local_address().port(), getpid(), words);
    listener.close();
    accepting.wait();
}

namespace {

void echo(const settings& s, results& r, const std::string& kind, const std::string& connections) {
    const std::string seconds = s.seconds > 0 ? std::to_string(s.seconds) : s.quick ? "0.1" : "1";
    std::vector<std::string> words = {"--connections", connections, "--seconds", seconds};
    // several processors on one CPU would never run at once
    if (dunlin::runtime::max_procs() > 1) words.push_back("--free");
    echo_under(r, kind, words);
}

void echo_64(const settings& s, results& r) { echo(s, r, "echo", "64"); }
void echo_1000(const settings& s, results& r) { echo(s, r, "echo", "1000"); }
void echo_think(const settings& s, results& r) { echo(s, r, "think", std::to_string(s.scaled(10'000))); }
void echo_syscalls(const settings& s, results& r) {
    echo_under(r, "echo", {"--calls", "--requests", std::to_string(s.scaled(20'000))});
}
void echo_10m(const settings& s, results& r) {
    std::vector<std::string> words = {"--requests", std::to_string(s.scaled(10'000'000))};
    if (dunlin::runtime::max_procs() > 1) words.push_back("--free");
    echo_under(r, "echo", words);
}
void idle_connections(const settings& s, results& r) {
    echo_under(r, "idle", {"--connections", std::to_string(s.scaled(20'000))});
}

// ---- HTTP -----------------------------------------------------------------------------------------------------------

int free_port() {
    const auto listener = dunlin::net::listen("tcp", "127.0.0.1:0");
    return listener.local_address().port();
}

/// The example, as a process of its own.
pid_t start_http_server(int port) {
    const char* named = std::getenv("DUNLIN_BENCH_HTTP_SERVER");
    const std::string program = named != nullptr
                                    ? named
                                    : std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() /
                                          "examples" / "example_http_server";
    if (access(program.c_str(), X_OK) != 0) fail("there is no " + program);
    const std::string address = "127.0.0.1:" + std::to_string(port);
    const pid_t child = fork();
    if (child == 0) {
        dup2(STDERR_FILENO, STDOUT_FILENO);  // ours is for the metrics
        execl(program.c_str(), program.c_str(), "--listen", address.c_str(), nullptr);
        _exit(127);
    }
    return child;
}

void http_hello(const settings& s, results& r) {
    const int port = free_port();
    const pid_t server = start_http_server(port);
    run_load(r, "http", port, server, {"--connections", "64", "--seconds", s.quick ? "1" : "3"});
    kill(server, SIGKILL);
    waitpid(server, nullptr, 0);
}

// ---- pipes ----------------------------------------------------------------------------------------------------------

void read_by_goroutine(watched_pipe& p) {
    auto reader = dunlin::byte_stream::adopt(p.ends[0]);
    for (char byte; reader.read_some(&byte, 1) == 1;) p.note();
}

/// A thread that sleeps in epoll_wait, as in peers/c/pipe_wake.c.
void read_by_loop(watched_pipe& p) {
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_event e{};
    e.events = EPOLLIN;
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, p.ends[0], &e) != 0) fail("pipe-wake: no epoll");
    for (;;) {
        char byte;
        if (epoll_wait(epoll, &e, 1, -1) != 1) continue;
        if (read(p.ends[0], &byte, 1) != 1) break;
        p.note();
    }
    close(epoll);
    close(p.ends[0]);
}

/// A plain thread writes by turns to a pipe that a goroutine reads and to one that a bare loop reads; both sleep.
void pipe_wake(const settings& s, results& r) {
    const long count = s.scaled(1000);
    watched_pipe goroutines, loops;
    dunlin::wait_group reading;
    reading.go([&goroutines] { read_by_goroutine(goroutines); });
    std::thread loop([&loops] { read_by_loop(loops); });
    std::vector<double> by_goroutine_us, by_loop_us;
    splitmix64 random(1);
    const auto pause = [&random] { return std::chrono::microseconds(200 + random.next() % 800); };
    for (long i = 0; i < count; ++i) {
        by_goroutine_us.push_back(goroutines.wake_us(pause()));
        by_loop_us.push_back(loops.wake_us(pause()));
    }
    goroutines.close_write();
    loops.close_write();
    reading.wait();
    loop.join();
    const double p50_us = percentile(by_goroutine_us, 0.50);
    r.add("p50", p50_us, "us");
    r.add("p99", percentile(by_goroutine_us, 0.99), "us");
    r.add("relative", p50_us / percentile(by_loop_us, 0.50), "x");
}

const registered all[] = {
    registered({"echo-64", "an echo server for 64 connections", echo_64}),
    registered({"echo-1000", "an echo server for 1000 connections", echo_1000}),
    registered({"echo-think", "an echo server for 10,000 connections that think between their messages", echo_think}),
    registered({"echo-syscalls", "system calls for each echo", echo_syscalls}),
    registered({"echo-10m", "ten million echoes, none lost and none twice", echo_10m}),
    registered({"idle-connections", "20,000 connections that do nothing", idle_connections}),
    registered({"http-hello", "an HTTP server in the style of threads, on goroutines", http_hello}),
    registered({"pipe-wake", "from a write to a pipe until the goroutine that reads it runs", pipe_wake}),
};

}  // namespace
}  // namespace bench
