// packet.cpp - datagrams.
#include <algorithm>
#include <netinet/in.h>
#include <sys/socket.h>

#include <dunlin/go.hpp>
#include <dunlin/net.hpp>

#include "io/system.h"
#include "net/socket.h"

namespace dunlin::net {

// listener.cpp
io_descriptor* open_bound(const network& n, const std::vector<address>& addresses, const listen_options& options, std::error_code& ec) noexcept;

namespace {

constexpr std::chrono::milliseconds longest_pause(50);

std::size_t receive(io_descriptor* d, mutable_buffer b, address* from, const wait_limit* limit, std::error_code& ec, const std::source_location& where) {
    const io::turn mine(d, direction::read, limit, where, ec);
    if (!mine) return 0;
    std::uint32_t seen;
    sockaddr_storage name;
    socklen_t name_size = 0;
    const long n = io::perform(d, direction::read, limit, where, ec, seen, [&](int fd) {
        name_size = sizeof name;
        return io::system_recvfrom(fd, b.data(), b.size(), &name, &name_size);
    });
    if (n < 0) return 0;
    if (from != nullptr) *from = from_kernel(&name, name_size);
    return static_cast<std::size_t>(n);
}

std::size_t send(io_descriptor* d, const_buffer b, const address* to, const wait_limit* limit, std::error_code& ec, const std::source_location& where) {
    const io::turn mine(d, direction::write, limit, where, ec);
    if (!mine) return 0;
    std::uint32_t seen;
    std::chrono::milliseconds pause(1);
    const long n = io::perform(d, direction::write, limit, where, ec, seen, [&](int fd) {
        if (to == nullptr) return io::system_sendto(fd, b.data(), b.size(), nullptr, 0);
        const long sent = io::system_sendto(fd, b.data(), b.size(), to->native(), to->native_size());
        // The queue of a Unix socket that we are not connected to is full: no edge tells of its room, and the attempt itself makes one of ours.
        if (sent == -EAGAIN && io::kind_of(d) == kind::unix_packet) sleep_for(std::exchange(pause, std::min(2 * pause, longest_pause)), where);
        return sent;
    });
    return n > 0 ? static_cast<std::size_t>(n) : 0;
}

std::size_t checked(std::size_t n, const char* operation, io_descriptor* d, std::error_code ec) {
    if (ec) detail::throw_io_error(operation, d, ec);
    return n;
}

const network& packet_network(std::string_view operation, std::string_view name, std::string_view text) {
    const network* n = find_network(name);
    if (n == nullptr || n->type != SOCK_DGRAM) throw_net_error(operation, name, text, errc::bad_address, "networks are udp, udp4, udp6, unixgram");
    return *n;
}

}  // namespace

packet_conn packet_conn::adopt(int fd) {
    std::error_code ec;
    io_descriptor* d = adopt_socket(fd, {kind::udp, kind::unix_packet}, ec);
    if (d == nullptr) throw_net_error("adopt", "descriptor", std::to_string(fd), ec);
    return io_access::make<packet_conn>(d);
}

std::size_t packet_conn::read_from(mutable_buffer b, address& from, std::error_code& ec, where_type w) {
    return receive(descriptor_, b, &from, nullptr, ec, w);
}

std::size_t packet_conn::read_from(mutable_buffer b, address& from, where_type w) {
    std::error_code ec;
    const std::size_t n = read_from(b, from, ec, w);
    return checked(n, "read", descriptor_, ec);
}

std::size_t packet_conn::read_from(mutable_buffer b, address& from, const context& ctx, where_type w) {
    std::error_code ec;
    const std::size_t n = receive(descriptor_, b, &from, detail::io_limit(ctx).get(), ec, w);
    return checked(n, "read", descriptor_, ec);
}

std::size_t packet_conn::read_from(mutable_buffer b, address& from, const context& ctx, std::error_code& ec, where_type w) {
    return receive(descriptor_, b, &from, detail::io_limit(ctx).get(), ec, w);
}

std::size_t packet_conn::read_some(mutable_buffer b, const context& ctx, std::error_code& ec, where_type w) {
    return receive(descriptor_, b, nullptr, detail::io_limit(ctx).get(), ec, w);
}

std::size_t packet_conn::read_some(mutable_buffer b, const context& ctx, where_type w) {
    std::error_code ec;
    const std::size_t n = read_some(b, ctx, ec, w);
    return checked(n, "read", descriptor_, ec);
}

std::size_t packet_conn::read_some(mutable_buffer b, std::error_code& ec, where_type w) { return receive(descriptor_, b, nullptr, nullptr, ec, w); }

std::size_t packet_conn::read_some(mutable_buffer b, where_type w) {
    std::error_code ec;
    const std::size_t n = read_some(b, ec, w);
    return checked(n, "read", descriptor_, ec);
}

std::size_t packet_conn::write_to(const_buffer b, const address& to, std::error_code& ec, where_type w) { return send(descriptor_, b, &to, nullptr, ec, w); }

std::size_t packet_conn::write_to(const_buffer b, const address& to, where_type w) {
    std::error_code ec;
    const std::size_t n = write_to(b, to, ec, w);
    if (ec) throw_net_error("write to", "", to.to_string(), ec);
    return n;
}

std::size_t packet_conn::write_some(const_buffer b, std::error_code& ec, where_type w) { return send(descriptor_, b, nullptr, nullptr, ec, w); }

std::size_t packet_conn::write_some(const_buffer b, where_type w) {
    std::error_code ec;
    const std::size_t n = write_some(b, ec, w);
    return checked(n, "write", descriptor_, ec);
}

address packet_conn::local_address() const { return local_address_of(descriptor_); }
address packet_conn::remote_address() const { return remote_address_of(descriptor_); }

void packet_conn::set_receive_buffer(std::size_t bytes) {
    set_option_or_throw(descriptor_, "set receive_buffer of", SOL_SOCKET, SO_RCVBUF, static_cast<int>(std::min<std::size_t>(bytes, INT32_MAX)));
}

void packet_conn::set_send_buffer(std::size_t bytes) {
    set_option_or_throw(descriptor_, "set send_buffer of", SOL_SOCKET, SO_SNDBUF, static_cast<int>(std::min<std::size_t>(bytes, INT32_MAX)));
}

packet_conn listen_packet(std::string_view network_name, std::string_view text, const listen_options& options) {
    const network& n = packet_network("listen", network_name, text);
    std::error_code ec;
    const std::vector<address> addresses = addresses_of(n, text, true, nullptr, ec);
    // A port that was left a moment ago must not be shared with who has it now, which is what SO_REUSEADDR means for datagrams.
    listen_options own = options;
    own.reuse_address = false;
    io_descriptor* d = ec ? nullptr : open_bound(n, addresses, own, ec);
    if (d == nullptr) throw_net_error("listen", network_name, text, ec);
    return io_access::make<packet_conn>(d);
}

packet_conn dial_packet(std::string_view network_name, std::string_view text) {
    const network& n = packet_network("dial", network_name, text);
    std::error_code ec;
    const std::vector<address> addresses = addresses_of(n, text, false, nullptr, ec);
    io_descriptor* d = ec ? nullptr : connect_to(n, addresses.front(), nullptr, {}, ec, std::source_location::current());
    if (d == nullptr) throw_net_error("dial", network_name, text, ec);
    return io_access::make<packet_conn>(d);
}

}  // namespace dunlin::net
