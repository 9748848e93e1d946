// certificates.h - authorities and certificates, made on the spot by OpenSSL's own calls.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <dunlin/tls.hpp>

namespace tls_test {

// A key and what belongs to it, as PEM and as OpenSSL has it.
struct identity {
    std::shared_ptr<EVP_PKEY> private_key;
    std::shared_ptr<X509> x509;
    std::string certificate, key;
};

struct wanted {
    std::string names = "DNS:localhost,IP:127.0.0.1";  // OpenSSL's notation
    std::string common_name = "dunlin test";
    long begins_s = -3600, ends_s = 3600;  // from now
    bool authority = false;
    bool for_client = false;
    bool rsa = false;  // the kind of its key; else EC
};

template <class Write>
std::string pem_of(Write write) {
    BIO* out = BIO_new(BIO_s_mem());
    if (write(out) != 1) throw std::runtime_error("no PEM");
    char* data = nullptr;
    const long size = BIO_get_mem_data(out, &data);
    std::string text(data, static_cast<std::size_t>(size));
    BIO_free(out);
    return text;
}

inline void extend(X509* x, int nid, const std::string& value) {
    X509_EXTENSION* e = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str());
    if (e == nullptr) throw std::runtime_error("no extension " + value);
    X509_add_ext(x, e, -1);
    X509_EXTENSION_free(e);
}

// Signed by `signer`, or by itself.
inline identity make_identity(const wanted& w, const identity* signer = nullptr) {
    static long serial = 1;
    identity made;
    made.private_key = {w.rsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256"), EVP_PKEY_free};
    made.x509 = {X509_new(), X509_free};
    X509* x = made.x509.get();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), serial++);
    X509_gmtime_adj(X509_getm_notBefore(x), w.begins_s);
    X509_gmtime_adj(X509_getm_notAfter(x), w.ends_s);
    X509_set_pubkey(x, made.private_key.get());
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_UTF8,
        reinterpret_cast<const unsigned char*>(w.common_name.c_str()), -1, -1, 0);
    X509_set_issuer_name(x, signer != nullptr ? X509_get_subject_name(signer->x509.get()) : X509_get_subject_name(x));
    extend(x, NID_basic_constraints, w.authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
    if (w.authority) {
        extend(x, NID_key_usage, "critical,keyCertSign,cRLSign");
    } else {
        extend(x, NID_ext_key_usage, w.for_client ? "clientAuth" : "serverAuth");
        if (!w.names.empty()) extend(x, NID_subject_alt_name, w.names);
    }
    if (X509_sign(x, signer != nullptr ? signer->private_key.get() : made.private_key.get(), EVP_sha256()) == 0)
        throw std::runtime_error("not signed");
    made.certificate = pem_of([x](BIO* b) { return PEM_write_bio_X509(b, x); });
    made.key = pem_of([&](BIO* b) {
        return PEM_write_bio_PrivateKey(b, made.private_key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
    return made;
}

// What most tests need: an authority, and a server's certificate that it has signed.
struct authority {
    identity ca = make_identity({.common_name = "dunlin test authority", .authority = true});
    identity make(const wanted& w = {}) const { return make_identity(w, &ca); }
};

inline const authority& the_authority() {
    static const authority a;
    return a;
}
inline const identity& localhost() {
    static const identity i = the_authority().make();
    return i;
}

// Both sides of it.
inline dunlin::tls::config server_config() {
    return dunlin::tls::config::server_from_memory(localhost().certificate, localhost().key);
}
inline dunlin::tls::config client_config() {
    auto c = dunlin::tls::config::client();
    c.trust_from_memory(the_authority().ca.certificate);
    return c;
}

}  // namespace tls_test
