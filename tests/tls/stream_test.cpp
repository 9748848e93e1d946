// stream_test.cpp - what a TLS stream carries, how it waits, and how it ends.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <dunlin/net.hpp>
#include <dunlin/tls.hpp>

#include "net/pairs.h"
#include "support/runtime_test.h"
#include "tls/certificates.h"

namespace {

using namespace std::chrono_literals;
using tls_test::client_config;
using tls_test::localhost;
using tls_test::server_config;
using tls_test::the_authority;

namespace net = dunlin::net;
namespace tls = dunlin::tls;

// Both sides over a socket pair.
struct pair {
    tls::stream client, server;
};
pair make_pair(const tls::config& c = client_config(), const tls::config& s = server_config()) {
    auto [a, b] = net::stream_pair();
    return {tls::client(std::move(a), "localhost", c), tls::server(std::move(b), s)};
}
pair connected(const tls::config& c = client_config(), const tls::config& s = server_config()) {
    pair p = make_pair(c, s);
    auto served = dunlin::spawn([&] { p.server.handshake(); });
    p.client.handshake();
    served.get();
    return p;
}

std::string text_of(std::size_t size, unsigned seed) {
    std::string s(size, '\0');
    for (char& c : s) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
    return s;
}

std::string read_to_end(tls::stream& s) {
    std::string all, part(50'000, '\0');
    while (const std::size_t n = s.read_some(dunlin::mutable_buffer(part))) all.append(part, 0, n);
    return all;
}

class TlsStream : public support::each_p {};
EACH_P(TlsStream);

TEST_P(TlsStream, CarriesBytesBothWaysAndEndsWithCloseNotify) {
    run([] {
        pair p = make_pair();
        auto served = dunlin::spawn([&] {
            char b[5];
            p.server.read_exactly(b);
            p.server.write_all("hello " + std::string(b, 5));
            p.server.close_write();
            EXPECT_EQ(read_to_end(p.server), "and more");
        });
        p.client.write_all("world");
        EXPECT_EQ(read_to_end(p.client), "hello world");
        p.client.write_all("and more");  // the other direction is still open
        p.client.close();
        served.get();
        EXPECT_FALSE(p.client.is_open());
        std::error_code ec;
        EXPECT_EQ(p.client.write_some("x", ec), 0u);
        EXPECT_EQ(ec, dunlin::errc::closed);
    });
}

// The goroutine that was left holds the reader's turn for ever.
TEST_P(TlsStream, OneThatARunHasLeftInUseCanBeClosedAndNoMore) {
    for (const bool in_a_run : {true, false}) {
        pair p;
        run([&] {
            p = connected();
            dunlin::go([&] {
                char c;
                p.client.read_some(&c, 1);
                ADD_FAILURE() << "it was frozen";
            });
            support::eventually([] { return support::waiters() == 1; });
        });
        const auto use = [&] {
            std::error_code ec;
            char c;
            p.client.set_deadline(1s, ec);
            EXPECT_EQ(p.client.read_some(&c, 1, ec), 0u);
            EXPECT_EQ(ec, std::errc::state_not_recoverable);
            EXPECT_EQ(p.client.write_all("x", ec), 0u);
            EXPECT_EQ(ec, std::errc::state_not_recoverable);
            p.client.close_write(ec);
            EXPECT_EQ(ec, std::errc::state_not_recoverable);
            p.client.handshake(ec);
            EXPECT_EQ(ec, std::errc::state_not_recoverable);
            EXPECT_EQ(p.client.cipher(), "");
            p.client = tls::stream();
            EXPECT_EQ(p.server.read_some(&c, 1, ec), 0u);
            EXPECT_EQ(ec, tls::errc::truncated) << "the peer sees it";
        };
        in_a_run ? run(use) : use();
    }
}

// It may be anywhere in OpenSSL.
TEST_P(TlsStream, OneThatARunHasLeftAtWorkCanBeClosed) {
    for (int i = 0; i < support::rounds(20); ++i) {
        pair& p = *new pair;  // those left behind keep it
        std::atomic<std::size_t>& got = *new std::atomic<std::size_t>(0);
        run([&] {
            p = connected();
            dunlin::go([&p, text = text_of(50'000, 1)] {
                for (std::error_code ec; !ec;) p.server.write_all(text, ec);
            });
            dunlin::go([&p, &got] {
                std::string part(10'000, '\0');
                for (std::error_code ec; !ec;) got += p.client.read_some(dunlin::mutable_buffer(part), ec);
            });
            support::eventually([&] { return got > 100'000; });
        });
        const auto begin = dunlin::clock::now();
        std::error_code ec;
        p.client.set_deadline(1h, ec);
        p.client.close();
        p.server.close();
        EXPECT_LT(dunlin::clock::now() - begin, 1500ms);
        EXPECT_FALSE(p.client.is_open());
    }
}

TEST_P(TlsStream, DialAndListenAgreeOnVersionCipherAndProtocol) {
    run([] {
        auto sc = server_config();
        sc.alpn({"h2", "http/1.1"});
        auto cc = client_config();
        cc.alpn({"http/1.1", "h2"});
        auto l = tls::listen("tcp", "127.0.0.1:0", sc);
        auto served = dunlin::spawn([&] {
            auto s = l.accept();
            EXPECT_EQ(s.alpn(), "");
            char b[1];
            EXPECT_EQ(s.read_some(b), 1u);
            EXPECT_EQ(s.alpn(), "h2");
            EXPECT_EQ(s.peer_certificate(), "");
        });
        auto c = tls::dial("tcp", l.local_address().to_string(), cc, 20s);
        EXPECT_EQ(c.alpn(), "h2");
        EXPECT_EQ(c.protocol_version(), "TLSv1.3");
        EXPECT_NE(c.cipher(), "");
        EXPECT_EQ(c.peer_certificate(), localhost().certificate);
        c.write_all("x");
        served.get();
    });
}

TEST_P(TlsStream, DialTakesEveryDuration) {
    run([] {
        auto l = tls::listen("tcp", "127.0.0.1:0", server_config());
        const std::string address = l.local_address().to_string();
        auto served = dunlin::spawn([&] {
            std::error_code ec;
            for (int i = 0; i < 3; ++i) l.accept().handshake(ec);
        });
        EXPECT_TRUE(tls::dial("tcp", address, client_config(), std::chrono::seconds::max()));
        EXPECT_TRUE(tls::dial("tcp", address, client_config(), std::chrono::duration<double>(20)));
        std::error_code ec;
        EXPECT_TRUE(tls::dial("tcp", address, client_config(), std::chrono::hours::max(), ec)) << ec.message();
        served.get();
        const std::chrono::duration<double> no_number(std::nan(""));
        EXPECT_FALSE(tls::dial("tcp", address, client_config(), no_number, ec));
        EXPECT_EQ(ec, std::errc::invalid_argument);
        EXPECT_THROW(tls::dial("tcp", address, client_config(), no_number), std::invalid_argument);
    });
}

TEST_P(TlsStream, AContextEndsTheResolvingOfAListener) {
    run([] {
        const auto ctx = dunlin::with_cancel(dunlin::context::background());
        EXPECT_TRUE(tls::listen("tcp", "127.0.0.1:0", server_config(), ctx).is_open());
        std::error_code ec;
        EXPECT_TRUE(tls::listen("tcp", "127.0.0.1:0", server_config(), ctx, ec).is_open()) << ec.message();
        ctx.cancel();
        EXPECT_THROW(tls::listen("tcp", "a.name.invalid:1", server_config(), ctx), dunlin::context_cancelled);
        EXPECT_FALSE(tls::listen("tcp", "a.name.invalid:1", server_config(), ctx, ec).is_open());
        EXPECT_EQ(ec, dunlin::errc::cancelled);
    });
}

TEST_P(TlsStream, LargeTransfersBothWaysAtOnceArriveWhole) {
    run([] {
        pair p = make_pair();
        const std::size_t size = support::rounds(8) * 1'000'000 + 17;
        const std::string there = text_of(size, 1), back = text_of(size, 2);
        dunlin::task_group all;
        all.go([&] { p.client.write_all(there), p.client.close_write(); });
        all.go([&] { p.server.write_all(back), p.server.close_write(); });
        all.go([&] { EXPECT_TRUE(read_to_end(p.client) == back); });
        all.go([&] { EXPECT_TRUE(read_to_end(p.server) == there); });
        all.wait();
    });
}

TEST_P(TlsStream, KeyUpdatesAreAnsweredWhileBothSidesWrite) {
    run([] {
        pair p = connected();
        const std::string there = text_of(300'000, 3), back = text_of(300'000, 4);
        dunlin::task_group all;
        for (tls::stream* s : {&p.client, &p.server}) {
            const std::string& mine = s == &p.client ? there : back;
            all.go([s, &mine] {
                for (std::size_t at = 0; at < mine.size(); at += 30'000)
                    s->write_all(std::string_view(mine).substr(at, 30'000));
                s->close_write();
            });
        }
        // Asked for before the first read or write: the answers are the readers' business.
        SSL_key_update(p.client.native_handle(), SSL_KEY_UPDATE_REQUESTED);
        all.go([&] { EXPECT_TRUE(read_to_end(p.client) == back); });
        all.go([&] { EXPECT_TRUE(read_to_end(p.server) == there); });
        all.wait();
    });
}

TEST_P(TlsStream, WritevIsTheConcatenation) {
    run([] {
        pair p = make_pair();
        const std::string a = text_of(10, 1), b = text_of(40'000, 2), c = text_of(16'384, 3), d = text_of(3, 4);
        auto reader = dunlin::spawn([&] { return read_to_end(p.server); });
        const dunlin::const_buffer parts[] = {a, "", b, c, d, ""};
        EXPECT_EQ(p.client.writev(parts), a.size() + b.size() + c.size() + d.size());
        p.client.close();
        EXPECT_TRUE(reader.get() == a + b + c + d);
    });
}

TEST_P(TlsStream, WritersDoNotMixTheirBytes) {
    run([] {
        pair p = make_pair();
        auto reader = dunlin::spawn([&] { return read_to_end(p.server); });
        {
            dunlin::task_group writers;
            for (char c : {'a', 'b', 'c', 'd'}) writers.go([&, c] { p.client.write_all(std::string(100'000, c)); });
            writers.wait();
        }
        p.client.close();
        const std::string got = reader.get();
        ASSERT_EQ(got.size(), 400'000u);
        for (std::size_t i = 0; i < 4; ++i)
            EXPECT_EQ(got.substr(i * 100'000, 100'000), std::string(100'000, got[i * 100'000]));
    });
}

TEST_P(TlsStream, AnEndWithoutCloseNotifyIsAnError) {
    run([] {
        auto [a, b] = net::stream_pair();
        const int fd = dup(b.native_handle());  // cuts the server off behind its back
        tls::stream client = tls::client(std::move(a), "localhost", client_config()),
                    server = tls::server(std::move(b), server_config());
        auto served = dunlin::spawn([&] { server.write_all("half"); });
        char data[100];
        EXPECT_EQ(client.read_some(data), 4u);
        served.get();
        shutdown(fd, SHUT_WR);
        std::error_code ec;
        EXPECT_EQ(client.read_some(data, ec), 0u);
        EXPECT_EQ(ec, tls::errc::truncated) << ec.message();
        try {
            client.read_some(data);
            ADD_FAILURE();
        } catch (const dunlin::io_error& e) {
            EXPECT_STREQ(e.what(), "tls read from localhost: the connection has ended without a close_notify");
        }
        ::close(fd);
    });
}

TEST_P(TlsStream, ReadExactlySaysHowMuchCameBeforeTheEnd) {
    run([] {
        pair p = make_pair();
        auto served = dunlin::spawn([&] { p.server.write_all("abc"), p.server.close(); });
        char data[10];
        std::error_code ec;
        EXPECT_EQ(p.client.read_exactly(data, ec), 3u);
        EXPECT_EQ(ec, dunlin::errc::end_of_file);
        served.get();
    });
}

TEST_P(TlsStream, CloseWakesAReaderAndAWriter) {
    run([] {
        pair p = connected();
        dunlin::task_group all;
        all.go([&] {
            char data[1];
            std::error_code ec;
            p.client.read_some(data, ec);
            EXPECT_EQ(ec, dunlin::errc::closed) << ec.message();
        });
        all.go([&] {
            const std::string much(10'000'000, 'x');
            std::error_code ec;
            p.client.write_all(much, ec);
            EXPECT_EQ(ec, dunlin::errc::closed) << ec.message();
        });
        dunlin::sleep_for(20ms);
        p.client.close();
        all.wait();
    });
}

TEST_P(TlsStream, DeadlinesAndContextsEndReadsAndWrites) {
    run([] {
        pair p = connected();
        char data[1];
        std::error_code ec;
        p.client.set_read_deadline(10ms);
        p.client.read_some(data, ec);
        EXPECT_EQ(ec, std::errc::timed_out) << ec.message();
        p.client.clear_deadline();
        auto [ctx, cancel] = dunlin::with_timeout(dunlin::context::background(), 10ms);
        EXPECT_THROW(p.client.read_some(data, ctx), dunlin::context_cancelled);
        // Neither has done any harm.
        auto served = dunlin::spawn([&] { p.server.write_all("x"); });
        EXPECT_EQ(p.client.read_some(data), 1u);
        served.get();
        // A write that was given up has: part of a record may be out.
        p.client.set_write_deadline(10ms);
        p.client.write_all(std::string(10'000'000, 'x'), ec);
        EXPECT_EQ(ec, std::errc::timed_out) << ec.message();
        p.client.clear_deadline();
        p.client.write_all("y", ec);
        EXPECT_EQ(ec, std::errc::timed_out) << ec.message();
    });
}

// The context ends between two pieces, as a rule, since the reader takes them as fast as they come.
TEST_P(TlsStream, NothingFollowsAMessageWhoseWriteWasGivenUp) {
    run([] {
        pair p = connected();
        auto [ctx, cancel] = dunlin::with_cancel(dunlin::context::background());
        auto reader = dunlin::spawn([&, cancel = cancel] {
            std::vector<char> room(100'000);
            std::error_code ec;
            std::size_t sum = 0;
            while (!ec) {
                sum += p.server.read_some(room, ec);
                if (sum > 1'000'000) cancel();
            }
        });
        std::error_code ec;
        const std::size_t n = p.client.write_all(std::string(500'000'000, 'x'), ctx, ec);
        EXPECT_EQ(ec, dunlin::errc::cancelled) << ec.message();
        EXPECT_GT(n, 0u);
        EXPECT_EQ(p.client.write_all("y", ec), 0u);
        EXPECT_EQ(ec, dunlin::errc::cancelled) << ec.message();
        p.client.close();
        reader.get();
    });
}

// There is no reader: the first pieces go out without a wait, and a thread ends the context meanwhile, a little later
// in each round.
TEST_P(TlsStream, NothingFollowsAWriteThatEndedBetweenTwoPieces) {
    run([] {
        const std::string text(4'000'000, 'x');
        for (int round = 0; round < 40; ++round) {
            pair p = connected();
            auto [ctx, cancel] = dunlin::with_cancel(dunlin::context::background());
            std::atomic<bool> begun{false};
            std::thread ender([&, cancel = cancel] {
                while (!begun) {}
                const auto at = std::chrono::steady_clock::now() + round * 10us;
                while (std::chrono::steady_clock::now() < at) {}
                cancel();
            });
            std::error_code ec;
            begun = true;
            const std::size_t n = p.client.write_all(text, ctx, ec);
            dunlin::blocking([&] { ender.join(); });
            EXPECT_EQ(ec, dunlin::errc::cancelled) << ec.message();
            p.client.set_write_deadline(1s);
            if (n == 0) continue;  // it had not begun
            EXPECT_EQ(p.client.write_all("y", ec), 0u);
            EXPECT_EQ(ec, dunlin::errc::cancelled) << ec.message();
        }
    });
}

TEST_P(TlsStream, AHandshakeThatTakesTooLongEndsWithItsReasonAndForGood) {
    run([] {
        auto l = net::listen("tcp", "127.0.0.1:0");  // accepts, and says nothing
        const std::string address = l.local_address().to_string();
        std::error_code ec;
        EXPECT_FALSE(tls::dial("tcp", address, client_config(), 20ms, ec));
        EXPECT_EQ(ec, std::errc::timed_out) << ec.message();
        try {
            tls::dial("tcp", address, client_config(), 20ms);
            ADD_FAILURE();
        } catch (const dunlin::io_error& e) {
            EXPECT_STREQ(e.what(), "tls handshake with 127.0.0.1: timed out");
        }
        auto [ctx, cancel] = dunlin::with_timeout(dunlin::context::background(), 20ms);
        EXPECT_THROW(tls::dial("tcp", address, client_config(), ctx), dunlin::context_cancelled);
        tls::stream s = tls::client(net::dial("tcp", address), "localhost", client_config());
        s.handshake(ctx, ec);
        EXPECT_EQ(ec, dunlin::errc::deadline_exceeded);
        s.set_deadline(20ms);
        s.handshake(ec);
        EXPECT_EQ(ec, std::errc::timed_out) << "a context that was done before it began spoils nothing";
        s.clear_deadline();
        s.handshake(ec);
        EXPECT_EQ(ec, std::errc::timed_out);
    });
}

TEST_P(TlsStream, GarbageIsRefusedWithOpensslsReason) {
    run([] {
        auto [a, b] = net::stream_pair();
        a.write_all("GET / HTTP/1.0\r\n\r\n");
        tls::stream s = tls::server(std::move(b), server_config());
        try {
            s.handshake();
            ADD_FAILURE();
        } catch (const dunlin::io_error& e) {
            EXPECT_EQ(e.code(), tls::errc::protocol);
            EXPECT_STREQ(e.what(), "tls handshake with a client: http request");
        }
    });
}

TEST_P(TlsStream, ManyFirstUsersMakeOneHandshake) {
    run([] {
        pair p = make_pair();
        dunlin::task_group all;
        for (int i = 0; i < 4; ++i) all.go([&] { p.client.write_all("1234"); });
        for (int i = 0; i < 4; ++i) {
            all.go([&] {
                char b[4];
                p.server.read_exactly(b);
                EXPECT_EQ(std::string(b, 4), "1234");
            });
        }
        all.wait();
    });
}

TEST_P(TlsStream, PlainThreadsUseItLikeGoroutines) {
    run([] {
        pair p = make_pair();
        std::thread there([&] { p.server.write_all(text_of(500'000, 7)), p.server.close(); });
        EXPECT_TRUE(read_to_end(p.client) == text_of(500'000, 7));
        dunlin::blocking([&] { there.join(); });
    });
}

TEST_P(TlsStream, ADefaultConstructedOneIsClosed) {
    tls::stream s;
    std::error_code ec;
    char b[1];
    s.read_some(b, ec);
    EXPECT_EQ(ec, dunlin::errc::closed);
    EXPECT_THROW(s.write_all("x"), dunlin::io_error);
    EXPECT_FALSE(s);
    s.close();
}

TEST_P(TlsStream, AThousandGoroutinesTalkStress) {
    run([] {
        constexpr int pairs = support::sanitized ? 100 : 500;
        const auto sc = server_config();
        const auto cc = client_config();
        auto l = tls::listen("tcp", "127.0.0.1:0", sc);
        const std::string address = l.local_address().to_string();
        dunlin::task_group all;
        all.go([&] {
            for (int i = 0; i < pairs; ++i) {
                all.go([s = std::make_shared<tls::stream>(l.accept())] {
                    char b[1000];
                    while (const std::size_t n = s->read_some(b)) s->write_all(std::string_view(b, n));
                    s->close();
                });
            }
        });
        for (int i = 0; i < pairs; ++i) {
            all.go([&, i] {
                tls::stream c = tls::dial("tcp", address, cc);
                for (int round = 0; round < 10; ++round) {
                    const std::string said = text_of(500, static_cast<unsigned>(i * 10 + round));
                    std::string heard(said.size(), '\0');
                    c.write_all(said);
                    c.read_exactly(dunlin::mutable_buffer(heard));
                    ASSERT_EQ(said, heard);
                    dunlin::yield();
                }
                c.close_write();
                char b[1];
                EXPECT_EQ(c.read_some(b), 0u);
            });
        }
        all.wait();
    });
}

}  // namespace
