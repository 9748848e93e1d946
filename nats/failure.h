// failure.h - an error before it is thrown.
#pragma once

#include <string>
#include <string_view>

#include <nats/nats.h>

#include <dunlin/nats/error.hpp>

namespace dunlin::inline v0_1::nats::detail {

struct failure {
    int code = 0;  // an errc; 0: none
    std::string words;

    failure() = default;
    failure(errc e, std::string said) : code(static_cast<int>(e)), words(std::move(said)) {}
    explicit operator bool() const noexcept { return code != 0; }
    bool is(errc e) const noexcept { return code == static_cast<int>(e); }
    [[noreturn]] void raise(const char* call, const std::string& subject) const {
        throw error(static_cast<errc>(code), call, subject, words);
    }
    void check(const char* call, const std::string& subject) const {
        if (*this) raise(call, subject);
    }
};

// libnats' status, with the message that it has left on this thread.
failure failure_of(natsStatus s);
// The `error` object of a JetStream answer; none if there is no such object.
failure failure_of_answer(std::string_view json);
// The code for JetStream's error number.
errc code_of(int number, std::string_view words) noexcept;

}  // namespace dunlin::nats::detail
