// Ports of Go's own tests of deadlines (net/timeout_test.go, net/dial_unix_test.go), under Go's names. In the comments:
// the numbers of the conformance list.
//
// Go's error "i/o timeout" is std::errc::timed_out, "operation was canceled" errc::cancelled, "use of closed network
// connection" errc::closed.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "net/dial.h"
#include "net/pairs.h"
#include "support/heap_verifier.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

namespace net = dunlin::net;
using dunlin::clock;
using std::chrono::nanoseconds;
using support::connected;
using support::has_timed_out;
using support::is_closed;

class GoNetTimeout : public support::each_p {
protected:
    void TearDown() override {
        support::each_p::TearDown();
        EXPECT_EQ(support::waiters(), 0);
    }
};
EACH_P(GoNetTimeout);

template <class F>
std::error_code error_of(F&& f) {
    std::error_code ec;
    f(ec);
    return ec;
}

// NET-04, issue 35367. A deadline is put into the heap of timers by a waiter, so there is one on each connection.
TEST_P(GoNetTimeout, TestConcurrentSetDeadline) {
    constexpr int goroutines = 8, conns = 10;
    const support::heap_verifier verifier;
    run([] {
        const net::listener l = net::listen("tcp", "127.0.0.1:0");
        std::array<support::ends, conns> c;
        for (support::ends& e : c) e = support::connect(l, "tcp");
        std::atomic<bool> stop{false};
        dunlin::wait_group readers, setters;
        for (support::ends& e : c) {
            readers.go([&] {
                while (!stop) {
                    char x;
                    EXPECT_EQ(error_of([&](std::error_code& ec) { e.client.read_some(&x, 1, ec); }), has_timed_out);
                }
            });
        }
        for (unsigned g = 0; g < goroutines; ++g) {
            setters.go([&, g] {
                std::minstd_rand random(g + 1);
                for (int i = 0; i < support::rounds(100); ++i) {
                    for (support::ends& e : c) {
                        e.client.set_deadline(std::chrono::microseconds(random() % 2000));
                        e.client.set_read_deadline(clock::now() + std::chrono::microseconds(random() % 100));
                    }
                }
            });
        }
        setters.wait();
        stop = true;
        for (support::ends& e : c) e.client.set_deadline(0s);
        readers.wait();
    });
}

// NET-05
TEST_P(GoNetTimeout, TestReadTimeout) {
    run([] {
        for (const char* network : {"tcp", "unix"}) {
            for (const nanoseconds timeout : {nanoseconds(-5s), nanoseconds(50ms)}) {
                auto e = connected(network);
                e.server.write_all("READ TIMEOUT TEST");
                e.client.set_read_deadline(timeout);
                std::error_code ec;
                std::string got;
                for (;;) {
                    char part[4];
                    const std::size_t n = e.client.read_some(part, ec);
                    if (ec) break;
                    got.append(part, n);
                }
                EXPECT_EQ(ec, has_timed_out);
                if (timeout < 0s) {
                    EXPECT_EQ(got, "") << "a past deadline, though data is ready";
                }
                // Go on with another deadline.
                e.client.set_read_deadline(20s);
                e.server.write_all("x");
                char c;
                EXPECT_EQ(e.client.read_some(&c, 1), 1u);
                e.client.set_read_deadline(1ms);
                for (ec.clear(); !ec;) e.client.read_some(&c, 1, ec);
                EXPECT_EQ(ec, has_timed_out);
            }
        }
    });
}

// NET-05
TEST_P(GoNetTimeout, TestWriteTimeout) {
    run([] {
        for (const char* network : {"tcp", "unix"}) {
            for (const nanoseconds timeout : {nanoseconds(-5s), nanoseconds(10ms)}) {
                auto e = connected(network);
                const std::string block(1 << 16, 'w');
                for (int i = 0; i < 2; ++i) {
                    e.client.set_write_deadline(timeout);
                    std::error_code ec;
                    std::size_t n = 0;
                    while (!ec) n += e.client.write_all(block, ec);
                    EXPECT_EQ(ec, has_timed_out);
                    if (timeout < 0s) {
                        EXPECT_EQ(n, 0u);
                    }
                }
            }
        }
    });
}

// NET-06
TEST_P(GoNetTimeout, TestReadTimeoutMustNotReturn) {
    run([] {
        auto e = connected("tcp");
        e.client.set_deadline(-5s);
        e.client.set_write_deadline(-5s);
        e.client.set_read_deadline(-5s);
        e.client.clear_read_deadline();
        std::atomic<bool> returned{false};
        dunlin::task<std::error_code> reader = dunlin::spawn([&] {
            char c;
            const std::error_code ec = error_of([&](std::error_code& error) { e.client.read_some(&c, 1, error); });
            returned = true;
            return ec;
        });
        dunlin::sleep_for(50ms);
        EXPECT_FALSE(returned);
        e.client.close();
        EXPECT_EQ(reader.get(), is_closed);
    });
}

// NET-06
TEST_P(GoNetTimeout, TestWriteTimeoutMustNotReturn) {
    run([] {
        auto [client, server] = net::stream_pair();
        client.set_deadline(-5s);
        client.set_write_deadline(-5s);
        client.set_read_deadline(-5s);
        client.clear_write_deadline();
        std::atomic<bool> returned{false};
        dunlin::task<std::error_code> writer = dunlin::spawn([&, &client = client] {
            std::error_code ec;
            while (!ec) client.write_all("TIMEOUT WRITE TEST", ec);
            returned = true;
            return ec;
        });
        dunlin::sleep_for(50ms);
        EXPECT_FALSE(returned);
        client.close();
        EXPECT_EQ(writer.get(), is_closed);
    });
}

// NET-07. A timeout must never be early; and for one of at most 4 s it shall be at most a tenth late, or as little late
// as a thread's sleep is then.
template <class SetDeadline, class Operation>
void fluctuation(SetDeadline set_deadline, Operation operation) {
    nanoseconds best = 1h;
    for (nanoseconds d = 1ms; d <= 4s; d = d * 5 / 4) {
        nanoseconds reference{};
        std::thread beside([&] {
            const auto begin = std::chrono::steady_clock::now();
            std::this_thread::sleep_for(d);
            reference = std::chrono::steady_clock::now() - begin - d;
        });
        const auto begin = clock::now();
        set_deadline(d);
        std::error_code ec;
        while (!ec) operation(ec);
        const nanoseconds late = clock::now() - begin - d;
        beside.join();
        ASSERT_EQ(ec, has_timed_out);
        ASSERT_GE(late, 0ns) << "early: " << d.count();
        best = std::min(best, late);
        if (late <= d / 10 || late <= 2 * reference) return;
    }
    ADD_FAILURE() << "never less than " << best.count() << " ns late";
}

TEST_P(GoNetTimeout, TestReadTimeoutFluctuation) {
    allow(60s);
    run([] {
        auto e = connected("tcp");
        fluctuation([&](auto d) { e.client.set_read_deadline(d); },
            [&](std::error_code& ec) {
                char c;
                e.client.read_some(&c, 1, ec);
            });
    });
}

TEST_P(GoNetTimeout, TestReadFromTimeoutFluctuation) {
    allow(60s);
    run([] {
        net::packet_conn p = net::listen_packet("udp", "127.0.0.1:0");
        fluctuation([&](auto d) { p.set_read_deadline(d); },
            [&](std::error_code& ec) {
                std::array<char, 256> b;
                net::address from;
                p.read_from(b, from, ec);
            });
    });
}

TEST_P(GoNetTimeout, TestWriteTimeoutFluctuation) {
    allow(60s);
    run([] {
        auto e = connected("tcp");
        e.client.set_send_buffer(10000);
        const std::string block(1 << 16, 'w');
        fluctuation([&](auto d) { e.client.set_write_deadline(d); },
            [&](std::error_code& ec) { e.client.write_all(block, ec); });
    });
}

TEST_P(GoNetTimeout, TestAcceptTimeoutFluctuation) {
    allow(60s);
    run([] {
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        fluctuation([&](auto d) { l.set_deadline(d); }, [&](std::error_code& ec) { l.accept(ec); });
    });
}

// NET-08. The peer writes without end, so that the deadline comes in the midst of reading. Go's has one processor, and
// four; here those of all tests. The long ones at the same time.
TEST_P(GoNetTimeout, TestVariousDeadlines) {
    allow(60s);
    run([] {
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        dunlin::wait_group servers;
        servers.go([&] {
            for (;;) {
                std::error_code ec;
                auto s = std::make_shared<net::stream>(l.accept(ec));
                if (ec) return;
                servers.go([s] {
                    const std::string block(1024, 'a');
                    std::error_code write_error;
                    while (!write_error) s->write_all(block, write_error);
                    EXPECT_TRUE(write_error == std::errc::broken_pipe || write_error == std::errc::connection_reset)
                        << write_error.message();
                });
            }
        });
        const auto read_until = [&l](nanoseconds timeout) {
            net::stream c = net::dial("tcp", l.local_address());
            const auto begin = clock::now();
            c.set_deadline(timeout);
            std::error_code ec;
            std::array<char, 4096> part;
            while (!ec) ASSERT_FALSE(c.read_some(part, ec) == 0 && !ec) << "the peer has closed";
            EXPECT_EQ(ec, has_timed_out) << timeout.count();
            EXPECT_GE(clock::now() - begin, timeout);
        };
        for (const nanoseconds timeout : std::initializer_list<nanoseconds>{
                 1ns, 2ns, 5ns, 50ns, 100ns, 200ns, 500ns, 750ns, 1us, 5us, 25us, 250us, 500us, 1ms, 5ms, 100ms}) {
            for (int run = 0; run < 3; ++run) read_until(timeout);
        }
        dunlin::wait_group long_ones;
        for (const nanoseconds timeout : std::initializer_list<nanoseconds>{250ms, 500ms, 1s}) {
            for (int run = 0; run < 3; ++run) long_ones.go([&read_until, timeout] { read_until(timeout); });
        }
        long_ones.wait();
        l.close();
        servers.wait();
    });
}

// NET-09
TEST_P(GoNetTimeout, TestReadWriteProlongedTimeout) {
    run([] {
        auto e = connected("tcp");
        const int rounds = support::rounds(1000);
        dunlin::wait_group wg;
        wg.go([&] {
            for (int i = 0; i < rounds; ++i) {
                char c;
                e.server.set_read_deadline(20s);
                ASSERT_EQ(e.server.read_some(&c, 1), 1u);
                e.server.set_write_deadline(20s);
                e.server.write_all(&c, 1);
            }
        });
        for (int i = 0; i < rounds; ++i) {
            const char out = static_cast<char>(i);
            char in;
            e.client.set_deadline(clock::now() + 20s);
            e.client.write_all(&out, 1);
            ASSERT_EQ(e.client.read_exactly(&in, 1), 1u);
            ASSERT_EQ(in, out);
        }
        wg.wait();
    });
}

// NET-10
TEST_P(GoNetTimeout, TestAcceptTimeout) {
    run([] {
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        for (const auto& [timeout, expected] :
            {std::pair{nanoseconds(-5s), has_timed_out}, {nanoseconds(50ms), std::error_code()}}) {
            net::stream dialled = net::dial("tcp", l.local_address());
            l.set_deadline(timeout);
            for (int i = 0; i < 10; ++i) {
                std::error_code ec;
                const net::stream s = l.accept(ec);
                EXPECT_EQ(s.is_open(), !ec);
                if (expected) {
                    EXPECT_EQ(ec, expected);
                } else if (ec) {
                    EXPECT_EQ(ec, has_timed_out);
                    break;
                }
            }
        }
    });
}

// NET-10
TEST_P(GoNetTimeout, TestAcceptTimeoutMustReturn) {
    run([] {
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        l.clear_deadline();
        l.set_deadline(clock::now() + 10ms);
        const auto begin = clock::now();
        EXPECT_EQ(error_of([&](std::error_code& ec) { l.accept(ec); }), has_timed_out);
        EXPECT_LT(clock::now() - begin, 10s);
    });
}

// NET-10
TEST_P(GoNetTimeout, TestAcceptTimeoutMustNotReturn) {
    run([] {
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        l.set_deadline(-5s);
        l.clear_deadline();
        std::atomic<bool> returned{false};
        dunlin::task<std::error_code> acceptor = dunlin::spawn([&] {
            const std::error_code ec = error_of([&](std::error_code& error) { l.accept(error); });
            returned = true;
            return ec;
        });
        dunlin::sleep_for(50ms);
        EXPECT_FALSE(returned);
        l.close();
        EXPECT_EQ(acceptor.get(), is_closed);
    });
}

// NET-11. There is no answer: the backlog of a Unix socket is full, for certain.
TEST_P(GoNetTimeout, TestDialTimeout) {
    run([] {
        const net::listener l = net::listen("unix", support::abstract_name(), {.backlog = 1});
        std::vector<int> clients;
        for (int connected = 0; connected == 0;) {
            clients.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
            const net::address to = l.local_address();
            connected = connect(clients.back(), static_cast<const sockaddr*>(to.native()), to.native_size());
        }
        for (const nanoseconds timeout : std::initializer_list<nanoseconds>{-5s, 1ns, 1us, 1ms, 20ms}) {
            const auto begin = clock::now();
            std::error_code ec;
            EXPECT_FALSE(net::dial("unix", l.local_address(), timeout, ec).is_open());
            EXPECT_EQ(ec, has_timed_out);
            EXPECT_GE(clock::now() - begin, timeout);
        }
        for (const int fd : clients) close(fd);
    });
}

// NET-11. Whenever the cancellation comes, there is a connection or the error, and no descriptor is left.
TEST_P(GoNetTimeout, TestDialContextCancelRace) {
    run([] {
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        dunlin::wait_group acceptor;
        acceptor.go([&] {
            std::error_code ec;
            while (!ec) l.accept(ec);
        });
        const std::size_t open_before = dunlin::netpoll::fd_record::open_count();
        std::minstd_rand random(1);
        for (int i = 0; i < support::rounds(1000); ++i) {
            auto ctx = dunlin::with_cancel(dunlin::context::background());
            dunlin::wait_group wg;
            wg.go([ctx, n = random() % 8] {
                for (unsigned k = 0; k < n; ++k) dunlin::yield();
                ctx.cancel();
            });
            std::error_code ec;
            net::stream s = net::dial("tcp", l.local_address(), ctx, ec);
            ASSERT_EQ(s.is_open(), !ec);
            if (ec) {
                ASSERT_EQ(ec, std::error_code(dunlin::errc::cancelled));
            } else {
                s.write_all("x");
            }
            wg.wait();
        }
        support::eventually([&] { return dunlin::netpoll::fd_record::open_count() == open_before; });
        l.close();
        acceptor.wait();
    });
}

// NET-11, golang.org/issue/16523: the cancellation comes when the connection has been made and the caller has not got
// it yet.
TEST_P(GoNetTimeout, TestDialContextCancelAtTheMomentOfSuccess) {
    static constinit std::atomic<const dunlin::cancellable*> to_cancel{nullptr};
    static std::atomic<int> cancelled{0};
    net::when_connected = +[]() noexcept {
        if (const auto* ctx = to_cancel.exchange(nullptr)) {
            ctx->cancel();
            ++cancelled;
        }
    };
    cancelled = 0;
    run([] {
        for (const char* network : {"tcp", "unix"}) {
            net::listener l = net::listen(network, support::any_address(network));
            const std::size_t open_before = dunlin::netpoll::fd_record::open_count();
            for (int i = 0; i < 10; ++i) {
                const auto ctx = dunlin::with_cancel(dunlin::context::background());
                to_cancel = &ctx;
                std::error_code ec;
                EXPECT_FALSE(net::dial(network, l.local_address(), ctx, ec).is_open());
                EXPECT_EQ(ec, std::error_code(dunlin::errc::cancelled));
                EXPECT_EQ(dunlin::netpoll::fd_record::open_count(), open_before) << "no descriptor is left";
                char c;
                EXPECT_EQ(l.accept().read_some(&c, 1), 0u) << "nor a connection";
            }
        }
    });
    net::when_connected = nullptr;
    EXPECT_EQ(cancelled, 20);
}

}  // namespace
