// socket.h - making sockets, and what all kinds of sockets share. An io_descriptor is a netpoll::fd_record, by the name
// that the public headers know (<dunlin/io.hpp>).
#pragma once

#include <algorithm>
#include <cstdint>
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

// Makes a descriptor that neither blocks nor is inherited; or returns -errno.
int make_socket(int family, int type) noexcept;

// Pauses between attempts where no edge tells when the next one may succeed: the queue, or the backlog, of another Unix
// socket is full. All waiters soon have the same pause. If it went on growing, the waiter that has waited longest would
// try most rarely, and lose to those that come later.
struct retry_pause {
    std::int64_t ns = 1'000'000;
    void lengthen() noexcept { ns = std::min<std::int64_t>(2 * ns, 4'000'000); }
};

// Hands `fd` to the poller. Null, with `ec`: `fd` has been closed.
io_descriptor* open_descriptor(int fd, kind k, std::error_code& ec) noexcept;
// The same, but after an error the caller still owns `fd`. `plain_tcp`: of kind tcp, and a short read proves that
// nothing is left (not so for SCTP).
io_descriptor* try_open_descriptor(int fd, kind k, bool plain_tcp, std::error_code& ec) noexcept;

// The use of a socket that another part of the program has made.
enum class purpose : std::uint8_t { connection, listener, datagrams };

// Takes over such a socket. Null, with `ec`: the caller still owns `fd`, which is unchanged. std::errc::not_a_socket;
// wrong_protocol_type: a socket of another type (SOCK_SEQPACKET is not supported); invalid_argument: it listens and
// should not, or the other way round.
io_descriptor* adopt_socket(int fd, purpose p, std::error_code& ec) noexcept;
[[noreturn]] void throw_adopt_error(int fd, purpose p, std::error_code ec);

// Applies stream_options. Failures do not matter: the connection works without these options.
void apply(int fd, kind k, const stream_options& options) noexcept;

// setsockopt() with an int. Returns 0 or errno.
int set_option(int fd, int level, int name, int value) noexcept;
// The same on a handle that may be closed.
void set_option_or_throw(io_descriptor* d, const char* what, int level, int name, int value);
std::error_code set_option_of(io_descriptor* d, int level, int name, int value) noexcept;
inline int size_option(std::size_t bytes) noexcept { return static_cast<int>(std::min<std::size_t>(bytes, INT32_MAX)); }

// An address that the kernel has returned. The IPv4-mapped address of a socket for both families, ::ffff:127.0.0.1,
// becomes an IPv4 address.
address from_kernel(const void* sockaddr, unsigned size) noexcept;
// If the kernel cannot tell any more (closed, or reset by the peer), these return what remember_ends() has noted.
address local_address_of(io_descriptor* d) noexcept;
address remote_address_of(io_descriptor* d) noexcept;

// Notes the addresses of a bound or connected socket, before other threads know it. `remote`: the peer's address, if it
// is known already. True: both addresses are the same. For a null descriptor it does nothing.
bool remember_ends(io_descriptor* d, const address* remote = nullptr) noexcept;

// "dial tcp 10.0.0.7:443: " and the cause.
[[noreturn]] void throw_net_error(std::string_view operation, std::string_view network, std::string_view address,
    std::error_code ec, std::string_view detail = {});

}  // namespace dunlin::net
