// openssl.cpp - OpenSSL's libcrypto, which keeps random generators and errors for each thread: digests, ciphers, random
// numbers, keys and signatures. (TLS in goroutines is tests/tls.)
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <vector>

#include "libraries/library.h"

int main() {
    libraries::program p(OpenSSL_version(OPENSSL_VERSION));
    libraries::in_goroutines({.goroutines = 200, .rounds = 3}, [](int, int) {
        unsigned char key[32], iv[16], digest[EVP_MAX_MD_SIZE];
        libraries::expect(RAND_bytes(key, sizeof key) == 1 && RAND_bytes(iv, sizeof iv) == 1, "RAND_bytes");
        const std::string zeros(100'000, 0);
        unsigned size = 0;
        EVP_Digest(zeros.data(), zeros.size(), digest, &size, EVP_sha256(), nullptr);
        libraries::expect(size == 32, "a digest of %u bytes", size);

        std::vector<unsigned char> secret(zeros.size() + 32), open(zeros.size() + 64);
        int n = 0, rest = 0;
        EVP_CIPHER_CTX* c = EVP_CIPHER_CTX_new();
        EVP_EncryptInit_ex(c, EVP_aes_256_cbc(), nullptr, key, iv);
        EVP_EncryptUpdate(c, secret.data(), &n, reinterpret_cast<const unsigned char*>(zeros.data()),
            static_cast<int>(zeros.size()));
        EVP_EncryptFinal_ex(c, secret.data() + n, &rest);
        const int length = n + rest;
        EVP_DecryptInit_ex(c, EVP_aes_256_cbc(), nullptr, key, iv);
        EVP_DecryptUpdate(c, open.data(), &n, secret.data(), length);
        const bool good = EVP_DecryptFinal_ex(c, open.data() + n, &rest) == 1;
        libraries::expect(good && std::string(open.begin(), open.begin() + n + rest) == zeros,
            "AES does not come back");
        EVP_CIPHER_CTX_free(c);

        EVP_PKEY* pair = EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256");
        EVP_MD_CTX* sign = EVP_MD_CTX_new();
        unsigned char signature[256];
        std::size_t length_of_signature = sizeof signature;
        EVP_DigestSignInit(sign, nullptr, EVP_sha256(), nullptr, pair);
        libraries::expect(EVP_DigestSign(sign, signature, &length_of_signature, digest, size) == 1, "DigestSign");
        EVP_MD_CTX_reset(sign);
        EVP_DigestVerifyInit(sign, nullptr, EVP_sha256(), nullptr, pair);
        libraries::expect(EVP_DigestVerify(sign, signature, length_of_signature, digest, size) == 1,
            "the signature is not good");
        digest[0] ^= 1;
        libraries::expect(EVP_DigestVerify(sign, signature, length_of_signature, digest, size) == 0,
            "a wrong signature is good");
        libraries::expect(ERR_peek_error() == 0 || ERR_GET_LIB(ERR_get_error()) != 0, "the list of errors");
        ERR_clear_error();
        EVP_MD_CTX_free(sign);
        EVP_PKEY_free(pair);
    });
    return p.result();
}
