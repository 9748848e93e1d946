// What ends calls on streams before they are done: deadlines and contexts.
#include <array>
#include <atomic>
#include <chrono>
#include <netinet/tcp.h>
#include <string>
#include <thread>

#include "net/pairs.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

namespace net = dunlin::net;
using dunlin::context;
using support::code_of;
using support::connected;
using support::has_timed_out;
using support::text_of;

const std::error_code is_cancelled = dunlin::errc::cancelled;
const std::error_code deadline_exceeded = dunlin::errc::deadline_exceeded;

class Deadline : public support::each_p {};
EACH_P(Deadline);
class DeadlineOnce : public support::runtime_test {};

TEST_P(Deadline, IsNeverEarly) {
    run([] {
        auto e = connected("tcp");
        for (const auto d : {0us, 1us, 100us, 1000us, 5000us, 30000us}) {
            char c;
            const auto begin = dunlin::clock::now();
            e.client.set_read_deadline(d);
            EXPECT_EQ(code_of([&] { e.client.read_some(&c, 1); }), has_timed_out);
            EXPECT_GE(dunlin::clock::now() - begin, d);
        }
    });
}

TEST_F(DeadlineOnce, IsOfAnyClock) {
    auto [a, b] = net::stream_pair();
    char c;
    const auto expires = [&, &a = a] { return code_of([&] { a.read_some(&c, 1); }) == has_timed_out; };
    a.set_read_deadline(dunlin::clock::now() + 2ms);
    EXPECT_TRUE(expires());
    a.set_read_deadline(std::chrono::system_clock::now() + 2ms);
    EXPECT_TRUE(expires());
    a.set_read_deadline(std::chrono::steady_clock::now() + 2ms);
    EXPECT_TRUE(expires());
    a.set_read_deadline(std::chrono::duration<double>(0.002));
    EXPECT_TRUE(expires());
    a.set_read_deadline(dunlin::clock::time_point::min());
    EXPECT_TRUE(expires());
    a.set_read_deadline(std::chrono::nanoseconds::min());
    EXPECT_TRUE(expires());
    b.write_all("xx");
    a.set_read_deadline(dunlin::clock::time_point::max());
    EXPECT_EQ(a.read_some(&c, 1), 1u);
    a.set_read_deadline(std::chrono::hours::max());
    EXPECT_EQ(a.read_some(&c, 1), 1u);
}

TEST_P(Deadline, APastOneFailsThoughDataIsReady) {
    run([] {
        auto e = connected("tcp");
        e.server.write_all("xy");
        char c;
        dunlin::select(dunlin::on_readable(e.client));
        e.client.set_deadline(-1s);
        std::error_code ec;
        EXPECT_EQ(e.client.read_some(&c, 1, ec), 0u);
        EXPECT_EQ(ec, has_timed_out);
        EXPECT_EQ(e.client.read_exactly(&c, 1, ec), 0u);
        EXPECT_EQ(ec, has_timed_out);
        EXPECT_EQ(e.client.write_all("x", ec), 0u);
        EXPECT_EQ(ec, has_timed_out);
        EXPECT_EQ(e.client.write_some("x", ec), 0u);
        EXPECT_EQ(ec, has_timed_out);
        EXPECT_EQ(e.client.writev({"x"}, ec), 0u);
        EXPECT_EQ(ec, has_timed_out);
        const std::string text = text_of([&] { e.client.read_some(&c, 1); });
        EXPECT_EQ(text, "read tcp " + e.client.local_address().to_string() + "->" +
                            e.client.remote_address().to_string() + ": timed out");
        e.client.clear_read_deadline();
        EXPECT_EQ(e.client.read_some(&c, 1), 1u) << "nothing was lost";
        EXPECT_EQ(code_of([&] { e.client.write_all("x"); }), has_timed_out) << "the other half";
        e.client.clear_write_deadline();
        e.client.write_all("x");
        e.client.clear_deadline();
        EXPECT_EQ(e.client.read_some(&c, 1), 1u);
    });
}

TEST_P(Deadline, OfAWriteTellsHowMuchWasWritten) {
    run([] {
        auto [a, b] = net::stream_pair();
        a.set_write_deadline(20ms);
        std::size_t written = 0;
        try {
            a.write_all(std::string(10'000'000, 'x'));
            ADD_FAILURE();
        } catch (const dunlin::io_error& error) {
            EXPECT_EQ(error.code(), has_timed_out);
            written = error.transferred();
        }
        a.close();
        std::size_t got = 0;
        std::string part(100'000, ' ');
        while (const std::size_t n = b.read_some(part)) got += n;
        EXPECT_EQ(got, written);
    });
}

TEST_P(Deadline, OfReadExactlyTellsHowMuchWasRead) {
    run([] {
        auto e = connected("tcp");
        e.server.write_all("abc");
        e.client.set_read_deadline(20ms);
        std::string got(10, ' ');
        std::error_code ec;
        EXPECT_EQ(e.client.read_exactly(got, ec), 3u);
        EXPECT_EQ(ec, has_timed_out);
        EXPECT_EQ(got.substr(0, 3), "abc");
    });
}

TEST_F(DeadlineOnce, EndsTheCallOfAPlainThread) {
    auto [a, b] = net::stream_pair();
    char c;
    a.set_read_deadline(5ms);
    EXPECT_EQ(code_of([&, &a = a] { a.read_some(&c, 1); }), has_timed_out);
    a.clear_deadline();
    std::thread later([&a = a] {
        std::this_thread::sleep_for(2ms);
        a.set_read_deadline(0s);
    });
    EXPECT_EQ(code_of([&, &a = a] { a.read_some(&c, 1); }), has_timed_out);
    later.join();
    const auto ctx = context::with_timeout(context::background(), 5ms);
    a.clear_deadline();
    EXPECT_EQ(code_of([&, &a = a] { a.read_some(dunlin::mutable_buffer(&c, 1), ctx); }), deadline_exceeded);
}

TEST_P(Deadline, OfAReaderThatWaitsForItsTurn) {
    run([] {
        auto [a, b] = net::stream_pair();
        a.set_read_deadline(5ms);
        dunlin::wait_group wg;
        for (int i = 0; i < 5; ++i) {
            wg.go([&a = a] {
                char c;
                EXPECT_EQ(code_of([&] { a.read_some(&c, 1); }), has_timed_out);
            });
        }
        wg.wait();
    });
}

// ---- contexts -------------------------------------------------------------------------------------------------------

TEST_P(Deadline, AContextEndsACallUnderWay) {
    run([] {
        auto [a, b] = net::stream_pair();
        support::fill(b);
        auto [c, d] = net::stream_pair();
        for (int i = 0; i < support::rounds(200); ++i) {
            auto ctx = dunlin::with_cancel(context::background());
            dunlin::wait_group wg;
            char x;
            wg.go([&, &c = c] {
                EXPECT_EQ(code_of([&] { c.read_some(dunlin::mutable_buffer(&x, 1), ctx); }), is_cancelled);
            });
            wg.go([&, &c = c] {  // waits for its turn
                std::error_code ec;
                std::string s(3, ' ');
                EXPECT_EQ(c.read_exactly(s, ctx, ec), 0u);
                EXPECT_EQ(ec, is_cancelled);
            });
            wg.go([&, &b = b] {
                std::error_code ec;
                b.write_all("x", ctx, ec);
                EXPECT_EQ(ec, is_cancelled);
            });
            if (i % 2) support::eventually([] { return support::waiters() >= 2; });
            ctx.cancel();
            wg.wait();
            ASSERT_EQ(support::waiters(), 0);
        }
    });
}

TEST_P(Deadline, ThrowsWhatAContextThrows) {
    run([] {
        auto e = connected("tcp");
        char c;
        auto cancelled = dunlin::with_cancel(context::background());
        cancelled.cancel();
        e.server.write_all("x");
        dunlin::select(dunlin::on_readable(e.client));
        EXPECT_EQ(e.client.read_some(dunlin::mutable_buffer(&c, 1), cancelled), 1u)
            << "what is there need not be waited for";
        try {
            e.client.read_some(dunlin::mutable_buffer(&c, 1), cancelled);
            ADD_FAILURE();
        } catch (const dunlin::context_cancelled& error) {
            EXPECT_EQ(std::string(error.what()).rfind("read tcp 127.0.0.1:", 0), 0u) << error.what();
            EXPECT_EQ(error.code(), std::errc::operation_canceled);
        }
        const auto soon = context::with_timeout(context::background(), 2ms);
        EXPECT_EQ(code_of([&] { e.client.read_some(dunlin::mutable_buffer(&c, 1), soon); }), deadline_exceeded);
        EXPECT_EQ(code_of([&] { e.client.read_some(dunlin::mutable_buffer(&c, 1), soon); }), std::errc::timed_out)
            << "equivalent";
        EXPECT_EQ(e.client.write_all("x", soon), 1u) << "there is room";
        e.client.set_read_deadline(2ms);
        EXPECT_EQ(code_of([&] {
            e.client.read_some(dunlin::mutable_buffer(&c, 1), dunlin::with_cancel(context::background()));
        }),
            has_timed_out);
    });
}

// The kernel's time-out is another thing than one's own, though both are one: TCP_USER_TIMEOUT for data that the peer
// does not take.
TEST_F(DeadlineOnce, TheKernelsTimeOutIsToldFromOnesOwn) {
    dunlin::run([] {
        auto e = support::connected("tcp");
        const unsigned patience_ms = 100;
        ASSERT_EQ(
            setsockopt(e.client.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, sizeof patience_ms), 0);
        std::string text;
        try {
            e.client.write_all(std::string(64 << 20, 'x'));
        } catch (const dunlin::io_error& error) {
            text = error.what();
            EXPECT_EQ(error.code(), dunlin::errc::peer_silent);
            EXPECT_EQ(error.code(), std::errc::timed_out);
            EXPECT_NE(error.code(), has_timed_out) << "a deadline";
        }
        EXPECT_NE(text.find(": connection timed out"), std::string::npos) << text;
        e.server.set_deadline(1ms);
        char c[1];
        std::error_code ec;
        while (!ec) e.server.write_some(std::string(1 << 16, 'x'), ec);
        EXPECT_NE(ec, dunlin::errc::peer_silent);
        auto f = support::connected("tcp");
        f.server.set_deadline(1ms);
        f.server.read_some(c, ec);
        EXPECT_EQ(ec, has_timed_out);
        EXPECT_EQ(ec, std::errc::timed_out);
        EXPECT_NE(ec, dunlin::errc::peer_silent);
    });
}

}  // namespace
