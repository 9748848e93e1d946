// identity_test.cpp - which peers are accepted and which are refused, and what each side is told.
#include <cstdio>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

#include <dunlin/net.hpp>
#include <dunlin/tls.hpp>

#include "support/runtime_test.h"
#include "tls/certificates.h"

namespace {

using namespace std::chrono_literals;
using tls_test::identity;
using tls_test::localhost;
using tls_test::the_authority;

namespace net = dunlin::net;
namespace tls = dunlin::tls;

constexpr int last_expired_s = -60;

tls::config server_of(const identity& i) { return tls::config::server_from_memory(i.certificate, i.key); }
tls::config client_that_trusts(const identity& ca) {
    auto c = tls::config::client();
    c.trust_from_memory(ca.certificate);
    return c;
}

// What both sides say of a handshake; "" if it went well. The client then reads, for in TLS 1.3 the server refuses it
// only after its own handshake.
struct verdict {
    std::string client, server;
};
verdict meet(const tls::config& cc, const tls::config& sc, std::string_view name = "localhost") {
    auto [a, b] = net::stream_pair();
    tls::stream client = tls::client(std::move(a), name, cc), server = tls::server(std::move(b), sc);
    const auto said = [](auto f) -> std::string {
        try {
            f();
            return "";
        } catch (const dunlin::io_error& e) {
            return e.what();
        }
    };
    auto served = dunlin::spawn([&] {
        return said([&] { server.handshake(), server.close(); });
    });
    verdict v;
    v.client = said([&] {
        char c[1];
        client.handshake();
        client.read_some(c);
    });
    v.server = served.get();
    return v;
}

class TlsIdentity : public support::each_p {};
EACH_P(TlsIdentity);

TEST_P(TlsIdentity, AKnownHostIsAccepted) {
    run([] {
        for (const char* name : {"localhost", "localhost.", "127.0.0.1"}) {
            const verdict v = meet(client_that_trusts(the_authority().ca), server_of(localhost()), name);
            EXPECT_EQ(v.client, "");
            EXPECT_EQ(v.server, "");
        }
    });
}

TEST_P(TlsIdentity, AnotherHostIsRefusedAndToldSo) {
    run([] {
        const verdict v = meet(client_that_trusts(the_authority().ca), server_of(localhost()), "example.org");
        EXPECT_EQ(v.client, "tls handshake with example.org: certificate verify failed: hostname mismatch");
        EXPECT_NE(v.server.find("alert bad certificate"), std::string::npos) << v.server;
        const verdict ip = meet(client_that_trusts(the_authority().ca), server_of(localhost()), "127.0.0.2");
        EXPECT_EQ(ip.client, "tls handshake with 127.0.0.2: certificate verify failed: IP address mismatch");
    });
}

TEST_P(TlsIdentity, ExpiredAndFutureCertificatesAreRefused) {
    run([] {
        const identity old = the_authority().make({.begins_s = -3600, .ends_s = last_expired_s});
        EXPECT_EQ(meet(client_that_trusts(the_authority().ca), server_of(old)).client,
            "tls handshake with localhost: certificate verify failed: certificate has expired");
        const identity unborn = the_authority().make({.begins_s = 3600, .ends_s = 7200});
        EXPECT_EQ(meet(client_that_trusts(the_authority().ca), server_of(unborn)).client,
            "tls handshake with localhost: certificate verify failed: certificate is not yet valid");
    });
}

TEST_P(TlsIdentity, ACommonNameIsNoName) {
    run([] {
        for (const char* others : {"", "DNS:example.org"}) {
            const identity named = the_authority().make({.names = others, .common_name = "localhost"});
            EXPECT_EQ(meet(client_that_trusts(the_authority().ca), server_of(named)).client,
                "tls handshake with localhost: certificate verify failed: hostname mismatch");
        }
    });
}

TEST_P(TlsIdentity, OldCipherSuitesAreRefusedUnlessTheyAreNamed) {
    run([] {
        for (const auto& c : {tls::config::client(), server_of(localhost())}) {
            const auto* all = SSL_CTX_get_ciphers(c.native_handle());
            for (int i = 0; i < sk_SSL_CIPHER_num(all); ++i) {
                const std::string name = SSL_CIPHER_get_name(sk_SSL_CIPHER_value(all, i));
                EXPECT_TRUE(name.starts_with("TLS_") || name.starts_with("ECDHE-")) << name;
                EXPECT_TRUE(name.find("GCM") != name.npos || name.find("CHACHA20") != name.npos) << name;
            }
        }
        auto old = client_that_trusts(the_authority().ca);
        SSL_CTX_set_max_proto_version(old.native_handle(), TLS1_2_VERSION);
        EXPECT_EQ(meet(old, server_of(localhost())).client, "");
        old.ciphers({"ECDHE-ECDSA-AES128-SHA"});
        auto sc = server_of(localhost());
        EXPECT_NE(meet(old, sc).client, "");
        sc.ciphers({"ECDHE-ECDSA-AES128-SHA"});
        EXPECT_EQ(meet(old, sc).client, "");
        sc.ciphers({"TLS_CHACHA20_POLY1305_SHA256"});
        auto [a, b] = net::stream_pair();
        auto served = dunlin::spawn([s = tls::server(std::move(b), sc)]() mutable { s.handshake(); });
        auto client = tls::client(std::move(a), "localhost", client_that_trusts(the_authority().ca));
        client.handshake();
        EXPECT_EQ(client.cipher(), "TLS_CHACHA20_POLY1305_SHA256");
        served.get();
    });
}

TEST_P(TlsIdentity, ASelfSignedCertificateIsRefusedUnlessItIsTrustedItself) {
    run([] {
        const identity own = tls_test::make_identity({});
        EXPECT_EQ(meet(client_that_trusts(the_authority().ca), server_of(own)).client,
            "tls handshake with localhost: certificate verify failed: self-signed certificate");
        EXPECT_EQ(meet(tls::config::client(), server_of(own)).client,
            "tls handshake with localhost: certificate verify failed: self-signed certificate");
        EXPECT_EQ(meet(client_that_trusts(own), server_of(own)).client, "");
        EXPECT_EQ(meet(tls::config::client().insecure_skip_verify(), server_of(own)).client, "");
    });
}

// The side of a connection decides whether it verifies, not how the config was made.
TEST_P(TlsIdentity, AClientWithAConfigOfAServerVerifiesToo) {
    run([] {
        const identity own = tls_test::make_identity({});
        EXPECT_EQ(meet(server_of(localhost()), server_of(own)).client,
            "tls handshake with localhost: certificate verify failed: self-signed certificate");
        // The authority was not named.
        EXPECT_NE(meet(server_of(localhost()), server_of(localhost())).client.find("certificate verify failed"),
            std::string::npos);
        EXPECT_THROW(meet(server_of(localhost()), server_of(localhost()), ""), dunlin::io_error)
            << "there is no server name to verify";
        auto both = server_of(localhost());
        both.trust_from_memory(the_authority().ca.certificate);
        EXPECT_EQ(meet(both, both).client, "");
        EXPECT_NE(meet(both, both, "example.org").client.find("certificate verify failed: hostname mismatch"),
            std::string::npos);
        // What servers ask of clients changes nothing for clients, nor what a client skips for servers.
        both.require_client_certificate();
        EXPECT_NE(meet(both, server_of(own)).client.find("certificate verify failed"), std::string::npos);
        auto skips = client_that_trusts(the_authority().ca);
        skips.insecure_skip_verify();
        EXPECT_EQ(meet(skips, server_of(own)).client, "");
        both.insecure_skip_verify();
        const verdict v = meet(skips, both);
        EXPECT_NE(v.server.find("peer did not return a certificate"), std::string::npos) << v.server;
    });
}

TEST_P(TlsIdentity, AnUnknownAuthorityIsRefused) {
    run([] {
        const tls_test::authority other{
            tls_test::make_identity({.common_name = "another authority", .authority = true})};
        const verdict v = meet(client_that_trusts(other.ca), server_of(localhost()));
        EXPECT_NE(v.client.find("certificate verify failed: unable to get local issuer certificate"), std::string::npos)
            << v.client;
        EXPECT_NE(v.server.find("unknown ca"), std::string::npos) << v.server;
        const tls_test::authority impostor;  // has the name, and not the key
        EXPECT_EQ(meet(client_that_trusts(impostor.ca), server_of(localhost())).client,
            "tls handshake with localhost: certificate verify failed: certificate signature failure");
    });
}

TEST_P(TlsIdentity, AChainWithAnIntermediateAuthorityIsFollowed) {
    run([] {
        const identity middle = the_authority().make({.names = "", .common_name = "middle", .authority = true});
        const identity leaf = tls_test::make_identity({}, &middle);
        const auto whole = tls::config::server_from_memory(leaf.certificate + middle.certificate, leaf.key);
        EXPECT_EQ(meet(client_that_trusts(the_authority().ca), whole).client, "");
        EXPECT_NE(meet(client_that_trusts(the_authority().ca), server_of(leaf)).client, "");
    });
}

TEST_P(TlsIdentity, WhatIsTrustedIsARootWhateverHasSignedIt) {
    run([] {
        const identity middle = the_authority().make({.names = "", .common_name = "middle", .authority = true});
        const identity leaf = tls_test::make_identity({}, &middle);
        const auto whole = tls::config::server_from_memory(leaf.certificate + middle.certificate, leaf.key);
        EXPECT_EQ(meet(client_that_trusts(middle), whole).client, "");
        EXPECT_EQ(meet(client_that_trusts(middle), server_of(leaf)).client, "");
        EXPECT_EQ(meet(client_that_trusts(leaf), server_of(leaf)).client, "") << "the server's own certificate";
        EXPECT_EQ(meet(client_that_trusts(leaf), server_of(leaf), "example.org").client,
            "tls handshake with example.org: certificate verify failed: hostname mismatch");
        // All others are refused, also those of the authority that has signed what is trusted.
        EXPECT_NE(meet(client_that_trusts(middle), server_of(localhost())).client.find("certificate verify failed"),
            std::string::npos);
        const identity another = tls_test::make_identity({}, &middle);
        EXPECT_NE(meet(client_that_trusts(leaf), server_of(another)).client.find("certificate verify failed"),
            std::string::npos);
        const identity old = tls_test::make_identity({.ends_s = last_expired_s}, &middle);
        EXPECT_EQ(meet(client_that_trusts(middle), server_of(old)).client,
            "tls handshake with localhost: certificate verify failed: certificate has expired");
        // Servers judge their clients by the same rule.
        auto strict = server_of(localhost());
        strict.trust_from_memory(middle.certificate).require_client_certificate();
        auto cc = client_that_trusts(the_authority().ca);
        const identity known = tls_test::make_identity({.names = "", .for_client = true}, &middle);
        cc.certificate_from_memory(known.certificate, known.key);
        EXPECT_EQ(meet(cc, strict).server, "");
        const identity stranger = the_authority().make({.names = "", .for_client = true});
        cc.certificate_from_memory(stranger.certificate, stranger.key);
        EXPECT_NE(meet(cc, strict).server.find("certificate verify failed"), std::string::npos);
    });
}

TEST_P(TlsIdentity, TheConditionsTellWhatItWas) {
    run([] {
        auto l = tls::listen("tcp", "127.0.0.1:0", server_of(localhost()));
        auto server = dunlin::spawn([&] {
            std::error_code ec;
            while (auto s = l.accept(ec)) s.handshake(ec);
        });
        std::error_code ec;
        EXPECT_FALSE(tls::dial("tcp", l.local_address().to_string(), tls::config::client(), 20s, ec));
        EXPECT_EQ(ec, tls::errc::certificate_rejected) << ec.message();
        EXPECT_NE(ec, tls::errc::protocol);
        EXPECT_NE(ec, tls::errc::truncated);
        EXPECT_TRUE(tls::dial("tcp", l.local_address().to_string(), client_that_trusts(the_authority().ca), 20s, ec))
            << ec.message();
        l.close();
        server.get();
    });
}

TEST_P(TlsIdentity, AClientThatVerifiesMustKnowTheName) {
    run([] {
        auto [a, b] = net::stream_pair();
        try {
            tls::client(std::move(a), "");
            ADD_FAILURE();
        } catch (const dunlin::io_error& e) {
            EXPECT_EQ(e.code(), tls::errc::no_server_name);
        }
        auto named = client_that_trusts(the_authority().ca);
        named.server_name("localhost");
        EXPECT_EQ(meet(named, server_of(localhost()), "").client, "");
        EXPECT_EQ(meet(named, server_of(localhost()), "example.org").client, "") << "the name that is set counts";
    });
}

TEST_P(TlsIdentity, ANameThatStandsForMoreThanOneIsRefused) {
    run([] {
        const auto cc = client_that_trusts(the_authority().ca);
        using namespace std::string_literals;
        for (const auto& name : {".localhost"s, ".com"s, "a..localhost"s, "localhost.."s, "127.0.0.1\0.com"s,
                 "::1%\0.com"s}) {
            auto [a, b] = net::stream_pair();
            std::error_code ec;
            tls::client(std::move(a), name, cc, ec);
            EXPECT_EQ(ec, std::errc::invalid_argument) << name;
        }
        for (const char* name : {"localhost%zone", "localhost%:", "127.0.0.1%zone"})
            EXPECT_NE(meet(cc, server_of(localhost()), name).client, "") << name;
        const identity six = the_authority().make({.names = "IP:fe80::1"});
        EXPECT_EQ(meet(cc, server_of(six), "fe80::1%eth0").client, "") << "the zone of an address is no part of it";
    });
}

TEST_P(TlsIdentity, ClientCertificatesAreAskedForAndVerified) {
    run([] {
        auto strict = server_of(localhost());
        strict.trust_from_memory(the_authority().ca.certificate).require_client_certificate();
        auto cc = client_that_trusts(the_authority().ca);

        const verdict without = meet(cc, strict);
        EXPECT_NE(without.server.find("peer did not return a certificate"), std::string::npos) << without.server;
        EXPECT_NE(without.client.find("certificate required"), std::string::npos) << without.client;

        const identity good = the_authority().make({.names = "", .common_name = "friend", .for_client = true});
        cc.certificate_from_memory(good.certificate, good.key);
        const verdict v = meet(cc, strict);
        EXPECT_EQ(v.client, "");
        EXPECT_EQ(v.server, "");

        const identity stranger = tls_test::make_identity({.names = "", .for_client = true});
        cc.certificate_from_memory(stranger.certificate, stranger.key);
        const verdict refused = meet(cc, strict);
        EXPECT_NE(refused.server.find("certificate verify failed: self-signed certificate"), std::string::npos)
            << refused.server;
        EXPECT_NE(refused.client.find("alert"), std::string::npos) << refused.client;
    });
}

TEST_P(TlsIdentity, WithoutACommonProtocolOrVersionThereIsNoConnection) {
    run([] {
        auto cc = client_that_trusts(the_authority().ca);
        auto sc = server_of(localhost());
        sc.alpn({"h2"});
        EXPECT_EQ(meet(cc, sc).client, "") << "who names none takes what comes";
        cc.alpn({"spdy/1"});
        EXPECT_NE(meet(cc, sc).client.find("no application protocol"), std::string::npos);

        auto old = client_that_trusts(the_authority().ca);
        SSL_CTX_set_max_proto_version(old.native_handle(), TLS1_2_VERSION);
        auto modern = server_of(localhost());
        EXPECT_EQ(meet(old, modern).client, "");
        modern.minimum_version(tls::version::tls1_3);
        EXPECT_NE(meet(old, modern).client.find("protocol version"), std::string::npos);
        SSL_CTX_set_min_proto_version(old.native_handle(), TLS1_VERSION);
        SSL_CTX_set_max_proto_version(old.native_handle(), TLS1_1_VERSION);
        EXPECT_NE(meet(old, server_of(localhost())).client, "") << "1.2 is the least";
    });
}

// ---- set-up ---------------------------------------------------------------------------------------------------------

template <class F>
std::string complaint(F f) {
    try {
        f();
        return "";
    } catch (const dunlin::io_error& e) {
        return e.what();
    }
}

TEST(TlsConfig, FilesAreReadAndTheirFaultsTold) {
    char folder[] = "/tmp/dunlin-tls-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    const std::string at = folder;
    const auto write = [&](const char* name, const std::string& text) {
        std::ofstream(at + '/' + name) << text;
        return at + '/' + name;
    };
    const identity other = the_authority().make();
    const std::string cert = write("cert.pem", localhost().certificate), key = write("key.pem", localhost().key);
    const std::string wrong = write("other.pem", other.key), none = at + "/none.pem",
                      garbage = write("garbage.pem", "no PEM\n");

    EXPECT_EQ(complaint([&] { tls::config::server(cert, key).trust(cert); }), "");
    EXPECT_EQ(
        complaint([&] { tls::config::server(none, key); }), "tls certificate " + none + ": no such file or directory");
    EXPECT_EQ(complaint([&] { tls::config::server(garbage, key); }), "tls certificate " + garbage + ": no start line");
    EXPECT_EQ(complaint([&] { tls::config::server(cert, wrong); }), "tls key " + wrong + ": key values mismatch");
    EXPECT_EQ(complaint([&] { tls::config::client().trust(garbage); }),
        "tls trusted certificate " + garbage + ": no start line");
    const std::string zero("\0.pem", 5);  // the system would see the name before it
    EXPECT_EQ(complaint([&] { tls::config::client().trust(cert + zero); }),
        "tls trusted certificate " + cert + "\\0.pem: invalid argument: it contains a zero byte");
    EXPECT_EQ(complaint([&] { tls::config::server(cert, key + zero); }),
        "tls key " + key + "\\0.pem: invalid argument: it contains a zero byte");
    for (const std::string& file : {cert, key, wrong, garbage}) std::remove(file.c_str());
    rmdir(folder);
}

TEST(TlsConfig, ATextWithAFaultAddsNoAuthority) {
    tls::config c = tls::config::client();
    const auto trusted = [&] {
        return sk_X509_OBJECT_num(X509_STORE_get0_objects(SSL_CTX_get_cert_store(c.native_handle())));
    };
    const std::string damaged =
        the_authority().ca.certificate + "-----BEGIN CERTIFICATE-----\nno base64\n-----END CERTIFICATE-----\n";
    const std::string text = complaint([&] { c.trust_from_memory(damaged); });
    EXPECT_NE(text.find("tls trusted certificate in memory: "), std::string::npos) << text;
    EXPECT_EQ(trusted(), 0);
    c.trust_from_memory(the_authority().ca.certificate);
    EXPECT_EQ(trusted(), 1);
}

TEST(TlsConfig, CipherSuitesThatDoNotExistAreToldOf) {
    for (const char* name : {"ECDHE-RSA-AES128-GCM-SHA255", "TLS_AES_128_GCM_SHA255"}) {
        const std::string text = complaint([&] {
            tls::config::client().ciphers({"ECDHE-RSA-AES128-GCM-SHA256", name});
        });
        EXPECT_EQ(text.rfind("tls cipher " + std::string(name) + ": ", 0), 0u) << text;
    }
    EXPECT_THROW(tls::config::client().ciphers({""}), std::invalid_argument);
    EXPECT_THROW(tls::config::client().ciphers({"ECDHE-RSA-AES128-GCM-SHA256,NONE"}), std::invalid_argument);
    EXPECT_THROW(tls::config::client().ciphers({"ECDHE-RSA-AES128-GCM-SHA256 @SECLEVEL=0"}), std::invalid_argument);
    EXPECT_THROW(tls::config::client().ciphers({"ECDHE-RSA-AES128-GCM-SHA256:NONE"}), std::invalid_argument);
}

TEST(TlsConfig, AKeyWithAPasswordIsRefusedWithoutAPrompt) {
    const std::string locked = tls_test::pem_of([](BIO* b) {
        const auto* password = reinterpret_cast<const unsigned char*>("secret");
        return PEM_write_bio_PrivateKey(
            b, localhost().private_key.get(), EVP_aes_128_cbc(), password, 6, nullptr, nullptr);
    });
    EXPECT_NE(complaint([&] { tls::config::server_from_memory(localhost().certificate, locked); }), "");
}

}  // namespace
