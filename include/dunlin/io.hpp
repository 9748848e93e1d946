// io.hpp - reading and writing in blocking style: what sockets, pipes and files have in common. A goroutine that waits
// here costs no thread.
#pragma once

#include <dunlin/config.hpp>

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ranges>
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
#include <dunlin/error.hpp>
#include <dunlin/select.hpp>

namespace dunlin::inline v0_1 {

/// Thrown by calls that read, write, open, connect and so on. what() names the operation, the object (after close()
/// too) and the cause, for example "read tcp 127.0.0.1:8080->127.0.0.1:40112: connection reset by peer"; code() is the
/// system's error, std::errc::timed_out after a deadline, or errc::closed. When the kernel gives up because the peer
/// does not answer, the code is errc::peer_silent ("connection timed out"), which is equivalent to std::errc::timed_out
/// too: `ec == std::errc::timed_out` holds for both, `ec == errc::peer_silent` only for a silent peer.
class DUNLIN_API io_error : public std::system_error {
public:
    io_error(std::error_code code, std::string text, std::size_t transferred = 0);
    ~io_error() override;
    const char* what() const noexcept override { return text_->c_str(); }
    /// Bytes that were read or written before the error.
    std::size_t transferred() const noexcept { return transferred_; }

private:
    std::shared_ptr<const std::string> text_;
    std::size_t transferred_;
};

namespace detail {

template <class T>
concept byte_like = std::same_as<std::remove_cv_t<T>, std::byte> || std::same_as<std::remove_cv_t<T>, char> ||
                    std::same_as<std::remove_cv_t<T>, unsigned char> ||
                        std::same_as<std::remove_cv_t<T>, signed char> ||
                    std::same_as<std::remove_cv_t<T>, char8_t>;

template <class R>
concept byte_range = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    byte_like<std::ranges::range_value_t<R>>;

template <class R>
concept writable_byte_range = byte_range<R> &&
    !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

// As for durations (clock.hpp): the compiler reports the mistake in one line.
#define DUNLIN_CONTEXT_IS_NO_DEADLINE \
    "dunlin: a deadline is a duration from now or a time; a context is given to the call that waits: " \
    "read_some(b, ctx)"
#define DUNLIN_IS_NO_BUFFER \
    "dunlin: a number is no buffer: give a string, a span or a container of bytes, or an address and a size"
#define DUNLIN_NEEDS_ARGUMENTS_OF_A_READ \
    "dunlin: what is read goes into bytes or chars that can be written to (a vector, array, string or span of them, or " \
    "an address and a size), before a context and an error_code; a time limit: set_read_deadline(duration) before it"
#define DUNLIN_NEEDS_ARGUMENTS_OF_A_WRITE \
    "dunlin: what is written is bytes or chars (a string, a vector, array or span of them, or an address and a size), " \
    "before a context and an error_code; a time limit: set_write_deadline(duration) before it"

}  // namespace detail

/// The memory to read into: a span of bytes or chars, a vector, array or string (its present size), or an address and a
/// size. A view: it owns nothing.
class mutable_buffer {
public:
    constexpr mutable_buffer() noexcept = default;
    constexpr mutable_buffer(void* data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <detail::writable_byte_range R>
        requires(!std::same_as<std::remove_cvref_t<R>, mutable_buffer>)
    constexpr mutable_buffer(R&& r) noexcept : data_(std::ranges::data(r)), size_(std::ranges::size(r)) {}
    template <detail::number N>
    constexpr mutable_buffer(N) noexcept {
        static_assert(!detail::number<N>, DUNLIN_IS_NO_BUFFER);
    }

    constexpr void* data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }

private:
    void* data_ = nullptr;
    std::size_t size_ = 0;
};

/// The bytes to write: a string or string_view, a span, vector or array of bytes or chars, or an address and a size. A
/// view: it owns nothing.
class const_buffer {
public:
    constexpr const_buffer() noexcept = default;
    constexpr const_buffer(const void* data, std::size_t size) noexcept : data_(data), size_(size) {}
    constexpr const_buffer(mutable_buffer b) noexcept : data_(b.data()), size_(b.size()) {}
    constexpr const_buffer(std::string_view s) noexcept : data_(s.data()), size_(s.size()) {}
    /// A literal, or any array of chars: up to its first zero, as std::string_view takes it, and never beyond its end.
    /// (For a buffer that was read into, give the number of bytes: (data, n).)
    template <std::size_t N>
    constexpr const_buffer(const char (&s)[N]) noexcept : data_(s),
        size_(std::string_view(s, N).substr(0, std::string_view(s, N).find('\0')).size()) {}
    template <class T>
        requires std::same_as<T, const char*> || std::same_as<T, char*>
    constexpr const_buffer(T s) noexcept : const_buffer(std::string_view(s)) {}
    constexpr const_buffer(const std::string& s) noexcept : const_buffer(std::string_view(s)) {}
    template <detail::byte_range R>
        requires(!std::convertible_to<R, std::string_view> && !std::same_as<std::remove_cvref_t<R>, const_buffer> &&
                 !std::same_as<std::remove_cvref_t<R>, mutable_buffer>)
    constexpr const_buffer(R&& r) noexcept : data_(std::ranges::data(r)), size_(std::ranges::size(r)) {}
    template <detail::number N>
    constexpr const_buffer(N) noexcept {
        static_assert(!detail::number<N>, DUNLIN_IS_NO_BUFFER);
    }

    constexpr const void* data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }

private:
    const void* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace dunlin

namespace dunlin::inline v0_1::netpoll {
class fd_record;  // src/poll/fd_record.h
}

namespace dunlin::inline v0_1::detail {

using io_descriptor = netpoll::fd_record;

// The limit of a call's wait: nothing, or a context.
struct io_limit {
    wait_limit limit;
    bool set = false;
    io_limit() noexcept = default;
    io_limit(const context& ctx) noexcept : limit{wait_limit::never, done_channel(ctx)}, set(limit.done != nullptr) {}
    const wait_limit* get() const noexcept { return set ? &limit : nullptr; }
};

// All of these set `ec` if something fails, and clear it if not. A null descriptor counts as closed. Counts are in
// bytes.
DUNLIN_API std::size_t io_read(io_descriptor* d, mutable_buffer b, const wait_limit* limit, std::error_code& ec,
    const std::source_location& where);
DUNLIN_API std::size_t io_read_exactly(io_descriptor* d, mutable_buffer b, const wait_limit* limit, std::error_code& ec,
    const std::source_location& where);
// Reads into memory that is held only while there may be something to read: if `memory` is null, an attempt allocates
// `size` bytes; they are freed before a wait. For sockets and pipes. Throws std::bad_alloc.
DUNLIN_API std::size_t io_read_lent(io_descriptor* d, std::unique_ptr<char[]>& memory, std::size_t size,
    const wait_limit* limit, std::error_code& ec,
    const std::source_location& where);
DUNLIN_API std::size_t io_write(io_descriptor* d, const_buffer b, bool all, const wait_limit* limit,
    std::error_code& ec, const std::source_location& where);
DUNLIN_API std::size_t io_writev(io_descriptor* d, std::span<const const_buffer> parts, const wait_limit* limit,
    std::error_code& ec,
    const std::source_location& where);
DUNLIN_API io_descriptor* io_adopt(int fd, std::error_code& ec) noexcept;
[[noreturn]] DUNLIN_API void throw_adopt_error(int fd, std::error_code ec);
DUNLIN_API bool io_close(io_descriptor* d) noexcept;  // false: it was closed already
DUNLIN_API void io_release(io_descriptor* d) noexcept;
DUNLIN_API bool io_is_open(const io_descriptor* d) noexcept;
DUNLIN_API int io_native_handle(const io_descriptor* d) noexcept;
enum class io_direction : unsigned char { read = 1, write = 2, both = 3 };
DUNLIN_API void io_set_deadline(io_descriptor* d, io_direction which, std::int64_t deadline_ns,
    std::error_code& ec) noexcept;
// The same for one direction, unless its deadline is earlier already.
DUNLIN_API void io_shorten_deadline(io_descriptor* d, io_direction which, std::int64_t deadline_ns,
    std::error_code& ec) noexcept;
// The deadline that is in force, as a moment of dunlin::clock; wait_limit::never if there is none.
DUNLIN_API std::int64_t io_deadline(const io_descriptor* d, io_direction which) noexcept;

// Throws io_error, or context_cancelled if a context ended the call. The message describes `d`.
[[noreturn]] DUNLIN_API void throw_io_error(const char* operation, io_descriptor* d, std::error_code ec,
    std::size_t transferred = 0);

}  // namespace dunlin::detail

namespace dunlin::inline v0_1 {

/// An open descriptor that goroutines (and threads) can wait for; the base of all classes that read and write. Movable;
/// default-constructed or moved from, it is closed.
///
/// close() may be called from anywhere at any time: calls under way then fail with errc::closed. The derived classes
/// state the rules for all other calls.
class DUNLIN_API io_handle {
public:
    io_handle() noexcept = default;
    io_handle(io_handle&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
    io_handle& operator=(io_handle&& other) noexcept {
        if (this != &other) {
            detail::io_release(descriptor_);
            descriptor_ = std::exchange(other.descriptor_, nullptr);
        }
        return *this;
    }
    /// Closes it.
    ~io_handle() { detail::io_release(descriptor_); }

    /// Wakes every call that waits on it (they fail with errc::closed), and closes the descriptor when the last such
    /// call has ended: its number and its port are free when close() returns. (For a file or terminal that cannot be
    /// polled they are free when the last call has returned.) A second close() does nothing.
    void close() noexcept { detail::io_close(descriptor_); }
    bool is_open() const noexcept { return detail::io_is_open(descriptor_); }
    explicit operator bool() const noexcept { return is_open(); }

    /// The descriptor's number, still owned by this object; -1 if it is closed. The descriptor is non-blocking
    /// (O_NONBLOCK).
    int native_handle() const noexcept { return detail::io_native_handle(descriptor_); }

    /// After this time reads (accepts) and writes (connects) fail with std::errc::timed_out, those under way included,
    /// even with data ready, until the deadline is changed or cleared. Takes a time point of dunlin::clock or any other
    /// clock, or a duration from now. A time of another clock is converted once, by comparing what both clocks show
    /// now. Throws io_error for files that cannot wait, std::invalid_argument for what is not a number.
    template <class T>
    void set_deadline(const T& t) {
        set(detail::io_direction::both, deadline_of(t));
    }
    template <class T>
    void set_read_deadline(const T& t) {
        set(detail::io_direction::read, deadline_of(t));
    }
    template <class T>
    void set_write_deadline(const T& t) {
        set(detail::io_direction::write, deadline_of(t));
    }
    template <std::derived_from<context> Context>
    void set_deadline(const Context&) {
        static_assert(detail::always_false<Context>, DUNLIN_CONTEXT_IS_NO_DEADLINE);
    }
    template <std::derived_from<context> Context>
    void set_read_deadline(const Context&) {
        static_assert(detail::always_false<Context>, DUNLIN_CONTEXT_IS_NO_DEADLINE);
    }
    template <std::derived_from<context> Context>
    void set_write_deadline(const Context&) {
        static_assert(detail::always_false<Context>, DUNLIN_CONTEXT_IS_NO_DEADLINE);
    }
    void clear_deadline() { set(detail::io_direction::both, detail::wait_limit::never); }
    void clear_read_deadline() { set(detail::io_direction::read, detail::wait_limit::never); }
    void clear_write_deadline() { set(detail::io_direction::write, detail::wait_limit::never); }
    template <class T>
    void set_deadline(const T& t, std::error_code& ec) noexcept {
        set(detail::io_direction::both, t, ec);
    }
    template <class T>
    void set_read_deadline(const T& t, std::error_code& ec) noexcept {
        set(detail::io_direction::read, t, ec);
    }
    template <class T>
    void set_write_deadline(const T& t, std::error_code& ec) noexcept {
        set(detail::io_direction::write, t, ec);
    }
    void clear_deadline(std::error_code& ec) noexcept {
        detail::io_set_deadline(descriptor_, detail::io_direction::both, detail::wait_limit::never, ec);
    }
    void clear_read_deadline(std::error_code& ec) noexcept {
        detail::io_set_deadline(descriptor_, detail::io_direction::read, detail::wait_limit::never, ec);
    }
    void clear_write_deadline(std::error_code& ec) noexcept {
        detail::io_set_deadline(descriptor_, detail::io_direction::write, detail::wait_limit::never, ec);
    }

protected:
    explicit io_handle(detail::io_descriptor* d) noexcept : descriptor_(d) {}
    friend struct io_access;

    detail::io_descriptor* descriptor_ = nullptr;

private:
    template <class Rep, class Period>
    static std::int64_t deadline_of(const std::chrono::duration<Rep, Period>& d) {
        return detail::deadline_in(d);
    }
    template <class Clock, class Duration>
    static std::int64_t deadline_of(const std::chrono::time_point<Clock, Duration>& t) {
        return detail::deadline_at(t);
    }
    template <detail::number N>
    static std::int64_t deadline_of(N) {
        static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return 0;
    }
    template <class T>
    void set(detail::io_direction which, const T& t, std::error_code& ec) noexcept {
        try {
            detail::io_set_deadline(descriptor_, which, deadline_of(t), ec);
        } catch (const std::invalid_argument&) {
            ec = std::make_error_code(std::errc::invalid_argument);
        }
    }
    void set(detail::io_direction which, std::int64_t deadline_ns) {
        std::error_code ec;
        detail::io_set_deadline(descriptor_, which, deadline_ns, ec);
        if (ec) detail::throw_io_error("set deadline of", descriptor_, ec);
    }
};

/// For the library's own files: the descriptor behind a handle.
struct io_access {
    static detail::io_descriptor* of(const io_handle& h) noexcept { return h.descriptor_; }
    static detail::io_descriptor* take(io_handle& h) noexcept { return std::exchange(h.descriptor_, nullptr); }
    template <std::derived_from<io_handle> Handle>
    static Handle make(detail::io_descriptor* d) noexcept {
        Handle h;
        static_cast<io_handle&>(h).descriptor_ = d;
        return h;
    }
};

/// Bytes that come in or go out one after another: a connection, an end of a pipe, a terminal, a file.
///
/// Blocks    The goroutine only; a thread that calls from outside the runtime blocks. On files that cannot be polled a
///           call may block its thread, and its processor goes to others meanwhile.
/// Threads   One reader and one writer at a time; a second reader (or writer) waits for its turn. close() and the
///           deadlines from anywhere.
/// Errors    Each call throws io_error, or context_cancelled; with a trailing std::error_code& it throws nothing but
///           std::bad_alloc, and returns what it had transferred before the error. SIGPIPE is never raised for sockets.
/// Order     Everything before a write happens before everything after the read of those bytes.
/// Cost      The system call, and about 40 ns; a wait 150 ns more.
class DUNLIN_API byte_stream : public io_handle {
public:
    using where_type = std::source_location;

    byte_stream() noexcept = default;

    /// Takes over any descriptor: one that can be polled is set to O_NONBLOCK (for every holder of the same open file),
    /// any other is read and written with blocking calls. The object closes it at its end. Throws io_error; then the
    /// caller still owns `fd`.
    static byte_stream adopt(int fd);
    static byte_stream adopt(int fd, std::error_code& ec) noexcept {
        return io_access::make<byte_stream>(detail::io_adopt(fd, ec));
    }

    /// Reads what is available, at least one byte; waits if there is nothing. Returns 0 at the end of the stream (and
    /// for an empty buffer).
    std::size_t read_some(mutable_buffer b, where_type w = where_type::current()) { return read(b, {}, w); }
    std::size_t read_some(void* data, std::size_t size, where_type w = where_type::current()) {
        return read({data, size}, {}, w);
    }
    std::size_t read_some(mutable_buffer b, const context& ctx, where_type w = where_type::current()) {
        return read(b, ctx, w);
    }
    std::size_t read_some(mutable_buffer b, std::error_code& ec, where_type w = where_type::current()) {
        return detail::io_read(descriptor_, b, nullptr, ec, w);
    }
    std::size_t read_some(void* data, std::size_t size, std::error_code& ec, where_type w = where_type::current()) {
        return detail::io_read(descriptor_, {data, size}, nullptr, ec, w);
    }
    std::size_t read_some(void* data, std::size_t size, const context& ctx, where_type w = where_type::current()) {
        return read({data, size}, ctx, w);
    }
    std::size_t read_some(void* data, std::size_t size, const context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return detail::io_read(descriptor_, {data, size}, detail::io_limit(ctx).get(), ec, w);
    }
    std::size_t read_some(mutable_buffer b, const context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return detail::io_read(descriptor_, b, detail::io_limit(ctx).get(), ec, w);
    }
    template <class Never = void>
    std::size_t read_some(detail::anything, detail::anything = {}, detail::anything = {}, detail::anything = {}) {
        static_assert(detail::always_false<Never>, DUNLIN_NEEDS_ARGUMENTS_OF_A_READ);
        return 0;
    }

    /// Fills the buffer. If the stream ends first, the error is errc::end_of_file; io_error::transferred(), or the
    /// return value, is the number of bytes read.
    std::size_t read_exactly(mutable_buffer b, where_type w = where_type::current()) { return exactly(b, {}, w); }
    std::size_t read_exactly(void* data, std::size_t size, where_type w = where_type::current()) {
        return exactly({data, size}, {}, w);
    }
    std::size_t read_exactly(mutable_buffer b, const context& ctx, where_type w = where_type::current()) {
        return exactly(b, ctx, w);
    }
    std::size_t read_exactly(mutable_buffer b, std::error_code& ec, where_type w = where_type::current()) {
        return detail::io_read_exactly(descriptor_, b, nullptr, ec, w);
    }
    std::size_t read_exactly(void* data, std::size_t size, std::error_code& ec, where_type w = where_type::current()) {
        return detail::io_read_exactly(descriptor_, {data, size}, nullptr, ec, w);
    }
    std::size_t read_exactly(void* data, std::size_t size, const context& ctx, where_type w = where_type::current()) {
        return exactly({data, size}, ctx, w);
    }
    std::size_t read_exactly(void* data, std::size_t size, const context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return detail::io_read_exactly(descriptor_, {data, size}, detail::io_limit(ctx).get(), ec, w);
    }
    std::size_t read_exactly(mutable_buffer b, const context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return detail::io_read_exactly(descriptor_, b, detail::io_limit(ctx).get(), ec, w);
    }
    template <class Never = void>
    std::size_t read_exactly(detail::anything, detail::anything = {}, detail::anything = {}, detail::anything = {}) {
        static_assert(detail::always_false<Never>, DUNLIN_NEEDS_ARGUMENTS_OF_A_READ);
        return 0;
    }

    /// Writes as much as there is room for, at least one byte; waits if there is no room.
    std::size_t write_some(const_buffer b, where_type w = where_type::current()) { return write(b, false, {}, w); }
    std::size_t write_some(const void* data, std::size_t size, where_type w = where_type::current()) {
        return write({data, size}, false, {}, w);
    }
    std::size_t write_some(const_buffer b, const context& ctx, where_type w = where_type::current()) {
        return write(b, false, ctx, w);
    }
    std::size_t write_some(const_buffer b, std::error_code& ec, where_type w = where_type::current()) {
        return detail::io_write(descriptor_, b, false, nullptr, ec, w);
    }
    std::size_t write_some(const void* data, std::size_t size, std::error_code& ec,
        where_type w = where_type::current()) {
        return detail::io_write(descriptor_, {data, size}, false, nullptr, ec, w);
    }
    std::size_t write_some(const void* data, std::size_t size, const context& ctx,
        where_type w = where_type::current()) {
        return write({data, size}, false, ctx, w);
    }
    std::size_t write_some(const void* data, std::size_t size, const context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return detail::io_write(descriptor_, {data, size}, false, detail::io_limit(ctx).get(), ec, w);
    }
    std::size_t write_some(const_buffer b, const context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return detail::io_write(descriptor_, b, false, detail::io_limit(ctx).get(), ec, w);
    }
    template <class Never = void>
    std::size_t write_some(detail::anything, detail::anything = {}, detail::anything = {}, detail::anything = {}) {
        static_assert(detail::always_false<Never>, DUNLIN_NEEDS_ARGUMENTS_OF_A_WRITE);
        return 0;
    }

    /// Writes all of it. The bytes of two concurrent writers are not mixed.
    std::size_t write_all(const_buffer b, where_type w = where_type::current()) { return write(b, true, {}, w); }
    std::size_t write_all(const void* data, std::size_t size, where_type w = where_type::current()) {
        return write({data, size}, true, {}, w);
    }
    std::size_t write_all(const_buffer b, const context& ctx, where_type w = where_type::current()) {
        return write(b, true, ctx, w);
    }
    std::size_t write_all(const_buffer b, std::error_code& ec, where_type w = where_type::current()) {
        return detail::io_write(descriptor_, b, true, nullptr, ec, w);
    }
    std::size_t write_all(const void* data, std::size_t size, std::error_code& ec,
        where_type w = where_type::current()) {
        return detail::io_write(descriptor_, {data, size}, true, nullptr, ec, w);
    }
    std::size_t write_all(const void* data, std::size_t size, const context& ctx,
        where_type w = where_type::current()) {
        return write({data, size}, true, ctx, w);
    }
    std::size_t write_all(const void* data, std::size_t size, const context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return detail::io_write(descriptor_, {data, size}, true, detail::io_limit(ctx).get(), ec, w);
    }
    std::size_t write_all(const_buffer b, const context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return detail::io_write(descriptor_, b, true, detail::io_limit(ctx).get(), ec, w);
    }
    template <class Never = void>
    std::size_t write_all(detail::anything, detail::anything = {}, detail::anything = {}, detail::anything = {}) {
        static_assert(detail::always_false<Never>, DUNLIN_NEEDS_ARGUMENTS_OF_A_WRITE);
        return 0;
    }

    /// Writes all parts, in order, with as few system calls as possible: write_all() of their concatenation. Returns
    /// the sum.
    std::size_t writev(std::span<const const_buffer> parts, where_type w = where_type::current()) {
        return vector(parts, {}, w);
    }
    std::size_t writev(std::initializer_list<const_buffer> parts, where_type w = where_type::current()) {
        return vector({parts.begin(), parts.size()}, {}, w);
    }
    std::size_t writev(std::span<const const_buffer> parts, const context& ctx, where_type w = where_type::current()) {
        return vector(parts, ctx, w);
    }
    std::size_t writev(std::initializer_list<const_buffer> parts, const context& ctx,
        where_type w = where_type::current()) {
        return vector({parts.begin(), parts.size()}, ctx, w);
    }
    std::size_t writev(std::span<const const_buffer> parts, const context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return detail::io_writev(descriptor_, parts, detail::io_limit(ctx).get(), ec, w);
    }
    std::size_t writev(std::span<const const_buffer> parts, std::error_code& ec, where_type w = where_type::current()) {
        return detail::io_writev(descriptor_, parts, nullptr, ec, w);
    }
    std::size_t writev(std::initializer_list<const_buffer> parts, std::error_code& ec,
        where_type w = where_type::current()) {
        return detail::io_writev(descriptor_, {parts.begin(), parts.size()}, nullptr, ec, w);
    }
    std::size_t writev(std::initializer_list<const_buffer> parts, const context& ctx, std::error_code& ec,
        where_type w = where_type::current()) {
        return detail::io_writev(descriptor_, {parts.begin(), parts.size()}, detail::io_limit(ctx).get(), ec, w);
    }

private:
    std::size_t read(mutable_buffer b, detail::io_limit limit, const where_type& w) {
        std::error_code ec;
        const std::size_t n = detail::io_read(descriptor_, b, limit.get(), ec, w);
        if (ec) detail::throw_io_error("read", descriptor_, ec);
        return n;
    }
    std::size_t exactly(mutable_buffer b, detail::io_limit limit, const where_type& w) {
        std::error_code ec;
        const std::size_t n = detail::io_read_exactly(descriptor_, b, limit.get(), ec, w);
        if (ec) detail::throw_io_error("read", descriptor_, ec, n);
        return n;
    }
    std::size_t write(const_buffer b, bool all, detail::io_limit limit, const where_type& w) {
        std::error_code ec;
        const std::size_t n = detail::io_write(descriptor_, b, all, limit.get(), ec, w);
        if (ec) detail::throw_io_error("write", descriptor_, ec, n);
        return n;
    }
    std::size_t vector(std::span<const const_buffer> parts, detail::io_limit limit, const where_type& w) {
        std::error_code ec;
        const std::size_t n = detail::io_writev(descriptor_, parts, limit.get(), ec, w);
        if (ec) detail::throw_io_error("write", descriptor_, ec, n);
        return n;
    }
};

inline byte_stream byte_stream::adopt(int fd) {
    std::error_code ec;
    byte_stream s = adopt(fd, ec);
    if (ec) detail::throw_adopt_error(fd, ec);
    return s;
}

/// A case of select(): `h` can be read (accepted from) without waiting, or is at its end, or closed. Another goroutine
/// may read first, so a read in the handler may still wait. Deadlines of `h` do not apply: use on_timeout(). `h` must
/// live until select() has returned.
template <class Handler = detail::no_handler>
    requires std::invocable<std::decay_t<Handler>&>
[[nodiscard]] auto on_readable(const io_handle& h, Handler&& handler = {},
    std::source_location where = std::source_location::current()) {
    return detail::plain_case<std::decay_t<Handler>>(detail::case_kind::readable, io_access::of(h),
        std::forward<Handler>(handler), where);
}

/// Deleted for a temporary, which would be closed before select() looks at it.
template <class Handler = detail::no_handler>
void on_readable(const io_handle&& h, Handler&& handler = {}, std::source_location where = {}) = delete;

/// A case of select(): `h` has room to write, or is broken, or closed. As on_readable().
template <class Handler = detail::no_handler>
    requires std::invocable<std::decay_t<Handler>&>
[[nodiscard]] auto on_writable(const io_handle& h, Handler&& handler = {},
    std::source_location where = std::source_location::current()) {
    return detail::plain_case<std::decay_t<Handler>>(detail::case_kind::writable, io_access::of(h),
        std::forward<Handler>(handler), where);
}

template <class Handler = detail::no_handler>
void on_writable(const io_handle&& h, Handler&& handler = {}, std::source_location where = {}) = delete;

}  // namespace dunlin
