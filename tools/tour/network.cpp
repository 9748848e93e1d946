// network.cpp - part 11: an echo server, thousands of connections, and a client in another process.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <dunlin/net.hpp>

#include "parts.h"
#include "system.h"

namespace tour {

namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

constexpr std::size_t message_size = 64;
constexpr std::size_t spare_descriptors = 200;

// As many descriptors as we may have.
std::size_t raise_descriptor_limit() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
}

// ---- what a connection weighs, in a process of its own: in this one records of earlier parts are used again ----

void echo(dunlin::net::stream& s) {
    char message[message_size];
    while (const std::size_t n = s.read_some(message)) s.write_all(message, n);
}

// Connections whose other ends are bare descriptors, which take no memory of the process. Each has echoed a message.
class weighed_connections {
public:
    ~weighed_connections() {
        for (const int fd : far_ends_) close(fd);
        served_.wait();
    }
    void add(std::size_t count) {
        const std::size_t old = far_ends_.size();
        for (std::size_t i = 0; i < count; ++i) {
            int ends[2];
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
                throw std::system_error(errno, std::system_category(), "socketpair");
            far_ends_.push_back(ends[1]);
            served_.go([s = dunlin::net::stream::adopt(ends[0])]() mutable { echo(s); });
        }
        char message[message_size] = {};
        for (std::size_t i = old; i < far_ends_.size(); ++i) {
            if (write(far_ends_[i], message, sizeof message) != sizeof message)
                throw std::runtime_error("a message was not taken");
        }
        for (std::size_t i = old; i < far_ends_.size(); ++i) {
            const int fd = far_ends_[i];
            if (dunlin::blocking([&] { return recv(fd, message, sizeof message, MSG_WAITALL); }) != sizeof message)
                throw std::runtime_error("no echo");
        }
        while (dunlin::runtime::stats().waiting < far_ends_.size()) dunlin::sleep_for(1ms);
    }
    void reserve(std::size_t count) { far_ends_.reserve(count); }

private:
    std::vector<int> far_ends_;
    dunlin::wait_group served_;
};

// ---- the server -----------------------------------------------------------------------------------------------------

struct server {
    dunlin::net::listener listener = dunlin::net::listen("tcp", "127.0.0.1:0");
    std::atomic<std::uint64_t> accepted{0}, live{0}, most_live{0}, requests{0};
    dunlin::wait_group connections;

    void serve_one(dunlin::net::stream& s) {
        char message[message_size];
        while (const std::size_t n = s.read_some(message)) {
            s.write_all(message, n);
            requests.fetch_add(1, std::memory_order_relaxed);
        }
    }

    void run() {
        std::error_code closed;
        for (;;) {
            dunlin::net::stream s = listener.accept(closed);
            if (closed) return;
            accepted.fetch_add(1);
            most_live = std::max(most_live.load(), live.fetch_add(1) + 1);  // only here
            connections.go([this, s = std::move(s)]() mutable {
                try {
                    serve_one(s);
                } catch (const std::system_error&) {  // the client has given up: its own report says why
                }
                live.fetch_sub(1);
            });
        }
    }
};

// ---- the client, in a process of its own ----------------------------------------------------------------------------

struct client {
    std::vector<std::uint32_t> latencies_us;
    dunlin::mutex lock;
    std::atomic<std::uint64_t> wrong{0};

    // Each of its messages is different, and must come back as it was.
    void talk(const std::string& address, unsigned id, dunlin::latch& all_connected, const std::atomic<bool>& over) {
        auto s = dunlin::net::dial("tcp", address, 10s);
        all_connected.arrive_and_wait();
        std::vector<std::uint32_t> mine;
        char message[message_size] = {}, reply[message_size];
        for (std::uint32_t i = 0; !over; ++i) {
            std::snprintf(message, sizeof message, "connection %u, request %u", id, i);
            const auto begin = dunlin::clock::now();
            s.write_all(message, sizeof message);
            s.read_exactly(reply);
            if (std::memcmp(message, reply, sizeof message) != 0) ++wrong;
            mine.push_back(static_cast<std::uint32_t>((dunlin::clock::now() - begin) / 1us));
        }
        s.close_write();
        if (s.read_some(reply) != 0) ++wrong;
        const std::lock_guard guard(lock);
        latencies_us.insert(latencies_us.end(), mine.begin(), mine.end());
    }
};

}  // namespace

int echo_client(std::string_view what) {
    char address[64];
    unsigned connections = 0, ms = 0;
    if (std::sscanf(std::string(what).c_str(), "%63[^,],%u,%u", address, &connections, &ms) != 3) return 2;
    raise_descriptor_limit();
    return dunlin::run([&] {
        client c;
        dunlin::latch all_connected(connections + 1);
        std::atomic<bool> over{false};
        dunlin::task_group group;
        for (unsigned i = 0; i < connections; ++i) group.go([&, i] { c.talk(address, i, all_connected, over); });
        all_connected.arrive_and_wait();
        const auto begin = dunlin::clock::now();
        dunlin::sleep_for(std::chrono::milliseconds(ms));
        over = true;
        group.wait();
        std::sort(c.latencies_us.begin(), c.latencies_us.end());
        const std::size_t n = c.latencies_us.size();
        const double seconds = std::chrono::duration<double>(dunlin::clock::now() - begin).count();
        std::printf("%zu %.3f %u %u %llu\n", n, seconds, n ? c.latencies_us[n / 2] : 0,
            n ? c.latencies_us[n * 99 / 100] : 0, static_cast<unsigned long long>(c.wrong));
        return 0;
    });
}

int weigh_connections(std::string_view how_many) {
    unsigned count = 0;
    if (std::sscanf(std::string(how_many).c_str(), "%u", &count) != 1 || count == 0) return 2;
    raise_descriptor_limit();
    return dunlin::run([&] {
        weighed_connections all;
        all.reserve(count + 100);
        all.add(100);  // threads, epoll and code that runs for the first time
        const memory before = memory_now();
        all.add(count);
        const memory after = memory_now();
        std::printf("%.0f\n", (static_cast<double>(after.all()) - static_cast<double>(before.all())) / count);
        return 0;
    });
}

void network(const options& o) {
    explain(
        "A socket that is waited for costs no thread: the goroutine parks, and a thread that runs out of work asks the kernel\n"
        "(epoll) which sockets are ready. This is a server in the plainest style, one goroutine per connection, read and\n"
        "write. The client is another process, with as many goroutines, each with one request of 64 bytes under way.");
    const std::size_t wanted = o.quick ? 500 : 4000;
    const std::size_t limit = raise_descriptor_limit();
    const std::size_t connections = std::min(wanted, limit > spare_descriptors ? limit - spare_descriptors : 1);
    if (connections < wanted) say("%zu connections, because there are %zu descriptors (ulimit -n)", connections, limit);
    dunlin::run([&] {
        server s;
        dunlin::task<void> accepting = dunlin::spawn([&] { s.run(); });
        dunlin::task<outcome> client = dunlin::spawn([&] {
            const std::string what = text("--echo-client=%s,%zu,%d", s.listener.local_address().to_string().c_str(),
                connections, o.quick ? 300 : 1500);
            return dunlin::blocking([&] { return run_program({"/proc/self/exe", what}, "", listen_to::out); });
        });
        progress shown("connections", connections);
        while (!client.done()) {
            dunlin::sleep_for(10ms);
            shown.show(std::min<std::uint64_t>(s.accepted, connections));
        }
        const outcome result = client.get();
        s.connections.wait();
        s.listener.close();
        accepting.get();
        std::size_t replies = 0;
        double seconds = 1;
        unsigned p50 = 0, p99 = 0;
        unsigned long long wrong = 1;
        const bool told =
            std::sscanf(result.text.c_str(), "%zu %lf %u %u %llu", &replies, &seconds, &p50, &p99, &wrong) == 5;
        claim(result.status == 0 && told, "the client process ended well");
        say("%s requests in %.1f s: %s a second, half of them answered within %s, 99 of 100 within %s",
            with_commas(replies).c_str(), seconds,
            bold(with_commas(static_cast<std::uint64_t>(static_cast<double>(replies) / seconds))).c_str(),
            readable(std::chrono::microseconds(p50)).c_str(), readable(std::chrono::microseconds(p99)).c_str());
        claim(s.most_live == connections, "%s connections were open at once", with_commas(s.most_live).c_str());
        claim(wrong == 0 && s.requests >= replies,
            "every reply was right, and the last thing to be read was the end of the stream");
        const std::size_t weighed =
            std::min(connections, limit > 2 * spare_descriptors ? limit / 2 - spare_descriptors : 1);
        const outcome weight = dunlin::blocking([&] {
            return run_program({"/proc/self/exe", text("--weigh-connections=%zu", weighed)}, "", listen_to::out);
        });
        double bytes_each = 0;
        claim(weight.status == 0 && std::sscanf(weight.text.c_str(), "%lf", &bytes_each) == 1,
            "a second server has weighed its connections");
        say("%.1f KB of memory for each connection that has echoed once and waits: goroutine, stack, socket record and page tables, of a fresh process with\n"
            "%s of them (what the kernel keeps of a socket is not the process's, and not counted)",
            bytes_each / 1024, with_commas(weighed).c_str());
        settle();
        claim(dunlin::runtime::num_goroutines() == 1, "all goroutines have ended");
    });
}

}  // namespace tour
