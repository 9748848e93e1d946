// asio.hpp - dunlin's streams as Asio's SyncReadStream and SyncWriteStream, so that Boost.Beast and other libraries
// written for those run on goroutines unchanged. Optional: only programs that include it need Asio (Boost's, or the
// standalone one if there is no Boost or DUNLIN_STANDALONE_ASIO is defined).
#pragma once

#include <dunlin/config.hpp>

#if !defined(DUNLIN_STANDALONE_ASIO) && __has_include(<boost/asio/buffer.hpp>)
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/socket_base.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>
#define DUNLIN_DETAIL_BOOST_ASIO 1
#elif __has_include(<asio/buffer.hpp>)
#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/error_code.hpp>
#include <asio/io_context.hpp>
#include <asio/socket_base.hpp>
#include <asio/system_error.hpp>
#define DUNLIN_DETAIL_BOOST_ASIO 0
#else
#error "dunlin/asio.hpp needs Asio: Boost's (libboost-dev) or the standalone one (libasio-dev)"
#endif

#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include <dunlin/detail/atomic.hpp>
#include <dunlin/io.hpp>

#if DUNLIN_DETAIL_BOOST_ASIO
namespace boost::beast {
enum class role_type;  // Beast's, for teardown() below
}
#endif

namespace dunlin::inline v0_1 {

namespace detail {

#if DUNLIN_DETAIL_BOOST_ASIO
namespace asio_library = ::boost::asio;
using asio_error_code = ::boost::system::error_code;
using asio_system_error = ::boost::system::system_error;

// Wraps a std::error_category that Boost does not know (dunlin's own, that of TLS) as one of Boost's. There is one
// object for each category, never destroyed: codes point to it.
class asio_category final : public ::boost::system::error_category {
public:
    static const asio_category& of(const std::error_category& wanted) {
        // Acquire pairs with the release in of(), below: what is found in the list has been constructed. Nothing is
        // ever taken out of it.
        const asio_category* first = list().load(std::memory_order_acquire);
        for (const asio_category* c = first; c != nullptr; c = c->next_) {
            if (c->standard_ == wanted) return *c;
        }
        auto* made = new asio_category(wanted);
        made->next_ = first;
        // Codes are equal only if their categories are one object: the second thread takes the object of the first.
        if (list().compare_exchange_strong(first, made, std::memory_order_acq_rel)) return *made;
        delete made;
        return of(wanted);
    }

    const char* name() const noexcept override { return standard_.name(); }
    std::string message(int code) const override { return standard_.message(code); }
    ::boost::system::error_condition default_error_condition(int code) const noexcept override {
        const std::error_condition c = standard_.default_error_condition(code);
        if (c.category() == std::generic_category()) return {c.value(), ::boost::system::generic_category()};
        return {code, *this};
    }

private:
    explicit asio_category(const std::error_category& c) noexcept : standard_(c) {}
    ~asio_category() = default;
    static platform::atomic<const asio_category*>& list() noexcept {
        static platform::atomic<const asio_category*> first{nullptr};
        return first;
    }

    const std::error_category& standard_;
    const asio_category* next_ = nullptr;
};

inline asio_error_code foreign_error(const std::error_code& ec) {
    return {ec.value(), asio_category::of(ec.category())};
}
inline const auto& asio_system_category() noexcept { return ::boost::system::system_category(); }
#else
namespace asio_library = ::asio;
using asio_error_code = ::asio::error_code;
using asio_system_error = ::asio::system_error;

inline asio_error_code foreign_error(const std::error_code& ec) { return ec; }
inline const auto& asio_system_category() noexcept { return std::system_category(); }
#endif

// Asio's code for the same failure: comparisons such as `ec == asio::error::connection_reset` hold, and those with the
// conditions of boost::system::errc too.
inline asio_error_code to_asio(const std::error_code& ec) {
    if (!ec) return {};
    if (ec.category() == std::generic_category() || ec.category() == std::system_category()) {
        return {ec.value(), asio_system_category()};
    }
    if (ec == errc::closed || ec == errc::cancelled) return asio_library::error::operation_aborted;
    if (ec == errc::deadline_exceeded || ec == errc::peer_silent) return asio_library::error::timed_out;
    if (ec == errc::end_of_file) return asio_library::error::eof;
    return foreign_error(ec);
}

// Asio wants an executor of everything that its timers may belong to. This context is never run, and no thread belongs
// to it. Never destroyed: streams that static objects hold refer to it.
inline asio_library::io_context& asio_idle_context() {
    static auto& c = *new asio_library::io_context(1);
    return c;
}

template <class S>
concept asio_wrappable = requires(S& s, mutable_buffer in, const_buffer out, std::error_code& ec) {
    { s.read_some(in, ec) } -> std::convertible_to<std::size_t>;
    { s.write_some(out, ec) } -> std::convertible_to<std::size_t>;
    s.close();
};

template <class S>
concept writes_many = requires(S& s, std::span<const const_buffer> parts, std::error_code& ec) {
    { s.writev(parts, ec) } -> std::convertible_to<std::size_t>;
};

}  // namespace detail

/// Wraps a stream of dunlin (net::stream, tls::stream, byte_stream) as Asio's SyncReadStream and SyncWriteStream:
/// `asio_stream<net::stream>` owns the stream, `asio_stream<net::stream&>` refers to one; `asio_stream s(connection)`
/// and `asio_stream s(net::dial(...))` choose between the two by themselves.
///
/// For the synchronous calls of Asio and of libraries written for it: asio::read, write, read_until; Boost.Beast's
/// http::read, write, websocket::stream. They may be used in goroutines as in threads. There are no asynchronous
/// operations.
///
/// Blocks    As the stream's own calls: the goroutine, not its thread.
/// Threads   As the stream.
/// Errors    Calls with a trailing error_code& set it, and those without throw system_error (both Asio's). End of file
///           gives asio::error::eof, a deadline of the stream asio::error::timed_out, close()
///           asio::error::operation_aborted. Errors of the system have Asio's system category, so that they compare
///           equal to asio::error::connection_reset and so on.
/// Cost      Nothing beyond the stream's own. Several buffers are written by one system call.
template <class Stream>
class asio_stream {
    static_assert(!std::is_rvalue_reference_v<Stream> && !std::is_const_v<std::remove_reference_t<Stream>>);
    static_assert(detail::asio_wrappable<std::remove_reference_t<Stream>>,
        "asio_stream wraps a dunlin::byte_stream or something with the same members");

public:
    using stream_type = std::remove_reference_t<Stream>;
    using error_code = detail::asio_error_code;
    using executor_type = detail::asio_library::io_context::executor_type;
    using next_layer_type = stream_type;
    using lowest_layer_type = asio_stream;

    asio_stream() requires(!std::is_reference_v<Stream>) = default;
    /// Takes over, or refers to, a stream.
    explicit asio_stream(Stream&& s) noexcept : stream_(std::forward<Stream>(s)) {}

    /// The stream itself, for its deadlines and addresses.
    stream_type& stream() noexcept { return stream_; }
    const stream_type& stream() const noexcept { return stream_; }

    /// The same, under the name that walks through layers: `beast::get_lowest_layer(ws).set_deadline(5s)`.
    next_layer_type& next_layer() noexcept { return stream_; }
    const next_layer_type& next_layer() const noexcept { return stream_; }
    /// The lowest layer that has Asio's interface: this one.
    lowest_layer_type& lowest_layer() noexcept { return *this; }
    const lowest_layer_type& lowest_layer() const noexcept { return *this; }
    /// The executor of a context that is never run: some libraries want one although they only wait synchronously.
    executor_type get_executor() const noexcept { return detail::asio_idle_context().get_executor(); }

    void close() { stream_.close(); }
    void close(error_code& ec) {
        ec = {};
        stream_.close();
    }
    bool is_open() const noexcept { return stream_.is_open(); }

    /// As a socket's: asio::socket_base::shutdown_send and so on, for streams that support it (TLS: send only, the
    /// close_notify).
    void shutdown(detail::asio_library::socket_base::shutdown_type what, error_code& ec)
        requires requires(stream_type& s, std::error_code& e) { s.close_write(e); }
    {
        std::error_code failed;
        if constexpr (requires { stream_.close_read(failed); }) {
            if (what != detail::asio_library::socket_base::shutdown_send) stream_.close_read(failed);
        } else if (what != detail::asio_library::socket_base::shutdown_send) {
            failed = std::make_error_code(std::errc::operation_not_supported);
        }
        if (!failed && what != detail::asio_library::socket_base::shutdown_receive) stream_.close_write(failed);
        ec = detail::to_asio(failed);
    }
    void shutdown(detail::asio_library::socket_base::shutdown_type what)
        requires requires(stream_type& s, std::error_code& e) { s.close_write(e); }
    {
        error_code ec;
        shutdown(what, ec);
        if (ec) throw detail::asio_system_error(ec, "shutdown");
    }

    /// Reads what is there, at least one byte, into the first of the buffers that has room. At the end of the stream:
    /// asio::error::eof.
    template <class MutableBuffers>
    std::size_t read_some(const MutableBuffers& buffers, error_code& ec) {
        ec = {};
        const auto end = detail::asio_library::buffer_sequence_end(buffers);
        for (auto i = detail::asio_library::buffer_sequence_begin(buffers); i != end; ++i) {
            const detail::asio_library::mutable_buffer b(*i);
            if (b.size() != 0) return read_into({b.data(), b.size()}, ec);
        }
        return 0;
    }
    template <class MutableBuffers>
    std::size_t read_some(const MutableBuffers& buffers) {
        error_code ec;
        const std::size_t n = read_some(buffers, ec);
        if (ec) throw detail::asio_system_error(ec, "read_some");
        return n;
    }

    /// Writes at least one byte of the buffers. Several buffers are written in full, but no more than 64 of them.
    template <class ConstBuffers>
    std::size_t write_some(const ConstBuffers& buffers, error_code& ec) {
        std::array<const_buffer, most_parts> parts;
        std::size_t count = 0;
        const auto end = detail::asio_library::buffer_sequence_end(buffers);
        for (auto i = detail::asio_library::buffer_sequence_begin(buffers); i != end && count < most_parts; ++i) {
            const detail::asio_library::const_buffer b(*i);
            if (b.size() != 0) parts[count++] = const_buffer(b.data(), b.size());
        }
        std::error_code failed;
        const std::size_t n = count == 0 ? 0 : write_parts({parts.data(), count}, failed);
        // What was written before an error counts; the error comes again with the next call.
        ec = n != 0 ? error_code() : detail::to_asio(failed);
        return n;
    }
    template <class ConstBuffers>
    std::size_t write_some(const ConstBuffers& buffers) {
        error_code ec;
        const std::size_t n = write_some(buffers, ec);
        if (ec) throw detail::asio_system_error(ec, "write_some");
        return n;
    }

private:
    static constexpr std::size_t most_parts = 64;

    std::size_t read_into(mutable_buffer b, error_code& ec) {
        std::error_code failed;
        const std::size_t n = stream_.read_some(b, failed);
        if (failed) {
            ec = detail::to_asio(failed);
        } else if (n == 0) {
            ec = detail::asio_library::error::eof;
        }
        return n;
    }

    std::size_t write_parts(std::span<const const_buffer> parts, std::error_code& ec) {
        if constexpr (detail::writes_many<stream_type>) {
            if (parts.size() > 1) return stream_.writev(parts, ec);
        }
        return stream_.write_some(parts.front(), ec);
    }

    Stream stream_;
};

template <class Stream>
asio_stream(Stream&&) -> asio_stream<Stream>;

#if DUNLIN_DETAIL_BOOST_ASIO
/// Ends a WebSocket connection; Beast finds and calls it. Nothing more is written, what still comes is read and
/// dropped, and the stream is closed. A peer that never closes its side is waited for until the stream's deadline.
template <class Stream>
void teardown(::boost::beast::role_type, asio_stream<Stream>& s, detail::asio_error_code& ec) {
    std::error_code ignored, failed;
    if constexpr (requires { s.stream().close_write(ignored); }) s.stream().close_write(ignored);
    std::array<char, 2048> rest;
    while (s.stream().read_some(mutable_buffer(rest), failed) != 0) {
    }
    s.close();
    ec = detail::to_asio(failed);
}

/// Beast's name for close(): for this layer, and for the one below, which Beast finds through next_layer().
template <class Stream>
void beast_close_socket(asio_stream<Stream>& s) {
    s.close();
}
inline void beast_close_socket(io_handle& h) { h.close(); }
namespace tls {
template <class Stream>
    requires requires(Stream& s) { s.peer_certificate(); }
void beast_close_socket(Stream& s) {
    s.close();
}
}  // namespace tls
#endif

}  // namespace dunlin
