// config.h - the data behind a tls::config.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <openssl/ssl.h>

#include <dunlin/tls.hpp>

#include "ticket_keys.h"

namespace dunlin::inline v0_1::tls {

template <auto Free>
struct openssl_free {
    template <class T>
    void operator()(T* p) const noexcept {
        Free(p);
    }
};
template <class T, auto Free>
using openssl_ptr = std::unique_ptr<T, openssl_free<Free>>;

inline void free_chain(STACK_OF(X509) * chain) noexcept { sk_X509_pop_free(chain, X509_free); }

// The certificate and key that one side shows to peers. Never changed: connections share it.
struct identity {
    openssl_ptr<X509, X509_free> certificate;
    openssl_ptr<STACK_OF(X509), free_chain> chain;
    openssl_ptr<EVP_PKEY, EVP_PKEY_free> key;
};
using identities = std::vector<identity>;  // one for each kind of key

struct config::data {
    openssl_ptr<SSL_CTX, SSL_CTX_free> context;
    ticket_keys tickets;
    // ALPN, in wire format: each name is preceded by its length; OpenSSL's callback on the server's side reads it
    std::string protocols;
    std::string server_name;  // empty: the dialled name
    // A config does not know which side will use it: a session applies the settings of its own side.
    bool trusts_system = true;        // clients: until trust() names other authorities
    bool asks_clients = false;        // servers: ask for a certificate, and verify it
    bool skips_verification = false;  // clients

    // Each new connection takes the current object; a replacement is a new object.
    std::shared_ptr<const identities> own() const {
        const std::lock_guard hold(lock);
        return own_identities;
    }
    mutable std::mutex lock;  // held while a pointer is copied
    std::shared_ptr<const identities> own_identities;  // lock; null: none
};

// The authorities that the system trusts. Read once, when they are first needed (30 ms of CPU for Debian's 140), and
// kept for ever.
X509_STORE* system_trust();

}  // namespace dunlin::tls
