// Datagrams: UDP of both families, and Unix sockets.
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "net/pairs.h"
#include "sched/data/types.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

namespace net = dunlin::net;
using net::address;
using support::code_of;
using support::has_timed_out;
using support::is_closed;
using support::text_of;

std::vector<const char*> networks() {
    if (support::has_ipv6()) return {"udp4", "udp6", "udp", "unixgram"};
    return {"udp4", "udp", "unixgram"};
}

std::uint64_t waits_for_descriptors() {
    const auto& s = dunlin::sched::the_scheduler;
    std::uint64_t waits = 0;
    for (std::uint32_t i = 0; i < s.procs_made.load(); ++i) waits += s.processor_at(i)->counts.io_waits.get();
    return waits;
}

// Until there is no room for one more.
void fill(net::packet_conn& from, const net::packet_conn& to) {
    std::error_code ec;
    from.set_write_deadline(20ms);
    while (!ec) from.write_to("x", to.local_address(), ec);
    EXPECT_EQ(ec, has_timed_out);
    from.clear_deadline();
}

class Packet : public support::each_p {};
EACH_P(Packet);

TEST_P(Packet, CarriesWholeMessages) {
    run([] {
        for (const char* network : networks()) {
            net::packet_conn a = net::listen_packet(network, support::any_address(network)),
                             b = net::listen_packet(network, support::any_address(network));
            address from;
            std::array<char, 100> got;
            EXPECT_EQ(a.write_to("hello", b.local_address()), 5u);
            EXPECT_EQ(a.write_to("", b.local_address()), 0u);
            EXPECT_EQ(a.write_to(std::string(100, 'x'), b.local_address()), 100u);
            EXPECT_EQ(a.write_to("last", b.local_address()), 4u);
            EXPECT_EQ(b.read_from(got, from), 5u);
            EXPECT_EQ(from, a.local_address()) << from;
            EXPECT_EQ(std::string(got.data(), 5), "hello");
            EXPECT_EQ(b.read_from(got, from), 0u) << "an empty message";
            EXPECT_EQ(b.read_some(std::span(got).first(10)), 10u) << "the rest is lost";
            EXPECT_EQ(b.read_some(got), 4u);
            b.write_to("back", from);
            EXPECT_EQ(a.read_some(got), 4u);
            EXPECT_EQ(a.remote_address().to_string(), "");
        }
    });
}

TEST_P(Packet, SendsToTheAddressItWasDialledTo) {
    run([] {
        for (const char* network : networks()) {
            net::packet_conn server = net::listen_packet(network, support::any_address(network));
            net::packet_conn client = net::dial_packet(network, server.local_address().to_string());
            EXPECT_EQ(client.remote_address(), server.local_address());
            EXPECT_EQ(client.write_some("ping"), 4u);
            std::array<char, 10> got;
            address from;
            EXPECT_EQ(server.read_from(got, from), 4u);
            if (std::string(network) == "unixgram") {
                EXPECT_EQ(from.to_string(), "") << "it has no name";
                continue;
            }
            EXPECT_EQ(from, client.local_address());
            server.write_to("pong", from);
            EXPECT_EQ(client.read_some(got), 4u);
            EXPECT_EQ(std::string(got.data(), 4), "pong");
            // Others are not heard.
            net::packet_conn other = net::listen_packet(network, support::any_address(network));
            other.write_to("noise", client.local_address());
            server.write_to("again", from);
            EXPECT_EQ(client.read_some(got), 5u);
            EXPECT_EQ(std::string(got.data(), 5), "again");
        }
    });
}

TEST_P(Packet, WaitsForMessages) {
    run([] {
        for (const char* network : networks()) {
            net::packet_conn server = net::listen_packet(network, support::any_address(network));
            net::packet_conn client = net::listen_packet(network, support::any_address(network));
            const int rounds = support::rounds(1000);
            dunlin::wait_group wg;
            wg.go([&] {
                std::array<char, 10> got;
                for (int i = 0; i < rounds; ++i) {
                    address from;
                    const std::size_t n = server.read_from(got, from);
                    server.write_to({got.data(), n}, from);
                }
            });
            std::thread thread([&] {
                std::array<char, 10> got;
                for (int i = 0; i < rounds; ++i) {
                    client.write_to(std::to_string(i), server.local_address());
                    const std::size_t n = client.read_some(got);
                    ASSERT_EQ(std::string(got.data(), n), std::to_string(i));
                }
            });
            wg.wait();
            thread.join();
        }
    });
}

TEST_P(Packet, EndsByCloseDeadlineAndContext) {
    run([] {
        for (const char* network : networks()) {
            net::packet_conn p = net::listen_packet(network, support::any_address(network));
            std::array<char, 10> got;
            address from;
            std::error_code ec;
            p.set_deadline(2ms);
            EXPECT_EQ(code_of([&] { p.read_from(got, from); }), has_timed_out);
            EXPECT_EQ((p.write_to("x", p.local_address(), ec), ec), has_timed_out);
            p.clear_deadline();
            const auto soon = dunlin::context::with_timeout(dunlin::context::background(), 2ms);
            EXPECT_EQ(code_of([&] { p.read_from(got, from, soon); }), std::error_code(dunlin::errc::deadline_exceeded));
            EXPECT_EQ(dunlin::select(dunlin::on_readable(p), dunlin::on_timeout(1ms)), 1u);
            dunlin::wait_group wg;
            for (int i = 0; i < 2; ++i)
                wg.go([&] {
                    EXPECT_EQ(code_of([&] {
                        std::array<char, 1> c;
                        p.read_some(c);
                    }),
                        is_closed);
                });
            support::eventually([] { return support::waiters() == 1; });
            p.close();
            wg.wait();
            EXPECT_EQ((p.read_some(got, ec), ec), is_closed);
            EXPECT_EQ(code_of([&] { p.write_some("x"); }), is_closed);
        }
    });
}

TEST_P(Packet, AFullQueueIsWaitedFor) {
    run([] {
        net::packet_conn server = net::listen_packet("unixgram", support::abstract_name());
        net::packet_conn client = net::dial_packet("unixgram", server.local_address().to_string());
        const int rounds = support::rounds(1000);
        dunlin::wait_group wg;
        wg.go([&] {
            for (int i = 0; i < rounds; ++i) client.write_some(std::to_string(i));
        });
        std::array<char, 10> got;
        for (int i = 0; i < rounds; ++i) {
            const std::size_t n = server.read_some(got);
            ASSERT_EQ(std::string(got.data(), n), std::to_string(i));
        }
        wg.wait();
    });
}

// The kernel tells a sender of the room that its own messages leave, not of that of others; and an attempt that finds
// none makes an edge itself: to try again at each edge would be to turn in a circle.
TEST_P(Packet, AQueueThatOthersHaveFilledIsWaitedFor) {
    run([] {
        net::packet_conn server = net::listen_packet("unixgram", support::abstract_name());
        net::packet_conn other = net::listen_packet("unixgram", support::abstract_name());
        net::packet_conn client = net::listen_packet("unixgram", support::abstract_name());
        const address to = server.local_address();
        std::error_code ec;
        int theirs = 0;
        for (other.set_write_deadline(20ms); other.write_to("x", to, ec) == 1;) ++theirs;
        EXPECT_EQ(ec, has_timed_out);
        dunlin::wait_group wg;
        wg.go([&] { EXPECT_EQ(client.write_to("y", to), 1u); });
        support::eventually([] { return support::waiters() == 1; });
        const auto* d = dunlin::io_access::of(client);
        const std::uint32_t edges = d->edges(dunlin::netpoll::direction::write);
        const auto begin = dunlin::clock::now();
        dunlin::sleep_for(50ms);
        const auto waited_ms = (dunlin::clock::now() - begin) / 1ms;
        EXPECT_LT(d->edges(dunlin::netpoll::direction::write) - edges, waited_ms + 20);
        std::array<char, 1> got{};
        for (; theirs > 0; --theirs) {
            server.read_some(got);
            ASSERT_EQ(got[0], 'x');
        }
        server.read_some(got);
        EXPECT_EQ(got[0], 'y');
        wg.wait();
    });
}

// It leaves no room for the zero at its end.
TEST_P(Packet, ASenderWithTheLongestPathGetsAnAnswer) {
    run([] {
        const std::string path = "/tmp/" + std::string(sizeof sockaddr_un{}.sun_path - 5, 'p');
        unlink(path.c_str());
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        std::memcpy(name.sun_path, path.data(), sizeof name.sun_path);
        const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
        net::packet_conn longest = net::packet_conn::adopt(fd);
        net::packet_conn server = net::listen_packet("unixgram", support::abstract_name());
        EXPECT_EQ(longest.local_address().to_string(), path);
        longest.write_to("x", server.local_address());
        std::array<char, 1> got{};
        address from;
        server.read_from(got, from);
        EXPECT_EQ(from.to_string(), path);
        EXPECT_EQ(server.write_to("y", from), 1u);
        longest.read_some(got);
        EXPECT_EQ(got[0], 'y');
        unlink(path.c_str());
    });
}

TEST_P(Packet, AReceiverThatDoesNotReadHoldsUpNoOther) {
    run([] {
        net::packet_conn silent = net::listen_packet("unixgram", support::abstract_name());
        net::packet_conn reader = net::listen_packet("unixgram", support::abstract_name());
        net::packet_conn client = net::listen_packet("unixgram", support::abstract_name());
        fill(client, silent);
        dunlin::wait_group wg;
        for (int i = 0; i < 3; ++i) {
            wg.go([&] { EXPECT_EQ(code_of([&] { client.write_to("x", silent.local_address()); }), is_closed); });
        }
        support::eventually([] { return support::waiters() == 3; });
        const auto in_time = dunlin::context::with_timeout(dunlin::context::background(), 20s);
        for (int i = 0; i < 10; ++i) {
            std::error_code ec;
            EXPECT_EQ(client.write_to("y", reader.local_address(), in_time, ec), 1u) << ec.message();
            std::array<char, 1> got{};
            EXPECT_EQ(reader.read_some(got), 1u);
        }
        client.close();
        wg.wait();
    });
}

// Each attempt makes an edge. It must not wake the others.
TEST_P(Packet, ManyThatWaitForRoomDoNotWakeEachOther) {
    run([] {
        constexpr int senders = 50;
        net::packet_conn silent = net::listen_packet("unixgram", support::abstract_name());
        net::packet_conn client = net::listen_packet("unixgram", support::abstract_name());
        fill(client, silent);
        dunlin::wait_group wg;
        for (int i = 0; i < senders; ++i) {
            wg.go([&] { EXPECT_EQ(code_of([&] { client.write_to("x", silent.local_address()); }), is_closed); });
        }
        support::eventually([] { return support::waiters() == senders; });
        const std::uint64_t before = waits_for_descriptors();
        const auto begin = dunlin::clock::now();
        dunlin::sleep_for(100ms);
        const auto waits = waits_for_descriptors() - before;
        EXPECT_LT(waits, static_cast<std::uint64_t>(senders * ((dunlin::clock::now() - begin) / 1ms + 5)));
        client.close();
        wg.wait();
    });
}

TEST_P(Packet, WhatDidNotFitCanBeSeen) {
    run([] {
        for (const char* network : networks()) {
            net::packet_conn a = net::listen_packet(network, support::any_address(network)),
                             b = net::listen_packet(network, support::any_address(network));
            std::array<char, 10> got{};
            for (const std::size_t size :
                {std::size_t{0}, std::size_t{9}, std::size_t{10}, std::size_t{11}, std::size_t{5000}}) {
                a.write_to(std::string(size, 'x'), b.local_address());
                const net::packet_conn::message m = b.read_message(got);
                EXPECT_EQ(m.size, std::min<std::size_t>(size, 10));
                EXPECT_EQ(m.whole_size, size);
                EXPECT_EQ(m.truncated(), size > 10);
                EXPECT_EQ(m.from, a.local_address());
            }
            std::error_code ec;
            b.set_read_deadline(1ms);
            EXPECT_EQ((static_cast<void>(b.read_message(got, ec)), ec), has_timed_out);
            EXPECT_EQ(code_of([&] { b.read_message(got); }), has_timed_out);
            b.clear_deadline();
            const auto over = dunlin::context::with_timeout(dunlin::context::background(), 1ms);
            EXPECT_EQ((static_cast<void>(b.read_message(got, over, ec)), ec),
                std::error_code(dunlin::errc::deadline_exceeded));
            EXPECT_THROW(b.read_message(got, over), dunlin::context_cancelled);
        }
    });
}

// There is no reader. A sender that waits for room leaves when its deadline comes, its context is done, or the socket
// is closed, however long it has waited.
TEST_P(Packet, AQueueThatStaysFullKeepsNoSender) {
    run([] {
        net::packet_conn server = net::listen_packet("unixgram", support::abstract_name());
        net::packet_conn client = net::listen_packet("unixgram", support::abstract_name());
        const address to = server.local_address();
        std::error_code ec;
        client.set_write_deadline(20ms);
        while (!ec) client.write_to("x", to, ec);
        EXPECT_EQ(ec, has_timed_out);
        client.clear_deadline();
        const auto soon = dunlin::context::with_timeout(dunlin::context::background(), 20ms);
        client.write_to("x", to, soon, ec);
        EXPECT_EQ(ec, dunlin::errc::deadline_exceeded);

        // By then its pauses are as long as they get. What ends it wakes it.
        const auto ends = [&](auto end, std::error_code expected) {
            dunlin::wait_group wg;
            wg.go([&] { EXPECT_EQ(code_of([&] { client.write_to("x", to); }), expected); });
            dunlin::sleep_for(200ms);
            support::eventually([] { return support::waiters() == 1; });  // for the descriptor: it does not just sleep
            end();
            wg.wait();
        };
        ends([&] { client.set_write_deadline(0s); }, has_timed_out);
        client.clear_deadline();
        ends([&] { client.close(); }, is_closed);
    });
}

TEST_P(Packet, MayBroadcast) {
    run([] {
        net::packet_conn a = net::listen_packet("udp4", "127.0.0.1:0");
        int on = 0;
        socklen_t size = sizeof on;
        ASSERT_EQ(getsockopt(a.native_handle(), SOL_SOCKET, SO_BROADCAST, &on, &size), 0);
        EXPECT_EQ(on, 1);
        net::packet_conn b = net::dial_packet("udp4", "255.255.255.255:9");
        EXPECT_TRUE(b.is_open());
    });
}

TEST_P(Packet, ErrorsAreThoseOfTheSystem) {
    run([] {
        const std::error_code bad = dunlin::errc::bad_address;
        EXPECT_EQ(code_of([] { net::listen_packet("tcp", "127.0.0.1:0"); }), bad);
        EXPECT_EQ(code_of([] { net::dial_packet("udp", "127.0.0.1"); }), bad);
        EXPECT_EQ(code_of([] { net::dial_packet("unixgram", "@nobody-is-here"); }), std::errc::connection_refused);
        net::packet_conn a = net::listen_packet("udp", "127.0.0.1:0");
        EXPECT_EQ(
            code_of([&] { net::listen_packet("udp", a.local_address().to_string()); }), std::errc::address_in_use);
        EXPECT_EQ(code_of([&] { a.write_some("x"); }), std::errc::destination_address_required);
        EXPECT_EQ(code_of([&] { a.write_to(std::string(70000, 'x'), a.local_address()); }), std::errc::message_size);
        const std::string to = a.local_address().to_string();
        const std::string text = text_of([&] { a.write_to(std::string(70000, 'x'), a.local_address()); });
        EXPECT_NE(text.find(to + ": message too long"), std::string::npos) << text;
        // What is not taken comes back as an error of the next call.
        const std::string nowhere = net::listen_packet("udp", "127.0.0.1:0").local_address().to_string();
        net::packet_conn c = net::dial_packet("udp", nowhere);
        c.write_some("x");
        std::array<char, 1> got;
        EXPECT_EQ(code_of([&] { c.read_some(got); }), std::errc::connection_refused);
        EXPECT_EQ(code_of([] { net::packet_conn().read_some(dunlin::mutable_buffer()); }), is_closed);
        c.set_receive_buffer(10000);
        c.set_send_buffer(10000);
    });
}

TEST_P(Packet, MovesAndTakesOver) {
    run([] {
        net::packet_conn a = net::listen_packet("udp", "127.0.0.1:0"), b = std::move(a);
        EXPECT_FALSE(a.is_open());
        b.write_to("x", b.local_address());
        std::array<char, 1> got;
        EXPECT_EQ(b.read_some(got), 1u);
        a = std::move(b);
        EXPECT_TRUE(a.is_open());
        int fd[2];
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, fd), 0);
        net::packet_conn c = net::packet_conn::adopt(fd[0]), d = net::packet_conn::adopt(fd[1]);
        c.write_some("y");
        EXPECT_EQ(d.read_some(got), 1u);
        EXPECT_EQ(got[0], 'y');

        // What is no datagram socket is the caller's still.
        int pair[2];
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
        for (const auto& adopt : {+[](int number) { net::packet_conn::adopt(number); },
                 +[](int number) { net::stream::adopt(number); }, +[](int number) { net::listener::adopt(number); }}) {
            EXPECT_EQ(code_of([&] { adopt(pair[0]); }), std::errc::wrong_protocol_type);
        }
        EXPECT_EQ(text_of([&] { net::packet_conn::adopt(pair[0]); }),
            "adopt descriptor " + std::to_string(pair[0]) +
                ": protocol wrong type for socket: a SOCK_DGRAM socket is wanted");
        EXPECT_EQ(write(pair[0], "z", 1), 1);
        close(pair[0]);
        close(pair[1]);
    });
}

// Nothing tells the sender of a datagram that no socket has the other family's address.
TEST(PacketToThisMachine, ReachesASocketOfIPv4) {
    dunlin::run([] {
        net::packet_conn any = net::listen_packet("udp", "0.0.0.0:0");
        net::packet_conn local = net::listen_packet("udp", "localhost:0");
        const auto reaches = [](const net::packet_conn& s, const std::string& to) {
            net::packet_conn c = net::dial_packet("udp", to);
            EXPECT_TRUE(c.remote_address().is_ipv4()) << to << " is " << c.remote_address().to_string();
            EXPECT_EQ(c.remote_address().port(), s.local_address().port());
        };
        reaches(any, any.local_address().to_string());
        reaches(local, ":" + std::to_string(local.local_address().port()));
    });
}

TEST(PacketMessages, AnEmptyAddressIsSaidToBeEmpty) {
    net::packet_conn c = net::listen_packet("udp", "127.0.0.1:0");
    EXPECT_EQ(text_of([&] { c.write_to("x", net::address()); }),
        "write to an empty address with udp " + c.local_address().to_string() + ": invalid argument");
}

}  // namespace
