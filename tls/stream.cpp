// stream.cpp - the public face: streams, dialling, listening.
#include <chrono>

#include <openssl/pem.h>

#include "error.h"
#include "session.h"

namespace dunlin::inline v0_1::tls {

stream::stream() noexcept = default;
stream::stream(std::unique_ptr<session> s) noexcept : session_(std::move(s)) {}
stream::stream(stream&&) noexcept = default;
stream::~stream() { drop(); }

// A session that was left is kept for the goroutines that stand in it.
void stream::drop() noexcept {
    close();
    if (session_ && session_->was_left()) static_cast<void>(session_.release());
}

stream& stream::operator=(stream&& other) noexcept {
    if (this != &other) {
        drop();
        session_ = std::move(other.session_);
    }
    return *this;
}

net::stream& stream::network() const noexcept {
    static net::stream closed;  // never opened: all its calls say so
    return session_ ? session_->network() : closed;
}

void stream::deadline_changed() const noexcept {
    if (session_) session_->deadline_changed();
}

ssl_st* stream::native_handle() const noexcept { return session_ ? session_->ssl() : nullptr; }

void stream::do_handshake(
    const dunlin::context* ctx, std::error_code& ec, const where_type& w, detail::io_direction whose) {
    ec = dunlin::errc::closed;
    if (session_) session_->handshake(ctx, whose, ec, w);
}

std::size_t stream::do_read(
    mutable_buffer b, bool all, const dunlin::context* ctx, std::error_code& ec, const where_type& w) {
    ec = dunlin::errc::closed;
    return session_ ? session_->read(b, all, ctx, ec, w) : 0;
}

std::size_t stream::do_write(std::span<const const_buffer> parts, bool all, const dunlin::context* ctx,
    std::error_code& ec, const where_type& w) {
    ec = dunlin::errc::closed;
    return session_ ? session_->write(parts, all, ctx, ec, w) : 0;
}

void stream::fail(const char* operation, std::error_code ec, std::size_t transferred) const {
    throw_tls_error(
        std::string("tls ") + operation + ' ' + (session_ ? session_->peer() : "a stream that was never opened"), ec,
        transferred);
}

void stream::handshake_with(const dunlin::context* ctx, const where_type& w, detail::io_direction whose) {
    std::error_code ec;
    do_handshake(ctx, ec, w, whose);
    if (ec) fail("handshake with", ec);
}

std::size_t stream::read(mutable_buffer b, bool all, const dunlin::context* ctx, const where_type& w) {
    handshake_with(ctx, w);
    std::error_code ec;
    const std::size_t n = do_read(b, all, ctx, ec, w);
    if (ec) fail("read from", ec, n);
    return n;
}

std::size_t stream::write(
    std::span<const const_buffer> parts, bool all, const dunlin::context* ctx, const where_type& w) {
    handshake_with(ctx, w, detail::io_direction::write);
    std::error_code ec;
    const std::size_t n = do_write(parts, all, ctx, ec, w);
    if (ec) fail("write to", ec, n);
    return n;
}

void stream::close_write(std::error_code& ec) {
    ec = dunlin::errc::closed;
    if (session_) session_->close_write(ec);
}

void stream::close_write() {
    std::error_code ec;
    close_write(ec);
    if (ec) fail("close_write to", ec);
}

void stream::close() noexcept {
    if (session_) session_->close();
}

// ---- what the handshake has agreed on -------------------------------------------------------------------------------

std::string stream::protocol_version() const {
    return session_ ? session_->agreed([](SSL* s) { return std::string(SSL_get_version(s)); }) : std::string();
}

std::string stream::cipher() const {
    return session_ ? session_->agreed([](SSL* s) { return std::string(SSL_get_cipher_name(s)); }) : std::string();
}

std::string stream::alpn() const {
    return session_ ? session_->agreed([](SSL* s) {
        const unsigned char* name = nullptr;
        unsigned size = 0;
        SSL_get0_alpn_selected(s, &name, &size);
        return size != 0 ? std::string(reinterpret_cast<const char*>(name), size) : std::string();
    })
                    : std::string();
}

std::string stream::peer_certificate() const {
    return session_ ? session_->agreed([](SSL* s) {
        const openssl_ptr<BIO, BIO_free> out(BIO_new(BIO_s_mem()));
        X509* certificate = SSL_get0_peer_certificate(s);
        if (!out || certificate == nullptr || PEM_write_bio_X509(out.get(), certificate) != 1) return std::string();
        char* data = nullptr;
        const long size = BIO_get_mem_data(out.get(), &data);
        return std::string(data, static_cast<std::size_t>(size));
    })
                    : std::string();
}

// ---- making them ----------------------------------------------------------------------------------------------------

stream client(net::stream connection, std::string_view server_name, const config& c) {
    return session::make(std::move(connection), side::client, server_name, c);
}

stream server(net::stream connection, const config& c) {
    return session::make(std::move(connection), side::server, {}, c);
}

stream client(net::stream connection, std::string_view server_name, const config& c, std::error_code& ec) {
    ec.clear();
    try {
        return client(std::move(connection), server_name, c);
    } catch (const io_error& e) {
        ec = e.code();
        return {};
    }
}

stream server(net::stream connection, const config& c, std::error_code& ec) {
    ec.clear();
    try {
        return server(std::move(connection), c);
    } catch (const io_error& e) {
        ec = e.code();
        return {};
    }
}

namespace {

// The host that a client dials: a path has none, and an empty host is this machine.
std::string host_of(std::string_view network, std::string_view address) {
    if (network == "unix") return {};
    std::string host = net::split_host_port(address).first;
    return host.empty() ? "localhost" : host;
}

stream over(net::stream connection, std::string_view network, std::string_view address, const config& c) {
    return client(std::move(connection), host_of(network, address), c);
}

stream over(
    net::stream connection, std::string_view network, std::string_view address, const config& c, std::error_code& ec) {
    if (ec) return {};
    try {
        return over(std::move(connection), network, address, c);
    } catch (const io_error& e) {
        ec = e.code();
        return {};
    }
}

clock::time_point limit_after(std::chrono::nanoseconds timeout) {
    return clock::time_point(clock::duration(detail::deadline_in(timeout)));
}

}  // namespace

stream dial(std::string_view network, std::string_view address, const config& c) {
    stream s = over(net::dial(network, address), network, address, c);
    s.handshake();
    return s;
}

stream dial(std::string_view network, std::string_view address, const config& c, std::chrono::nanoseconds timeout) {
    const auto end = limit_after(timeout);
    stream s = over(net::dial(network, address, timeout), network, address, c);
    s.set_deadline(end);
    s.handshake();
    s.clear_deadline();
    return s;
}

stream dial(std::string_view network, std::string_view address, const config& c, const dunlin::context& ctx) {
    stream s = over(net::dial(network, address, ctx), network, address, c);
    s.handshake(ctx);
    return s;
}

stream dial(std::string_view network, std::string_view address, const config& c, std::error_code& ec) {
    stream s = over(net::dial(network, address, ec), network, address, c, ec);
    if (!ec) s.handshake(ec);
    return ec ? stream() : std::move(s);
}

stream dial(std::string_view network, std::string_view address, const config& c, std::chrono::nanoseconds timeout,
    std::error_code& ec) {
    const auto end = limit_after(timeout);
    stream s = over(net::dial(network, address, timeout, ec), network, address, c, ec);
    if (!ec) s.set_deadline(end);
    if (!ec) s.handshake(ec);
    if (!ec) s.clear_deadline();
    return ec ? stream() : std::move(s);
}

stream dial(std::string_view network, std::string_view address, const config& c, const dunlin::context& ctx,
    std::error_code& ec) {
    stream s = over(net::dial(network, address, ctx, ec), network, address, c, ec);
    if (!ec) s.handshake(ctx, ec);
    return ec ? stream() : std::move(s);
}

listener listen(
    std::string_view network, std::string_view address, const config& c, const net::listen_options& options) {
    return listener(net::listen(network, address, options), c);
}

listener listen(std::string_view network, std::string_view address, const config& c, const net::listen_options& options,
    std::error_code& ec) {
    net::listener l = net::listen(network, address, options, ec);
    return ec ? listener() : listener(std::move(l), c);
}

listener listen(std::string_view network, std::string_view address, const config& c, const dunlin::context& ctx,
    const net::listen_options& options) {
    return listener(net::listen(network, address, ctx, options), c);
}

listener listen(std::string_view network, std::string_view address, const config& c, const dunlin::context& ctx,
    const net::listen_options& options, std::error_code& ec) {
    net::listener l = net::listen(network, address, ctx, options, ec);
    return ec ? listener() : listener(std::move(l), c);
}

}  // namespace dunlin::tls
