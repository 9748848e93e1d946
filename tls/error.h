// error.h - OpenSSL's errors as std::error_code.
//
// Values     In the category "dunlin.tls": 1 to 99 are tls::errc; from 1000 on, results of a verification
//            (X509_V_ERR_... + 1000); from 2^23 on, OpenSSL's packed codes (library and reason). The three ranges do
//            not overlap: a packed code has its library, which is never 0, in the bits from 23 on.
#pragma once

#include <string>
#include <system_error>

#include <dunlin/tls.hpp>

namespace dunlin::inline v0_1::tls {

std::error_code verify_error(long x509_result) noexcept;

struct openssl_failure {
    std::error_code error;
    bool rejected;  // the peer's certificate was rejected: X509's result says why
};

// Returns the first error in this thread's queue that says more than "EVP lib" and the like; empties the queue. The
// queue belongs to the thread: between the failed call of OpenSSL and this one nothing may park.
openssl_failure take_openssl_error() noexcept;

// The text of an error, in the form for the end of a line.
std::string cause_text(const std::error_code& ec);

[[noreturn]] void throw_tls_error(
    const std::string& what_on_whom, const std::error_code& ec, std::size_t transferred = 0);

}  // namespace dunlin::tls
