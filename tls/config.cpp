// config.cpp - certificates, keys, and trusted certificates.
#include "config.h"

#include <cerrno>
#include <cstdio>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "error.h"

namespace dunlin::inline v0_1::tls {

namespace {

using bio_ptr = openssl_ptr<BIO, BIO_free>;
using x509_ptr = openssl_ptr<X509, X509_free>;
using key_ptr = openssl_ptr<EVP_PKEY, EVP_PKEY_free>;

constexpr const char* in_memory = "in memory";

[[noreturn]] void refuse(const std::string& what, const std::string& where) {
    throw_tls_error("tls " + what + ' ' + where, take_openssl_error().error);
}

// Not inlined: it reads errno.
[[gnu::noinline]] std::error_code read_file(const char* path, std::string& text) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> f(std::fopen(path, "rbe"), std::fclose);
    if (f == nullptr) return {errno, std::generic_category()};
    char part[4096];
    std::size_t n;
    while ((n = std::fread(part, 1, sizeof part, f.get())) > 0) text.append(part, n);
    return {std::ferror(f.get()) ? errno : 0, std::generic_category()};
}

// The system would open the path before the zero byte, and what() would end there.
void refuse_zero_byte(const std::string& what, const std::string& path) {
    if (path.find('\0') == path.npos) return;
    std::string shown;
    for (const char c : path) shown += c != '\0' ? std::string(1, c) : "\\0";
    const std::error_code ec = std::make_error_code(std::errc::invalid_argument);
    throw io_error(ec, "tls " + what + ' ' + shown + ": " + cause_text(ec) + ": it contains a zero byte");
}

std::string contents_of(const char* what, const std::string& path) {
    refuse_zero_byte(what, path);
    std::string text;
    if (const std::error_code ec = read_file(path.c_str(), text))
        throw_tls_error(std::string("tls ") + what + ' ' + path, ec);
    return text;
}

bio_ptr reader_of(std::string_view text) {
    if (text.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()))
        throw std::length_error("tls: a PEM text of more than 2 GiB");
    bio_ptr bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    if (!bio) throw std::bad_alloc();
    return bio;
}

// Replaces OpenSSL's own callback, which would ask at the terminal.
int no_password(char*, int, int, void*) { return -1; }

x509_ptr next_certificate(BIO* from) { return x509_ptr(PEM_read_bio_X509(from, nullptr, no_password, nullptr)); }

// At the end of the text OpenSSL reports "no start line", which is no error after the first certificate.
void expect_end(const char* what, const std::string& where) {
    const unsigned long last = ERR_peek_last_error();
    if (ERR_GET_LIB(last) != ERR_LIB_PEM || ERR_GET_REASON(last) != PEM_R_NO_START_LINE) refuse(what, where);
    ERR_clear_error();
}

// Reads a certificate with its chain, and its key, and tests them as a connection will. Changes nothing.
identity read_identity(SSL_CTX* c, std::string_view certificate_pem, const std::string& certificate_where,
    std::string_view key_pem, const std::string& key_where) {
    identity made;
    const openssl_ptr<SSL, SSL_free> trial(SSL_new(c));
    made.chain.reset(sk_X509_new_null());
    if (!trial || !made.chain) throw std::bad_alloc();
    const bio_ptr certificates = reader_of(certificate_pem), keys = reader_of(key_pem);
    ERR_clear_error();
    made.certificate = next_certificate(certificates.get());
    if (!made.certificate || SSL_use_certificate(trial.get(), made.certificate.get()) != 1)
        refuse("certificate", certificate_where);
    while (x509_ptr next = next_certificate(certificates.get())) {
        if (SSL_add1_chain_cert(trial.get(), next.get()) != 1 || sk_X509_push(made.chain.get(), next.get()) == 0)
            refuse("certificate", certificate_where);
        static_cast<void>(next.release());  // the chain owns it now
    }
    expect_end("certificate", certificate_where);
    ERR_clear_error();
    made.key.reset(PEM_read_bio_PrivateKey(keys.get(), nullptr, no_password, nullptr));
    const bool fits =
        made.key && SSL_use_PrivateKey(trial.get(), made.key.get()) == 1 && SSL_check_private_key(trial.get()) == 1;
    if (!fits) refuse("key", key_where);
    return made;
}

identity copy_of(const identity& i) {
    identity copy;
    if (X509_up_ref(i.certificate.get()) == 1) copy.certificate.reset(i.certificate.get());
    if (EVP_PKEY_up_ref(i.key.get()) == 1) copy.key.reset(i.key.get());
    copy.chain.reset(X509_chain_up_ref(i.chain.get()));
    if (!copy.certificate || !copy.key || !copy.chain) throw std::bad_alloc();
    return copy;
}

bool same_kind(const identity& a, const identity& b) noexcept {
    return EVP_PKEY_get_base_id(a.key.get()) == EVP_PKEY_get_base_id(b.key.get());
}

// Replaces the identity of its kind, or all identities.
void show(config::data& d, identity fresh, bool instead_of_all) {
    for (;;) {
        const std::shared_ptr<const identities> before = d.own();
        auto after = std::make_shared<identities>();
        if (before != nullptr && !instead_of_all) {
            for (const identity& i : *before) {
                if (!same_kind(i, fresh)) after->push_back(copy_of(i));
            }
        }
        after->push_back(copy_of(fresh));
        const std::lock_guard hold(d.lock);
        if (d.own_identities != before) continue;  // another thread was faster
        d.own_identities = std::move(after);
        return;
    }
}

// Cipher suites with forward secrecy and authenticated encryption.
constexpr const char* ciphers_of_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20";

// OpenSSL ignores names that it does not know, so each name is tested alone.
void check_cipher(const std::string& name) {
    const openssl_ptr<SSL_CTX, SSL_CTX_free> trial(SSL_CTX_new(TLS_method()));
    if (!trial) throw std::bad_alloc();
    ERR_clear_error();
    const bool known = name.starts_with("TLS_") ? SSL_CTX_set_ciphersuites(trial.get(), name.c_str()) == 1
                                                : SSL_CTX_set_cipher_list(trial.get(), name.c_str()) == 1;
    if (!known) refuse("cipher", name);
}

// All or none: a text with a fault adds no certificate.
void add_trusted(SSL_CTX* c, std::string_view pem, const std::string& where) {
    const bio_ptr bio = reader_of(pem);
    ERR_clear_error();
    std::vector<x509_ptr> authorities;
    while (x509_ptr ca = next_certificate(bio.get())) authorities.push_back(std::move(ca));
    if (authorities.empty()) refuse("trusted certificate", where);
    expect_end("trusted certificate", where);
    // A chain may end at each of them, also at one that another authority has signed.
    if (X509_STORE_set_flags(SSL_CTX_get_cert_store(c), X509_V_FLAG_PARTIAL_CHAIN) != 1)
        refuse("trusted certificate", where);
    for (const x509_ptr& ca : authorities) {
        // The second call is for servers: they send the names of these authorities to clients, which choose their
        // certificate by them.
        if (X509_STORE_add_cert(SSL_CTX_get_cert_store(c), ca.get()) != 1 || SSL_CTX_add_client_CA(c, ca.get()) != 1)
            refuse("trusted certificate", where);
    }
}

int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* offered,
    unsigned offered_size, void* arg) {
    const std::string& ours = *static_cast<const std::string*>(arg);
    unsigned char* chosen = nullptr;
    const int found = SSL_select_next_proto(&chosen, out_size, reinterpret_cast<const unsigned char*>(ours.data()),
        static_cast<unsigned>(ours.size()), offered, offered_size);
    if (found != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

// Makes what clients and servers have in common.
std::shared_ptr<config::data> make_data() {
    auto d = std::make_shared<config::data>();
    ERR_clear_error();
    d->context.reset(SSL_CTX_new(TLS_method()));
    if (!d->context) refuse("set-up", "of OpenSSL");
    SSL_CTX* c = d->context.get();
    SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
    if (SSL_CTX_set_cipher_list(c, ciphers_of_1_2) != 1) refuse("set-up", "of OpenSSL");
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(c, 0);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    static constexpr unsigned char name[] = "dunlin";
    SSL_CTX_set_session_id_context(c, name, sizeof name - 1);
    // A waiting connection keeps no buffers in OpenSSL.
    SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_default_passwd_cb(c, no_password);
    return d;
}

}  // namespace

X509_STORE* system_trust() {
    static X509_STORE* const store = [] {
        X509_STORE* s = X509_STORE_new();
        if (s == nullptr) throw std::bad_alloc();
        // if it finds nothing, no certificate is trusted, and verification fails with that reason
        X509_STORE_set_default_paths(s);
        ERR_clear_error();
        return s;
    }();
    return store;
}

config config::client() {
    return config(make_data());
}

config config::server(const std::string& certificate_file, const std::string& key_file) {
    config c(make_data());
    c.certificate(certificate_file, key_file);
    return c;
}

config config::server_from_memory(std::string_view certificate_pem, std::string_view key_pem) {
    config c(make_data());
    c.certificate_from_memory(certificate_pem, key_pem);
    return c;
}

config& config::certificate(const std::string& certificate_file, const std::string& key_file) {
    const std::string certificate_pem = contents_of("certificate", certificate_file),
                      key_pem = contents_of("key", key_file);
    show(*data_, read_identity(data_->context.get(), certificate_pem, certificate_file, key_pem, key_file), false);
    return *this;
}

config& config::certificate_from_memory(std::string_view certificate_pem, std::string_view key_pem) {
    show(*data_, read_identity(data_->context.get(), certificate_pem, in_memory, key_pem, in_memory), false);
    return *this;
}

void config::replace_certificate(const std::string& certificate_file, const std::string& key_file) {
    const std::string certificate_pem = contents_of("certificate", certificate_file),
                      key_pem = contents_of("key", key_file);
    show(*data_, read_identity(data_->context.get(), certificate_pem, certificate_file, key_pem, key_file), true);
}

void config::replace_certificate_from_memory(std::string_view certificate_pem, std::string_view key_pem) {
    show(*data_, read_identity(data_->context.get(), certificate_pem, in_memory, key_pem, in_memory), true);
}

config& config::trust(const std::string& file) {
    const std::string pem = contents_of("trusted certificate", file);
    add_trusted(data_->context.get(), pem, file);
    data_->trusts_system = false;
    data_->tickets.forget();
    return *this;
}

config& config::trust_from_memory(std::string_view pem) {
    add_trusted(data_->context.get(), pem, in_memory);
    data_->trusts_system = false;
    data_->tickets.forget();
    return *this;
}

config& config::require_client_certificate() {
    data_->asks_clients = true;
    data_->tickets.forget();
    return *this;
}

config& config::server_name(std::string name) {
    data_->server_name = std::move(name);
    return *this;
}

config& config::insecure_skip_verify() {
    data_->skips_verification = true;
    return *this;
}

config& config::alpn(std::initializer_list<std::string_view> protocols) {
    std::string wire;
    for (const std::string_view p : protocols) {
        if (p.empty() || p.size() > 255)
            throw std::invalid_argument("tls: an application protocol's name has 1 to 255 characters");
        wire += static_cast<char>(p.size());
        wire += p;
    }
    data_->protocols = std::move(wire);
    const std::string& w = data_->protocols;
    if (SSL_CTX_set_alpn_protos(data_->context.get(), reinterpret_cast<const unsigned char*>(w.data()),
            static_cast<unsigned>(w.size())) != 0) {
        throw std::bad_alloc();
    }
    SSL_CTX_set_alpn_select_cb(data_->context.get(), w.empty() ? nullptr : choose_protocol, &data_->protocols);
    return *this;
}

config& config::minimum_version(version v) {
    SSL_CTX_set_min_proto_version(data_->context.get(), v == version::tls1_3 ? TLS1_3_VERSION : TLS1_2_VERSION);
    return *this;
}

config& config::ciphers(std::initializer_list<std::string_view> names) {
    std::string old_ones, new_ones;
    for (const std::string_view name : names) {
        constexpr std::string_view allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        if (name.empty() || name.find_first_not_of(allowed) != name.npos)
            throw std::invalid_argument("tls: one name of a cipher suite each: \"" + std::string(name) + '"');
        check_cipher(std::string(name));
        std::string& list = name.starts_with("TLS_") ? new_ones : old_ones;
        list += (list.empty() ? "" : ":") + std::string(name);
    }
    ERR_clear_error();
    SSL_CTX* c = data_->context.get();
    if (!old_ones.empty() && SSL_CTX_set_cipher_list(c, old_ones.c_str()) != 1) refuse("ciphers", old_ones);
    if (!new_ones.empty() && SSL_CTX_set_ciphersuites(c, new_ones.c_str()) != 1) refuse("ciphers", new_ones);
    return *this;
}

config& config::session_tickets(unsigned count, std::chrono::nanoseconds key_period) {
    if (key_period.count() <= 0)
        throw std::invalid_argument("tls: the keys of session tickets serve for more than 0 ns");
    constexpr unsigned most = 16;  // a client takes many more for a flood of messages without data
    if (count > most)
        throw std::invalid_argument("tls: " + std::to_string(count) + " session tickets for each client: 16 at most");
    data_->tickets.serve(data_->context.get(), key_period);
    SSL_CTX_set_num_tickets(data_->context.get(), count);
    if (count != 0) {
        SSL_CTX_clear_options(data_->context.get(), SSL_OP_NO_TICKET);
    } else {
        SSL_CTX_set_options(data_->context.get(), SSL_OP_NO_TICKET);
    }
    return *this;
}

ssl_ctx_st* config::native_handle() const noexcept { return data_->context.get(); }

}  // namespace dunlin::tls
