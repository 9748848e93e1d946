#include "platform/text.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <poll.h>
#include <string>

#include "platform/syscall.h"

namespace dunlin::inline v0_1::platform {

text_writer& text_writer::operator<<(std::string_view text) noexcept {
    while (!text.empty()) {
        if (used_ == sizeof buffer_) {
            if (fd_ < 0 && into_ == nullptr) break;
            flush();
        }
        const std::size_t n = text.size() < sizeof buffer_ - used_ ? text.size() : sizeof buffer_ - used_;
        std::memcpy(buffer_ + used_, text.data(), n);
        used_ += n;
        text.remove_prefix(n);
    }
    return *this;
}

text_writer& text_writer::operator<<(std::uint64_t value) noexcept {
    char digits[20];
    int at = sizeof digits;
    do {
        digits[--at] = static_cast<char>('0' + value % 10);
        value /= 10;
    } while (value != 0);
    return *this << std::string_view(digits + at, sizeof digits - at);
}

text_writer& text_writer::operator<<(std::int64_t value) noexcept {
    if (value < 0) return *this << '-' << (~static_cast<std::uint64_t>(value) + 1);
    return *this << static_cast<std::uint64_t>(value);
}

text_writer& text_writer::operator<<(const void* address) noexcept {
    auto value = reinterpret_cast<std::uintptr_t>(address);
    char digits[18];
    int at = sizeof digits;
    do {
        digits[--at] = "0123456789abcdef"[value & 15];
        value >>= 4;
    } while (value != 0);
    return *this << "0x" << std::string_view(digits + at, sizeof digits - at);
}

text_writer& text_writer::printable(std::string_view text) noexcept {
    constexpr std::string_view digits = "0123456789abcdef";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte != 0x7f) {
            *this << c;
        } else {
            *this << "\\x" << digits[byte >> 4] << digits[byte & 15];
        }
    }
    return *this;
}

text_writer& text_writer::duration(std::int64_t ns) noexcept {
    struct unit {
        std::int64_t size;
        std::string_view name;
    };
    static constexpr unit units[] =
        {{60'000'000'000, " min"}, {1'000'000'000, " s"}, {1'000'000, " ms"}, {1'000, " us"}};
    for (const unit& u : units) {
        if (ns < u.size) continue;
        *this << ns / u.size;
        if (ns / u.size < 10) *this << '.' << (ns % u.size) * 10 / u.size;
        return *this << u.name;
    }
    return *this << ns << " ns";
}

text_writer& text_writer::bytes(std::uint64_t count) noexcept {
    if (count >= 1 << 20 && count % (1 << 20) == 0) return *this << (count >> 20) << " MiB";
    if (count >= 1 << 10 && count % (1 << 10) == 0) return *this << (count >> 10) << " KiB";
    return *this << count << " bytes";
}

// False: not within that time. ppoll() writes back what is left of it.
static bool wait_for_room(int fd, int patience_ms) noexcept {
    pollfd p{fd, POLLOUT, 0};
    timespec limit{patience_ms / 1000, patience_ms % 1000 * 1'000'000L};
    long n;
    do {
        n = raw_syscall(SYS_ppoll, syscall_arg(&p), 1, patience_ms >= 0 ? syscall_arg(&limit) : 0, 0, 0);
    } while (n == -EINTR);
    return n > 0;
}

void text_writer::flush() noexcept {
    if (into_ != nullptr) {
        try {
            into_->append(buffer_, used_);
        } catch (...) {
        }
        used_ = 0;
        return;
    }
    if (fd_ < 0) return;
    if (given_up_) used_ = 0;
    const char* from = buffer_;
    bool full = patience_ms_ != no_limit;  // or perhaps full: a write might wait
    while (used_ > 0) {
        if (full && !wait_for_room(fd_, patience_ms_)) {
            given_up_ = true;
            break;
        }
        const long n = raw_syscall(SYS_write, fd_, syscall_arg(from), static_cast<long>(used_));
        full = full || n == -EAGAIN;  // others have set O_NONBLOCK for a description that is theirs, too
        if (n == -EINTR || n == -EAGAIN) continue;
        if (n <= 0) break;
        from += n;
        used_ -= static_cast<std::size_t>(n);
    }
    used_ = 0;
}

namespace {

// `value` / 10^digits as text: "12", "12.5".
std::string decimal(std::uint64_t value, unsigned digits) {
    std::uint64_t unit = 1;
    for (unsigned i = 0; i < digits; ++i) unit *= 10;
    std::string text = std::to_string(value / unit);
    std::string rest = std::to_string(unit + value % unit);  // a one in front keeps the zeros
    rest.erase(rest.find_last_not_of('0') + 1);
    if (rest.size() > 1) text += '.' + rest.substr(1);
    return text;
}

}  // namespace

std::string duration_text(std::int64_t ns) {
    const std::string sign = ns < 0 ? "-" : "";
    const std::uint64_t all = ns < 0 ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
    if (all == 0) return "0s";
    if (all < 1'000) return sign + decimal(all, 0) + "ns";
    if (all < 1'000'000) return sign + decimal(all, 3) + "us";
    if (all < 1'000'000'000) return sign + decimal(all, 6) + "ms";
    const std::uint64_t ms = all / 1'000'000, hours = ms / 3'600'000, minutes = ms / 60'000 % 60;
    std::string text = sign;
    if (hours != 0) text += std::to_string(hours) + 'h';
    if (hours != 0 || minutes != 0) text += std::to_string(minutes) + 'm';
    return text + decimal(ms % 60'000, 3) + 's';
}

}  // namespace dunlin::platform
