// net_soak.cpp - connections that are opened, used, half-closed, reset, timed out, cancelled and closed under a reader,
// at random, by goroutines and plain threads at once, for as long as one likes. In the end nothing may be left: no
// descriptor, no goroutine, no waiter.
//
//   net_soak SECONDS PROCS [SEED]
//
// Prints a line every 10 s and a summary. Exit status: 0; 1 after a wrong result; 2 if nothing has happened for 20 s
// (after a dump); 64 if called wrongly.
#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <dunlin/dunlin.hpp>

using namespace std::chrono_literals;
namespace net = dunlin::net;

namespace {

std::atomic<bool> stop{false};
std::atomic<int> faults{0};

// ---- what has happened ----------------------------------------------------------------------------------------------

enum deed {
    echoed,
    half_closed,
    was_reset,
    flooded,
    timed_out,
    cancelled,
    closed_under_read,
    selected,
    refused,
    datagrams,
    deeds
};
constexpr const char* deed_names[deeds] = {"echoed", "half-closed", "reset", "flooded", "timed out", "cancelled",
    "closed under a read", "selected", "refused", "datagrams"};
std::array<std::atomic<std::uint64_t>, deeds> counts;

std::uint64_t all_deeds() {
    std::uint64_t sum = 0;
    for (const auto& c : counts) sum += c.load();
    return sum;
}

void fault(const char* where, const std::string& what) {
    std::fprintf(stderr, "net_soak: %s: %s\n", where, what.c_str());
    if (++faults > 20) std::_Exit(1);
}

std::size_t open_files() {
    std::size_t count = 0;
    DIR* d = opendir("/proc/self/fd");
    while (readdir(d) != nullptr) ++count;
    closedir(d);
    return count;
}

// ---- the server: the first byte says what the client wants ----------------------------------------------------------

constexpr char wants_echo = 'e', wants_silence = 's', wants_flood = 'f', wants_reset = 'r', wants_half_close = 'h';

void serve(net::stream& s) {
    std::vector<char> buffer(16 * 1024);
    char wish;
    if (s.read_some(&wish, 1) == 0) return;
    switch (wish) {
    case wants_echo:
        while (const std::size_t n = s.read_some(buffer)) s.write_all(buffer.data(), n);
        s.close_write();
        break;
    case wants_silence:
        while (s.read_some(buffer) != 0) {
        }
        break;
    case wants_flood:
        s.set_write_deadline(10s);
        for (int i = 0; i < 1000; ++i) s.write_all(buffer);
        break;
    case wants_reset: s.set_linger(0s); break;
    case wants_half_close:
        s.close_write();
        while (s.read_some(buffer) != 0) {
        }
        break;
    default: fault("server", "a wish that nobody has made");
    }
}

// Clients reset and vanish: that is an error here, and none of the soak's.
void serve_quietly(net::stream s) {
    try {
        serve(s);
    } catch (const std::system_error&) {
    }
}

void accept_all(net::listener& l, dunlin::wait_group& handlers) {
    std::error_code ec;
    for (;;) {
        net::stream s = l.accept(ec);
        if (ec == dunlin::errc::closed) return;
        if (ec) fault("accept", ec.message());
        handlers.go([s = std::move(s)]() mutable { serve_quietly(std::move(s)); });
    }
}

// ---- the clients ----------------------------------------------------------------------------------------------------

struct server_addresses {
    std::string tcp, local, nobody;
    net::address udp;
};

class client {
public:
    client(const server_addresses& to, std::uint64_t seed)
        : to_(to), random_(seed), buffer_(32 * 1024), sent_(32 * 1024) {}

    void one() {
        switch (below(10)) {
        case 0: return echo(true);
        case 1: return echo(false);
        case 2: return half_close();
        case 3: return reset();
        case 4: return flood();
        case 5: return time_out();
        case 6: return cancel();
        case 7: return close_under_read();
        case 8: return select();
        default: return below(2) == 0 ? refuse() : datagram();
        }
    }

private:
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }

    net::stream dial(char wish) {
        net::stream s = below(4) == 0 ? net::dial("unix", to_.local, 20s) : net::dial("tcp", to_.tcp, 20s);
        s.write_all(&wish, 1);
        return s;
    }

    // Either waits for each answer, or leaves the connection in the midst of it.
    void echo(bool to_the_end) {
        net::stream s = dial(wants_echo);
        for (std::uint32_t round = 1 + below(20); round > 0; --round) {
            const std::size_t size = 1 + below(below(8) == 0 ? static_cast<std::uint32_t>(sent_.size()) : 200);
            for (std::size_t i = 0; i < size; ++i) sent_[i] = static_cast<char>(random_());
            s.write_all(sent_.data(), size);
            if (!to_the_end && below(3) == 0) {
                if (below(2) == 0) s.set_linger(0s);
                ++counts[was_reset];
                return;
            }
            s.read_exactly(buffer_.data(), size);
            if (std::memcmp(sent_.data(), buffer_.data(), size) != 0) fault("echo", "other bytes than were sent");
            ++counts[echoed];
        }
        s.close_write();
        if (s.read_some(buffer_) != 0) fault("echo", "more than was sent");
    }

    void half_close() {
        net::stream s = dial(wants_half_close);
        if (s.read_some(buffer_) != 0) fault("half close", "bytes, but the other side has closed");
        s.write_all("and yet it can be written to");
        ++counts[half_closed];
    }

    void reset() {
        net::stream s = dial(wants_reset);
        std::error_code ec;
        while (s.read_some(buffer_, ec) != 0) {
        }
        if (ec && ec != std::errc::connection_reset) fault("reset", ec.message());
        ++counts[was_reset];
    }

    // Does not read for a while: the server's writes wait, and no other's.
    void flood() {
        net::stream s = dial(wants_flood);
        dunlin::sleep_for(std::chrono::microseconds(below(3000)));
        for (std::uint32_t i = below(50); i > 0; --i) {
            if (s.read_some(buffer_) == 0) break;
        }
        ++counts[flooded];
    }

    void time_out() {
        net::stream s = dial(wants_silence);
        s.set_read_deadline(std::chrono::microseconds(below(3000)));
        std::error_code ec;
        if (s.read_some(buffer_, ec) != 0 || ec != std::errc::timed_out) fault("deadline", ec.message());
        if (below(2) == 0) {  // and it can be taken back
            s.clear_deadline();
            s.write_all("x");
        }
        ++counts[timed_out];
    }

    void cancel() {
        auto ctx = dunlin::with_timeout(dunlin::context::background(), std::chrono::microseconds(below(3000)));
        try {
            net::stream s = net::dial("tcp", to_.tcp, ctx);
            s.write_all(std::string_view(&wants_silence, 1), ctx);
            if (below(2) == 0) ctx.cancel();
            s.read_some(buffer_, ctx);
            fault("context", "a read that nobody answered has returned");
        } catch (const dunlin::context_cancelled&) {
            ++counts[cancelled];
        }
    }

    void close_under_read() {
        net::stream s = dial(wants_silence);
        dunlin::wait_group closer;
        closer.go([&, pause = below(1000)] {
            dunlin::sleep_for(std::chrono::microseconds(pause));
            s.close();
        });
        std::error_code ec;
        if (s.read_some(buffer_, ec) != 0 || ec != dunlin::errc::closed) fault("close", ec.message());
        closer.wait();
        ++counts[closed_under_read];
    }

    void select() {
        net::stream s = dial(wants_echo);
        dunlin::chan<int> never;
        s.write_all("ping");
        bool got = false;
        for (int i = 0; i < 3; ++i) {
            dunlin::select(dunlin::on_readable(s, [&] { got = s.read_some(buffer_) != 0; }), dunlin::on_recv(never),
                dunlin::on_timeout(std::chrono::microseconds(below(2000)), [] {}));
            if (got) break;
        }
        ++counts[selected];
    }

    void refuse() {
        std::error_code ec;
        net::stream s = net::dial("tcp", to_.nobody, 20s, ec);
        if (ec != std::errc::connection_refused) fault("refused", ec.message());
        ++counts[refused];
    }

    void datagram() {
        net::packet_conn c = net::dial_packet("udp", to_.udp.to_string());
        c.write_some("one");
        c.set_read_deadline(2s);
        std::error_code ec;
        const std::size_t n = c.read_some(buffer_, ec);
        if (ec ? ec != std::errc::timed_out : n != 3)
            fault("datagram", ec ? ec.message() : std::to_string(n) + " bytes");
        ++counts[datagrams];
    }

    const server_addresses& to_;
    std::mt19937_64 random_;
    std::vector<char> buffer_, sent_;
};

void be_a_client(const server_addresses& to, std::uint64_t seed) {
    client c(to, seed);
    while (!stop) {
        try {
            c.one();
        } catch (const std::exception& e) {
            fault("client", e.what());
        }
    }
}

void echo_datagrams(net::packet_conn& c) {
    std::array<char, 100> buffer;
    std::error_code ec;
    for (;;) {
        net::address from;
        const std::size_t n = c.read_from(buffer, from, ec);
        if (ec == dunlin::errc::closed) return;
        if (!ec) c.write_to({buffer.data(), n}, from, ec);
    }
}

// ---- the whole ------------------------------------------------------------------------------------------------------

void watch(std::chrono::seconds length) {
    const auto begin = std::chrono::steady_clock::now();
    auto changed = begin, told = begin;
    for (std::uint64_t before = 0; !stop;) {
        std::this_thread::sleep_for(100ms);
        const auto now = std::chrono::steady_clock::now();
        const std::uint64_t sum = all_deeds();
        if (std::exchange(before, sum) != sum) changed = now;
        if (now - told >= 10s) {
            told = now;
            std::printf("net_soak: %3lld s, %llu deeds\n", static_cast<long long>((now - begin) / 1s),
                static_cast<unsigned long long>(sum));
            std::fflush(stdout);
        }
        if (now - changed > 20s) {
            std::fprintf(stderr, "net_soak: nothing has happened for 20 s\n");
            dunlin::runtime::dump(std::cerr);
            std::_Exit(2);
        }
        if (now - begin >= length) stop = true;
    }
}

void soak(std::uint64_t seed) {
    constexpr int goroutines = 48, threads = 2;
    net::listener tcp = net::listen("tcp", "127.0.0.1:0");
    const std::string path = "@dunlin-net-soak-" + std::to_string(getpid());
    net::listener local = net::listen("unix", path);
    net::packet_conn udp = net::listen_packet("udp", "127.0.0.1:0");
    server_addresses to{tcp.local_address(), path, {}, udp.local_address()};
    {
        const net::listener gone = net::listen("tcp", "127.0.0.1:0", {.reuse_address = false});
        to.nobody = gone.local_address();
    }
    dunlin::wait_group servers, clients;
    servers.go([&] { accept_all(tcp, servers); });
    servers.go([&] { accept_all(local, servers); });
    servers.go([&] { echo_datagrams(udp); });
    for (int i = 0; i < goroutines; ++i) clients.go([&, i] { be_a_client(to, seed + static_cast<unsigned>(i)); });
    std::vector<std::thread> plain;
    for (int i = 0; i < threads; ++i)
        plain.emplace_back([&, i] { be_a_client(to, seed + goroutines + static_cast<unsigned>(i)); });
    clients.wait();
    dunlin::blocking([&] {
        for (std::thread& t : plain) t.join();
    });
    tcp.close();
    local.close();
    udp.close();
    servers.wait();
}

// A goroutine that has called done() has still a few instructions to go.
void expect_nothing_left(std::size_t files_before) {
    for (int i = 0; i < 2000 && dunlin::runtime::num_goroutines() > 1; ++i) dunlin::sleep_for(1ms);
    const auto s = dunlin::runtime::stats();
    const std::size_t files = open_files();
    if (s.goroutines != 1) fault("the end", std::to_string(s.goroutines) + " goroutines are left");
    if (s.poll.descriptors != 0) fault("the end", std::to_string(s.poll.descriptors) + " descriptors are left");
    if (s.poll.waiting != 0) fault("the end", std::to_string(s.poll.waiting) + " wait for descriptors");
    if (files != files_before)
        fault("the end", std::to_string(files_before) + " files were open before, " + std::to_string(files) + " now");
}

bool read_number(const char* text, unsigned& n) {
    const char* end = text + std::strlen(text);
    return std::from_chars(text, end, n).ptr == end && n > 0;
}

}  // namespace

int main(int argc, char** argv) {
    unsigned seconds = 0, procs = 0, seed = std::random_device()();
    if (argc < 3 || argc > 4 || !read_number(argv[1], seconds) || !read_number(argv[2], procs) ||
        (argc == 4 && !read_number(argv[3], seed))) {
        std::fprintf(stderr, "usage: net_soak SECONDS PROCS [SEED]\n");
        return 64;
    }
    std::printf("net_soak: %u s, P = %u, seed %u\n", seconds, procs, seed);
    std::thread watcher(watch, std::chrono::seconds(seconds));
    dunlin::run({.max_procs = procs}, [&] {
        // the poller's own descriptors are open from here on
        { const net::listener first = net::listen("tcp", "127.0.0.1:0"); }
        const std::size_t files_before = open_files();
        soak(seed);
        expect_nothing_left(files_before);
    });
    watcher.join();
    for (int i = 0; i < deeds; ++i)
        std::printf(
            "  %-20s %llu\n", deed_names[i], static_cast<unsigned long long>(counts[static_cast<std::size_t>(i)]));
    std::printf("net_soak: %d faults\n", faults.load());
    return faults != 0;
}
