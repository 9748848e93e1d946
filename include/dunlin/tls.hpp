// tls.hpp - TLS 1.2 and 1.3 over dunlin's streams, with OpenSSL 3. A library of its own (CMake: dunlin::tls,
// pkg-config: dunlin-tls).
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include <dunlin/clock.hpp>
#include <dunlin/context.hpp>
#include <dunlin/io.hpp>
#include <dunlin/net.hpp>

struct ssl_st;      // OpenSSL's SSL
struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace dunlin::inline v0_1::tls {

class session;  // tls/session.h

/// What can go wrong apart from the network, as conditions: `ec == tls::errc::certificate_rejected`. The codes
/// themselves are more precise, and their text is OpenSSL's: "certificate verify failed: self-signed certificate".
enum class errc {
    truncated = 1,         ///< the connection has ended without a close_notify: data may be missing
    certificate_rejected,  ///< the peer's certificate is not trusted, has expired, is for another host, ...
    no_server_name,        ///< a client that verifies must know the server's name
    /// the peer endlessly sends messages without data (key updates, for instance), or never reads the answers
    flood,
    /// any other failure of TLS: no common version or cipher, a bad record, an alert from the peer
    protocol,
};

/// The category of these codes and conditions, "dunlin.tls".
DUNLIN_API const std::error_category& error_category() noexcept;
inline std::error_condition make_error_condition(errc e) noexcept { return {static_cast<int>(e), error_category()}; }
inline std::error_code make_error_code(errc e) noexcept { return {static_cast<int>(e), error_category()}; }

enum class version { tls1_2,
    tls1_3 };

/// Which peers to trust, and this side's own identity (Go's tls.Config). A counted handle: set it up, then give it to
/// any number of connections; changes affect later connections only.
///
/// A client verifies the server: its chain against the system's trust store, its name, its dates. A server does not ask
/// for certificates unless it is told to. The side of the connection decides, not how the config was made: a client
/// with a config from server() verifies too. The server's name must be one of the certificate's alternative names: the
/// common name does not count.
/// TLS 1.2 or later; no renegotiation, no compression; ciphers() has the suites.
/// Throws    All members: io_error that names the file or certificate and the fault; std::invalid_argument for a name,
///           a period or a count that is not allowed; std::bad_alloc. Nothing is changed then.
/// Threads   One thread at a time sets it up, and not while connections are made with it. Only certificates may be
///           replaced at any time.
/// Blocks    Files are read on the caller's thread (whose processor goes to others if that takes long).
class DUNLIN_API config {
public:
    /// For clients. Verifies against the system's trust store.
    static config client();
    /// For servers with this certificate. Files: PEM, the certificate first, then the intermediate ones.
    static config server(const std::string& certificate_file, const std::string& key_file);
    /// The same from memory.
    static config server_from_memory(std::string_view certificate_pem, std::string_view key_pem);

    /// This side's identity: for a server, and for a client that is asked for a certificate. One for each kind of key
    /// (RSA, EC, ...): a second one replaces the first of its kind, for connections that are made from then on.
    config& certificate(const std::string& certificate_file, const std::string& key_file);
    config& certificate_from_memory(std::string_view certificate_pem, std::string_view key_pem);
    /// Replaces all certificates that were named before, from the next connection on: to renew a certificate while a
    /// listener runs. A listener has a copy of the handle, and so the same settings. Safe from anywhere, also while
    /// connections are made; if it throws, the old ones stay.
    void replace_certificate(const std::string& certificate_file, const std::string& key_file);
    void replace_certificate_from_memory(std::string_view certificate_pem, std::string_view key_pem);

    /// Trusts these certificates, and no longer the system's authorities. May be called several times. Each is a root:
    /// a chain may end at it, also if another authority has signed it (an intermediate one, or the peer's own
    /// certificate).
    config& trust(const std::string& file);
    config& trust_from_memory(std::string_view pem);

    /// Servers: ask for a certificate and verify it with the authorities of trust(); a client without one is refused.
    /// Session tickets that were given out before this, or before trust(), lead to a full handshake.
    config& require_client_certificate();
    /// Clients: the name that the certificate must have and that the server is told (SNI), instead of the dialled name.
    /// A name that begins with a dot, has two dots in a row or contains a NUL is refused when a connection is made
    /// (std::errc::invalid_argument).
    config& server_name(std::string name);
    /// Clients: accepts every certificate. Nothing else switches verification off. The connection is then open to any
    /// attacker in between: for tests.
    config& insecure_skip_verify();

    /// Application protocols, the preferred one first: {"h2", "http/1.1"}. The server chooses; the handshake fails if
    /// there is no common one.
    config& alpn(std::initializer_list<std::string_view> protocols);
    config& minimum_version(version v);
    /// The cipher suites, the preferred one first, with OpenSSL's names: "ECDHE-RSA-AES256-GCM-SHA384" for TLS 1.2,
    /// "TLS_AES_256_GCM_SHA384" for TLS 1.3. If no suite of a version is named, its suites stay as they are. By default
    /// TLS 1.2 has only ECDHE with AES-GCM or ChaCha20 (no RSA key exchange, no CBC, no SHA-1), TLS 1.3 has OpenSSL's
    /// three. A name that OpenSSL does not know is an error, and so is a text that is not one name.
    config& ciphers(std::initializer_list<std::string_view> names);
    /// Servers: send tickets with which clients may resume a session (TLS 1.3: `count` of them, 16 at most, since a
    /// client takes many more for a flood; TLS 1.2: one). By default there are none: a client that writes and closes
    /// without ever reading would leave them unread, and its kernel would then reset the connection. The key that
    /// encrypts them is replaced after one `key_period` and forgotten after two; a ticket of a forgotten key leads to a
    /// full handshake. So does one whose session holds a client's certificate that has expired, and any after 84
    /// periods (a week, with the default), however often the session was resumed. With TLS 1.3 each resumption brings a
    /// new ticket.
    config& session_tickets(unsigned count, std::chrono::nanoseconds key_period = std::chrono::hours(2));
    template <class Rep, class Period>
    config& session_tickets(unsigned count, const std::chrono::duration<Rep, Period>& key_period) {
        return session_tickets(count, dunlin::detail::to_nanoseconds(key_period));
    }

    /// OpenSSL's object, for all settings that are not here. It does not hold the certificates: each connection is
    /// given those that the config has then.
    ssl_ctx_st* native_handle() const noexcept;

    struct data;

private:
    friend class session;
    explicit config(std::shared_ptr<data> d) noexcept : data_(std::move(d)) {}
    std::shared_ptr<data> data_;
};

/// A TLS connection over a net::stream. Movable; default-constructed or moved from, it is closed.
///
/// Blocks    The goroutine only; never while OpenSSL is at work.
/// Threads   One reader and one writer at a time; a second reader (or writer) waits for its turn. close() and the
///           deadlines from anywhere. Do not move or destroy it while it is used.
/// Errors    As byte_stream: each call throws io_error, or context_cancelled; with a trailing std::error_code& it
///           throws only std::bad_alloc. Data that has been decrypted already is returned whatever the deadline or the
///           context says. The text names the peer:
///           "tls read from example.org: connection reset by peer". After an error in a handshake or a write (also a
///           deadline or a cancelled context) the connection is unusable in that direction: further calls fail with the
///           same error.
///           A connection that ends without close_notify is an error, not an end of file.
///           If a run() returns while a goroutine of it is in a call of the stream, that call never ends, and OpenSSL's
///           state may be half changed: calls that begin afterwards fail with std::errc::state_not_recoverable. It can
///           be closed, or destroyed, which leaves its memory (about 20 KB) where it is. A thread that waits behind
///           such a call with a context goes on waiting until that is done.
/// Order     Everything before a write happens before everything after the read of those bytes.
///           A call fails with errc::flood if the peer floods the connection with messages that bring no data.
/// Cost      A handshake takes about 0.3 ms of CPU on either side. Buffers exist only while something is read or
///           written: 17 KB for a read, up to 100 KB for a write. A waiting connection has only OpenSSL's state.
/// Source    Go's crypto/tls.Conn.
class DUNLIN_API stream {
public:
    using where_type = std::source_location;

    stream() noexcept;
    stream(stream&&) noexcept;
    stream& operator=(stream&&) noexcept;
    /// Closes it.
    ~stream();

    /// Agrees on versions, keys and identities. The first read or write does it if it was not done before. After dial()
    /// it is done.
    void handshake(where_type w = where_type::current()) { handshake_with(nullptr, w); }
    void handshake(const dunlin::context& ctx, where_type w = where_type::current()) { handshake_with(&ctx, w); }
    void handshake(std::error_code& ec, where_type w = where_type::current()) { do_handshake(nullptr, ec, w); }
    void handshake(const dunlin::context& ctx, std::error_code& ec, where_type w = where_type::current()) {
        do_handshake(&ctx, ec, w);
    }

    /// Reads what is available, at least one byte; waits if there is nothing. Returns 0 after the peer's close_notify
    /// (and for an empty buffer).
    std::size_t read_some(mutable_buffer b, where_type w = where_type::current()) { return read(b, false, nullptr, w); }
    std::size_t read_some(void* data, std::size_t size, where_type w = where_type::current()) {
        return read({data, size}, false, nullptr, w);
    }
    std::size_t read_some(mutable_buffer b, const dunlin::context& ctx, where_type w = where_type::current()) {
        return read(b, false, &ctx, w);
    }
    std::size_t read_some(mutable_buffer b, std::error_code& ec, where_type w = where_type::current()) {
        return do_read(b, false, nullptr, ec, w);
    }
    std::size_t read_some(
        mutable_buffer b, const dunlin::context& ctx, std::error_code& ec, where_type w = where_type::current()) {
        return do_read(b, false, &ctx, ec, w);
    }
    std::size_t read_some(
        void* data, std::size_t size, const dunlin::context& ctx, where_type w = where_type::current()) {
        return read({data, size}, false, &ctx, w);
    }
    std::size_t read_some(void* data, std::size_t size, std::error_code& ec, where_type w = where_type::current()) {
        return do_read({data, size}, false, nullptr, ec, w);
    }
    std::size_t read_some(void* data, std::size_t size, const dunlin::context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return do_read({data, size}, false, &ctx, ec, w);
    }

    /// Fills the buffer. If the peer ends first, the error is dunlin::errc::end_of_file; io_error::transferred(), or
    /// the return value, is the number of bytes read.
    std::size_t read_exactly(mutable_buffer b, where_type w = where_type::current()) {
        return read(b, true, nullptr, w);
    }
    std::size_t read_exactly(void* data, std::size_t size, where_type w = where_type::current()) {
        return read({data, size}, true, nullptr, w);
    }
    std::size_t read_exactly(mutable_buffer b, const dunlin::context& ctx, where_type w = where_type::current()) {
        return read(b, true, &ctx, w);
    }
    std::size_t read_exactly(mutable_buffer b, std::error_code& ec, where_type w = where_type::current()) {
        return do_read(b, true, nullptr, ec, w);
    }
    std::size_t read_exactly(
        mutable_buffer b, const dunlin::context& ctx, std::error_code& ec, where_type w = where_type::current()) {
        return do_read(b, true, &ctx, ec, w);
    }
    std::size_t read_exactly(
        void* data, std::size_t size, const dunlin::context& ctx, where_type w = where_type::current()) {
        return read({data, size}, true, &ctx, w);
    }
    std::size_t read_exactly(void* data, std::size_t size, std::error_code& ec, where_type w = where_type::current()) {
        return do_read({data, size}, true, nullptr, ec, w);
    }
    std::size_t read_exactly(void* data, std::size_t size, const dunlin::context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return do_read({data, size}, true, &ctx, ec, w);
    }

    /// Writes some of it, 64 KiB at most.
    std::size_t write_some(const_buffer b, where_type w = where_type::current()) {
        return write({&b, 1}, false, nullptr, w);
    }
    std::size_t write_some(const void* data, std::size_t size, where_type w = where_type::current()) {
        return write_some(const_buffer(data, size), w);
    }
    std::size_t write_some(const_buffer b, const dunlin::context& ctx, where_type w = where_type::current()) {
        return write({&b, 1}, false, &ctx, w);
    }
    std::size_t write_some(const_buffer b, std::error_code& ec, where_type w = where_type::current()) {
        return do_write({&b, 1}, false, nullptr, ec, w);
    }
    std::size_t write_some(
        const_buffer b, const dunlin::context& ctx, std::error_code& ec, where_type w = where_type::current()) {
        return do_write({&b, 1}, false, &ctx, ec, w);
    }
    std::size_t write_some(
        const void* data, std::size_t size, const dunlin::context& ctx, where_type w = where_type::current()) {
        return write_some(const_buffer(data, size), ctx, w);
    }
    std::size_t write_some(
        const void* data, std::size_t size, std::error_code& ec, where_type w = where_type::current()) {
        return write_some(const_buffer(data, size), ec, w);
    }
    std::size_t write_some(const void* data, std::size_t size, const dunlin::context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return write_some(const_buffer(data, size), ctx, ec, w);
    }

    /// Writes all of it. The bytes of two concurrent writers are not mixed.
    std::size_t write_all(const_buffer b, where_type w = where_type::current()) {
        return write({&b, 1}, true, nullptr, w);
    }
    std::size_t write_all(const void* data, std::size_t size, where_type w = where_type::current()) {
        return write_all(const_buffer(data, size), w);
    }
    std::size_t write_all(const_buffer b, const dunlin::context& ctx, where_type w = where_type::current()) {
        return write({&b, 1}, true, &ctx, w);
    }
    std::size_t write_all(const_buffer b, std::error_code& ec, where_type w = where_type::current()) {
        return do_write({&b, 1}, true, nullptr, ec, w);
    }
    std::size_t write_all(
        const_buffer b, const dunlin::context& ctx, std::error_code& ec, where_type w = where_type::current()) {
        return do_write({&b, 1}, true, &ctx, ec, w);
    }
    std::size_t write_all(
        const void* data, std::size_t size, const dunlin::context& ctx, where_type w = where_type::current()) {
        return write_all(const_buffer(data, size), ctx, w);
    }
    std::size_t write_all(
        const void* data, std::size_t size, std::error_code& ec, where_type w = where_type::current()) {
        return write_all(const_buffer(data, size), ec, w);
    }
    std::size_t write_all(const void* data, std::size_t size, const dunlin::context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return write_all(const_buffer(data, size), ctx, ec, w);
    }

    /// Writes all parts, in order, with as few system calls as possible.
    std::size_t writev(std::span<const const_buffer> parts, where_type w = where_type::current()) {
        return write(parts, true, nullptr, w);
    }
    std::size_t writev(
        std::span<const const_buffer> parts, const dunlin::context& ctx, where_type w = where_type::current()) {
        return write(parts, true, &ctx, w);
    }
    std::size_t writev(std::span<const const_buffer> parts, std::error_code& ec, where_type w = where_type::current()) {
        return do_write(parts, true, nullptr, ec, w);
    }
    std::size_t writev(std::span<const const_buffer> parts, const dunlin::context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return do_write(parts, true, &ctx, ec, w);
    }
    std::size_t writev(std::initializer_list<const_buffer> parts, where_type w = where_type::current()) {
        return writev(std::span(parts.begin(), parts.size()), w);
    }
    std::size_t writev(
        std::initializer_list<const_buffer> parts, const dunlin::context& ctx, where_type w = where_type::current()) {
        return writev(std::span(parts.begin(), parts.size()), ctx, w);
    }
    std::size_t writev(
        std::initializer_list<const_buffer> parts, std::error_code& ec, where_type w = where_type::current()) {
        return writev(std::span(parts.begin(), parts.size()), ec, w);
    }
    std::size_t writev(std::initializer_list<const_buffer> parts, const dunlin::context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return writev(std::span(parts.begin(), parts.size()), ctx, ec, w);
    }

    /// Tells the peer that no more will be written (close_notify): it reads what was written and then the end of file.
    /// Reading goes on.
    void close_write();
    void close_write(std::error_code& ec);

    /// Sends the close_notify, unless a write is under way, and closes the connection. Calls under way fail with
    /// dunlin::errc::closed.
    /// Blocks    If there is no room for the close_notify: for 5 s at most, as in Go, or until the write deadline if
    ///           that is earlier.
    void close() noexcept;
    bool is_open() const noexcept { return network().is_open(); }
    explicit operator bool() const noexcept { return is_open(); }

    /// As those of byte_stream: they end reads, writes and handshakes, also of a call that waits for another one to
    /// make the handshake. If a write first needs the rest of a message from the peer (its tickets, a change of keys)
    /// and no read is under way, it reads that rest itself, as it does in the handshake: then the read deadline ends
    /// it, too, and of the write deadline the value that it had when the write began to read.
    template <class T>
    void set_deadline(const T& t) {
        network().set_deadline(t);
        deadline_changed();
    }
    template <class T>
    void set_read_deadline(const T& t) {
        network().set_read_deadline(t);
        deadline_changed();
    }
    template <class T>
    void set_write_deadline(const T& t) {
        network().set_write_deadline(t);
        deadline_changed();
    }
    void clear_deadline() { network().clear_deadline(); }
    void clear_read_deadline() { network().clear_read_deadline(); }
    void clear_write_deadline() { network().clear_write_deadline(); }
    template <class T>
    void set_deadline(const T& t, std::error_code& ec) noexcept {
        network().set_deadline(t, ec);
        deadline_changed();
    }
    template <class T>
    void set_read_deadline(const T& t, std::error_code& ec) noexcept {
        network().set_read_deadline(t, ec);
        deadline_changed();
    }
    template <class T>
    void set_write_deadline(const T& t, std::error_code& ec) noexcept {
        network().set_write_deadline(t, ec);
        deadline_changed();
    }
    void clear_deadline(std::error_code& ec) noexcept { network().clear_deadline(ec); }
    void clear_read_deadline(std::error_code& ec) noexcept { network().clear_read_deadline(ec); }
    void clear_write_deadline(std::error_code& ec) noexcept { network().clear_write_deadline(ec); }

    net::address local_address() const { return network().local_address(); }
    net::address remote_address() const { return network().remote_address(); }

    /// The results of the handshake; empty before. "TLSv1.3", "TLS_AES_256_GCM_SHA384", "h2".
    std::string protocol_version() const;
    std::string cipher() const;
    std::string alpn() const;
    /// The peer's certificate as PEM; empty if the peer has shown none.
    std::string peer_certificate() const;

    /// OpenSSL's object. Not while another party uses the stream.
    ssl_st* native_handle() const noexcept;

private:
    friend class session;
    explicit stream(std::unique_ptr<session> s) noexcept;

    net::stream& network() const noexcept;
    void deadline_changed() const noexcept;
    void drop() noexcept;
    void do_handshake(const dunlin::context* ctx, std::error_code& ec, const where_type& w,
        detail::io_direction whose = detail::io_direction::read);
    std::size_t do_read(
        mutable_buffer b, bool all, const dunlin::context* ctx, std::error_code& ec, const where_type& w);
    std::size_t do_write(std::span<const const_buffer> parts, bool all, const dunlin::context* ctx, std::error_code& ec,
        const where_type& w);
    void handshake_with(const dunlin::context* ctx, const where_type& w,
        detail::io_direction whose = detail::io_direction::read);
    std::size_t read(mutable_buffer b, bool all, const dunlin::context* ctx, const where_type& w);
    std::size_t write(std::span<const const_buffer> parts, bool all, const dunlin::context* ctx, const where_type& w);
    [[noreturn]] void fail(const char* operation, std::error_code ec, std::size_t transferred = 0) const;

    std::unique_ptr<session> session_;
};

/// The client's or the server's side over an existing connection. handshake(), or the first read or write, makes the
/// handshake. `server_name` is the name that the server's certificate must have: a host name or an IP address. Throws
/// io_error.
DUNLIN_API stream client(net::stream connection, std::string_view server_name, const config& c = config::client());
DUNLIN_API stream client(net::stream connection, std::string_view server_name, const config& c, std::error_code& ec);
DUNLIN_API stream server(net::stream connection, const config& c);
DUNLIN_API stream server(net::stream connection, const config& c, std::error_code& ec);

/// Connects as net::dial() does, and makes the handshake; the timeout and the context limit both together.
/// Throws io_error: "tls handshake with example.org: certificate verify failed: self-signed certificate";
/// context_cancelled.
DUNLIN_API stream dial(std::string_view network, std::string_view address, const config& c = config::client());
DUNLIN_API stream dial(
    std::string_view network, std::string_view address, const config& c, std::chrono::nanoseconds timeout);
template <class Rep, class Period>
stream dial(std::string_view network, std::string_view address, const config& c,
    const std::chrono::duration<Rep, Period>& timeout) {
    return dial(network, address, c, dunlin::detail::to_nanoseconds(timeout));
}
DUNLIN_API stream dial(std::string_view network, std::string_view address, const config& c, const dunlin::context& ctx);
DUNLIN_API stream dial(std::string_view network, std::string_view address, const config& c, std::error_code& ec);
DUNLIN_API stream dial(std::string_view network, std::string_view address, const config& c,
    std::chrono::nanoseconds timeout, std::error_code& ec);
template <class Rep, class Period>
stream dial(std::string_view network, std::string_view address, const config& c,
    const std::chrono::duration<Rep, Period>& timeout, std::error_code& ec) {
    try {
        return dial(network, address, c, dunlin::detail::to_nanoseconds(timeout), ec);
    } catch (const std::invalid_argument&) {  // not a number
        ec = std::make_error_code(std::errc::invalid_argument);
        return {};
    }
}
DUNLIN_API stream dial(std::string_view network, std::string_view address, const config& c, const dunlin::context& ctx,
    std::error_code& ec);

/// Waits for connections; each becomes the server's side of a TLS connection.
class DUNLIN_API listener {
public:
    using where_type = std::source_location;
    listener() noexcept = default;
    listener(net::listener l, config c) : listener_(std::move(l)), config_(std::make_unique<config>(std::move(c))) {}

    /// The next connection. Its first read or write makes the handshake, so that a slow client delays no other one.
    /// Otherwise as net::listener::accept().
    stream accept(where_type w = where_type::current()) { return made(listener_.accept(w)); }
    stream accept(const dunlin::context& ctx, where_type w = where_type::current()) {
        return made(listener_.accept(ctx, w));
    }
    stream accept(std::error_code& ec, where_type w = where_type::current()) {
        return made(listener_.accept(ec, w), ec);
    }
    stream accept(const dunlin::context& ctx, std::error_code& ec, where_type w = where_type::current()) {
        return made(listener_.accept(ctx, ec, w), ec);
    }

    void close() noexcept { listener_.close(); }
    bool is_open() const noexcept { return listener_.is_open(); }
    net::address local_address() const { return listener_.local_address(); }
    template <class T>
    void set_deadline(const T& t) {
        listener_.set_deadline(t);
    }
    void clear_deadline() { listener_.clear_deadline(); }
    template <class T>
    void set_deadline(const T& t, std::error_code& ec) noexcept {
        listener_.set_deadline(t, ec);
    }
    void clear_deadline(std::error_code& ec) noexcept { listener_.clear_deadline(ec); }

private:
    stream made(net::stream s) const { return s ? server(std::move(s), *config_) : stream(); }
    stream made(net::stream s, std::error_code& ec) const {
        return s ? server(std::move(s), *config_, ec) : stream();
    }

    net::listener listener_;
    std::unique_ptr<config> config_;
};

/// Any context, but not `{}`, which means options.
struct context_for_listen {
    template <std::derived_from<dunlin::context> Context>
    context_for_listen(const Context& c) noexcept : is(c) {}
    const dunlin::context& is;
};

/// As net::listen(): a context ends the resolving. Throws io_error; context_cancelled.
DUNLIN_API listener listen(
    std::string_view network, std::string_view address, const config& c, const net::listen_options& options = {});
DUNLIN_API listener listen(std::string_view network, std::string_view address, const config& c,
    const net::listen_options& options, std::error_code& ec);
DUNLIN_API listener listen(std::string_view network, std::string_view address, const config& c,
    const dunlin::context& ctx, const net::listen_options& options);
DUNLIN_API listener listen(std::string_view network, std::string_view address, const config& c,
    const dunlin::context& ctx, const net::listen_options& options, std::error_code& ec);
inline listener listen(
    std::string_view network, std::string_view address, const config& c, context_for_listen ctx) {
    return listen(network, address, c, ctx.is, net::listen_options());
}
inline listener listen(std::string_view network, std::string_view address, const config& c, std::error_code& ec) {
    return listen(network, address, c, net::listen_options(), ec);
}
inline listener listen(std::string_view network, std::string_view address, const config& c, context_for_listen ctx,
    std::error_code& ec) {
    return listen(network, address, c, ctx.is, net::listen_options(), ec);
}

}  // namespace dunlin::tls

template <>
struct std::is_error_condition_enum<dunlin::tls::errc> : std::true_type {};
