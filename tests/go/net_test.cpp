// Ports of Go's own tests of connections, listeners and the netpoller (net/net_test.go, net/listen_test.go,
// net/file_test.go, net/write_unix_test.go, os/pipe_test.go, runtime/proc_test.go, testdata/testprognet/waiters.go),
// under Go's names. In the comments: the numbers of the conformance list.
//
// Go's error "use of closed network connection" is errc::closed.
#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "net/pairs.h"
#include "platform/clock.h"
#include "poll/epoll.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

namespace net = dunlin::net;
using support::code_of;
using support::connected;
using support::has_timed_out;
using support::is_closed;

constexpr const char* networks[] = {"tcp", "unix"};

class GoNet : public support::each_p {
protected:
    void TearDown() override {
        support::each_p::TearDown();
        EXPECT_EQ(support::waiters(), 0);
    }
};
EACH_P(GoNet);
class GoNetOnce : public support::runtime_test {};

void pause(unsigned n) {
    for (unsigned i = n % 16; i > 0; --i) dunlin::yield();
    if (n % 64 == 0) dunlin::sleep_for(std::chrono::microseconds(n % 200));
}

// ---- closing --------------------------------------------------------------------------------------------------------

// NET-12. The reader is in the call, or on its way to it or back.
TEST_P(GoNet, TestCloseUnblocksRead) {
    run([] {
        for (const char* network : networks) {
            const net::listener l = net::listen(network, support::any_address(network));
            std::minstd_rand random(1);
            for (int i = 0; i < support::rounds(500); ++i) {
                auto e = support::connect(l, network);
                dunlin::wait_group wg;
                wg.go([&] {
                    char c;
                    EXPECT_EQ(code_of([&] { e.client.read_some(&c, 1); }), is_closed);
                });
                wg.go([&] {
                    char c;
                    EXPECT_EQ(e.server.read_some(&c, 1), 0u) << "the peer sees the end";
                });
                pause(static_cast<unsigned>(random()));
                e.client.close();
                wg.wait();
            }
        }
    });
}

// NET-12
TEST_P(GoNet, TestConnClose) {
    run([] {
        for (const char* network : networks) {
            auto e = connected(network);
            e.client.close();
            char c;
            EXPECT_EQ(code_of([&] { e.client.read_some(&c, 1); }), is_closed);
            EXPECT_EQ(code_of([&] { e.client.write_all("x"); }), is_closed);
            EXPECT_EQ(code_of([&] { e.client.set_deadline(1s); }), is_closed);
            e.client.close();
        }
    });
}

// NET-12
TEST_P(GoNet, TestListenerClose) {
    run([] {
        for (const char* network : networks) {
            std::minstd_rand random(2);
            for (int i = 0; i < support::rounds(500); ++i) {
                net::listener l = net::listen(network, support::any_address(network));
                const net::address at = l.local_address();
                dunlin::wait_group wg;
                wg.go([&] { EXPECT_EQ(code_of([&] { l.accept(); }), is_closed); });
                pause(static_cast<unsigned>(random()));
                l.close();
                wg.wait();
                EXPECT_EQ(code_of([&] { l.accept(); }), is_closed);
                // There is no listener any more. (A TCP port may be given to the very socket that dials it, and then to
                // another listener.)
                if (network == networks[1]) {
                    EXPECT_EQ(code_of([&] { net::dial(network, at); }), std::errc::connection_refused);
                }
            }
        }
    });
}

// NET-13
TEST_P(GoNet, TestCloseRead) {
    run([] {
        for (const char* network : networks) {
            auto e = connected(network);
            e.client.close_read();
            char c;
            EXPECT_EQ(e.client.read_some(&c, 1), 0u);
            e.client.write_all("x");
            EXPECT_EQ(e.server.read_some(&c, 1), 1u) << "the other half goes on";
        }
    });
}

// NET-13. SIGPIPE would end the process.
TEST_P(GoNet, TestCloseWrite) {
    run([] {
        for (const char* network : networks) {
            auto e = connected(network);
            dunlin::wait_group wg;
            wg.go([&] {
                char c;
                EXPECT_EQ(e.server.read_some(&c, 1), 0u) << "the client's half is closed";
                e.server.write_all("x");
                e.server.close_write();
                EXPECT_EQ(code_of([&] { e.server.write_all("x"); }), std::errc::broken_pipe);
            });
            e.client.close_write();
            EXPECT_EQ(code_of([&] { e.client.write_all("x"); }), std::errc::broken_pipe);
            char c;
            EXPECT_EQ(e.client.read_some(&c, 1), 1u);
            EXPECT_EQ(e.client.read_some(&c, 1), 0u);
            wg.wait();
        }
    });
}

// NET-14, issue 21856
TEST_P(GoNet, TestClosingListener) {
    run([] {
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        const net::address at = l.local_address();
        for (int i = 0; i < 100; ++i) {
            dunlin::wait_group wg;
            wg.go([&] {
                std::error_code ec;
                while (!ec) l.accept(ec);
                EXPECT_EQ(ec, is_closed);
            });
            if (i % 2) support::eventually([] { return support::waiters() == 1; });
            l.close();
            net::listener next;
            ASSERT_NO_THROW(next = net::listen("tcp", at)) << i;
            wg.wait();
            l = std::move(next);
        }
    });
}

// ---- accessors beside close -----------------------------------------------------------------------------------------

// NET-17. Here File() is a duplicate of native_handle().
TEST_P(GoNet, TestFileCloseRace) {
    run([] {
        const net::listener l = net::listen("tcp", "127.0.0.1:0");
        std::minstd_rand random(3);
        for (int i = 0; i < 100; ++i) {
            auto e = support::connect(l, "tcp");
            const int number = e.client.native_handle();
            dunlin::wait_group wg;
            wg.go([&] {
                char c;
                std::error_code ec;
                e.client.read_some(&c, 1, ec);
                EXPECT_EQ(ec, is_closed);
            });
            wg.go([&, n = static_cast<unsigned>(random())] {
                pause(n);
                e.client.close();
            });
            wg.go([&] {
                for (int k = 0; k < 10; ++k) {
                    const int fd = e.client.native_handle();
                    EXPECT_TRUE(fd == number || fd == -1) << fd;
                    const net::address a = e.client.local_address();
                    EXPECT_TRUE(a.to_string().empty() || a == e.server.remote_address());
                    std::error_code ec = code_of([&] { e.client.set_no_delay(true); });
                    EXPECT_TRUE(!ec || ec == is_closed) << ec.message();
                    dunlin::yield();
                }
            });
            wg.wait();
        }
    });
}

// NET-17
TEST_P(GoNet, TestFdRace) {
    run([] {
        for (int i = 0; i < 100; ++i) {
            auto [a, b] = net::stream_pair();
            const int number = a.native_handle();
            dunlin::wait_group wg;
            for (int g = 0; g < 10; ++g) wg.go([&, &a = a] { EXPECT_EQ(a.native_handle(), number); });
            wg.wait();
        }
    });
}

// NET-17. A read under way does not hinder the accessors, nor they it.
TEST_P(GoNet, TestFdReadRace) {
    run([] {
        for (int i = 0; i < 100; ++i) {
            auto [a, b] = net::stream_pair();
            const int number = a.native_handle();
            dunlin::wait_group wg;
            wg.go([&a = a] {
                char c;
                a.set_read_deadline(20s);
                EXPECT_EQ(a.read_some(&c, 1), 1u);
            });
            wg.go([&, &a = a, &b = b] {
                EXPECT_EQ(a.native_handle(), number);
                a.set_read_deadline(20s);
                b.write_all("x");
            });
            wg.wait();
            EXPECT_EQ(a.native_handle(), number);
        }
    });
}

// ---- the poller -----------------------------------------------------------------------------------------------------

// NET-20. Go breaks a second time in case that the first was taken by the scheduler; here it is a poll that does not
// wait, which must leave it alone.
TEST_F(GoNetOnce, TestNetpollBreak) {
    dunlin::netpoll::epoll_backend b;
    for (int i = 0; i < support::rounds(100); ++i) {
        std::atomic<bool> begun{false};
        std::thread breaker([&] {
            support::eventually_on_thread([&] { return begun.load(); });
            for (int k = 0; k < 2; ++k) {
                std::this_thread::sleep_for(100us);
                b.interrupt();
                dunlin::sched::polled_event events[4];
                EXPECT_EQ(b.wait(events, 4, dunlin::netpoll::backend::do_not_wait), 0u);
            }
        });
        const std::int64_t begin_ns = dunlin::platform::now_ns();
        begun = true;
        dunlin::sched::polled_event events[4];
        EXPECT_EQ(b.wait(events, 4, begin_ns + 10'000'000'000), 0u);
        EXPECT_LT(dunlin::platform::now_ns() - begin_ns, 5'000'000'000);
        breaker.join();
    }
}

// NET-21
TEST_P(GoNet, TestNetpollWaiters) {
    run([] {
        auto e = connected("tcp");
        dunlin::wait_group wg;
        wg.go([&] {
            char c;
            for (int i = 0; i < 10; ++i) ASSERT_EQ(e.server.read_some(&c, 1), 1u);
        });
        for (int i = 0; i < 10; ++i) {
            e.client.write_all("x");
            dunlin::sleep_for(2ms);
        }
        wg.wait();
        EXPECT_EQ(support::waiters(), 0) << "after messages";
        for (int i = 0; i < support::rounds(1000); ++i) {
            e.client.set_read_deadline(std::chrono::microseconds(i % 50));
            char c;
            ASSERT_EQ(code_of([&] { e.client.read_some(&c, 1); }), has_timed_out);
        }
        EXPECT_EQ(support::waiters(), 0) << "after deadlines";
        const net::listener l = net::listen("tcp", "127.0.0.1:0");
        for (int i = 0; i < support::rounds(1000); ++i) {
            auto closed = support::connect(l, "tcp");
            wg.go([&] {
                char c;
                EXPECT_EQ(code_of([&] { closed.client.read_some(&c, 1); }), is_closed);
            });
            support::eventually([] { return support::waiters() == 1; });
            closed.client.close();
            wg.wait();
        }
        EXPECT_EQ(support::waiters(), 0) << "after closes";
    });
}

// ---- writing --------------------------------------------------------------------------------------------------------

// NET-23. A writer into a full socket is released when the peer closes, and knows how much it has written.
TEST_P(GoNet, TestEndlessWrite) {
    run([] {
        for (const char* network : networks) {
            auto e = connected(network);
            dunlin::task<std::size_t> writer = dunlin::spawn([&] {
                const std::string data(8192, 'e');
                std::size_t written = 0;
                for (std::error_code ec;;) {
                    const std::size_t n = e.client.write_all(data, ec);
                    written += n;
                    if (!ec) continue;
                    EXPECT_LT(n, data.size());
                    EXPECT_TRUE(ec == std::errc::connection_reset || ec == std::errc::broken_pipe) << ec.message();
                    return written;
                }
            });
            std::string part(8192, ' ');
            std::size_t got = e.server.read_some(part);
            EXPECT_GT(got, 0u);
            support::eventually([] { return support::waiters() == 1; });
            dunlin::sleep_for(5ms);
            e.server.close();
            EXPECT_GE(writer.get(), got);
        }
    });
}

TEST_P(GoNet, PartialWritesAreCounted) {
    run([] {
        for (const char* network : networks) {
            auto e = connected(network);
            std::atomic<std::size_t> got{0};
            dunlin::wait_group wg;
            wg.go([&] {
                std::string part(10'000, ' ');
                while (const std::size_t n = e.server.read_some(part)) got += n;
            });
            std::size_t written = 0;
            const std::string data(3'000'000, 'p');
            for (int i = 0; i < 20; ++i) {
                e.client.set_write_deadline(std::chrono::microseconds(i * 100));
                std::error_code ec;
                written += i % 2 ? e.client.write_all(data, ec) : e.client.writev({data, data}, ec);
                EXPECT_TRUE(!ec || ec == has_timed_out);
            }
            e.client.close();
            wg.wait();
            EXPECT_EQ(got, written);
        }
    });
}

}  // namespace
