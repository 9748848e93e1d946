#include "ticket_keys.h"

#include <algorithm>
#include <cstring>
#include <new>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <openssl/x509.h>

namespace dunlin::inline v0_1::tls {

namespace {

using clock = std::chrono::steady_clock;

constexpr int periods_of_session = 84;  // a week of keys that change every two hours

int index_of_keys() {
    static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
    return index;
}

// When the session began, as its tickets have it. False: they do not.
bool began(SSL_SESSION* session, clock::time_point& when) {
    void* data = nullptr;
    std::size_t size = 0;
    if (SSL_SESSION_get0_ticket_appdata(session, &data, &size) != 1 || size != sizeof when) return false;
    std::memcpy(&when, data, size);
    return true;
}

bool has_expired_certificate(SSL_SESSION* session) {
    const X509* certificate = SSL_SESSION_get0_peer(session);
    return certificate != nullptr && X509_cmp_current_time(X509_get0_notAfter(certificate)) <= 0;
}

}  // namespace

ticket_keys::~ticket_keys() {
    OPENSSL_cleanse(&current_, sizeof current_);
    OPENSSL_cleanse(&previous_, sizeof previous_);
}

void ticket_keys::serve(SSL_CTX* context, std::chrono::nanoseconds period) {
    {
        const std::lock_guard hold(lock_);
        period_ = period;
    }
    SSL_CTX_set_tlsext_ticket_key_evp_cb(context, choose);
    SSL_CTX_set_session_ticket_cb(context, date, judge, this);
}

void ticket_keys::be_used_by(SSL* s) {
    if (SSL_set_ex_data(s, index_of_keys(), this) != 1) throw std::bad_alloc();
}

void ticket_keys::forget() noexcept {
    const std::lock_guard hold(lock_);
    has_current_ = has_previous_ = false;
    OPENSSL_cleanse(&current_, sizeof current_);
    OPENSSL_cleanse(&previous_, sizeof previous_);
}

// With lock_. False: no random bytes are available.
bool ticket_keys::succeed(clock::time_point now) {
    const auto age = now - changed_;
    if (has_current_ && age < period_) return true;
    if (has_current_ && age / 2 < period_) {
        previous_ = current_;
        previous_made_ = changed_;
        has_previous_ = true;
    } else {
        OPENSSL_cleanse(&previous_, sizeof previous_);
        has_previous_ = false;
    }
    changed_ = now;
    has_current_ = RAND_bytes(current_.name.data(), static_cast<int>(current_.name.size())) == 1 &&
                   RAND_priv_bytes(current_.cipher.data(), static_cast<int>(current_.cipher.size())) == 1 &&
                   RAND_priv_bytes(current_.mac.data(), static_cast<int>(current_.mac.size())) == 1;
    return has_current_;
}

ticket_keys::verdict ticket_keys::current(key& k) {
    const std::lock_guard hold(lock_);
    if (!succeed(clock::now())) return verdict::failed;
    k = current_;
    return verdict::current;
}

ticket_keys::verdict ticket_keys::named(const unsigned char* name, key& k) {
    const auto has_name = [name](const key& one) { return std::equal(one.name.begin(), one.name.end(), name); };
    const std::lock_guard hold(lock_);
    const auto now = clock::now();
    if (!succeed(now)) return verdict::failed;
    if (has_name(current_)) {
        k = current_;
        return verdict::current;
    }
    if (!has_previous_ || !has_name(previous_) || (now - previous_made_) / 2 >= period_) return verdict::unknown;
    k = previous_;
    return verdict::previous;
}

int ticket_keys::choose(
    SSL* s, unsigned char* name, unsigned char* iv, EVP_CIPHER_CTX* cipher, EVP_MAC_CTX* mac, int encrypt) {
    auto* keys = static_cast<ticket_keys*>(SSL_get_ex_data(s, index_of_keys()));
    if (keys == nullptr) return static_cast<int>(verdict::unknown);
    key k{};
    verdict v = encrypt != 0 ? keys->current(k) : keys->named(name, k);
    if (v == verdict::current || v == verdict::previous) {
        const EVP_CIPHER* aes = EVP_aes_256_cbc();
        char digest[] = "SHA256";
        const OSSL_PARAM how[] = {OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, k.mac.data(), k.mac.size()),
            OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0), OSSL_PARAM_construct_end()};
        bool ready = EVP_MAC_CTX_set_params(mac, how) == 1;
        if (encrypt != 0) {
            std::copy(k.name.begin(), k.name.end(), name);
            ready = ready && RAND_bytes(iv, EVP_CIPHER_get_iv_length(aes)) == 1 &&
                    EVP_EncryptInit_ex(cipher, aes, nullptr, k.cipher.data(), iv) == 1;
        } else {
            ready = ready && EVP_DecryptInit_ex(cipher, aes, nullptr, k.cipher.data(), iv) == 1;
        }
        if (!ready) v = verdict::failed;
    }
    OPENSSL_cleanse(&k, sizeof k);
    return static_cast<int>(v);
}

// Before a ticket is made. One for a session that was resumed keeps its date.
int ticket_keys::date(SSL* s, void*) {
    SSL_SESSION* session = SSL_get_session(s);
    clock::time_point when;
    if (began(session, when)) return 1;
    when = clock::now();
    return SSL_SESSION_set1_ticket_appdata(session, &when, sizeof when);
}

bool ticket_keys::is_old(SSL_SESSION* shown) {
    clock::time_point when;
    const std::lock_guard hold(lock_);
    return !began(shown, when) || (clock::now() - when) / periods_of_session >= period_;
}

// When a ticket was shown, and after choose() has found its key or not.
SSL_TICKET_RETURN ticket_keys::judge(
    SSL* s, SSL_SESSION* shown, const unsigned char*, std::size_t, SSL_TICKET_STATUS status, void* keys) {
    const bool renew = status == SSL_TICKET_SUCCESS_RENEW;
    if (!renew && status != SSL_TICKET_SUCCESS) return SSL_TICKET_RETURN_IGNORE_RENEW;
    if (has_expired_certificate(shown) || static_cast<ticket_keys*>(keys)->is_old(shown))
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    return renew || SSL_version(s) == TLS1_3_VERSION ? SSL_TICKET_RETURN_USE_RENEW : SSL_TICKET_RETURN_USE;
}

}  // namespace dunlin::tls
