// error.h - OpenSSL's errors as std::error_code.
//
// Values     of the category "dunlin.tls": 1 to 99 tls::errc; from 1000 on what a verification has found
//            (X509_V_ERR_... + 1000); above 2^23 OpenSSL's packed codes (library and reason). The three ranges do not
//            meet: a packed code has its library, which is never 0, from bit 23 on.
#pragma once

#include <string>
#include <system_error>

#include <dunlin/tls.hpp>

namespace dunlin::inline v0_1::tls {

std::error_code verify_error(long x509_result) noexcept;

struct openssl_failure {
    std::error_code error;
    bool rejected;  // the peer's certificate: X509's result says why
};

// The first error in the queue of this thread that says more than "EVP lib" and its like; the queue is emptied. It
// belongs to the thread: between the call of OpenSSL's that has failed and this one nothing may park.
openssl_failure take_openssl_error() noexcept;

// As it stands at the end of a line.
std::string cause_text(const std::error_code& ec);

[[noreturn]] void throw_tls_error(
    const std::string& what_on_whom, const std::error_code& ec, std::size_t transferred = 0);

}  // namespace dunlin::tls
