// net.hpp - TCP, UDP and Unix sockets in blocking style.
#pragma once

#include <dunlin/config.hpp>

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <dunlin/detail/atomic.hpp>
#include <dunlin/io.hpp>

namespace dunlin::inline v0_1::net {

/// An IP address with a port, or the path of a Unix socket (a name that begins with '@' is abstract, and may contain
/// zero bytes). A value: compare, copy, print it.
class DUNLIN_API address {
public:
    /// No address: "".
    address() noexcept = default;
    /// "127.0.0.1:80", "[::1]:80", "[fe80::1%eth0]:80", ":80" (any address), or a path for "unix". Numbers only; for
    /// names use resolve(). Throws io_error with errc::bad_address, or with std::errc::no_such_device for a zone
    /// ("%eth0") that is no interface of this machine.
    static address parse(std::string_view network, std::string_view text);
    static address parse(std::string_view network, std::string_view text, std::error_code& ec);

    /// In the form that parse() reads.
    std::string to_string() const;
    operator std::string() const { return to_string(); }
    /// Without the port: "127.0.0.1", "::1", or the path.
    std::string host() const;
    /// 0 for a Unix socket.
    std::uint16_t port() const noexcept;
    bool is_ipv4() const noexcept;
    bool is_ipv6() const noexcept;
    bool is_unix() const noexcept;
    bool is_loopback() const noexcept;

    friend DUNLIN_API bool operator==(const address& a, const address& b) noexcept;
    /// Some order, for maps.
    friend DUNLIN_API std::strong_ordering operator<=>(const address& a, const address& b) noexcept;
    friend DUNLIN_API std::ostream& operator<<(std::ostream& out, const address& a);

    /// For system calls: a sockaddr and its length.
    const void* native() const noexcept { return storage_.data(); }
    unsigned native_size() const noexcept { return size_; }
    static address from_native(const void* sockaddr, unsigned size) noexcept;

private:
    alignas(8) std::array<unsigned char, 112> storage_{};  // sockaddr_un is the longest: 110
    unsigned size_ = 0;
};

struct stream_options {
    bool no_delay = true;                                ///< TCP_NODELAY: small writes go out at once
    std::chrono::seconds keep_alive = std::chrono::seconds(15);  ///< between probes of a silent TCP connection; 0: none
};

struct listen_options {
    /// how many connections may wait to be accepted; the system's limit (net.core.somaxconn) applies too
    int backlog = 4096;
    bool reuse_address = true;  ///< SO_REUSEADDR: the port may be bound again while old connections of it linger
    /// SO_REUSEPORT: several listeners (of other processes too) share the port; the kernel divides its connections
    bool reuse_port = false;
    bool unlink = true;         ///< close() of a listener removes its path (a Unix socket's); a packet socket's remains
    stream_options accepted = {};
};

/// A connection: TCP, or a Unix stream socket. byte_stream reads and writes it.
class DUNLIN_API stream : public byte_stream {
public:
    stream() noexcept = default;
    /// Takes over a connected stream socket. Throws io_error; then the caller still owns `fd`.
    static stream adopt(int fd);
    static stream adopt(int fd, std::error_code& ec);

    /// No more will be written: the peer reads what was written and then the end of file. Reading goes on. (If a write
    /// waits in another goroutine meanwhile, it fails on TCP; on a Unix socket the kernel does not notify it.)
    void close_write();
    void close_write(std::error_code& ec) noexcept;
    /// No more will be read: a read that waits, and later ones, find the end of file. (On TCP the kernel goes on taking
    /// what the peer sends, and a later read gets that.)
    void close_read();
    void close_read(std::error_code& ec) noexcept;

    /// Still known after close(), and after the peer has reset the connection.
    address local_address() const;
    address remote_address() const;

    void set_no_delay(bool on);
    void set_no_delay(bool on, std::error_code& ec) noexcept;
    /// Zero: none.
    void set_keep_alive(std::chrono::seconds between_probes);
    void set_keep_alive(std::chrono::seconds between_probes, std::error_code& ec) noexcept;
    /// How long close() lets the kernel go on sending: zero resets the connection at once (the peer reads ECONNRESET);
    /// nullopt restores the kernel's default. At most 32767 s are used; std::invalid_argument (or
    /// std::errc::invalid_argument) if negative.
    void set_linger(std::optional<std::chrono::seconds> time);
    void set_linger(std::optional<std::chrono::seconds> time, std::error_code& ec) noexcept;
    void set_receive_buffer(std::size_t bytes);
    void set_receive_buffer(std::size_t bytes, std::error_code& ec) noexcept;
    void set_send_buffer(std::size_t bytes);
    void set_send_buffer(std::size_t bytes, std::error_code& ec) noexcept;
};

/// Waits for connections.
class DUNLIN_API listener : public io_handle {
public:
    using where_type = std::source_location;
    listener() noexcept = default;
    listener(listener&& other) noexcept;
    listener& operator=(listener&& other) noexcept;
    ~listener() { close(); }
    /// Takes over a socket that listens (from a parent process, say). Throws io_error, with std::errc::invalid_argument
    /// if it does not listen; then the caller still owns `fd`.
    static listener adopt(int fd, const stream_options& accepted = {});
    static listener adopt(int fd, std::error_code& ec) { return adopt(fd, stream_options(), ec); }
    static listener adopt(int fd, const stream_options& accepted, std::error_code& ec);

    /// The next connection. Any number of goroutines may wait here; each connection goes to one.
    ///
    /// Connections that the peer gave up before they were accepted are skipped. When the process (or the system) has no
    /// descriptors left, accept() sleeps until one is free again; the connections wait in the backlog. Throws io_error:
    /// errc::closed after close(), std::errc::timed_out after a deadline.
    stream accept(where_type w = where_type::current()) { return accept_one({}, w); }
    stream accept(const context& ctx, where_type w = where_type::current()) { return accept_one(ctx, w); }
    stream accept(std::error_code& ec, where_type w = where_type::current());
    stream accept(const context& ctx, std::error_code& ec, where_type w = where_type::current());
    template <class Rep, class Period>
    stream accept(const std::chrono::duration<Rep, Period>&) {
        static_assert(detail::always_false<Rep>, "dunlin: accept(ctx), or set_deadline(duration) before it");
        return {};
    }

    /// As io_handle::close(). Waiting accepts fail with errc::closed; the path of a Unix socket is removed.
    void close() noexcept;

    address local_address() const;

private:
    friend struct listener_access;
    stream accept_one(detail::io_limit limit, const where_type& w);

    platform::atomic<bool> has_path_{false};  // a Unix socket's path, which the first close() removes
    std::string path_;
};

/// A UDP socket or a Unix datagram socket: it transfers whole messages. UDP sockets may send to broadcast addresses
/// (SO_BROADCAST).
class DUNLIN_API packet_conn : public io_handle {
public:
    using where_type = std::source_location;
    packet_conn() noexcept = default;
    /// Takes over a datagram socket (SOCK_DGRAM). Throws io_error; then the caller still owns `fd`.
    static packet_conn adopt(int fd);
    static packet_conn adopt(int fd, std::error_code& ec);

    /// A message that was received.
    struct message {
        std::size_t size = 0;        ///< bytes of the message that are in the buffer
        std::size_t whole_size = 0;  ///< bytes of the message as it was sent
        address from;
        bool truncated() const noexcept { return whole_size > size; }
    };
    /// The next message, and whether it fitted into the buffer: the rest is lost.
    message read_message(mutable_buffer b, where_type w = where_type::current());
    message read_message(mutable_buffer b, std::error_code& ec, where_type w = where_type::current());
    message read_message(mutable_buffer b, const context& ctx, where_type w = where_type::current());
    message read_message(
        mutable_buffer b, const context& ctx, std::error_code& ec, where_type w = where_type::current());

    /// The next message; what does not fit into the buffer is lost silently (see read_message()). 0 for an empty
    /// message.
    std::size_t read_from(mutable_buffer b, address& from, where_type w = where_type::current());
    std::size_t read_from(mutable_buffer b, address& from, std::error_code& ec, where_type w = where_type::current());
    std::size_t read_from(mutable_buffer b, address& from, const context& ctx, where_type w = where_type::current());
    std::size_t read_from(
        mutable_buffer b, address& from, const context& ctx, std::error_code& ec, where_type w = where_type::current());
    std::size_t read_from(void* data, std::size_t size, address& from, where_type w = where_type::current()) {
        return read_from(mutable_buffer(data, size), from, w);
    }
    std::size_t read_from(
        void* data, std::size_t size, address& from, std::error_code& ec, where_type w = where_type::current()) {
        return read_from(mutable_buffer(data, size), from, ec, w);
    }
    std::size_t read_from(
        void* data, std::size_t size, address& from, const context& ctx, where_type w = where_type::current()) {
        return read_from(mutable_buffer(data, size), from, ctx, w);
    }
    std::size_t read_from(void* data, std::size_t size, address& from, const context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return read_from(mutable_buffer(data, size), from, ctx, ec, w);
    }
    /// The same without the sender's address.
    std::size_t read_some(mutable_buffer b, where_type w = where_type::current());
    std::size_t read_some(mutable_buffer b, std::error_code& ec, where_type w = where_type::current());
    std::size_t read_some(mutable_buffer b, const context& ctx, where_type w = where_type::current());
    std::size_t read_some(
        mutable_buffer b, const context& ctx, std::error_code& ec, where_type w = where_type::current());
    std::size_t read_some(void* data, std::size_t size, where_type w = where_type::current()) {
        return read_some(mutable_buffer(data, size), w);
    }
    std::size_t read_some(void* data, std::size_t size, std::error_code& ec, where_type w = where_type::current()) {
        return read_some(mutable_buffer(data, size), ec, w);
    }
    std::size_t read_some(void* data, std::size_t size, const context& ctx, where_type w = where_type::current()) {
        return read_some(mutable_buffer(data, size), ctx, w);
    }
    std::size_t read_some(
        void* data, std::size_t size, const context& ctx, std::error_code& ec, where_type w = where_type::current()) {
        return read_some(mutable_buffer(data, size), ctx, ec, w);
    }

    /// Sends one message.
    std::size_t write_to(const_buffer b, const address& to, where_type w = where_type::current());
    std::size_t write_to(const_buffer b, const address& to, std::error_code& ec, where_type w = where_type::current());
    std::size_t write_to(const_buffer b, const address& to, const context& ctx, where_type w = where_type::current());
    std::size_t write_to(const_buffer b, const address& to, const context& ctx, std::error_code& ec,
        where_type w = where_type::current());
    std::size_t write_to(const void* data, std::size_t size, const address& to, where_type w = where_type::current()) {
        return write_to(const_buffer(data, size), to, w);
    }
    std::size_t write_to(const void* data, std::size_t size, const address& to, std::error_code& ec,
        where_type w = where_type::current()) {
        return write_to(const_buffer(data, size), to, ec, w);
    }
    std::size_t write_to(const void* data, std::size_t size, const address& to, const context& ctx,
        where_type w = where_type::current()) {
        return write_to(const_buffer(data, size), to, ctx, w);
    }
    std::size_t write_to(const void* data, std::size_t size, const address& to, const context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return write_to(const_buffer(data, size), to, ctx, ec, w);
    }
    /// Sends one message to the address that was dialled.
    std::size_t write_some(const_buffer b, where_type w = where_type::current());
    std::size_t write_some(const_buffer b, std::error_code& ec, where_type w = where_type::current());
    std::size_t write_some(const_buffer b, const context& ctx, where_type w = where_type::current());
    std::size_t write_some(
        const_buffer b, const context& ctx, std::error_code& ec, where_type w = where_type::current());
    std::size_t write_some(const void* data, std::size_t size, where_type w = where_type::current()) {
        return write_some(const_buffer(data, size), w);
    }
    std::size_t write_some(
        const void* data, std::size_t size, std::error_code& ec, where_type w = where_type::current()) {
        return write_some(const_buffer(data, size), ec, w);
    }
    std::size_t write_some(
        const void* data, std::size_t size, const context& ctx, where_type w = where_type::current()) {
        return write_some(const_buffer(data, size), ctx, w);
    }
    std::size_t write_some(const void* data, std::size_t size, const context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return write_some(const_buffer(data, size), ctx, ec, w);
    }

    /// Still known after close().
    address local_address() const;
    /// Empty unless it was dialled.
    address remote_address() const;
    void set_receive_buffer(std::size_t bytes);
    void set_receive_buffer(std::size_t bytes, std::error_code& ec) noexcept;
    void set_send_buffer(std::size_t bytes);
    void set_send_buffer(std::size_t bytes, std::error_code& ec) noexcept;
};

/// Listens at "host:port" or, with "unix", at a path. network: "tcp" (both families, if the host is empty or "::"),
/// "tcp4", "tcp6", "unix". Port 0: a free one, see local_address(). Throws io_error. Names are resolved, which blocks
/// the goroutine.
/// A context ends the resolving.
DUNLIN_API listener listen(std::string_view network, std::string_view address, const listen_options& options = {});
DUNLIN_API listener listen(
    std::string_view network, std::string_view address, const listen_options& options, std::error_code& ec);
DUNLIN_API listener listen(
    std::string_view network, std::string_view address, const context& ctx, const listen_options& options = {});
DUNLIN_API listener listen(std::string_view network, std::string_view address, const context& ctx,
    const listen_options& options, std::error_code& ec);
inline listener listen(std::string_view network, std::string_view address, std::error_code& ec) {
    return listen(network, address, listen_options(), ec);
}
inline listener listen(std::string_view network, std::string_view address, const context& ctx, std::error_code& ec) {
    return listen(network, address, ctx, listen_options(), ec);
}
template <class... Rest>
listener listen(std::string_view network, const address& a, Rest&&... rest) {
    return listen(network, std::string_view(a.to_string()), std::forward<Rest>(rest)...);
}
inline listener listen(std::string_view network, const address& a, const listen_options& options) {
    return listen(network, std::string_view(a.to_string()), options);
}
inline listener listen(std::string_view network, const address& a, const listen_options& options, std::error_code& ec) {
    return listen(network, std::string_view(a.to_string()), options, ec);
}
template <class Never = void>
listener listen(detail::anything, detail::anything = {}, detail::anything = {}, detail::anything = {}) {
    static_assert(detail::always_false<Never>,
        "dunlin::net::listen(network, \"host:port\", [ctx], [listen_options], [ec]): listen(\"tcp\", \":8080\")");
    return {};
}

/// Connects to "host:port" or, with "unix", to a path. network: "tcp", "tcp4", "tcp6", "unix". An empty host means this
/// machine.
///
/// If a name has several addresses, they are tried one after another with alternating families. The next attempt starts
/// after 250 ms, or when the one before has failed; the first that answers wins (RFC 8305).
/// Throws io_error, for example "dial tcp 10.0.0.7:443: timed out after 2s"; with a context: context_cancelled. If
/// several attempts fail, the first error is reported.
/// Blocks    The goroutine; see resolve().
DUNLIN_API stream dial(std::string_view network, std::string_view address, const stream_options& options = {});
DUNLIN_API stream dial(std::string_view network, std::string_view address, std::chrono::nanoseconds timeout,
    const stream_options& options = {});
template <class Rep, class Period>
stream dial(std::string_view network, std::string_view address, const std::chrono::duration<Rep, Period>& timeout,
    const stream_options& options = {}) {
    return dial(network, address, detail::to_nanoseconds(timeout), options);
}
DUNLIN_API stream dial(
    std::string_view network, std::string_view address, const context& ctx, const stream_options& options = {});
DUNLIN_API stream dial(
    std::string_view network, std::string_view address, std::error_code& ec, const stream_options& options = {});
DUNLIN_API stream dial(std::string_view network, std::string_view address, std::chrono::nanoseconds timeout,
    std::error_code& ec, const stream_options& options = {});
DUNLIN_API stream dial(std::string_view network, std::string_view address, const context& ctx, std::error_code& ec,
    const stream_options& options = {});
template <class Rep, class Period>
stream dial(std::string_view network, std::string_view address, const std::chrono::duration<Rep, Period>& timeout,
    std::error_code& ec, const stream_options& options = {}) {
    try {
        return dial(network, address, detail::to_nanoseconds(timeout), ec, options);
    } catch (const std::invalid_argument&) {  // not a number
        ec = std::make_error_code(std::errc::invalid_argument);
        return {};
    }
}
inline stream dial(
    std::string_view network, std::string_view address, const stream_options& options, std::error_code& ec) {
    return dial(network, address, ec, options);
}
inline stream dial(std::string_view network, std::string_view address, const context& ctx,
    const stream_options& options, std::error_code& ec) {
    return dial(network, address, ctx, ec, options);
}
template <class Rep, class Period>
stream dial(std::string_view network, std::string_view address, const std::chrono::duration<Rep, Period>& timeout,
    const stream_options& options, std::error_code& ec) {
    return dial(network, address, timeout, ec, options);
}
template <detail::number N, class... Rest>
stream dial(std::string_view, std::string_view, N, Rest&&...) {
    static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
    return {};
}
template <class... Rest>
stream dial(std::string_view network, const address& a, Rest&&... rest) {
    return dial(network, std::string_view(a.to_string()), std::forward<Rest>(rest)...);
}
inline stream dial(std::string_view network, const address& a, const stream_options& options) {
    return dial(network, std::string_view(a.to_string()), options);
}
inline stream dial(std::string_view network, const address& a, const stream_options& options, std::error_code& ec) {
    return dial(network, std::string_view(a.to_string()), ec, options);
}
template <class Never = void>
stream dial(detail::anything, detail::anything = {}, detail::anything = {}, detail::anything = {}) {
    static_assert(detail::always_false<Never>,
        "dunlin::net::dial(network, \"host:port\", [ctx or duration], [ec], [stream_options]): "
        "dial(\"tcp\", \"localhost:80\", 5s)");
    return {};
}

/// A packet socket bound to an address: "udp", "udp4", "udp6", "unixgram" (whose path close() does not remove, as in
/// Go). Of the options only `reuse_port` applies. Throws io_error; with a context: context_cancelled.
DUNLIN_API packet_conn listen_packet(
    std::string_view network, std::string_view address, const listen_options& options = {});
DUNLIN_API packet_conn listen_packet(
    std::string_view network, std::string_view address, const listen_options& options, std::error_code& ec);
DUNLIN_API packet_conn listen_packet(
    std::string_view network, std::string_view address, const context& ctx, const listen_options& options = {});
DUNLIN_API packet_conn listen_packet(std::string_view network, std::string_view address, const context& ctx,
    const listen_options& options, std::error_code& ec);
inline packet_conn listen_packet(std::string_view network, std::string_view address, std::error_code& ec) {
    return listen_packet(network, address, listen_options(), ec);
}
inline packet_conn listen_packet(
    std::string_view network, std::string_view address, const context& ctx, std::error_code& ec) {
    return listen_packet(network, address, ctx, listen_options(), ec);
}
/// A packet socket that sends to, and receives from, one address only. If a name has several addresses, this is the
/// first that the kernel has a route to. A timeout, or a context, limits the resolving of a name.
DUNLIN_API packet_conn dial_packet(std::string_view network, std::string_view address);
DUNLIN_API packet_conn dial_packet(
    std::string_view network, std::string_view address, std::chrono::nanoseconds timeout);
DUNLIN_API packet_conn dial_packet(std::string_view network, std::string_view address, const context& ctx);
DUNLIN_API packet_conn dial_packet(std::string_view network, std::string_view address, std::error_code& ec);
DUNLIN_API packet_conn dial_packet(
    std::string_view network, std::string_view address, std::chrono::nanoseconds timeout, std::error_code& ec);
DUNLIN_API packet_conn dial_packet(
    std::string_view network, std::string_view address, const context& ctx, std::error_code& ec);
template <class Rep, class Period>
packet_conn dial_packet(
    std::string_view network, std::string_view address, const std::chrono::duration<Rep, Period>& timeout) {
    return dial_packet(network, address, detail::to_nanoseconds(timeout));
}
template <class Rep, class Period>
packet_conn dial_packet(std::string_view network, std::string_view address,
    const std::chrono::duration<Rep, Period>& timeout, std::error_code& ec) {
    try {
        return dial_packet(network, address, detail::to_nanoseconds(timeout), ec);
    } catch (const std::invalid_argument&) {  // not a number
        ec = std::make_error_code(std::errc::invalid_argument);
        return {};
    }
}
template <class... Rest>
packet_conn listen_packet(std::string_view network, const address& a, Rest&&... rest) {
    return listen_packet(network, std::string_view(a.to_string()), std::forward<Rest>(rest)...);
}
template <class... Rest>
packet_conn dial_packet(std::string_view network, const address& a, Rest&&... rest) {
    return dial_packet(network, std::string_view(a.to_string()), std::forward<Rest>(rest)...);
}

/// Two connected streams (a Unix socket pair).
DUNLIN_API std::pair<stream, stream> stream_pair();
DUNLIN_API std::pair<stream, stream> stream_pair(std::error_code& ec);

/// The addresses of "host:port" from the system's resolver (/etc/hosts, DNS, ...), in its order. The port may be a
/// service's name (a few are known where the system has no /etc/services), or missing: 0. Without a port an IPv6
/// address needs no brackets ("::1"), unless its end could be a port ("fe80::1:80": an error). Numbers, an empty host
/// and "localhost" need no resolver. An empty host, "localhost", "0.0.0.0" and "::" mean this machine, as for dial():
/// its loopback addresses, of both families if the network allows both.
/// Blocks    The goroutine. A look-up occupies a thread; equal look-ups share one. A run() has at most 64 at a time;
///           further callers wait for their turn within their limit. A look-up whose callers have all given up goes on
///           in the background; up to 192 of these do not count among the 64. A port's name is looked up in the same
///           way, and these look-ups have as many places of their own.
/// Throws    io_error, with errc::host_not_found for instance; context_cancelled.
DUNLIN_API std::vector<address> resolve(std::string_view host_and_port);
DUNLIN_API std::vector<address> resolve(std::string_view host_and_port, const context& ctx);
DUNLIN_API std::vector<address> resolve(std::string_view host_and_port, std::error_code& ec);
DUNLIN_API std::vector<address> resolve(std::string_view host_and_port, const context& ctx, std::error_code& ec);
/// For one network: "tcp4" and "udp4" give IPv4 addresses only.
DUNLIN_API std::vector<address> resolve(std::string_view network, std::string_view host_and_port);
DUNLIN_API std::vector<address> resolve(std::string_view network, std::string_view host_and_port, const context& ctx);
DUNLIN_API std::vector<address> resolve(std::string_view network, std::string_view host_and_port, std::error_code& ec);
DUNLIN_API std::vector<address> resolve(
    std::string_view network, std::string_view host_and_port, const context& ctx, std::error_code& ec);

/// Splits "host:port", "[::1]:80" too. The port may be empty, its colon may not be missing. Throws io_error with
/// errc::bad_address.
DUNLIN_API std::pair<std::string, std::string> split_host_port(std::string_view host_and_port);
DUNLIN_API std::pair<std::string, std::string> split_host_port(std::string_view host_and_port, std::error_code& ec);
/// Joins both again, with brackets around an address that has colons.
DUNLIN_API std::string join_host_port(std::string_view host, std::string_view port);

}  // namespace dunlin::net
