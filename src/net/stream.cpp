// stream.cpp - connected streams.
#include <algorithm>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdexcept>
#include <sys/socket.h>

#include <dunlin/net.hpp>

#include "io/system.h"
#include "net/socket.h"

namespace dunlin::inline v0_1::net {

stream stream::adopt(int fd, std::error_code& ec) {
    return io_access::make<stream>(adopt_socket(fd, purpose::connection, ec));
}

stream stream::adopt(int fd) {
    std::error_code ec;
    stream s = adopt(fd, ec);
    if (ec) throw_adopt_error(fd, purpose::connection, ec);
    return s;
}

namespace {

void shut_down(io_descriptor* d, int how, std::error_code& ec) noexcept {
    const io::brief_use mine(d);
    ec = !mine ? make_error_code(errc::closed) : system_error_code(-io::system_shutdown(d->fd(), how));
}

}  // namespace

void stream::close_write(std::error_code& ec) noexcept { shut_down(descriptor_, SHUT_WR, ec); }
void stream::close_read(std::error_code& ec) noexcept { shut_down(descriptor_, SHUT_RD, ec); }

void stream::close_write() {
    std::error_code ec;
    close_write(ec);
    if (ec) detail::throw_io_error("close_write", descriptor_, ec);
}

void stream::close_read() {
    std::error_code ec;
    close_read(ec);
    if (ec) detail::throw_io_error("close_read", descriptor_, ec);
}

address stream::local_address() const { return local_address_of(descriptor_); }
address stream::remote_address() const { return remote_address_of(descriptor_); }

// ---- options --------------------------------------------------------------------------------------------------------

void stream::set_no_delay(bool on, std::error_code& ec) noexcept {
    ec = set_option_of(descriptor_, IPPROTO_TCP, TCP_NODELAY, on);
}

void stream::set_keep_alive(std::chrono::seconds between_probes, std::error_code& ec) noexcept {
    ec = set_option_of(descriptor_, SOL_SOCKET, SO_KEEPALIVE, between_probes.count() > 0);
    if (ec || between_probes.count() <= 0) return;
    const int seconds = static_cast<int>(std::min<std::chrono::seconds::rep>(between_probes.count(), 32767));
    ec = set_option_of(descriptor_, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
    if (!ec) ec = set_option_of(descriptor_, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
}

void stream::set_linger(std::optional<std::chrono::seconds> time, std::error_code& ec) noexcept {
    const io::brief_use mine(descriptor_);
    const linger value{
        time.has_value(), time ? static_cast<int>(std::min<std::chrono::seconds::rep>(time->count(), 32767)) : 0};
    if (!mine) {
        ec = errc::closed;
    } else if (time && time->count() < 0) {
        ec = std::make_error_code(std::errc::invalid_argument);
    } else {
        ec = system_error_code(-io::system_set_option(descriptor_->fd(), SOL_SOCKET, SO_LINGER, &value, sizeof value));
    }
}

void stream::set_receive_buffer(std::size_t bytes, std::error_code& ec) noexcept {
    ec = set_option_of(descriptor_, SOL_SOCKET, SO_RCVBUF, size_option(bytes));
}

void stream::set_send_buffer(std::size_t bytes, std::error_code& ec) noexcept {
    ec = set_option_of(descriptor_, SOL_SOCKET, SO_SNDBUF, size_option(bytes));
}

namespace {

template <class Set>
void or_throw(const char* what, io_descriptor* d, Set set) {
    std::error_code ec;
    set(ec);
    if (ec) detail::throw_io_error(what, d, ec);
}

}  // namespace

void stream::set_no_delay(bool on) {
    or_throw("set no_delay of", descriptor_, [&](std::error_code& ec) { set_no_delay(on, ec); });
}

void stream::set_keep_alive(std::chrono::seconds between_probes) {
    or_throw("set keep_alive of", descriptor_, [&](std::error_code& ec) { set_keep_alive(between_probes, ec); });
}

void stream::set_linger(std::optional<std::chrono::seconds> time) {
    if (time && time->count() < 0)
        throw std::invalid_argument(
            "dunlin::net::stream::set_linger: " + std::to_string(time->count()) + " s is negative");
    or_throw("set linger of", descriptor_, [&](std::error_code& ec) { set_linger(time, ec); });
}

void stream::set_receive_buffer(std::size_t bytes) {
    or_throw("set receive_buffer of", descriptor_, [&](std::error_code& ec) { set_receive_buffer(bytes, ec); });
}

void stream::set_send_buffer(std::size_t bytes) {
    or_throw("set send_buffer of", descriptor_, [&](std::error_code& ec) { set_send_buffer(bytes, ec); });
}

// ---- pairs ----------------------------------------------------------------------------------------------------------

std::pair<stream, stream> stream_pair(std::error_code& ec) {
    int ends[2];
    constexpr int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    ec = system_error_code(-io::system_socketpair(type, ends));
    if (ec) return {};
    auto first = io_access::make<stream>(open_descriptor(ends[0], kind::unix_stream, ec));
    if (ec) {
        netpoll::close_number(ends[1]);
        return {};
    }
    auto second = io_access::make<stream>(open_descriptor(ends[1], kind::unix_stream, ec));
    if (ec) return {};
    return {std::move(first), std::move(second)};
}

std::pair<stream, stream> stream_pair() {
    std::error_code ec;
    auto both = stream_pair(ec);
    if (ec) throw_net_error("make", "unix", "pair", ec);
    return both;
}

}  // namespace dunlin::net
