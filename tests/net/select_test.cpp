// on_readable() and on_writable() in select(), beside channels, timeouts and contexts.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "net/pairs.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

namespace net = dunlin::net;
using dunlin::on_readable;
using dunlin::on_recv;
using dunlin::on_timeout;
using dunlin::on_writable;
using dunlin::otherwise;
using dunlin::select;

class SelectStream : public support::each_p {
protected:
    void TearDown() override {
        support::each_p::TearDown();
        EXPECT_EQ(support::waiters(), 0);
    }
};
EACH_P(SelectStream);

TEST_P(SelectStream, TakesWhatIsReady) {
    run([] {
        for (const char* network : {"tcp", "unix"}) {
            auto e = support::connected(network);
            EXPECT_EQ(select(on_readable(e.client), otherwise()), 1u);
            EXPECT_EQ(select(on_readable(e.client), on_timeout(1ms)), 1u);
            EXPECT_EQ(select(on_readable(e.client), on_writable(e.client)), 1u);
            e.server.write_all("xy");
            bool handled = false;
            EXPECT_EQ(select(on_timeout(1h), on_readable(e.client, [&] { handled = true; })), 1u);
            EXPECT_TRUE(handled);
            EXPECT_EQ(select(on_readable(e.client), otherwise()), 0u) << "it is still";
            char c;
            EXPECT_EQ(e.client.read_some(&c, 1), 1u);
            EXPECT_EQ(select(on_readable(e.client), otherwise()), 0u) << "there is more";
            EXPECT_EQ(e.client.read_some(&c, 1), 1u);
            EXPECT_EQ(select(on_readable(e.client), otherwise()), 1u);
            e.server.close();
            EXPECT_EQ(select(on_readable(e.client)), 0u) << "its end";
            EXPECT_EQ(select(on_readable(e.client)), 0u);
            EXPECT_EQ(e.client.read_some(&c, 1), 0u);
        }
    });
}

// Short reads say that nothing is left: a select after one must not believe that of the end of the peer, nor of what
// came since.
TEST_P(SelectStream, WaitsAfterAShortRead) {
    run([] {
        auto e = support::connected("tcp");
        char c[16];
        for (int i = 0; i < support::rounds(500); ++i) {
            e.server.write_all("x");
            EXPECT_EQ(select(on_readable(e.client)), 0u);
            EXPECT_EQ(e.client.read_some(c), 1u);
            EXPECT_EQ(select(on_readable(e.client), otherwise()), 1u);
        }
        e.server.write_all("x");
        e.server.close();
        EXPECT_EQ(e.client.read_some(c), 1u);
        EXPECT_EQ(select(on_readable(e.client), on_timeout(20s)), 0u);
    });
}

TEST_P(SelectStream, IsWritableWhenThereIsRoom) {
    run([] {
        auto [a, b] = net::stream_pair();
        EXPECT_EQ(select(on_writable(a)), 0u);
        const std::size_t full = support::fill(a);
        EXPECT_EQ(select(on_writable(a), otherwise()), 1u);
        dunlin::wait_group wg;
        wg.go([&, &b = b] {
            std::string all(full, ' ');
            b.read_exactly(all);
        });
        EXPECT_EQ(select(on_writable(a), on_timeout(20s)), 0u);
        wg.wait();
        support::fill(a);
        wg.go([&b = b] { b.close(); });
        EXPECT_EQ(select(on_writable(a), on_timeout(20s)), 0u) << "broken";
        wg.wait();
        EXPECT_EQ(support::code_of([&a = a] { a.write_all("x"); }), std::errc::broken_pipe);
    });
}

// Writes with write(x) as long as a select finds `s` writable; that select must not keep a write from what room is
// left.
template <class Handle, class Write>
void expect_room_beyond_the_look(Handle& s, Write write) {
    const std::string block(4096, 'b');
    while (select(on_writable(s), otherwise()) == 0) write(block);
    s.set_write_deadline(5s);
    write("y");
}

// The kernel calls a socket or a pipe writable only when much of it is empty.
TEST_P(SelectStream, AWriteTakesTheRoomThatALookDoesNotCount) {
    run([] {
        const auto into = [](auto& s) {
            return [&s](std::string_view text) {
                std::error_code ec;
                EXPECT_EQ(s.write_all(text, ec), text.size());
                EXPECT_EQ(ec, std::error_code());
            };
        };
        auto [a, b] = net::stream_pair();
        expect_room_beyond_the_look(a, into(a));
        dunlin::fs::pipe p;
        expect_room_beyond_the_look(p.write_end, [write = into(p.write_end)](std::string_view text) {
            write(text.substr(0, 4000));  // the last page of the pipe keeps some room
        });
    });
}

TEST_P(SelectStream, APacketTakesTheRoomThatALookDoesNotCount) {
    run([] {
        const auto receiver = net::listen_packet("unixgram", support::abstract_name());
        auto sender = net::listen_packet("unixgram", support::abstract_name());
        const int room = 50'000;  // which the kernel doubles: for fewer packets than a receiver's queue takes
        ASSERT_EQ(setsockopt(sender.native_handle(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
        const std::string packet(16'000, 'p');
        expect_room_beyond_the_look(sender, [&](std::string_view text) {
            std::error_code ec;
            sender.write_to(text.size() > 1 ? packet : std::string(text), receiver.local_address(), ec);
            EXPECT_EQ(ec, std::error_code());
        });
    });
}

TEST_P(SelectStream, ClosedAndEmptyHandlesAreReady) {
    run([] {
        net::stream never;
        EXPECT_EQ(select(on_readable(never), on_timeout(20s)), 0u);
        EXPECT_EQ(select(on_writable(never), otherwise()), 0u);
        auto [a, b] = net::stream_pair();
        dunlin::wait_group wg;
        for (int i = 0; i < 3; ++i) wg.go([&a = a] { EXPECT_EQ(select(on_readable(a), on_timeout(20s)), 0u); });
        std::thread thread([&a = a] { EXPECT_EQ(select(on_readable(a), on_timeout(20s)), 0u); });
        support::eventually([] { return support::waiters() == 4; });
        a.close();
        wg.wait();
        thread.join();
        EXPECT_EQ(select(on_readable(a)), 0u);
    });
}

TEST_P(SelectStream, StandsBesideChannelsContextsAndTimers) {
    run([] {
        auto [a, b] = net::stream_pair();
        dunlin::chan<int> c, d(1);
        auto ctx = dunlin::with_cancel(dunlin::context::background());
        const auto any = [&, &a = a, &b = b] {
            return select(on_readable(a), on_recv(c), dunlin::on_send(d, 1), dunlin::on_done(ctx), on_readable(b),
                on_recv(dunlin::after(20s)));
        };
        EXPECT_EQ(any(), 2u);  // fills d
        for (int i = 0; i < support::rounds(300); ++i) {
            dunlin::wait_group wg;
            wg.go([&, &a = a, &b = b] {
                for (int k = 0; k < i % 4; ++k) dunlin::yield();
                if (i % 3 == 0) b.write_all("x");
                if (i % 3 == 1) c.send(1);
                if (i % 3 == 2) a.write_all("x");
            });
            const std::size_t expected[] = {0, 1, 4};
            ASSERT_EQ(any(), expected[i % 3]);
            wg.wait();
            char x;
            if (i % 3 == 0) a.read_some(&x, 1);
            if (i % 3 == 2) b.read_some(&x, 1);
        }
        ctx.cancel();
        EXPECT_EQ(any(), 3u);
    });
}

TEST_P(SelectStream, IsFairAmongThoseReady) {
    run([] {
        auto [a, b] = net::stream_pair();
        dunlin::chan<int> c(1);
        c.send(1);
        a.write_all("x");
        int taken[3] = {};
        for (int i = 0; i < 600; ++i) ++taken[select(on_readable(b), on_writable(b), on_recv(c, [&] { c.send(1); }))];
        for (const int n : taken) EXPECT_GT(n, 100);
    });
}

TEST_P(SelectStream, AnyNumberMayWaitForTheSame) {
    run([] {
        auto e = support::connected("tcp");
        std::atomic<int> bytes{0};
        const int rounds = support::rounds(1000);
        const auto take = [&] {
            while (bytes < rounds) {
                if (select(on_readable(e.client), on_timeout(1ms)) != 0) continue;
                char c;
                e.client.set_read_deadline(0s);
                e.client.clear_read_deadline();
                std::error_code ec;
                const auto soon = dunlin::context::with_timeout(dunlin::context::background(), 1ms);
                bytes += static_cast<int>(e.client.read_some(dunlin::mutable_buffer(&c, 1), soon, ec));
            }
        };
        dunlin::wait_group wg;
        for (int i = 0; i < 4; ++i) wg.go(take);
        std::thread thread(take);
        for (int i = 0; i < rounds; ++i) {
            e.server.write_all("x");
            if (i % 16 == 0) dunlin::yield();
        }
        wg.wait();
        thread.join();
        EXPECT_EQ(bytes, rounds);
    });
}

// Both ends wait in select() only.
TEST_P(SelectStream, InALoopAtBothEnds) {
    run([] {
        for (const char* network : {"tcp", "unix"}) {
            auto e = support::connected(network);
            const int rounds = support::rounds(2000);
            const auto loop = [&](net::stream& s, bool first) {
                int sent = 0, got = 0, want = first ? 1 : 0;
                while (got < rounds || sent < rounds) {
                    const auto receive = [&] {
                        char c[8];
                        const std::size_t n = s.read_some(c);
                        ASSERT_GT(n, 0u);
                        got += static_cast<int>(n);
                        want += static_cast<int>(n);
                    };
                    const auto give = [&] {
                        s.write_all("x");
                        ++sent;
                        --want;
                    };
                    if (want > 0 && sent < rounds) {
                        if (got < sent) {
                            select(on_readable(s, receive), on_writable(s, give));
                        } else {
                            select(on_writable(s, give), on_timeout(20s));
                        }
                    } else {
                        ASSERT_EQ(select(on_readable(s, receive), on_timeout(20s)), 0u) << got << ' ' << sent;
                    }
                }
            };
            dunlin::wait_group wg;
            wg.go([&] { loop(e.client, true); });
            std::thread([&] { loop(e.server, false); }).join();
            wg.wait();
        }
    });
}

TEST_P(SelectStream, AListenerIsReadableWhenAClientCalls) {
    run([] {
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        EXPECT_EQ(select(on_readable(l), otherwise()), 1u);
        dunlin::wait_group wg;
        wg.go([&] { net::dial("tcp", l.local_address()); });
        EXPECT_EQ(select(on_readable(l), on_timeout(20s)), 0u);
        EXPECT_TRUE(l.accept().is_open());
        wg.wait();
    });
}

TEST_P(SelectStream, StandsInAListOfCases) {
    run([] {
        std::vector<std::pair<net::stream, net::stream>> pairs;
        for (int i = 0; i < 40; ++i) pairs.push_back(net::stream_pair());
        for (std::size_t want = 0; want < pairs.size(); ++want) {
            std::vector<dunlin::select_case> cases;
            for (auto& p : pairs) cases.push_back(on_readable(p.first));
            cases.push_back(on_timeout(20s));
            dunlin::wait_group wg;
            wg.go([&] { pairs[want].second.write_all("x"); });
            ASSERT_EQ(select(cases), want);
            wg.wait();
            char c;
            pairs[want].first.read_some(&c, 1);
        }
    });
}

}  // namespace
