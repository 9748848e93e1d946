// forms_test.cpp - that each call has its form with an error_code, and one with a context if it can take long; and how
// errors call what they are about.
#include <cmath>
#include <fcntl.h>
#include <functional>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

#include "net/pairs.h"
#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;
using support::code_of;
using support::is_closed;
using support::text_of;

namespace net = dunlin::net;

class NetForms : public support::runtime_test {};

const std::error_code is_bad_address = dunlin::errc::bad_address;
const std::error_code is_cancelled = dunlin::errc::cancelled;

// What a call with a trailing error_code& says; it is set before, so that success must clear it.
template <class Call>
std::error_code error_of(Call call) {
    std::error_code ec = std::make_error_code(std::errc::address_in_use);
    call(ec);
    return ec;
}

dunlin::context cancelled_context() {
    auto ctx = dunlin::with_cancel(dunlin::context::background());
    ctx.cancel();
    return ctx;
}

std::string ends_of(const net::address& a, const net::address& b) { return a.to_string() + "->" + b.to_string(); }

// ---- names ----------------------------------------------------------------------------------------------------------

TEST_F(NetForms, ErrorsNameTheConnectionAfterCloseToo) {
    dunlin::run([] {
        auto e = support::connected("tcp");
        for (net::stream* s : {&e.client, &e.server}) {
            const net::address local = s->local_address(), remote = s->remote_address();
            ASSERT_NE(local.port(), 0);
            ASSERT_NE(remote.port(), 0);
            s->close();
            EXPECT_EQ(s->local_address(), local);
            EXPECT_EQ(s->remote_address(), remote);
            char c;
            const std::string name = "tcp " + ends_of(local, remote);
            EXPECT_EQ(text_of([&] { s->read_some(&c, 1); }).rfind("read " + name + ": ", 0), 0u);
            EXPECT_EQ(text_of([&] { s->write_all("x"); }).rfind("write " + name + ": ", 0), 0u);
            EXPECT_EQ(text_of([&] { s->set_no_delay(true); }).rfind("set no_delay of " + name + ": ", 0), 0u);
            EXPECT_EQ(text_of([&] { s->close_write(); }).rfind("close_write " + name + ": ", 0), 0u);
            EXPECT_EQ(text_of([&] { s->set_deadline(1s); }).rfind("set deadline of " + name + ": ", 0), 0u);
        }
    });
}

TEST_F(NetForms, APeerThatHasResetTheConnectionIsStillNamed) {
    dunlin::run([] {
        auto e = support::connected("tcp");
        const net::address local = e.server.local_address(), remote = e.server.remote_address();
        e.client.set_linger(0s);
        e.client.close();
        char c;
        EXPECT_EQ(text_of([&] { e.server.read_some(&c, 1); }),
            "read tcp " + ends_of(local, remote) + ": connection reset by peer");
        EXPECT_EQ(e.server.remote_address(), remote);
    });
}

TEST_F(NetForms, ListenersAndPacketSocketsAreNamedAfterCloseToo) {
    dunlin::run([] {
        for (const char* network : {"tcp", "unix"}) {
            net::listener l = net::listen(network, support::any_address(network));
            const net::address at = l.local_address();
            l.close();
            EXPECT_EQ(l.local_address(), at);
            EXPECT_EQ(
                text_of([&] { l.accept(); }).rfind("accept " + std::string(network) + ' ' + at.to_string() + ": ", 0),
                0u);
        }
        net::packet_conn p = net::listen_packet("udp", "127.0.0.1:0");
        const net::address at = p.local_address();
        net::packet_conn to_p = net::dial_packet("udp", at);
        const std::string name = ends_of(to_p.local_address(), at);
        p.close();
        to_p.close();
        char c;
        EXPECT_EQ(text_of([&] { p.read_some(&c, 1); }).rfind("read udp " + at.to_string() + ": ", 0), 0u);
        EXPECT_EQ(text_of([&] { to_p.write_some("x"); }).rfind("write udp " + name + ": ", 0), 0u);
    });
}

TEST_F(NetForms, AnAdoptedSocketIsNamedToo) {
    dunlin::run([] {
        auto e = support::connected("tcp");
        const net::address local = e.client.local_address(), remote = e.client.remote_address();
        net::stream s = net::stream::adopt(dup(e.client.native_handle()));
        s.close();
        EXPECT_EQ(s.local_address(), local);
        EXPECT_EQ(s.remote_address(), remote);
        EXPECT_EQ(net::stream().remote_address(), net::address()) << "never opened";
    });
}

// ---- streams --------------------------------------------------------------------------------------------------------

TEST_F(NetForms, TheOptionsOfAStreamHaveBoth) {
    dunlin::run([] {
        auto e = support::connected("tcp");
        net::stream& s = e.client;
        const auto all = [&s](std::error_code wanted) {
            EXPECT_EQ(error_of([&](std::error_code& ec) { s.set_no_delay(false, ec); }), wanted);
            EXPECT_EQ(error_of([&](std::error_code& ec) { s.set_keep_alive(7s, ec); }), wanted);
            EXPECT_EQ(error_of([&](std::error_code& ec) { s.set_keep_alive(0s, ec); }), wanted);
            EXPECT_EQ(error_of([&](std::error_code& ec) { s.set_linger(std::nullopt, ec); }), wanted);
            EXPECT_EQ(error_of([&](std::error_code& ec) { s.set_receive_buffer(10'000, ec); }), wanted);
            EXPECT_EQ(error_of([&](std::error_code& ec) { s.set_send_buffer(10'000, ec); }), wanted);
            EXPECT_EQ(error_of([&](std::error_code& ec) { s.set_deadline(1h, ec); }), wanted);
            EXPECT_EQ(error_of([&](std::error_code& ec) { s.set_read_deadline(1h, ec); }), wanted);
            EXPECT_EQ(
                error_of([&](std::error_code& ec) { s.set_write_deadline(dunlin::clock::now() + 1h, ec); }), wanted);
            EXPECT_EQ(error_of([&](std::error_code& ec) { s.clear_read_deadline(ec); }), wanted);
            EXPECT_EQ(error_of([&](std::error_code& ec) { s.clear_write_deadline(ec); }), wanted);
            EXPECT_EQ(error_of([&](std::error_code& ec) { s.clear_deadline(ec); }), wanted);
        };
        all({});
        int on = 1;
        socklen_t size = sizeof on;
        ASSERT_EQ(getsockopt(s.native_handle(), SOL_SOCKET, SO_KEEPALIVE, &on, &size), 0);
        EXPECT_EQ(on, 0);
        using std::chrono::seconds;
        for (const seconds negative : {-1s, -seconds(1LL << 32), seconds::min()}) {
            EXPECT_EQ(error_of([&](std::error_code& ec) { s.set_linger(negative, ec); }), std::errc::invalid_argument);
        }
        EXPECT_EQ(error_of([&](std::error_code& ec) { s.set_read_deadline(-1s, ec); }), std::error_code());
        char c;
        EXPECT_EQ(error_of([&](std::error_code& ec) { s.read_some(&c, 1, ec); }), std::errc::timed_out);
        EXPECT_EQ(error_of([&](std::error_code& ec) {
            EXPECT_EQ(s.writev({"a", "b"}, cancelled_context(), ec), 2u);
        }),
            std::error_code())
            << "there is room";
        s.close();
        all(is_closed);
    });
}

TEST_F(NetForms, AdoptingHasBoth) {
    dunlin::run([] {
        EXPECT_EQ(error_of([](std::error_code& ec) { EXPECT_FALSE(net::stream::adopt(-1, ec)); }),
            std::errc::bad_file_descriptor);
        EXPECT_EQ(error_of([](std::error_code& ec) { EXPECT_FALSE(net::listener::adopt(-1, ec)); }),
            std::errc::bad_file_descriptor);
        EXPECT_EQ(error_of([](std::error_code& ec) { EXPECT_FALSE(net::packet_conn::adopt(-1, ec)); }),
            std::errc::bad_file_descriptor);
        auto e = support::connected("tcp");
        const int number = dup(e.client.native_handle());
        EXPECT_EQ(error_of([&](std::error_code& ec) { EXPECT_FALSE(net::packet_conn::adopt(number, ec)); }),
            std::errc::wrong_protocol_type);
        EXPECT_GE(fcntl(number, F_GETFD), 0) << "still the caller's";
        EXPECT_EQ(
            error_of([&](std::error_code& ec) { EXPECT_TRUE(net::stream::adopt(number, ec)); }), std::error_code());
        const int listening = dup(net::listen("tcp", "127.0.0.1:0").native_handle());
        EXPECT_EQ(error_of([&](std::error_code& ec) { EXPECT_TRUE(net::listener::adopt(listening, ec)); }),
            std::error_code());
        EXPECT_EQ(error_of([](std::error_code& ec) { EXPECT_TRUE(net::stream_pair(ec).first); }), std::error_code());
    });
}

// ---- listening and datagrams ----------------------------------------------------------------------------------------

TEST_F(NetForms, ListeningHasAll) {
    dunlin::run([] {
        const dunlin::context live = dunlin::with_cancel(dunlin::context::background());
        EXPECT_TRUE(net::listen("tcp", "127.0.0.1:0", live));
        EXPECT_TRUE(net::listen("tcp", "localhost:0", live, {.backlog = 1}));
        EXPECT_EQ(error_of([&](std::error_code& ec) { EXPECT_TRUE(net::listen("tcp", "localhost:0", live, ec)); }),
            std::error_code());
        EXPECT_EQ(
            error_of([](std::error_code& ec) { net::listen("tcp", "a.name.invalid:0", cancelled_context(), ec); }),
            is_cancelled);
        EXPECT_EQ(code_of([] { net::listen("tcp", "a.name.invalid:0", cancelled_context()); }), is_cancelled);
        EXPECT_EQ(error_of([](std::error_code& ec) { net::listen("udp", "localhost:0", ec); }), is_bad_address);
        const net::address any = net::address::parse("tcp", "127.0.0.1:0");
        EXPECT_EQ(error_of([&](std::error_code& ec) { EXPECT_TRUE(net::listen("tcp", any, {.backlog = 1}, ec)); }),
            std::error_code());
        EXPECT_TRUE(net::listen("tcp", any, live));
    });
}

TEST_F(NetForms, DiallingHasAllInBothOrders) {
    dunlin::run([] {
        const dunlin::context live = dunlin::with_cancel(dunlin::context::background());
        const net::listener l = net::listen("tcp", "127.0.0.1:0");
        const net::address a = l.local_address();
        const std::string name = a.to_string();
        const net::stream_options o{.no_delay = false};
        for (const auto& dialled : {std::function<net::stream(std::error_code&)>(
                 [&](std::error_code& ec) { return net::dial("tcp", name, o, ec); }),
                 std::function<net::stream(std::error_code&)>(
                     [&](std::error_code& ec) { return net::dial("tcp", a, {.no_delay = false}, ec); }),
                 std::function<net::stream(std::error_code&)>(
                     [&](std::error_code& ec) { return net::dial("tcp", name, live, o, ec); }),
                 std::function<net::stream(std::error_code&)>(
                     [&](std::error_code& ec) { return net::dial("tcp", name, 10s, o, ec); }),
                 std::function<net::stream(std::error_code&)>(
                     [&](std::error_code& ec) { return net::dial("tcp", name, live, ec, o); })}) {
            EXPECT_EQ(error_of([&](std::error_code& ec) { EXPECT_TRUE(dialled(ec)); }), std::error_code());
        }
    });
}

TEST_F(NetForms, PacketSocketsHaveAll) {
    dunlin::run([] {
        const dunlin::context live = dunlin::with_cancel(dunlin::context::background()), over = cancelled_context();
        EXPECT_EQ(error_of([](std::error_code& ec) { net::listen_packet("tcp", "127.0.0.1:0", ec); }), is_bad_address);
        EXPECT_EQ(error_of([](std::error_code& ec) { net::dial_packet("tcp", "127.0.0.1:1", ec); }), is_bad_address);
        EXPECT_EQ(error_of([](std::error_code& ec) { net::listen_packet("udp", "192.0.2.1:1", ec); }),
            std::errc::address_not_available);
        EXPECT_EQ(error_of([&](std::error_code& ec) { net::listen_packet("udp", "a.name.invalid:0", over, ec); }),
            is_cancelled);
        EXPECT_EQ(
            error_of([&](std::error_code& ec) { net::dial_packet("udp", "localhost:1", over, ec); }), is_cancelled);
        EXPECT_EQ(error_of([](std::error_code& ec) { net::dial_packet("udp", "localhost:1", -1s, ec); }),
            std::errc::timed_out);
        const auto for_ever = std::chrono::hours::max();
        EXPECT_TRUE(net::dial_packet("udp", "localhost:1", for_ever));
        EXPECT_EQ(error_of([&](std::error_code& ec) { net::dial_packet("udp", "localhost:1", for_ever, ec); }),
            std::error_code());
        const std::chrono::duration<double> no_number(std::nan(""));
        EXPECT_EQ(error_of([&](std::error_code& ec) { net::dial_packet("udp", "localhost:1", no_number, ec); }),
            std::errc::invalid_argument);
        EXPECT_THROW(net::dial_packet("udp", "localhost:1", no_number), std::invalid_argument);
        EXPECT_EQ(code_of([&] { net::dial_packet("udp", "localhost:1", over); }), is_cancelled);
        EXPECT_EQ(code_of([&] { net::listen_packet("udp", "a.name.invalid:0", over); }), is_cancelled);

        std::error_code ec;
        net::packet_conn a = net::listen_packet("udp", net::address::parse("udp", "127.0.0.1:0"), ec);
        ASSERT_FALSE(ec) << ec.message();
        net::packet_conn b = net::dial_packet("udp", a.local_address(), 10s);
        EXPECT_TRUE(net::dial_packet("udp4", a.local_address(), live));
        EXPECT_EQ(error_of([&](std::error_code& e) { a.set_receive_buffer(10'000, e); }), std::error_code());
        EXPECT_EQ(error_of([&](std::error_code& e) { a.set_send_buffer(10'000, e); }), std::error_code());

        char in[8];
        net::address from;
        EXPECT_EQ(b.write_some("one", live), 3u);
        EXPECT_EQ(a.read_from(in, sizeof in, from, live), 3u);
        EXPECT_EQ(from, b.local_address());
        EXPECT_EQ(a.write_to("two", 3, from, live, ec), 3u);
        EXPECT_EQ(b.read_some(in, sizeof in, live, ec), 3u);
        EXPECT_EQ(a.write_to("four", from, live), 4u);
        EXPECT_EQ(b.read_some(in, sizeof in), 4u);
        EXPECT_EQ(std::string(in, 4), "four");
        // A context that is done ends waits only.
        EXPECT_EQ(error_of([&](std::error_code& e) { b.read_some(in, sizeof in, over, e); }), is_cancelled);
        EXPECT_EQ(error_of([&](std::error_code& e) { a.read_from(in, sizeof in, from, over, e); }), is_cancelled);
        EXPECT_EQ(code_of([&] { b.read_some(in, sizeof in, over); }), is_cancelled);
        EXPECT_EQ(b.write_some("x", 1, over), 1u);
        EXPECT_EQ(a.read_from(in, sizeof in, from, over), 1u);
        EXPECT_EQ(a.write_to("x", from, over), 1u);
        a.close();
        EXPECT_EQ(error_of([&](std::error_code& e) { a.set_receive_buffer(10'000, e); }), is_closed);
        EXPECT_EQ(error_of([&](std::error_code& e) { a.set_send_buffer(10'000, e); }), is_closed);
    });
}

// ---- addresses ------------------------------------------------------------------------------------------------------

TEST_F(NetForms, AddressesHaveBoth) {
    EXPECT_EQ(
        error_of([](std::error_code& ec) { EXPECT_EQ(net::address::parse("tcp", "127.0.0.1:80", ec).port(), 80); }),
        std::error_code());
    EXPECT_EQ(
        error_of([](std::error_code& ec) { EXPECT_EQ(net::address::parse("tcp", "name:80", ec), net::address()); }),
        is_bad_address);
    EXPECT_EQ(error_of([](std::error_code& ec) { net::address::parse("smoke", "127.0.0.1:80", ec); }), is_bad_address);
    EXPECT_EQ(error_of([](std::error_code& ec) { EXPECT_EQ(net::split_host_port("[::1]:80", ec).first, "::1"); }),
        std::error_code());
    EXPECT_EQ(error_of([](std::error_code& ec) { net::split_host_port("::1:80", ec); }), is_bad_address);
}

TEST_F(NetForms, ResolvingForANetworkHasAll) {
    dunlin::run([] {
        const dunlin::context live = dunlin::with_cancel(dunlin::context::background());
        const net::address wanted = net::address::parse("tcp", "127.0.0.1:80");
        EXPECT_EQ(
            error_of([&](std::error_code& ec) { EXPECT_EQ(net::resolve("tcp4", "127.0.0.1:80", ec).front(), wanted); }),
            std::error_code());
        EXPECT_EQ(net::resolve("tcp4", "localhost:80", live).front(), wanted);
        EXPECT_EQ(error_of([&](std::error_code& ec) {
            EXPECT_EQ(net::resolve("udp4", "localhost:80", live, ec).front(), wanted);
        }),
            std::error_code());
        EXPECT_EQ(
            error_of([](std::error_code& ec) { net::resolve("udp4", "a.name.invalid:80", cancelled_context(), ec); }),
            is_cancelled);
        EXPECT_EQ(error_of([](std::error_code& ec) { net::resolve("smoke", "localhost:80", ec); }), is_bad_address);
    });
}

}  // namespace
