// error.cpp - the exceptions of calls on descriptors, and their texts.
#include <new>
#include <utility>

#include <dunlin/detail/atomic.hpp>
#include <dunlin/io.hpp>

#include "io/error.h"
#include "io/operation.h"

namespace dunlin::inline v0_1 {

io_error::io_error(std::error_code code, std::string text, std::size_t transferred)
    : std::system_error(code), text_(std::make_shared<const std::string>(std::move(text))), transferred_(transferred) {}
io_error::~io_error() = default;

namespace detail {

namespace {

platform::atomic<std::string (*)(io_descriptor*)> describe_socket{nullptr};

struct text_name final : netpoll::descriptor_name {
    std::string text;
    explicit text_name(std::string_view t) : text(t) {}
};

std::string describe(io_descriptor* d) {
    if (d == nullptr) return "a handle that was never opened, or was moved from";
    if (!io::is_socket(d) && d->name != nullptr) return static_cast<const text_name*>(d->name)->text;
    switch (io::kind_of(d)) {
    case io::kind::file: return "file";
    case io::kind::pipe: return "pipe";
    case io::kind::other: return d->fd() >= 0 ? "descriptor " + std::to_string(d->fd()) : "descriptor";
    default: break;
    }
    auto* known = describe_socket.load(std::memory_order_relaxed);
    return known != nullptr ? known(d) : "socket";
}

}  // namespace

void set_socket_describer(std::string (*f)(io_descriptor*)) noexcept {
    describe_socket.store(f, std::memory_order_relaxed);
}

void give_name(io_descriptor* d, std::string_view text) noexcept {
    if (d == nullptr || io::is_socket(d)) return;
    try {
        delete std::exchange(d->name, new text_name(text));
    } catch (const std::bad_alloc&) {  // messages then show the kind of the descriptor
    }
}

std::string cause_text(std::error_code ec) {
    if (ec == std::make_error_code(std::errc::timed_out)) return "timed out";
    std::string text = ec.message();
    // libc's messages begin with a capital letter; in the middle of a line they should not.
    if (text.size() > 1 && text[0] >= 'A' && text[0] <= 'Z' && text[1] >= 'a' && text[1] <= 'z')
        text[0] = static_cast<char>(text[0] - 'A' + 'a');
    return text;
}

std::string with_zeros_shown(std::string_view text) {
    std::string shown;
    for (const char c : text) shown += c != '\0' ? std::string(1, c) : "\\0";
    return shown;
}

const char* why_not_adopted(std::error_code ec) noexcept {
    return ec == std::errc::file_exists ? "it is adopted already" : "";
}

void throw_io_error(const char* operation, io_descriptor* d, std::error_code ec, std::size_t transferred) {
    std::string text = std::string(operation) + ' ' + describe(d);
    if (ec == errc::cancelled || (ec.category() == error_category() && ec == errc::deadline_exceeded))
        throw context_cancelled(ec, text);
    text += ": " + cause_text(ec);
    if (transferred != 0) text += " (after " + std::to_string(transferred) + " bytes)";
    throw io_error(ec, std::move(text), transferred);
}

void throw_adopt_error(int fd, std::error_code ec) {
    std::string text = "adopt descriptor " + std::to_string(fd) + ": " + cause_text(ec);
    if (const std::string why = why_not_adopted(ec); !why.empty()) text += ": " + why;
    throw io_error(ec, std::move(text));
}

}  // namespace detail
}  // namespace dunlin
