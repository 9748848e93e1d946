// config.h - what is behind a tls::config.
#pragma once

#include <memory>
#include <string>

#include <openssl/ssl.h>

#include <dunlin/tls.hpp>

namespace dunlin::tls {

template <auto Free>
struct openssl_free {
    template <class T>
    void operator()(T* p) const noexcept {
        Free(p);
    }
};
template <class T, auto Free>
using openssl_ptr = std::unique_ptr<T, openssl_free<Free>>;

struct config::data {
    openssl_ptr<SSL_CTX, SSL_CTX_free> context;
    std::string protocols;    // ALPN, as on the wire: each with its length before it; read by OpenSSL's callback on the server's side
    std::string server_name;  // empty: the one that is dialled
    // A config does not know on which side it will be used: the session decides by its own.
    bool trusts_system = true;        // clients; until trust() names others
    bool asks_clients = false;        // servers: for a certificate, which is verified
    bool skips_verification = false;  // clients
};

// What the system trusts. Read once, when it is first needed (30 ms of CPU for Debian's 140 authorities), and kept for ever.
X509_STORE* system_trust();

}  // namespace dunlin::tls
