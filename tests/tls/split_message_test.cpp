// split_message_test.cpp - a message of TLS itself (a ticket) that comes in several records, and a writer in between.
#include <atomic>
#include <utility>
#include <vector>

#include <openssl/ssl.h>

#include <dunlin/net.hpp>
#include <dunlin/semaphore.hpp>
#include <dunlin/tls.hpp>

#include "support/runtime_test.h"
#include "tls/certificates.h"

namespace {

using namespace std::chrono_literals;
using tls_test::localhost;
using tls_test::the_authority;

namespace net = dunlin::net;
namespace tls = dunlin::tls;

// A server whose ticket holds the client's certificate, and so does not fit into one of its records of 512 bytes.
tls::config server_config() {
    auto c = tls::config::server_from_memory(localhost().certificate, localhost().key);
    c.trust_from_memory(the_authority().ca.certificate).require_client_certificate().session_tickets(1);
    SSL_CTX_set_max_send_fragment(c.native_handle(), 512);
    SSL_CTX_set_session_id_context(c.native_handle(), reinterpret_cast<const unsigned char*>("test"), 4);
    return c;
}
tls::config client_config() {
    static const tls_test::identity me =
        the_authority().make({.names = "", .common_name = "a client", .for_client = true});
    auto c = tls::config::client();
    c.trust_from_memory(the_authority().ca.certificate).certificate_from_memory(me.certificate, me.key);
    return c;
}

// Between the two: passes on record by record, and what the server sends after the handshake only as it is let.
struct tap {
    // its certificate comes after all that the server has to say in the handshake
    std::atomic<bool> client_has_answered{false};
    // records that have come to the point where they are let through one by one
    std::atomic<int> held{0};
    dunlin::counting_semaphore<> let{0};
    dunlin::wait_group both;

    static bool read_record(net::stream& from, std::vector<char>& record) {
        std::error_code ec;
        record.resize(5);
        if (from.read_exactly(record, ec) != 5) return false;
        const std::size_t size = static_cast<std::size_t>(static_cast<unsigned char>(record[3])) << 8 |
                                 static_cast<unsigned char>(record[4]);
        record.resize(5 + size);
        return from.read_exactly(record.data() + 5, size, ec) == size;
    }
    void pass(net::stream& client, net::stream& server) {
        both.go([&] {
            std::error_code ec;
            for (std::vector<char> record; !ec && read_record(client, record);) {
                if (record[0] == 23) client_has_answered = true;
                server.write_all(record, ec);
            }
            server.close_write(ec);
        });
        both.go([&] {
            std::error_code ec;
            for (std::vector<char> record; !ec && read_record(server, record);) {
                if (client_has_answered) {
                    ++held;
                    let.acquire();
                }
                client.write_all(record, ec);
            }
            client.close_write(ec);
        });
    }
};

// Lets the client take the first part of the ticket, and waits until OpenSSL is in the midst of it.
void take_first_part(tls::stream& client, tap& t) {
    t.let.release();
    do {
        char c;
        std::error_code ec;
        client.set_read_deadline(5ms);
        client.read_some(&c, 1, ec);
        EXPECT_EQ(ec, std::errc::timed_out);
    } while (SSL_in_init(client.native_handle()) == 0);
    client.clear_deadline();
    support::eventually([&] { return t.held == 2; });
}

// A client and a server, and a tap between them.
struct tapped_pair {
    std::pair<net::stream, net::stream> left = net::stream_pair(), right = net::stream_pair();
    tls::stream client = tls::client(std::move(left.first), "localhost", client_config());
    tls::stream server = tls::server(std::move(right.first), server_config());
    tap t;
    tapped_pair() { t.pass(left.second, right.second); }
};

enum class writes { beside_a_reader, alone, the_end };

class TlsSplitMessage : public support::each_p {
protected:
    void write_in_between(writes how) {
        run([how] {
            tapped_pair ends;
            tls::stream &client = ends.client, &server = ends.server;
            tap& t = ends.t;
            auto served = dunlin::spawn([&] {
                std::string heard(5, '\0');
                std::error_code ec;
                if (how == writes::the_end)
                    return server.read_some(dunlin::mutable_buffer(heard)) == 0 ? std::string("the end") : heard;
                server.read_exactly(heard, ec);
                server.write_all("world", ec);
                return ec ? ec.message() : heard;
            });
            client.handshake();
            take_first_part(client, t);
            std::string answer(5, '\0');
            auto reader =
                dunlin::spawn([&] { return how == writes::beside_a_reader ? client.read_exactly(answer) : 0; });
            dunlin::sleep_for(10ms);
            auto writer = dunlin::spawn([&] {
                std::error_code ec;
                if (how == writes::the_end) {
                    client.close_write(ec);
                } else {
                    client.write_all("hello", ec);
                }
                return ec;
            });
            dunlin::sleep_for(10ms);
            t.let.release(1000);
            const std::error_code ec = writer.get();
            EXPECT_FALSE(ec) << ec.message();
            EXPECT_EQ(served.get(), how == writes::the_end ? "the end" : "hello");
            if (how == writes::alone) client.read_exactly(answer);
            reader.get();
            EXPECT_EQ(std::string(answer.c_str()), how == writes::the_end ? "" : "world");
            client.close();
            server.close();
            t.both.wait();
        });
    }

    // Body(client) closes it.
    template <class Body>
    void after_the_first_part(Body body) {
        run([&] {
            tapped_pair ends;
            tls::stream &client = ends.client, &server = ends.server;
            tap& t = ends.t;
            auto served = dunlin::spawn([&] { server.handshake(); });
            client.handshake();
            served.get();
            take_first_part(client, t);
            body(client);
            t.let.release(1000);
            server.close();
            t.both.wait();
        });
    }
};
EACH_P(TlsSplitMessage);

TEST_P(TlsSplitMessage, AWriterWaitsForTheReaderToBringTheRest) { write_in_between(writes::beside_a_reader); }
TEST_P(TlsSplitMessage, AWriterWithoutAReaderBringsTheRestItself) { write_in_between(writes::alone); }
TEST_P(TlsSplitMessage, CloseNotifyWaitsForTheRestToo) { write_in_between(writes::the_end); }

// There is no reader: it reads by itself.
TEST_P(TlsSplitMessage, AWriterThatReadsTheRestEndsAtItsDeadline) {
    after_the_first_part([](tls::stream& client) {
        std::error_code ec;
        client.set_write_deadline(20ms);
        EXPECT_EQ(client.write_all("x", ec), 0u);
        EXPECT_EQ(ec, std::errc::timed_out);
        client.close();
    });
}

// What ends the waiting: a context, the write deadline, and close().
TEST_P(TlsSplitMessage, AWriterThatWaitsForTheRestCanBeEnded) {
    after_the_first_part([](tls::stream& client) {
        std::error_code read_error;
        auto reader = dunlin::spawn([&] {
            char c;
            client.read_some(&c, 1, read_error);
        });
        dunlin::sleep_for(10ms);
        auto ctx = dunlin::with_timeout(dunlin::context::background(), 20ms);
        std::error_code ec;
        EXPECT_EQ(client.write_all("x", ctx, ec), 0u);
        EXPECT_EQ(ec, dunlin::errc::deadline_exceeded);
        client.set_write_deadline(20ms);
        EXPECT_EQ(client.write_all("x", ec), 0u);
        EXPECT_EQ(ec, std::errc::timed_out);
        client.clear_write_deadline();
        const auto write_one = [&] {
            std::error_code write_error;
            client.write_all("x", write_error);
            return write_error;
        };
        auto writer = dunlin::spawn(write_one);
        dunlin::sleep_for(10ms);
        client.set_write_deadline(1ms);  // while it waits
        EXPECT_EQ(writer.get(), std::errc::timed_out);
        client.clear_write_deadline();
        writer = dunlin::spawn(write_one);
        dunlin::sleep_for(10ms);
        client.close();
        EXPECT_EQ(writer.get(), dunlin::errc::closed);
        reader.get();
        EXPECT_EQ(read_error, dunlin::errc::closed);
    });
}

}  // namespace
