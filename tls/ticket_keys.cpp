#include "ticket_keys.h"

#include <algorithm>
#include <new>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

namespace dunlin::inline v0_1::tls {

namespace {

int index_of_keys() {
    static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
    return index;
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
    if (SSL_CTX_set_ex_data(context, index_of_keys(), this) != 1) throw std::bad_alloc();
    SSL_CTX_set_tlsext_ticket_key_evp_cb(context, choose);
}

void ticket_keys::forget() noexcept {
    const std::lock_guard hold(lock_);
    has_current_ = has_previous_ = false;
    OPENSSL_cleanse(&current_, sizeof current_);
    OPENSSL_cleanse(&previous_, sizeof previous_);
}

// With lock_. False: no random bytes are available.
bool ticket_keys::succeed(std::chrono::steady_clock::time_point now) {
    const auto age = now - changed_;
    if (has_current_ && age < period_) return true;
    if (has_current_ && age < 2 * period_) {
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
    if (!succeed(std::chrono::steady_clock::now())) return verdict::failed;
    k = current_;
    return verdict::current;
}

ticket_keys::verdict ticket_keys::named(const unsigned char* name, key& k) {
    const auto has_name = [name](const key& one) { return std::equal(one.name.begin(), one.name.end(), name); };
    const std::lock_guard hold(lock_);
    const auto now = std::chrono::steady_clock::now();
    if (!succeed(now)) return verdict::failed;
    if (has_name(current_)) {
        k = current_;
        return verdict::current;
    }
    if (!has_previous_ || !has_name(previous_) || now - previous_made_ >= 2 * period_) return verdict::unknown;
    k = previous_;
    return verdict::previous;
}

int ticket_keys::choose(
    SSL* s, unsigned char* name, unsigned char* iv, EVP_CIPHER_CTX* cipher, EVP_MAC_CTX* mac, int encrypt) {
    auto& keys = *static_cast<ticket_keys*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(s), index_of_keys()));
    key k{};
    verdict v = encrypt != 0 ? keys.current(k) : keys.named(name, k);
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

}  // namespace dunlin::tls
