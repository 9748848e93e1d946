// packet.cpp - datagrams.
#include <algorithm>
#include <netinet/in.h>
#include <sys/socket.h>

#include <dunlin/net.hpp>

#include "io/system.h"
#include "net/address.h"
#include "net/dial.h"
#include "net/resolve.h"
#include "net/socket.h"
#include "platform/clock.h"

namespace dunlin::inline v0_1::net {

// listener.cpp
io_descriptor* open_bound(const network& n, const std::vector<address>& addresses, const listen_options& options,
    std::error_code& ec) noexcept;

namespace {

// Returns the size of the whole message, which may be larger than the buffer.
std::size_t receive_whole(io_descriptor* d, mutable_buffer b, address* from, const wait_limit* limit,
    std::error_code& ec, const std::source_location& where) {
    const io::fd_guard mine(d, direction::read, limit, where, ec);
    if (!mine) return 0;
    sockaddr_storage name;
    socklen_t name_size = 0;
    const long n = io::perform(d, direction::read, limit, where, ec, [&](int fd) {
        name_size = sizeof name;
        return io::system_recvfrom(fd, b.data(), b.size(), MSG_TRUNC, &name, &name_size);
    });
    if (n < 0) return 0;
    if (from != nullptr) *from = from_kernel(&name, name_size);
    return static_cast<std::size_t>(n);
}

std::size_t receive(io_descriptor* d, mutable_buffer b, address* from, const wait_limit* limit, std::error_code& ec,
    const std::source_location& where) {
    return std::min(receive_whole(d, b, from, limit, ec, where), b.size());
}

packet_conn::message receive_message(io_descriptor* d, mutable_buffer b, const wait_limit* limit, std::error_code& ec,
    const std::source_location& where) {
    packet_conn::message m;
    m.whole_size = receive_whole(d, b, &m.from, limit, ec, where);
    m.size = std::min(m.whole_size, b.size());
    return m;
}

// One attempt, or several where an edge tells when to try again. `full`: the queue of the Unix socket `to`, which this
// one is not connected to, has no room. No edge reports when it has.
std::size_t try_to_send(io_descriptor* d, const_buffer b, const address* to, const wait_limit* limit, bool& full,
    std::error_code& ec, const std::source_location& where) {
    full = false;
    const io::fd_guard mine(d, direction::write, limit, where, ec);
    if (!mine) return 0;
    const bool no_edge = to != nullptr && io::kind_of(d) == kind::unix_packet;
    const long n = io::perform(d, direction::write, limit, where, ec, [&](int fd) {
        const long sent = io::system_sendto(
            fd, b.data(), b.size(), to != nullptr ? to->native() : nullptr, to != nullptr ? to->native_size() : 0);
        full = sent == -EAGAIN && no_edge;
        return full ? 0 : sent;
    });
    return n > 0 ? static_cast<std::size_t>(n) : 0;
}

// Leaves the fd mutex between attempts: what is sent to others must not wait for a receiver that does not read.
std::size_t send(io_descriptor* d, const_buffer b, const address* to, const wait_limit* limit, std::error_code& ec,
    const std::source_location& where) {
    for (retry_pause pause;; pause.lengthen()) {
        bool full;
        const std::size_t n = try_to_send(d, b, to, limit, full, ec, where);
        if (!full || !io::pause_writer(d, pause.ns, limit, where, ec)) return n;
    }
}

std::size_t checked(std::size_t n, const char* operation, io_descriptor* d, std::error_code ec) {
    if (ec) detail::throw_io_error(operation, d, ec);
    return n;
}

std::size_t checked_for(const address& to, std::size_t n, io_descriptor* d, std::error_code ec) {
    if (ec && to.native_size() == 0) detail::throw_io_error("write to an empty address with", d, ec);
    if (ec) throw_net_error("write to", "", to.to_string(), ec);
    return n;
}

packet_conn checked(packet_conn c, std::string_view operation, std::string_view network_name, std::string_view text,
    std::error_code ec) {
    if (ec) throw_net_error(operation, network_name, text, ec, advice_for(ec, network_name, SOCK_DGRAM, text));
    return c;
}

// Null, with `ec`: there is no such network.
const network* packet_network(std::string_view name, std::error_code& ec) noexcept {
    ec.clear();
    const network* n = find_network(name);
    if (n != nullptr && n->type == SOCK_DGRAM) return n;
    ec = errc::bad_address;
    return nullptr;
}

packet_conn listen_within(std::string_view network_name, std::string_view text, const listen_options& options,
    const wait_limit* limit, std::error_code& ec) {
    const network* n = packet_network(network_name, ec);
    if (n == nullptr) return {};
    const std::vector<address> addresses = addresses_of(*n, text, true, limit, ec);
    if (ec) return {};
    // For datagrams SO_REUSEADDR means that a port may be shared with the socket that has it now, which must not
    // happen.
    listen_options own = options;
    own.reuse_address = false;
    return io_access::make<packet_conn>(open_bound(*n, addresses, own, ec));
}

packet_conn dial_within(
    std::string_view network_name, std::string_view text, const wait_limit* limit, std::error_code& ec) {
    const network* n = packet_network(network_name, ec);
    if (n == nullptr) return {};
    const std::vector<address> addresses = addresses_of(*n, text, false, limit, ec);
    if (ec) return {};
    // The first address that the kernel has a route to. If all fail, the first error is reported.
    std::error_code first_error;
    for (const address& to : addresses) {
        io_descriptor* d = connect_to(*n, to, limit, {}, ec, std::source_location::current());
        if (d != nullptr) return io_access::make<packet_conn>(d);
        if (!first_error) first_error = ec;
    }
    ec = first_error;
    return {};
}

}  // namespace

// ---- reading and writing --------------------------------------------------------------------------------------------

std::size_t packet_conn::read_from(mutable_buffer b, address& from, std::error_code& ec, where_type w) {
    return receive(descriptor_, b, &from, nullptr, ec, w);
}

std::size_t packet_conn::read_from(mutable_buffer b, address& from, where_type w) {
    std::error_code ec;
    const std::size_t n = read_from(b, from, ec, w);
    return checked(n, "read", descriptor_, ec);
}

std::size_t packet_conn::read_from(
    mutable_buffer b, address& from, const context& ctx, std::error_code& ec, where_type w) {
    return receive(descriptor_, b, &from, detail::io_limit(ctx).get(), ec, w);
}

std::size_t packet_conn::read_from(mutable_buffer b, address& from, const context& ctx, where_type w) {
    std::error_code ec;
    const std::size_t n = read_from(b, from, ctx, ec, w);
    return checked(n, "read", descriptor_, ec);
}

packet_conn::message packet_conn::read_message(mutable_buffer b, std::error_code& ec, where_type w) {
    return receive_message(descriptor_, b, nullptr, ec, w);
}

packet_conn::message packet_conn::read_message(mutable_buffer b, where_type w) {
    std::error_code ec;
    message m = read_message(b, ec, w);
    if (ec) detail::throw_io_error("read", descriptor_, ec);
    return m;
}

packet_conn::message packet_conn::read_message(
    mutable_buffer b, const context& ctx, std::error_code& ec, where_type w) {
    return receive_message(descriptor_, b, detail::io_limit(ctx).get(), ec, w);
}

packet_conn::message packet_conn::read_message(mutable_buffer b, const context& ctx, where_type w) {
    std::error_code ec;
    message m = read_message(b, ctx, ec, w);
    if (ec) detail::throw_io_error("read", descriptor_, ec);
    return m;
}

std::size_t packet_conn::read_some(mutable_buffer b, std::error_code& ec, where_type w) {
    return receive(descriptor_, b, nullptr, nullptr, ec, w);
}

std::size_t packet_conn::read_some(mutable_buffer b, where_type w) {
    std::error_code ec;
    const std::size_t n = read_some(b, ec, w);
    return checked(n, "read", descriptor_, ec);
}

std::size_t packet_conn::read_some(mutable_buffer b, const context& ctx, std::error_code& ec, where_type w) {
    return receive(descriptor_, b, nullptr, detail::io_limit(ctx).get(), ec, w);
}

std::size_t packet_conn::read_some(mutable_buffer b, const context& ctx, where_type w) {
    std::error_code ec;
    const std::size_t n = read_some(b, ctx, ec, w);
    return checked(n, "read", descriptor_, ec);
}

std::size_t packet_conn::write_to(const_buffer b, const address& to, std::error_code& ec, where_type w) {
    return send(descriptor_, b, &to, nullptr, ec, w);
}

std::size_t packet_conn::write_to(const_buffer b, const address& to, where_type w) {
    std::error_code ec;
    const std::size_t n = write_to(b, to, ec, w);
    return checked_for(to, n, descriptor_, ec);
}

std::size_t packet_conn::write_to(
    const_buffer b, const address& to, const context& ctx, std::error_code& ec, where_type w) {
    return send(descriptor_, b, &to, detail::io_limit(ctx).get(), ec, w);
}

std::size_t packet_conn::write_to(const_buffer b, const address& to, const context& ctx, where_type w) {
    std::error_code ec;
    const std::size_t n = write_to(b, to, ctx, ec, w);
    return checked_for(to, n, descriptor_, ec);
}

std::size_t packet_conn::write_some(const_buffer b, std::error_code& ec, where_type w) {
    return send(descriptor_, b, nullptr, nullptr, ec, w);
}

std::size_t packet_conn::write_some(const_buffer b, where_type w) {
    std::error_code ec;
    const std::size_t n = write_some(b, ec, w);
    return checked(n, "write", descriptor_, ec);
}

std::size_t packet_conn::write_some(const_buffer b, const context& ctx, std::error_code& ec, where_type w) {
    return send(descriptor_, b, nullptr, detail::io_limit(ctx).get(), ec, w);
}

std::size_t packet_conn::write_some(const_buffer b, const context& ctx, where_type w) {
    std::error_code ec;
    const std::size_t n = write_some(b, ctx, ec, w);
    return checked(n, "write", descriptor_, ec);
}

// ---- the rest -------------------------------------------------------------------------------------------------------

address packet_conn::local_address() const { return local_address_of(descriptor_); }
address packet_conn::remote_address() const { return remote_address_of(descriptor_); }

void packet_conn::set_receive_buffer(std::size_t bytes) {
    set_option_or_throw(descriptor_, "set receive_buffer of", SOL_SOCKET, SO_RCVBUF, size_option(bytes));
}
void packet_conn::set_receive_buffer(std::size_t bytes, std::error_code& ec) noexcept {
    ec = set_option_of(descriptor_, SOL_SOCKET, SO_RCVBUF, size_option(bytes));
}
void packet_conn::set_send_buffer(std::size_t bytes) {
    set_option_or_throw(descriptor_, "set send_buffer of", SOL_SOCKET, SO_SNDBUF, size_option(bytes));
}
void packet_conn::set_send_buffer(std::size_t bytes, std::error_code& ec) noexcept {
    ec = set_option_of(descriptor_, SOL_SOCKET, SO_SNDBUF, size_option(bytes));
}

// ---- making them ----------------------------------------------------------------------------------------------------

packet_conn packet_conn::adopt(int fd, std::error_code& ec) {
    return io_access::make<packet_conn>(adopt_socket(fd, purpose::datagrams, ec));
}

packet_conn packet_conn::adopt(int fd) {
    std::error_code ec;
    packet_conn c = adopt(fd, ec);
    if (ec) throw_adopt_error(fd, purpose::datagrams, ec);
    return c;
}

packet_conn listen_packet(
    std::string_view network_name, std::string_view text, const listen_options& options, std::error_code& ec) {
    return listen_within(network_name, text, options, nullptr, ec);
}

packet_conn listen_packet(std::string_view network_name, std::string_view text, const context& ctx,
    const listen_options& options, std::error_code& ec) {
    return listen_within(network_name, text, options, detail::io_limit(ctx).get(), ec);
}

packet_conn listen_packet(std::string_view network_name, std::string_view text, const listen_options& options) {
    std::error_code ec;
    packet_conn c = listen_packet(network_name, text, options, ec);
    return checked(std::move(c), "listen", network_name, text, ec);
}

packet_conn listen_packet(
    std::string_view network_name, std::string_view text, const context& ctx, const listen_options& options) {
    std::error_code ec;
    packet_conn c = listen_packet(network_name, text, ctx, options, ec);
    return checked(std::move(c), "listen", network_name, text, ec);
}

packet_conn dial_packet(std::string_view network_name, std::string_view text, std::error_code& ec) {
    return dial_within(network_name, text, nullptr, ec);
}

packet_conn dial_packet(
    std::string_view network_name, std::string_view text, std::chrono::nanoseconds timeout, std::error_code& ec) {
    const wait_limit limit{detail::deadline_in(timeout), nullptr};
    return dial_within(network_name, text, &limit, ec);
}

packet_conn dial_packet(std::string_view network_name, std::string_view text, const context& ctx, std::error_code& ec) {
    return dial_within(network_name, text, detail::io_limit(ctx).get(), ec);
}

packet_conn dial_packet(std::string_view network_name, std::string_view text) {
    std::error_code ec;
    packet_conn c = dial_packet(network_name, text, ec);
    return checked(std::move(c), "dial", network_name, text, ec);
}

packet_conn dial_packet(std::string_view network_name, std::string_view text, std::chrono::nanoseconds timeout) {
    std::error_code ec;
    packet_conn c = dial_packet(network_name, text, timeout, ec);
    return checked(std::move(c), "dial", network_name, text, ec);
}

packet_conn dial_packet(std::string_view network_name, std::string_view text, const context& ctx) {
    std::error_code ec;
    packet_conn c = dial_packet(network_name, text, ctx, ec);
    return checked(std::move(c), "dial", network_name, text, ec);
}

}  // namespace dunlin::net
