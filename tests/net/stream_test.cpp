// Connected streams: reading and writing of all kinds of buffers, half closes and resets, options, errors and their
// texts, moving.
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "net/pairs.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

namespace net = dunlin::net;
using dunlin::const_buffer;
using support::code_of;
using support::connected;
using support::is_closed;
using support::text_of;

constexpr const char* networks[] = {"tcp", "unix"};

class Stream : public support::each_p {};
EACH_P(Stream);
class StreamOnce : public support::runtime_test {};

std::string pattern(std::size_t size, unsigned seed = 1) {
    std::string s(size, '\0');
    std::minstd_rand random(seed);
    for (char& c : s) c = static_cast<char>(random());
    return s;
}

// ---- buffers --------------------------------------------------------------------------------------------------------

TEST_P(Stream, ReadsIntoAllKindsOfBuffers) {
    run([] {
        auto [a, b] = net::stream_pair();
        std::error_code ec;
        const auto next = [&a = a] { a.write_all("0123456789"); };
        std::array<std::byte, 10> bytes;
        std::array<char, 10> chars;
        std::array<unsigned char, 10> unsigned_chars;
        std::vector<std::byte> byte_vector(10);
        std::vector<char> vector(10);
        std::string string(10, ' ');
        char plain[10];
        const std::string all = "0123456789";
        const auto text = [](const auto& r) {
            return std::string(reinterpret_cast<const char*>(std::data(r)), std::size(r));
        };

        next();
        EXPECT_EQ(b.read_some(std::span<std::byte>(bytes)), 10u);
        EXPECT_EQ(text(bytes), all);
        next();
        EXPECT_EQ(b.read_some(std::span<char>(chars)), 10u);
        EXPECT_EQ(text(chars), all);
        next();
        EXPECT_EQ(b.read_some(unsigned_chars), 10u);
        EXPECT_EQ(text(unsigned_chars), all);
        next();
        EXPECT_EQ(b.read_some(byte_vector), 10u);
        EXPECT_EQ(text(byte_vector), all);
        next();
        EXPECT_EQ(b.read_some(vector), 10u);
        EXPECT_EQ(text(vector), all);
        next();
        EXPECT_EQ(b.read_some(string), 10u);
        EXPECT_EQ(string, all);
        next();
        EXPECT_EQ(b.read_some(plain), 10u);
        EXPECT_EQ(std::string(plain, 10), all);
        next();
        EXPECT_EQ(b.read_some(static_cast<void*>(plain), 10), 10u);
        next();
        EXPECT_EQ(b.read_some(plain, 10, ec), 10u);
        EXPECT_FALSE(ec);
        next();
        EXPECT_EQ(b.read_some(string, ec), 10u);
        EXPECT_FALSE(ec);
        next();
        EXPECT_EQ(b.read_some(string, dunlin::context::background()), 10u);
        next();
        EXPECT_EQ(b.read_some(string, dunlin::context::background(), ec), 10u);
        next();
        EXPECT_EQ(b.read_exactly(std::span(string).first(4)), 4u);
        EXPECT_EQ(b.read_exactly(plain, 6), 6u);
        EXPECT_EQ(plain[5], '9');
        next();
        EXPECT_EQ(b.read_exactly(plain, 10, ec), 10u);
        EXPECT_FALSE(ec);
        next();
        EXPECT_EQ(b.read_exactly(string, ec), 10u);
        EXPECT_FALSE(ec);
        next();
        EXPECT_EQ(b.read_exactly(string, dunlin::context::background(), ec), 10u);
    });
}

TEST_P(Stream, WritesAllKindsOfBuffers) {
    run([] {
        auto [a, b] = net::stream_pair();
        std::error_code ec;
        const std::string string = "0123456789";
        const auto expect = [&b = b](std::size_t written) {
            EXPECT_EQ(written, 10u);
            std::array<char, 10> got;
            b.read_exactly(got);
            EXPECT_EQ(std::string(got.data(), 10), "0123456789");
        };
        std::array<std::byte, 10> bytes;
        std::memcpy(bytes.data(), string.data(), 10);
        const std::vector<unsigned char> vector(string.begin(), string.end());
        expect(a.write_all(string));
        expect(a.write_all(std::string_view(string)));
        expect(a.write_all("0123456789"));
        expect(a.write_all(std::span<const std::byte>(bytes)));
        expect(a.write_all(std::span<std::byte>(bytes)));
        expect(a.write_all(std::span<const char>(string)));
        expect(a.write_all(bytes));
        expect(a.write_all(vector));
        expect(a.write_all(string.data(), 10));
        expect(a.write_all(dunlin::mutable_buffer(bytes)));
        expect(a.write_all(std::string("0123456789")));
        expect(a.write_all(string, ec));
        expect(a.write_all(string.data(), 10, ec));
        expect(a.write_all(string, dunlin::context::background()));
        expect(a.write_all(string, dunlin::context::background(), ec));
        expect(a.write_some(string));
        expect(a.write_some(string, ec));
        expect(a.write_some(string.data(), 10));
        expect(a.write_some(string.data(), 10, ec));
        expect(a.write_some(string, dunlin::context::background()));
        EXPECT_FALSE(ec);
    });
}

TEST_P(Stream, EmptyBuffersAreNoEndOfFile) {
    run([] {
        for (const char* network : networks) {
            auto e = connected(network);
            std::error_code ec = is_closed;
            EXPECT_EQ(e.client.read_some(nullptr, 0, ec), 0u);
            EXPECT_FALSE(ec) << "cleared";
            EXPECT_EQ(e.client.read_exactly(nullptr, 0), 0u);
            EXPECT_EQ(e.client.write_all(""), 0u);
            EXPECT_EQ(e.client.write_some(""), 0u);
            EXPECT_EQ(e.client.writev({"", "", ""}), 0u);
            EXPECT_EQ(e.client.writev(std::span<const const_buffer>()), 0u);
            e.client.write_all("x");
            char c;
            EXPECT_EQ(e.server.read_some(&c, 1), 1u);
        }
    });
}

TEST_P(Stream, WritesManyPartsInOrder) {
    run([] {
        for (const char* network : networks) {
            for (const std::size_t count : {1u, 2u, 63u, 64u, 65u, 128u, 1000u}) {
                auto e = connected(network);
                std::mt19937 random(static_cast<unsigned>(count));
                std::vector<std::string> parts;
                for (std::size_t i = 0; i < count; ++i)
                    parts.push_back(pattern(random() % 3 == 0 ? 0 : random() % 5000, static_cast<unsigned>(i + 1)));
                if (count == 128) {  // a whole group of 64 empty ones
                    for (std::size_t i = 0; i < 64; ++i) parts[i].clear();
                }
                const std::string all = std::accumulate(parts.begin(), parts.end(), std::string());
                const std::vector<const_buffer> buffers(parts.begin(), parts.end());
                dunlin::wait_group wg;
                wg.go([&] {
                    std::string got(all.size(), '\0');
                    e.server.read_exactly(got);
                    EXPECT_TRUE(got == all);
                    EXPECT_EQ(e.server.read_some(got.data(), 1), 0u);
                });
                EXPECT_EQ(e.client.writev(buffers), all.size());
                e.client.close();
                wg.wait();
            }
        }
        auto [a, b] = net::stream_pair();
        std::error_code ec;
        EXPECT_EQ(a.writev({"ab", std::string("cd"), std::array<char, 2>{'e', 'f'}}, ec), 6u);
        std::array<char, 6> got;
        b.read_exactly(got);
        EXPECT_EQ(std::string(got.data(), 6), "abcdef");
    });
}

TEST_P(Stream, MuchGoesBothWaysAtOnce) {
    allow(60s);
    run([] {
        const std::string there = pattern(static_cast<std::size_t>(support::rounds(4'000'000)), 3),
                          back = pattern(there.size() + 12345, 4);
        for (const char* network : networks) {
            auto e = connected(network);
            const auto read = [](net::stream& s, const std::string& expected) {
                std::string got(expected.size(), '\0');
                s.read_exactly(got);
                EXPECT_TRUE(got == expected);
            };
            dunlin::wait_group wg;
            wg.go([&] { e.client.write_all(there); });
            wg.go([&] { read(e.client, back); });
            std::thread thread([&] { e.server.write_all(back); });
            read(e.server, there);
            wg.wait();
            thread.join();
        }
    });
}

TEST_P(Stream, TwoWritersDoNotMixTheirBytes) {
    run([] {
        auto [a, b] = net::stream_pair();
        constexpr int writers = 4;
        constexpr std::size_t size = 100'000;
        dunlin::wait_group wg;
        std::thread thread([&a = a] { a.writev({std::string(size / 2, 'T'), std::string(size / 2, 'T')}); });
        for (int i = 0; i < writers; ++i)
            wg.go([&a = a, i] { a.write_all(std::string(size, static_cast<char>('a' + i))); });
        for (int i = 0; i < writers + 1; ++i) {
            std::string got(size, '\0');
            b.read_exactly(got);
            EXPECT_EQ(got.find_first_not_of(got[0]), got.npos);
        }
        wg.wait();
        thread.join();
    });
}

// Goroutines and plain threads, in any mix, on the same stream.
TEST_P(Stream, ReadersShareWhatComes) {
    run([] {
        auto e = connected("tcp");
        const int rounds = support::rounds(2000);
        std::atomic<int> got{0};
        const auto read = [&] {
            char c[16];
            std::error_code ec;
            while (const std::size_t n = e.server.read_some(c, ec)) got += static_cast<int>(n);
            EXPECT_FALSE(ec);
        };
        dunlin::wait_group wg;
        for (int i = 0; i < 4; ++i) wg.go(read);
        std::vector<std::thread> threads;
        for (int i = 0; i < 2; ++i) threads.emplace_back(read);
        for (int i = 0; i < rounds; ++i) e.client.write_all("x");
        e.client.close_write();
        wg.wait();
        for (std::thread& t : threads) t.join();
        EXPECT_EQ(got, rounds);
    });
}

TEST_F(StreamOnce, WorksWithPlainThreadsAlone) {
    auto e = connected("tcp");
    std::thread echo([&] {
        char c[100];
        while (const std::size_t n = e.server.read_some(c)) e.server.write_all(c, n);
        e.server.close();
    });
    char c[100];
    for (int i = 0; i < support::rounds(1000); ++i) {
        e.client.write_all("hello");
        ASSERT_EQ(e.client.read_exactly(c, 5), 5u);
    }
    e.client.close_write();
    EXPECT_EQ(e.client.read_some(c), 0u);
    echo.join();
}

// ---- the end --------------------------------------------------------------------------------------------------------

TEST_P(Stream, AHalfCloseLetsTheOtherHalfGoOn) {
    run([] {
        for (const char* network : networks) {
            auto e = connected(network);
            char c;
            e.client.write_all("last");
            e.client.close_write();
            std::string got(4, ' ');
            e.server.read_exactly(got);
            EXPECT_EQ(got, "last");
            EXPECT_EQ(e.server.read_some(&c, 1), 0u);
            EXPECT_EQ(e.server.read_some(&c, 1), 0u) << "it stays at its end";
            EXPECT_EQ(code_of([&] { e.client.write_all("more"); }), std::errc::broken_pipe);
            e.server.write_all("back");
            e.client.read_exactly(got);
            EXPECT_EQ(got, "back");
            e.client.close_read();
            EXPECT_EQ(e.client.read_some(&c, 1), 0u);
        }
    });
}

TEST_P(Stream, CloseReadEndsAReadUnderWay) {
    run([] {
        auto [a, b] = net::stream_pair();
        dunlin::task<std::size_t> reader = dunlin::spawn([&a = a] {
            char c;
            return a.read_some(&c, 1);
        });
        support::eventually([] { return support::waiters() == 1; });
        std::error_code ec;
        a.close_read(ec);
        EXPECT_FALSE(ec);
        EXPECT_EQ(reader.get(), 0u);
    });
}

TEST_P(Stream, AnEndInTheMidstOfWhatMustBeRead) {
    run([] {
        auto e = connected("tcp");
        e.client.write_all("abc");
        e.client.close();
        std::string got(5, ' ');
        try {
            e.server.read_exactly(got);
            ADD_FAILURE();
        } catch (const dunlin::io_error& error) {
            EXPECT_EQ(error.code(), dunlin::errc::end_of_file);
            EXPECT_EQ(error.transferred(), 3u);
            EXPECT_NE(std::string(error.what()).find("read tcp 127.0.0.1:"), std::string::npos) << error.what();
            EXPECT_NE(std::string(error.what()).find("(after 3 bytes)"), std::string::npos) << error.what();
        }
        EXPECT_EQ(got.substr(0, 3), "abc");
        std::error_code ec;
        EXPECT_EQ(e.server.read_exactly(got, ec), 0u);
        EXPECT_EQ(ec, dunlin::errc::end_of_file);
    });
}

TEST_P(Stream, NoLingerResetsThePeer) {
    run([] {
        auto e = connected("tcp");
        const std::string name = e.server.local_address().to_string();
        e.client.set_linger(0s);
        e.client.close();
        char c;
        const std::string text = text_of([&] { e.server.read_some(&c, 1); });
        EXPECT_EQ(text.rfind("read tcp " + name, 0), 0u) << text;
        EXPECT_NE(text.find(": connection reset by peer"), std::string::npos) << text;
        EXPECT_EQ(code_of([&] { e.server.write_all("x"); }), std::errc::broken_pipe);
    });
}

std::atomic<int> pipe_signals{0};

TEST_P(Stream, SigpipeIsNeverRaised) {
    struct sigaction mine {}, before {};
    mine.sa_handler = [](int) { ++pipe_signals; };
    sigaction(SIGPIPE, &mine, &before);
    run([] {
        for (const char* network : networks) {
            auto e = connected(network);
            e.server.close();
            std::error_code ec;
            while (!ec) e.client.write_all("x", ec);
            EXPECT_TRUE(ec == std::errc::broken_pipe || ec == std::errc::connection_reset) << ec.message();
            EXPECT_EQ(code_of([&] { e.client.writev({"x", "y"}); }), std::errc::broken_pipe);
            EXPECT_EQ(code_of([&] { e.client.write_some("x"); }), std::errc::broken_pipe);
        }
    });
    sigaction(SIGPIPE, &before, nullptr);
    EXPECT_EQ(pipe_signals, 0);
}

TEST_P(Stream, ThePartThatWasWrittenBeforeAnErrorIsTold) {
    run([] {
        auto [a, b] = net::stream_pair();
        const std::size_t size = 10'000'000;
        dunlin::wait_group wg;
        wg.go([&b = b] {
            std::string some(100'000, ' ');
            b.read_exactly(some);
            b.close();
        });
        try {
            a.write_all(std::string(size, 'x'));
            ADD_FAILURE();
        } catch (const dunlin::io_error& error) {
            EXPECT_EQ(error.code(), std::errc::broken_pipe);
            EXPECT_GE(error.transferred(), 100'000u);
            EXPECT_LT(error.transferred(), size);
        }
        wg.wait();
    });
}

// ---- closed and moved handles ---------------------------------------------------------------------------------------

TEST_P(Stream, AllCallsOnAClosedHandleFail) {
    run([] {
        net::stream never, closed = connected("tcp").client;
        closed.close();
        closed.close();
        for (net::stream* s : {&never, &closed}) {
            char c;
            std::error_code ec;
            EXPECT_FALSE(s->is_open());
            EXPECT_FALSE(*s);
            EXPECT_EQ(s->native_handle(), -1);
            EXPECT_EQ(code_of([&] { s->read_some(&c, 1); }), is_closed);
            EXPECT_EQ(code_of([&] { s->read_exactly(&c, 1); }), is_closed);
            EXPECT_EQ(code_of([&] { s->write_all("x"); }), is_closed);
            EXPECT_EQ(code_of([&] { s->write_some("x"); }), is_closed);
            EXPECT_EQ(code_of([&] { s->writev({"x"}); }), is_closed);
            EXPECT_EQ(code_of([&] { s->close_write(); }), is_closed);
            EXPECT_EQ(code_of([&] { s->close_read(); }), is_closed);
            EXPECT_EQ(code_of([&] { s->set_deadline(1s); }), is_closed);
            EXPECT_EQ(code_of([&] { s->clear_deadline(); }), is_closed);
            EXPECT_EQ(code_of([&] { s->set_no_delay(true); }), is_closed);
            EXPECT_EQ(code_of([&] { s->set_linger(0s); }), is_closed);
            EXPECT_EQ((s->read_some(&c, 1, ec), ec), is_closed);
            EXPECT_EQ((s->write_all("x", ec), ec), is_closed);
            EXPECT_EQ((s->close_write(ec), ec), is_closed);
        }
        EXPECT_EQ(never.local_address().to_string(), "");
        EXPECT_EQ(never.remote_address().to_string(), "");
        char c;
        const std::string text = text_of([&] { never.read_some(&c, 1); });
        EXPECT_EQ(text.rfind("read a handle that was never opened, or was moved from: ", 0), 0u) << text;
        EXPECT_EQ(text_of([&] { closed.read_some(&c, 1); }).rfind("read tcp 127.0.0.1:", 0), 0u)
            << text_of([&] { closed.read_some(&c, 1); });
    });
}

TEST_P(Stream, HandlesMove) {
    run([] {
        auto [a, b] = net::stream_pair();
        auto [c, d] = net::stream_pair();
        net::stream moved = std::move(a);
        EXPECT_FALSE(a.is_open());
        moved.write_all("x");
        char got;
        EXPECT_EQ(b.read_some(&got, 1), 1u);
        c = std::move(moved);  // closes what c was
        EXPECT_FALSE(moved.is_open());
        EXPECT_EQ(d.read_some(&got, 1), 0u);
        net::stream& self = c;
        c = std::move(self);
        c.write_all("y");
        EXPECT_EQ(b.read_some(&got, 1), 1u);
        std::vector<net::stream> several;
        several.push_back(std::move(c));
        several.emplace_back();
        several.push_back(std::move(b));
        several[0].write_all("z");
        EXPECT_EQ(several[2].read_some(&got, 1), 1u);
        several.erase(several.begin());
        EXPECT_EQ(several[1].read_some(&got, 1), 0u) << "the destructor closes";
        std::swap(several[0], several[1]);
        EXPECT_TRUE(several[0].is_open());
    });
}

TEST_P(Stream, CloseFromAnywhereEndsCallsUnderWay) {
    run([] {
        for (int i = 0; i < support::rounds(300); ++i) {
            auto [a, b] = net::stream_pair();
            if (i % 2) support::fill(a);
            std::atomic<int> began{0};
            dunlin::wait_group wg;
            const auto read = [&, &a = a] {
                ++began;
                char c;
                EXPECT_EQ(code_of([&] { a.read_some(&c, 1); }), is_closed);
            };
            wg.go(read);
            std::thread thread;
            if (i % 10 == 0) thread = std::thread(read);
            if (i % 2) wg.go([&, &a = a] { EXPECT_EQ(code_of([&] { a.write_all("x"); }), is_closed); });
            if (i % 4) support::eventually([&] { return began >= 1; });
            if (i % 3 == 0) {
                std::thread([&a = a] { a.close(); }).join();
            } else {
                a.close();
            }
            EXPECT_EQ(a.native_handle(), -1);
            wg.wait();
            if (thread.joinable()) thread.join();
        }
    });
}

// ---- options, addresses, adopting -----------------------------------------------------------------------------------

int option(const net::stream& s, int level, int name) {
    int value = -1;
    socklen_t size = sizeof value;
    EXPECT_EQ(getsockopt(s.native_handle(), level, name, &value, &size), 0);
    return value;
}

TEST_F(StreamOnce, HasTheOptionsOfGo) {
    auto e = connected("tcp");
    for (net::stream* s : {&e.client, &e.server}) {
        EXPECT_EQ(option(*s, IPPROTO_TCP, TCP_NODELAY), 1);
        EXPECT_EQ(option(*s, SOL_SOCKET, SO_KEEPALIVE), 1);
        EXPECT_EQ(option(*s, IPPROTO_TCP, TCP_KEEPIDLE), 15);
        EXPECT_TRUE(fcntl(s->native_handle(), F_GETFL) & O_NONBLOCK);
        EXPECT_TRUE(fcntl(s->native_handle(), F_GETFD) & FD_CLOEXEC);
    }
    e.client.set_no_delay(false);
    EXPECT_EQ(option(e.client, IPPROTO_TCP, TCP_NODELAY), 0);
    e.client.set_keep_alive(77s);
    EXPECT_EQ(option(e.client, IPPROTO_TCP, TCP_KEEPIDLE), 77);
    EXPECT_EQ(option(e.client, IPPROTO_TCP, TCP_KEEPINTVL), 77);
    e.client.set_keep_alive(0s);
    EXPECT_EQ(option(e.client, SOL_SOCKET, SO_KEEPALIVE), 0);
    e.client.set_receive_buffer(20000);
    EXPECT_EQ(option(e.client, SOL_SOCKET, SO_RCVBUF), 40000) << "the kernel doubles it";
    e.client.set_send_buffer(30000);
    EXPECT_EQ(option(e.client, SOL_SOCKET, SO_SNDBUF), 60000);
    e.client.set_linger(5s);
    e.client.set_linger(std::nullopt);

    const net::listener l = net::listen("tcp", "127.0.0.1:0", {.accepted = {.no_delay = false, .keep_alive = 0s}});
    net::stream client = net::dial("tcp", l.local_address(), net::stream_options{.no_delay = false, .keep_alive = 33s});
    EXPECT_EQ(option(client, IPPROTO_TCP, TCP_NODELAY), 0);
    EXPECT_EQ(option(client, IPPROTO_TCP, TCP_KEEPIDLE), 33);
    net::stream server = const_cast<net::listener&>(l).accept();
    EXPECT_EQ(option(server, IPPROTO_TCP, TCP_NODELAY), 0);
    EXPECT_EQ(option(server, SOL_SOCKET, SO_KEEPALIVE), 0);

    auto [a, b] = net::stream_pair();
    EXPECT_NE(code_of([&a = a] { a.set_no_delay(true); }), std::error_code()) << "not a TCP socket";
    const std::string text = text_of([&a = a] { a.set_no_delay(true); });
    EXPECT_EQ(text.rfind("set no_delay of unix", 0), 0u) << text;
}

TEST_F(StreamOnce, BothEndsTellTheSameAddresses) {
    for (const char* network : {"tcp4", "tcp6"}) {
        if (std::string(network) == "tcp6" && !support::has_ipv6()) continue;
        auto e = connected(network);
        EXPECT_EQ(e.client.local_address(), e.server.remote_address());
        EXPECT_EQ(e.client.remote_address(), e.server.local_address());
        EXPECT_TRUE(e.client.local_address().is_loopback());
        EXPECT_NE(e.client.local_address().port(), 0);
    }
    const std::string name = support::abstract_name();
    auto e = support::connect(net::listen("unix", name), "unix");
    EXPECT_EQ(e.client.remote_address().to_string(), name);
    EXPECT_EQ(e.server.local_address().to_string(), name);
    EXPECT_EQ(e.client.local_address().to_string(), "");
}

TEST_P(Stream, TakesOverADescriptor) {
    run([] {
        int fd[2];
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
        net::stream a = net::stream::adopt(fd[0]);
        EXPECT_EQ(a.native_handle(), fd[0]);
        EXPECT_TRUE(fcntl(fd[0], F_GETFL) & O_NONBLOCK);
        ASSERT_EQ(write(fd[1], "x", 1), 1);
        char c;
        EXPECT_EQ(a.read_some(&c, 1), 1u);
        a.close();
        EXPECT_EQ(read(fd[1], &c, 1), 0);
        close(fd[1]);
        EXPECT_EQ(code_of([&] { net::stream::adopt(-1); }), std::errc::bad_file_descriptor);

        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        EXPECT_EQ(code_of([&] { net::stream::adopt(ends[0]); }), std::errc::not_a_socket);
        EXPECT_GE(fcntl(ends[0], F_GETFD), 0) << "still the caller's";
        dunlin::byte_stream r = dunlin::byte_stream::adopt(ends[0]), w = dunlin::byte_stream::adopt(ends[1]);
        w.write_all("x");
        EXPECT_EQ(r.read_some(&c, 1), 1u);
    });
}

// A descriptor that was not taken stays as it was.
TEST_F(StreamOnce, ADescriptorThatIsRefusedStaysBlocking) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    EXPECT_EQ(code_of([&] { net::stream::adopt(ends[0]); }), std::errc::not_a_socket);
    EXPECT_FALSE(fcntl(ends[0], F_GETFL) & O_NONBLOCK);
    close(ends[0]);
    close(ends[1]);
}

}  // namespace
