// tls_echo.cpp - an echo server over TLS, and clients that verify the server they talk to.
//
//   example_tls_echo                             makes a certificate, serves a few clients of its own, and ends
//   example_tls_echo --listen ADDR CERT KEY      serves ADDR (":7443", say) with a certificate and key (PEM
//                                                files) until SIGINT or SIGTERM
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <dunlin/dunlin.hpp>
#include <dunlin/signal.hpp>
#include <dunlin/tls.hpp>

namespace net = dunlin::net;
namespace tls = dunlin::tls;

namespace {

void echo(tls::stream s) {
    char data[4096];
    std::error_code ec;  // the first read makes the handshake, which a client may fail
    while (const std::size_t n = s.read_some(data, ec)) {
        s.write_all(dunlin::const_buffer(data, n), ec);
        if (ec) break;
    }
}

void serve(tls::listener& l) {
    std::error_code ec;
    while (tls::stream s = l.accept(ec)) dunlin::go([s = std::move(s)]() mutable { echo(std::move(s)); });
}

// ---- a certificate of our own, which only this program trusts -------------------------------------------------------

struct identity {
    std::string certificate, key;
};

std::string text_of(BIO* memory) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(memory, &data);
    return {data, static_cast<std::size_t>(size)};
}

identity make_identity() {
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> x(X509_new(), X509_free);
    X509_set_version(x.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(x.get()), -60);
    X509_gmtime_adj(X509_getm_notAfter(x.get()), 3600);
    X509_set_pubkey(x.get(), key.get());
    X509_NAME* name = X509_get_subject_name(x.get());
    X509_NAME_add_entry_by_txt(
        name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("dunlin example"), -1, -1, 0);
    X509_set_issuer_name(x.get(), name);
    X509_EXTENSION* names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
    X509_add_ext(x.get(), names, -1);
    X509_EXTENSION_free(names);
    X509_sign(x.get(), key.get(), EVP_sha256());

    const std::unique_ptr<BIO, decltype(&BIO_free)> certificate_pem(BIO_new(BIO_s_mem()), BIO_free),
        key_pem(BIO_new(BIO_s_mem()), BIO_free);
    PEM_write_bio_X509(certificate_pem.get(), x.get());
    PEM_write_bio_PrivateKey(key_pem.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    return {text_of(certificate_pem.get()), text_of(key_pem.get())};
}

int serve_own_clients() {
    const identity mine = make_identity();
    auto l = tls::listen("tcp", "127.0.0.1:0", tls::config::server_from_memory(mine.certificate, mine.key));
    auto server = dunlin::spawn([&] { serve(l); });
    const std::string address = l.local_address().to_string();

    auto trusting = tls::config::client();
    trusting.trust_from_memory(mine.certificate);
    std::atomic<int> right{0};
    constexpr int clients = 20;
    dunlin::task_group all;
    for (int i = 0; i < clients; ++i) {
        all.go([&, i] {
            auto s = tls::dial("tcp", address, trusting);
            const std::string said = "I am client " + std::to_string(i);
            std::string heard(said.size(), '\0');
            s.write_all(said);
            s.read_exactly(dunlin::mutable_buffer(heard));
            if (heard == said) ++right;
        });
    }
    all.wait();

    bool refused = false;
    try {
        tls::dial("tcp", address);  // trusts the system's authorities, which do not know this server
    } catch (const dunlin::io_error& e) {
        refused = e.code() == tls::errc::certificate_rejected;
        std::printf("%s\n", e.what());
    }
    l.close();
    server.wait();
    std::printf("%d of %d clients heard what they had said\n", right.load(), clients);
    return right == clients && refused ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const bool listens = argc == 5 && std::string_view(argv[1]) == "--listen";
    return dunlin::run([&] {
        if (!listens) return serve_own_clients();
        auto l = tls::listen("tcp", argv[2], tls::config::server(argv[3], argv[4]));
        std::printf("listening at %s\n", l.local_address().to_string().c_str());
        dunlin::go([&] { serve(l); });
        dunlin::signal_channel({SIGINT, SIGTERM}).recv();
        return 0;
    });
}
