// error.cpp - the codes of TLS and their texts.
#include "error.h"

#include <climits>
#include <new>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

namespace dunlin::inline v0_1::tls {

namespace {

constexpr int first_verify = 1000;
constexpr int first_packed = 1 << ERR_LIB_OFFSET;

bool is_verify(int value) noexcept { return value >= first_verify && value < first_packed; }

std::string own_text(int value) {
    switch (static_cast<errc>(value)) {
    case errc::truncated: return "the connection has ended without a close_notify";
    case errc::certificate_rejected: return "certificate verify failed";
    case errc::no_server_name: return "there is no server name to verify (name one, or config::insecure_skip_verify())";
    case errc::flood: return "the peer sends messages that bring no data, without end";
    case errc::protocol: return "TLS failure";
    }
    return "error " + std::to_string(value);
}

class category final : public std::error_category {
public:
    const char* name() const noexcept override { return "dunlin.tls"; }

    std::string message(int value) const override {
        if (value < first_verify) return own_text(value);
        if (is_verify(value))
            return std::string("certificate verify failed: ") + X509_verify_cert_error_string(value - first_verify);
        const char* reason = ERR_reason_error_string(static_cast<unsigned long>(value));
        return reason != nullptr ? reason : "OpenSSL error " + std::to_string(value);
    }

    bool equivalent(int value, const std::error_condition& condition) const noexcept override {
        if (condition.category() != *this) return false;
        if (is_verify(value)) return condition.value() == static_cast<int>(errc::certificate_rejected);
        return condition.value() == (value >= first_packed ? static_cast<int>(errc::protocol) : value);
    }
};

}  // namespace

const std::error_category& error_category() noexcept {
    // Never destroyed: codes that still exist at the end of the program refer to it. Nor allocated, which may fail.
    alignas(category) static unsigned char place[sizeof(category)];
    static const category& c = *::new (place) category;
    return c;
}

std::error_code verify_error(long x509_result) noexcept {
    return {static_cast<int>(x509_result) + first_verify, error_category()};
}

namespace {

std::error_code code_of(unsigned long packed) noexcept {
    if (ERR_SYSTEM_ERROR(packed)) return {ERR_GET_REASON(packed), std::generic_category()};
    if (ERR_GET_REASON(packed) == ERR_R_MALLOC_FAILURE) return std::make_error_code(std::errc::not_enough_memory);
    return {static_cast<int>(packed & INT_MAX), error_category()};
}

bool says_nothing(unsigned long packed) noexcept {
    const int reason = ERR_GET_REASON(packed);
    return !ERR_SYSTEM_ERROR(packed) && (reason & ERR_RFLAG_COMMON) != 0 && reason != ERR_R_MALLOC_FAILURE;
}

}  // namespace

openssl_failure take_openssl_error() noexcept {
    openssl_failure f{make_error_code(errc::protocol), false};
    bool telling = false;
    while (const unsigned long packed = ERR_get_error()) {
        if (ERR_GET_LIB(packed) == ERR_LIB_SSL && ERR_GET_REASON(packed) == SSL_R_CERTIFICATE_VERIFY_FAILED)
            f.rejected = true;
        if (telling) continue;
        telling = !says_nothing(packed);
        f.error = code_of(packed);
    }
    return f;
}

std::string cause_text(const std::error_code& ec) {
    if (ec == std::make_error_code(std::errc::timed_out)) return "timed out";
    std::string text = ec.message();
    // libc's messages begin with a capital letter; in the middle of a line they should not.
    const bool capital = text.size() > 1 && text[0] >= 'A' && text[0] <= 'Z' && text[1] >= 'a' && text[1] <= 'z';
    if (capital) text[0] = static_cast<char>(text[0] - 'A' + 'a');
    return text;
}

void throw_tls_error(const std::string& what_on_whom, const std::error_code& ec, std::size_t transferred) {
    const bool from_context = ec.category() == dunlin::error_category() &&
                              (ec.value() == static_cast<int>(dunlin::errc::cancelled) ||
                                  ec.value() == static_cast<int>(dunlin::errc::deadline_exceeded));
    if (from_context) throw context_cancelled(ec, what_on_whom);
    std::string text = what_on_whom + ": " + cause_text(ec);
    if (transferred != 0) text += " (after " + std::to_string(transferred) + " bytes)";
    throw io_error(ec, std::move(text), transferred);
}

}  // namespace dunlin::tls
