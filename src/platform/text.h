// text.h - build a message without malloc, locale or stdio, so that it can be built in a signal handler or with a
// corrupt heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dunlin::inline v0_1::platform {

// A fixed buffer that is written out when it is full, or by flush(). Text past a failed write is dropped.
class text_writer {
public:
    static constexpr int no_limit = -1;
    // fd < 0 collects without writing: what does not fit is cut off. With `patience_ms`, text for which the descriptor
    // has no room within that time (a pipe that is full) is dropped, with all that follows.
    explicit text_writer(int fd, int patience_ms = no_limit) noexcept : fd_(fd), patience_ms_(patience_ms) {}
    // Appends to a string. Text that finds no memory is dropped.
    explicit text_writer(std::string& into) noexcept : fd_(-1), into_(&into) {}
    ~text_writer() { flush(); }
    text_writer(const text_writer&) = delete;
    text_writer& operator=(const text_writer&) = delete;

    text_writer& operator<<(std::string_view text) noexcept;
    text_writer& operator<<(const char* text) noexcept {
        return *this << (text ? std::string_view(text) : std::string_view("(null)"));
    }
    text_writer& operator<<(char c) noexcept { return *this << std::string_view(&c, 1); }
    text_writer& operator<<(std::int64_t value) noexcept;
    text_writer& operator<<(std::uint64_t value) noexcept;
    text_writer& operator<<(int value) noexcept { return *this << static_cast<std::int64_t>(value); }
    text_writer& operator<<(unsigned value) noexcept { return *this << static_cast<std::uint64_t>(value); }
    text_writer& operator<<(const void* address) noexcept;

    // Text from the program, which may contain anything: control characters are written as \x0a, so that the text stays
    // on its line.
    text_writer& printable(std::string_view text) noexcept;
    // A duration as people read it: 850 ns, 3.1 ms, 12 s, 4 min.
    text_writer& duration(std::int64_t ns) noexcept;
    // A size as people read it: 512 bytes, 16 KiB, 1 MiB.
    text_writer& bytes(std::uint64_t count) noexcept;

    void flush() noexcept;
    std::string_view view() const noexcept { return {buffer_, used_}; }

private:
    int fd_;
    int patience_ms_ = no_limit;
    bool given_up_ = false;
    std::string* into_ = nullptr;
    std::size_t used_ = 0;
    char buffer_[1024];
};

// As Go's time.Duration: "1h2m3.5s", "1.25ms", "-3s"; a duration of a second or more is cut to milliseconds. The same
// in every locale.
std::string duration_text(std::int64_t ns);

}  // namespace dunlin::platform
