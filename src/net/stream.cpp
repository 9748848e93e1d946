// stream.cpp - connected streams.
#include <algorithm>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdexcept>
#include <sys/socket.h>

#include <dunlin/net.hpp>

#include "io/system.h"
#include "net/socket.h"

namespace dunlin::net {

stream stream::adopt(int fd) {
    std::error_code ec;
    io_descriptor* d = adopt_socket(fd, {kind::tcp, kind::unix_stream}, ec);
    if (d == nullptr) throw_net_error("adopt", "descriptor", std::to_string(fd), ec);
    return io_access::make<stream>(d);
}

namespace {

void shut_down(io_descriptor* d, int how, std::error_code& ec) noexcept {
    const io::use mine(d);
    ec = !mine ? make_error_code(errc::closed) : system_error_code(-platform::raw_syscall(SYS_shutdown, d->fd(), how));
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

void stream::set_no_delay(bool on) { set_option_or_throw(descriptor_, "set no_delay of", IPPROTO_TCP, TCP_NODELAY, on); }

void stream::set_keep_alive(std::chrono::seconds between_probes) {
    set_option_or_throw(descriptor_, "set keep_alive of", SOL_SOCKET, SO_KEEPALIVE, between_probes.count() > 0);
    if (between_probes.count() > 0) {
        const int seconds = static_cast<int>(std::min<std::chrono::seconds::rep>(between_probes.count(), 32767));
        set_option_or_throw(descriptor_, "set keep_alive of", IPPROTO_TCP, TCP_KEEPIDLE, seconds);
        set_option_or_throw(descriptor_, "set keep_alive of", IPPROTO_TCP, TCP_KEEPINTVL, seconds);
    }
}

void stream::set_linger(std::optional<std::chrono::seconds> time) {
    const io::use mine(descriptor_);
    if (time && time->count() < 0) throw std::invalid_argument("dunlin::net::stream::set_linger: " + std::to_string(time->count()) + " s is negative");
    const linger value{time.has_value(), time ? static_cast<int>(std::min<std::chrono::seconds::rep>(time->count(), 32767)) : 0};
    const std::error_code ec = !mine ? make_error_code(errc::closed)
                                     : system_error_code(-platform::raw_syscall(SYS_setsockopt, descriptor_->fd(), SOL_SOCKET, SO_LINGER,
                                           platform::syscall_arg(&value), sizeof value));
    if (ec) detail::throw_io_error("set linger of", descriptor_, ec);
}

void stream::set_receive_buffer(std::size_t bytes) {
    set_option_or_throw(descriptor_, "set receive_buffer of", SOL_SOCKET, SO_RCVBUF, static_cast<int>(std::min<std::size_t>(bytes, INT32_MAX)));
}

void stream::set_send_buffer(std::size_t bytes) {
    set_option_or_throw(descriptor_, "set send_buffer of", SOL_SOCKET, SO_SNDBUF, static_cast<int>(std::min<std::size_t>(bytes, INT32_MAX)));
}

std::pair<stream, stream> stream_pair() {
    int ends[2];
    constexpr int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    std::error_code ec = system_error_code(-io::system_socketpair(type, ends));
    if (ec) throw_net_error("make", "unix", "pair", ec);
    auto first = io_access::make<stream>(open_descriptor(ends[0], kind::unix_stream, ec));
    if (ec) {
        netpoll::close_number(ends[1]);
        throw_net_error("make", "unix", "pair", ec);
    }
    auto second = io_access::make<stream>(open_descriptor(ends[1], kind::unix_stream, ec));
    if (ec) throw_net_error("make", "unix", "pair", ec);
    return {std::move(first), std::move(second)};
}

}  // namespace dunlin::net
