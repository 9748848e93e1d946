// tickets_test.cpp - sessions that are resumed: with which keys, for how long, and not around a certificate.
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <dunlin/net.hpp>
#include <dunlin/tls.hpp>

#include "support/runtime_test.h"
#include "tls/certificates.h"

namespace {

using namespace std::chrono_literals;
using tls_test::client_config;
using tls_test::identity;
using tls_test::server_config;
using tls_test::the_authority;

namespace net = dunlin::net;
namespace tls = dunlin::tls;

class TlsTickets : public support::each_p {};
EACH_P(TlsTickets);

using session_ptr = std::shared_ptr<SSL_SESSION>;

// A connection, resuming `before` if there is one. Its session, and whether it was resumed.
std::pair<session_ptr, bool> visit(const tls::config& sc, const tls::config& cc, const session_ptr& before) {
    auto [a, b] = net::stream_pair();
    auto served = dunlin::spawn([&, s = tls::server(std::move(b), sc)]() mutable {
        s.write_all("x");
        s.close();
    });
    auto client = tls::client(std::move(a), "localhost", cc);
    if (before != nullptr) SSL_set_session(client.native_handle(), before.get());
    char c[2];
    std::error_code ec;
    client.read_exactly(c, ec);  // to the end: the tickets have come
    served.get();
    return {session_ptr(SSL_get1_session(client.native_handle()), SSL_SESSION_free),
        SSL_session_reused(client.native_handle()) == 1};
}

TEST_P(TlsTickets, ATicketIsWorthNothingOnceCertificatesAreAskedForOrOthersTrusted) {
    run([] {
        for (const bool old_version : {false, true}) {
            auto sc = server_config();
            sc.session_tickets(1);
            if (old_version) SSL_CTX_set_max_proto_version(sc.native_handle(), TLS1_2_VERSION);
            auto client = client_config();
            SSL_CTX_clear_options(client.native_handle(), SSL_OP_NO_TICKET);
            const session_ptr before = visit(sc, client, nullptr).first;
            sc.trust_from_memory(the_authority().ca.certificate);
            const auto [after, resumed] = visit(sc, client, before);
            EXPECT_FALSE(resumed) << "others are trusted now";
            EXPECT_TRUE(visit(sc, client, after).second);
            sc.require_client_certificate();
            EXPECT_THROW(visit(sc, client, after), dunlin::io_error) << "a certificate is asked for now";
        }
    });
}

TEST_P(TlsTickets, KeysOfTicketsAreChangedAndForgotten) {
    run([] {
        for (const bool old_version : {false, true}) {
            const auto server_with_keys_for = [&](std::chrono::nanoseconds period) {
                auto sc = server_config();
                sc.session_tickets(1, period);
                if (old_version) SSL_CTX_set_max_proto_version(sc.native_handle(), TLS1_2_VERSION);
                return sc;
            };
            auto client = client_config();
            SSL_CTX_clear_options(client.native_handle(), SSL_OP_NO_TICKET);
            const auto lasting = server_with_keys_for(1h);
            EXPECT_TRUE(visit(lasting, client, visit(lasting, client, nullptr).first).second);
            EXPECT_FALSE(visit(server_with_keys_for(1h), client, visit(lasting, client, nullptr).first).second)
                << "each config has its own";

            const auto never = server_with_keys_for(std::chrono::nanoseconds::max());
            EXPECT_TRUE(visit(never, client, visit(never, client, nullptr).first).second) << "never changed";
            const auto hasty = server_with_keys_for(1ms);
            const session_ptr s = visit(hasty, client, nullptr).first;
            dunlin::sleep_for(10ms);
            EXPECT_FALSE(visit(hasty, client, s).second) << "its key is forgotten";

            // In its second period a key is still known. Only what was measured to be within it is looked at.
            constexpr auto period = 400ms;
            const auto short_lived = server_with_keys_for(period);
            const auto begin = std::chrono::steady_clock::now();
            const session_ptr previous = visit(short_lived, client, nullptr).first;
            dunlin::sleep_for(period + 50ms);
            const bool resumed = visit(short_lived, client, previous).second;
            const bool in_time = std::chrono::steady_clock::now() - begin < 2 * period;
            EXPECT_TRUE(resumed || !in_time);
        }
        EXPECT_THROW(server_config().session_tickets(1, 0s), std::invalid_argument);
    });
}

TEST_P(TlsTickets, AKeyOfTicketsIsForgottenAfterTwoPeriodsAlsoIfItsSuccessorIsYoung) {
    run([] {
        constexpr auto period = 200ms;
        auto sc = server_config();
        sc.session_tickets(1, period);
        auto client = client_config();
        SSL_CTX_clear_options(client.native_handle(), SSL_OP_NO_TICKET);
        const session_ptr first = visit(sc, client, nullptr).first;
        dunlin::sleep_for(period * 3 / 2);
        visit(sc, client, nullptr);  // the first key has a successor now
        dunlin::sleep_for(period * 3 / 4);
        EXPECT_FALSE(visit(sc, client, first).second) << "its key is more than two periods old";
    });
}

// A client that takes tickets, of this version.
tls::config resuming_client(bool old_version) {
    auto c = client_config();
    SSL_CTX_clear_options(c.native_handle(), SSL_OP_NO_TICKET);
    if (old_version) SSL_CTX_set_max_proto_version(c.native_handle(), TLS1_2_VERSION);
    return c;
}

TEST_P(TlsTickets, ASessionIsNotResumedWhenItsCertificateHasExpired) {
    run([] {
        auto sc = server_config();
        sc.trust_from_memory(the_authority().ca.certificate).require_client_certificate().session_tickets(1);
        const identity own = the_authority().make({.ends_s = 2, .for_client = true});
        std::vector<std::pair<tls::config, session_ptr>> sessions;
        for (const bool old_version : {false, true}) {
            auto client = resuming_client(old_version);
            client.certificate_from_memory(own.certificate, own.key);
            session_ptr s = visit(sc, client, nullptr).first;
            const auto [again, resumed] = visit(sc, client, s);
            EXPECT_TRUE(resumed || X509_cmp_current_time(X509_get0_notAfter(own.x509.get())) <= 0);
            sessions.emplace_back(client, again);
        }
        while (X509_cmp_current_time(X509_get0_notAfter(own.x509.get())) > 0) dunlin::sleep_for(50ms);
        for (const auto& [client, s] : sessions) {
            EXPECT_THROW(visit(sc, client, s), dunlin::io_error);
        }
    });
}

TEST_P(TlsTickets, ASessionEndsHoweverOftenItIsResumed) {
    run([] {
        constexpr auto period = 12ms;
        auto sc = server_config();
        sc.session_tickets(1, period);
        const auto client = resuming_client(false);
        const auto now = [] { return std::chrono::steady_clock::now(); };
        session_ptr last;
        unsigned resumptions = 0;
        auto full_handshake = now();
        for (const auto end = now() + 84 * period + 300ms; now() < end; dunlin::sleep_for(period / 3)) {
            const auto begin = now();
            const auto [s, resumed] = visit(sc, client, last);
            last = s;
            if (!resumed) {
                full_handshake = now();
                continue;
            }
            ++resumptions;
            ASSERT_LT(begin - full_handshake, 84 * period);
        }
        EXPECT_GT(resumptions, 0u);
    });
}

TEST_P(TlsTickets, EachResumptionBringsANewOneWithTls13) {
    run([] {
        auto sc = server_config();
        sc.session_tickets(2);
        const auto client = resuming_client(false);
        const auto ticket_of = [](const session_ptr& s) {
            const unsigned char* bytes = nullptr;
            std::size_t size = 0;
            SSL_SESSION_get0_ticket(s.get(), &bytes, &size);
            return std::string(bytes, bytes + size);
        };
        session_ptr last = visit(sc, client, nullptr).first;
        for (int i = 0; i < 3; ++i) {
            const auto [s, resumed] = visit(sc, client, last);
            EXPECT_TRUE(resumed);
            EXPECT_NE(ticket_of(s), ticket_of(last));
            last = s;
        }
    });
}

// As servers of several hosts do it, by OpenSSL's own call.
TEST_P(TlsTickets, StayThoseOfTheConfigIfACallbackChoosesAnotherContext) {
    run([] {
        for (const bool old_version : {false, true}) {
            const auto other = server_config();
            SSL_CTX_use_certificate(other.native_handle(), tls_test::localhost().x509.get());
            SSL_CTX_use_PrivateKey(other.native_handle(), tls_test::localhost().private_key.get());
            auto sc = server_config();
            sc.session_tickets(1);
            const auto choose = +[](SSL* s, int*, void* context) {
                SSL_set_SSL_CTX(s, static_cast<SSL_CTX*>(context));
                return SSL_TLSEXT_ERR_OK;
            };
            SSL_CTX_set_tlsext_servername_callback(sc.native_handle(), choose);
            SSL_CTX_set_tlsext_servername_arg(sc.native_handle(), other.native_handle());
            const auto client = resuming_client(old_version);
            const session_ptr s = visit(sc, client, nullptr).first;
            EXPECT_TRUE(visit(sc, client, s).second);
        }
    });
}

TEST_P(TlsTickets, AKeyMayServeForEver) {
    run([] {
        auto sc = server_config();
        sc.session_tickets(1, std::chrono::hours::max());
        auto client = client_config();
        SSL_CTX_clear_options(client.native_handle(), SSL_OP_NO_TICKET);
        const session_ptr before = visit(sc, client, nullptr).first;
        EXPECT_TRUE(visit(sc, client, before).second);
    });
}

TEST(TlsConfig, MoreTicketsThanAClientTakesAreRefused) {
    auto sc = server_config();
    sc.session_tickets(16);
    try {
        sc.session_tickets(17);
        ADD_FAILURE();
    } catch (const std::invalid_argument& e) {
        EXPECT_NE(std::string_view(e.what()).find("16 at most"), std::string_view::npos) << e.what();
    }
    EXPECT_EQ(SSL_CTX_get_num_tickets(sc.native_handle()), 16u) << "nothing is changed then";
}

}  // namespace
