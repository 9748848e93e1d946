// socket.h - making sockets, and what all kinds of them share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <dunlin/detail/atomic.hpp>
#include <dunlin/net.hpp>

#include "io/operation.h"
#include "platform/syscall.h"

namespace dunlin::inline v0_1::net {

using io::direction;
using io::kind;
using io::system_error_code;
using detail::io_descriptor;
using detail::wait_limit;

// The words "tcp", "udp6" and so on.
struct network {
    std::string_view name;
    int family;  // AF_UNSPEC: both
    int type;    // SOCK_STREAM, SOCK_DGRAM
    bool is_unix() const noexcept;
    kind descriptor_kind() const noexcept;
};
// Null if there is no such network.
const network* find_network(std::string_view name) noexcept;

// A descriptor that neither blocks nor is inherited; -errno.
int make_socket(int family, int type) noexcept;

// Hands `fd` to the poller; null and `ec`, and `fd` is closed.
io_descriptor* open_descriptor(int fd, kind k, std::error_code& ec) noexcept;
// The same, but `fd` is then still the caller's.
io_descriptor* try_open_descriptor(int fd, kind k, std::error_code& ec) noexcept;

// What a socket that another part of the program has made is to be used as.
enum class purpose : std::uint8_t { connection, listener, datagrams };

// Such a socket; null and `ec`, and `fd` is still the caller's, as it was. std::errc::not_a_socket;
// wrong_protocol_type: a socket of another type (SOCK_SEQPACKET is none of ours); invalid_argument: it listens and
// should not, or the other way round.
io_descriptor* adopt_socket(int fd, purpose p, std::error_code& ec) noexcept;
[[noreturn]] void throw_adopt_error(int fd, purpose p, std::error_code ec);

// What stream_options say. Failures do not matter: the connection works without.
void apply(int fd, kind k, const stream_options& options) noexcept;

// setsockopt with an int. 0 or errno.
int set_option(int fd, int level, int name, int value) noexcept;
// The same on a handle that may be closed.
void set_option_or_throw(io_descriptor* d, const char* what, int level, int name, int value);
std::error_code set_option_of(io_descriptor* d, int level, int name, int value) noexcept;
inline int size_option(std::size_t bytes) noexcept { return static_cast<int>(std::min<std::size_t>(bytes, INT32_MAX)); }

// What the kernel says of one end. An IPv4 address that a socket for both families has, ::ffff:127.0.0.1, is an IPv4
// address here.
address from_kernel(const void* sockaddr, unsigned size) noexcept;
// When it can no longer be asked (closed, or reset by the peer): what remember_ends() has noted.
address local_address_of(io_descriptor* d) noexcept;
address remote_address_of(io_descriptor* d) noexcept;

// Notes the addresses of a socket that is bound or connected, before others know it. `remote`: what is known of the
// peer already. True: both are the same. Nothing for null.
bool remember_ends(io_descriptor* d, const address* remote = nullptr) noexcept;

// An IP address without a port; for AF_UNSPEC of either family. None: without `ec` it may be a name; with
// std::errc::no_such_device its zone is no interface of this machine.
std::optional<address> parse_ip(const std::string& host, std::uint16_t port, int family, std::error_code& ec) noexcept;
// The same with a port, or a path. None: `ec`.
std::optional<address> parse_numeric(const network& n, std::string_view text, std::error_code& ec);

inline constexpr const char* what_is_allowed = "networks are tcp, tcp4, tcp6, unix; addresses host:port or a path";

// "dial tcp 10.0.0.7:443: " and the cause.
[[noreturn]] void throw_net_error(std::string_view operation, std::string_view network, std::string_view address,
    std::error_code ec, std::string_view detail = {});

// For tests: called when a connection has been made and its caller does not know it yet.
extern platform::atomic<void (*)() noexcept> when_connected;

// Connects a socket to one address. Null and `ec`.
io_descriptor* connect_to(const network& n, const address& to, const wait_limit* limit, const stream_options& options,
    std::error_code& ec, const std::source_location& where);

// The addresses of "host:port" for a network. `passive`: to listen at. Never empty without `ec`.
std::vector<address> addresses_of(
    const network& n, std::string_view text, bool passive, const wait_limit* limit, std::error_code& ec);

}  // namespace dunlin::net
