// chan.hpp - channels: values handed from senders to receivers.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <source_location>
#include <type_traits>
#include <utility>
#include <variant>

#include <dunlin/detail/chan_core.hpp>
#include <dunlin/error.hpp>

namespace dunlin::inline v0_1 {

namespace detail {
struct received_access;
}

template <class T>
class chan;
#define DUNLIN_IS_NO_ELEMENT "a channel's elements are objects: use a pointer, or std::reference_wrapper"
template <class T>
class sender;
template <class T>
class receiver;

/// What a timed receive returns: a std::optional that knows why it is empty.
template <class T>
class received : public std::optional<T> {
public:
    received(channel_status why) noexcept : status_(why) {}
    received(std::optional<T>&& value, channel_status why) noexcept(std::is_nothrow_move_constructible_v<T>)
        : std::optional<T>(std::move(value)), status_(why) {}
    /// Made in place from `value`, with status ok.
    template <class U>
    received(std::in_place_t, U&& value)
        : std::optional<T>(std::in_place, std::forward<U>(value)), status_(channel_status::ok) {}

    /// ok; would_block: the time ran out; closed: closed and drained.
    channel_status status() const noexcept { return status_; }

private:
    friend detail::received_access;
    channel_status status_;
};

namespace detail {

// For code that constructs the value in place.
struct received_access {
    template <class T>
    static channel_status& status(received<T>& r) noexcept {
        return r.status_;
    }
};

}  // namespace detail

/// What a timed send returns: true if the value was sent. It can be compared with channel_status::ok and would_block
/// (the time ran out).
class sent {
public:
    constexpr sent(channel_status s) noexcept : status_(s) {}
    constexpr operator bool() const noexcept { return status_ == channel_status::ok; }
    constexpr channel_status status() const noexcept { return status_; }
    friend constexpr bool operator==(sent a, channel_status b) noexcept { return a.status_ == b; }

private:
    channel_status status_;
};

namespace detail {

template <class T>
constexpr void check_element() {
    static_assert(std::is_nothrow_move_constructible_v<T> || std::is_copy_constructible_v<T>,
        "a channel's elements must be movable without exceptions, or copyable (what may throw when it is moved is copied): "
        "wrap it in a std::unique_ptr");
    static_assert(std::is_nothrow_destructible_v<T>, "a channel's elements must be destroyed without exceptions");
    static_assert(alignof(T) <= 64, "a channel's elements may be aligned to 64 bytes at most");
}

template <class Value, class T>
inline constexpr bool can_be_sent = std::is_convertible_v<Value, T>;
#define DUNLIN_CANNOT_BE_SENT \
    "dunlin: the value cannot become one of the channel's type (what cannot be copied: std::move)"

template <class T>
std::optional<T> take(element_slot<element_of<T>>& slot, chan_core* c) noexcept(!needs_box<T>) {
    return take_as<T>(slot, c, [](auto&& value) {
        return std::optional<T>(std::in_place, std::forward<decltype(value)>(value));
    });
}

// For a channel of the library's own.
template <class T>
    requires(!needs_box<T>)
std::optional<T> take(element_slot<T>& slot) noexcept {
    return take<T>(slot, nullptr);
}

// The operations of chan<T> and sender<T>.
template <class Self, class T>
class send_operations {
    static constexpr bool plain = !needs_box<T>;

public:
    /// Sends `value`; waits until a receiver takes it or the buffer has room for it.
    ///
    /// value     Moved from if it was sent, and only then: after an exception it is unchanged. It is moved under the
    ///           channel's lock: a move constructor must not wait, nor compute for long.
    /// Blocks    The goroutine, never its thread; on a plain thread, that thread. Nil channel: for ever.
    /// Order     Waiting senders are served first come, first served. The send happens before the return of the receive
    ///           that gets the value; with a capacity of C, the k-th receive happens before the return of send number k
    ///           + C.
    /// Throws    channel_closed if the channel is closed already, or is closed while the send waits.
    /// Cost      One lock, no allocation. Figures: docs/benchmarks.md, ping-pong and buffered.
    /// Source    Go specification, "Send statements". Go panics where this throws.
    void send(T&& value, std::source_location where = std::source_location::current()) const {
        outgoing<T> element(value);
        if (channel_send(core(), element.slot(), nullptr, where) != wait_outcome::ok) throw_send_on_closed();
    }
    void send(const T& value, std::source_location where = std::source_location::current()) const
        requires std::is_copy_constructible_v<T>
    {
        T copy(value);
        send(std::move(copy), where);
    }
    template <class Value>
        requires(!can_be_sent<Value, T>)
    void send(Value&&) const {
        static_assert(can_be_sent<Value, T>, DUNLIN_CANNOT_BE_SENT);
    }
    template <class Value, class Rep, class Period>
    void send(Value&&, const std::chrono::duration<Rep, Period>&) const {
        static_assert(always_false<Rep>, "dunlin: send(value, ctx), or send_for(value, duration)");
    }
    template <class Value, number N>
    void send(Value&&, N) const {
        static_assert(has_a_unit<N>, "dunlin: send(value, ctx), or send_for(value, duration)");
    }

    /// The same until `ctx` is done. Throws context_cancelled then, and the value is unchanged. What can be sent at
    /// once is sent even then (dunlin/context.hpp).
    void send(T&& value, const context& ctx, std::source_location where = std::source_location::current()) const {
        const wait_limit limit{wait_limit::never, done_channel(ctx)};
        outgoing<T> element(value);
        const wait_outcome outcome = channel_send(core(), element.slot(), &limit, where);
        if (outcome == wait_outcome::cancelled) throw_cancelled(ctx, "chan send");
        if (outcome != wait_outcome::ok) throw_send_on_closed();
    }
    void send(const T& value, const context& ctx, std::source_location where = std::source_location::current()) const
        requires std::is_copy_constructible_v<T>
    {
        T copy(value);
        send(std::move(copy), ctx, where);
    }

    /// The same for `d` at most. True if it was sent; if not, the value is unchanged. Throws channel_closed;
    /// std::bad_alloc.
    template <class Rep, class Period>
    sent send_for(T&& value, const std::chrono::duration<Rep, Period>& d,
        std::source_location where = std::source_location::current()) const {
        return sent_as(send_with_deadline(value, deadline_in(d), where));
    }
    template <class Rep, class Period>
    sent send_for(const T& value, const std::chrono::duration<Rep, Period>& d,
        std::source_location where = std::source_location::current()) const
        requires std::is_copy_constructible_v<T>
    {
        T copy(value);
        return sent_as(send_with_deadline(copy, deadline_in(d), where));
    }
    template <class Value, number N>
    sent send_for(Value&&, N) const {
        static_assert(has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return channel_status::would_block;
    }
    /// The same until `t`.
    template <class Clock, class Duration>
    sent send_until(T&& value, const std::chrono::time_point<Clock, Duration>& t,
        std::source_location where = std::source_location::current()) const {
        return send_on_clock(value, t, where);
    }
    template <class Clock, class Duration>
    sent send_until(const T& value, const std::chrono::time_point<Clock, Duration>& t,
        std::source_location where = std::source_location::current()) const
        requires std::is_copy_constructible_v<T>
    {
        T copy(value);
        return send_on_clock(copy, t, where);
    }

    /// Sends if that is possible at once: ok, would_block, or, after close(), closed. `value` is moved from if the
    /// result is ok, and only then. Nil channel: would_block.
    channel_status try_send(T&& value) const noexcept(plain) {
        outgoing<T> element(value);
        return channel_try_send(core(), element.slot());
    }
    channel_status try_send(const T& value) const
        requires std::is_copy_constructible_v<T>
    {
        T copy(value);
        return try_send(std::move(copy));
    }

    /// No more values: receivers get what is left in the buffer, and then nullopt; waiting receivers get nullopt at
    /// once. Waiting senders get channel_closed.
    /// Throws    channel_closed if the channel is closed already, or nil.
    /// Order     The close happens before the return of a receive that returns nullopt because of it.
    void close() const { channel_close(core()); }

private:
    chan_core* core() const noexcept { return static_cast<const Self*>(this)->handle_.core(); }

    // True if it was sent.
    bool send_with_deadline(T& value, std::int64_t deadline_ns, const std::source_location& where) const {
        const wait_limit limit{deadline_ns, nullptr};
        outgoing<T> element(value);
        const wait_outcome outcome = channel_send(core(), element.slot(), &limit, where);
        if (outcome == wait_outcome::closed) throw_send_on_closed();
        return outcome == wait_outcome::ok;
    }
    template <class Clock, class Duration>
    sent send_on_clock(T& value, const std::chrono::time_point<Clock, Duration>& t,
        const std::source_location& where) const {
        return sent_as(wait_on_clock(t, [&](std::int64_t ns) { return send_with_deadline(value, ns, where); }));
    }
    static sent sent_as(bool ok) noexcept { return ok ? channel_status::ok : channel_status::would_block; }
};

// The iterator of `for (T v : c)`: receives until the channel is closed and drained.
template <class Source, class T>
class receive_iterator {
public:
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = T*;
    using reference = T&&;

    receive_iterator() = default;
    receive_iterator(Source* source, std::source_location where)
        : source_(source), where_(where), at_end_(false) {}

    /// Gives the value away: `for (std::unique_ptr<X> p : c)` works. The value has left the channel by then: if
    /// initialising the loop's variable throws, the value is lost. Where that matters, use `for (T&& v : c)`, which
    /// initialises nothing.
    T&& operator*() const {
        if (!value_) [[unlikely]] {
            receive();
        }
        return std::move(*value_);
    }
    receive_iterator& operator++() {
        if (!value_) [[unlikely]] {
            receive();
        }
        value_.reset();
        return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const receive_iterator& i, std::default_sentinel_t) {
        if (!i.value_) i.receive();
        return !i.value_;
    }

private:
    // When the value is asked for, not when the one before it is left: so `c | std::views::take(3)` receives three.
    void receive() const {
        if (at_end_) return;
        source_->receive_into(value_, where_);
        at_end_ = !value_;
    }

    Source* source_ = nullptr;
    std::source_location where_;
    mutable bool at_end_ = true;  // without a source
    mutable std::optional<T> value_;
};

// The range of `for (T v : c.until(ctx))`. Source: a handle, or the address of a receiver that is not to be copied.
// Context is a parameter because context.hpp includes this file.
template <class Source, class T, class Context = context>
class receive_until {
public:
    receive_until(Source source, const Context& ctx) : source_(std::move(source)), ctx_(ctx) {}

    receive_iterator<receive_until, T> begin(std::source_location where = std::source_location::current()) {
        return {this, where};
    }
    std::default_sentinel_t end() const noexcept { return {}; }

private:
    template <class, class>
    friend class receive_iterator;
    void receive_into(std::optional<T>& to, const std::source_location& where) {
        if constexpr (std::is_pointer_v<Source>) {
            source_->receive_into(to, ctx_, where);
        } else {
            source_.receive_into(to, ctx_, where);
        }
    }

    Source source_;
    Context ctx_;
};

// The operations of chan<T> and receiver<T>.
template <class Self, class T>
class receive_operations {
    static constexpr bool plain = !needs_box<T>;
    using slot_type = element_slot<element_of<T>>;

public:
    /// Receives a value; waits until there is one. Returns nullopt exactly when the channel is closed and drained.
    ///
    /// Blocks    The goroutine, never its thread; on a plain thread, that thread. Nil channel: for ever.
    /// Order     As for send().
    /// Cost      As for send().
    std::optional<T> recv(std::source_location where = std::source_location::current()) const {
        slot_type slot;
        if (channel_receive(core(), std::addressof(slot.value), nullptr, where) != wait_outcome::ok) {
            return std::nullopt;
        }
        return take<T>(slot, core());
    }

    /// The same until `ctx` is done: throws context_cancelled then, and no value was lost. A value that is there is
    /// received even then (dunlin/context.hpp).
    std::optional<T> recv(const context& ctx, std::source_location where = std::source_location::current()) const {
        slot_type slot;
        const wait_limit limit{wait_limit::never, done_channel(ctx)};
        const wait_outcome outcome = channel_receive(core(), std::addressof(slot.value), &limit, where);
        if (outcome == wait_outcome::cancelled) throw_cancelled(ctx, "chan receive");
        if (outcome != wait_outcome::ok) return std::nullopt;
        return take<T>(slot, core());
    }

    /// The same for `d` at most; if the result is empty, its status() says whether the time ran out or the channel is
    /// closed and drained. Throws std::bad_alloc.
    template <class Rep, class Period>
    received<T> recv_for(const std::chrono::duration<Rep, Period>& d,
        std::source_location where = std::source_location::current()) const {
        slot_type slot;
        return received_as(slot, receive_with_deadline(slot, deadline_in(d), where));
    }
    template <number N>
    received<T> recv_for(N) const {
        static_assert(has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
        return recv_for(clock::duration(0));
    }
    /// The same until `t`.
    template <class Clock, class Duration>
    received<T> recv_until(const std::chrono::time_point<Clock, Duration>& t,
        std::source_location where = std::source_location::current()) const {
        slot_type slot;
        channel_status status;
        wait_on_clock(t, [&](std::int64_t ns) {
            status = receive_with_deadline(slot, ns, where);
            return status != channel_status::would_block;
        });
        return received_as(slot, status);
    }

    template <class Rep, class Period>
    std::optional<T> recv(const std::chrono::duration<Rep, Period>&) const {
        static_assert(always_false<Rep>, "dunlin: recv(ctx), or recv_for(duration)");
        return std::nullopt;
    }
    template <number N>
    std::optional<T> recv(N) const {
        static_assert(has_a_unit<N>, "dunlin: recv(ctx), or recv_for(duration)");
        return std::nullopt;
    }
    /// Receives if that is possible at once: `value` is assigned if the result is ok, and only then. Nil channel:
    /// would_block. An assignment that may throw could lose the value, which has left the channel by then. So where T's
    /// move assignment is not noexcept, `value` is destroyed and constructed anew from what was received, which cannot
    /// throw: in that case it must be a complete object, not the base of another one. A T whose move constructor may
    /// throw is assigned as a copy; if that throws, the value is still in the channel.
    channel_status try_recv(T& value) const noexcept(plain)
        requires(std::is_move_assignable_v<T> && (!needs_box<T> || std::is_copy_assignable_v<T>))
    {
        slot_type slot;
        const channel_status status = channel_try_receive(core(), std::addressof(slot.value));
        if (status != channel_status::ok) return status;
        take_as<T>(slot, core(), [&value](auto&& from) {
            if constexpr (!plain || std::is_nothrow_move_assignable_v<T>) {
                value = std::forward<decltype(from)>(from);
            } else {
                std::destroy_at(std::addressof(value));
                std::construct_at(std::addressof(value), std::move(from));
            }
        });
        return status;
    }
    /// The same for types that cannot be assigned.
    received<T> try_recv() const noexcept(plain) {
        slot_type slot;
        return received_as(slot, channel_try_receive(core(), std::addressof(slot.value)));
    }

    /// Iterates over the values received, until the channel is closed and drained.
    receive_iterator<const Self, T> begin(std::source_location where = std::source_location::current()) const {
        return {static_cast<const Self*>(this), where};
    }
    std::default_sentinel_t end() const noexcept { return {}; }
    /// The same until `ctx` is done, if that comes first: `for (T v : c.until(ctx))`. A value that is there is received
    /// even then, so if there is always a value, ask `ctx.is_done()` in the loop's body. Nothing is thrown at the end;
    /// which of the two it was, closed() and `ctx.is_done()` say.
    receive_until<Self, T> until(const context& ctx) const { return {static_cast<const Self&>(*this), ctx}; }

private:
    template <class, class>
    friend class receive_iterator;
    template <class, class, class>
    friend class receive_until;
    template <class, class>
    friend class following;
    chan_core* core() const noexcept { return static_cast<const Self*>(this)->handle_.core(); }

    void receive_into(std::optional<T>& to, const std::source_location& where) const {
        slot_type slot;
        if (channel_receive(core(), std::addressof(slot.value), nullptr, where) != wait_outcome::ok) return;
        take_as<T>(slot, core(), [&to](auto&& value) { to.emplace(std::forward<decltype(value)>(value)); });
    }
    wait_outcome receive_into(std::optional<T>& to, const context& ctx, const std::source_location& where) const {
        slot_type slot;
        const wait_limit limit{wait_limit::never, done_channel(ctx)};
        const wait_outcome outcome = channel_receive(core(), std::addressof(slot.value), &limit, where);
        if (outcome == wait_outcome::ok) {
            take_as<T>(slot, core(), [&to](auto&& value) { to.emplace(std::forward<decltype(value)>(value)); });
        }
        return outcome;
    }
    channel_status receive_with_deadline(slot_type& slot, std::int64_t deadline_ns,
                                         const std::source_location& where) const {
        const wait_limit limit{deadline_ns, nullptr};
        const wait_outcome outcome = channel_receive(core(), std::addressof(slot.value), &limit, where);
        if (outcome == wait_outcome::ok) return channel_status::ok;
        return outcome == wait_outcome::closed ? channel_status::closed : channel_status::would_block;
    }
    // `slot` holds an element exactly when the status is ok.
    received<T> received_as(slot_type& slot, channel_status status) const noexcept(plain) {
        if (status != channel_status::ok) return status;
        return take_as<T>(slot, core(), [](auto&& value) {
            return received<T>(std::in_place, std::forward<decltype(value)>(value));
        });
    }
};

// The operations of every handle.
template <class Self>
class handle_operations {
public:
    /// How many values are in the buffer now; 0 for an unbuffered, a nil and a timer's channel.
    std::size_t len() const noexcept { return channel_length(core()); }
    std::size_t cap() const noexcept { return channel_capacity(core()); }
    /// Whether close() has been called. Values may be left in the buffer.
    bool closed() const noexcept { return channel_is_closed(core()); }
    bool is_nil() const noexcept { return core() == nullptr; }
    explicit operator bool() const& noexcept { return core() != nullptr; }
    // `if (ctx.done())` would be true all the time.
    [[deprecated("dunlin: a context's channel is there all the time: ask ctx.is_done(), or done().is_nil()")]]
    explicit operator bool() const&& noexcept
        requires std::same_as<Self, receiver<std::monostate>>
    {
        return core() != nullptr;
    }

    /// Whether both are the same channel.
    friend bool operator==(const Self& a, const Self& b) noexcept {
        return static_cast<const handle_operations&>(a).core() == static_cast<const handle_operations&>(b).core();
    }

private:
    chan_core* core() const noexcept { return static_cast<const Self*>(this)->handle_.core(); }
};

struct handle_access;

}  // namespace detail

/// The sending side of a channel. Default-constructed: nil.
template <class T>
class sender : public detail::send_operations<sender<T>, T>, public detail::handle_operations<sender<T>> {
public:
    using sends = T;
    sender() noexcept = default;
    sender(const chan<T>& c) noexcept : handle_(c.handle_) {}
    sender(chan<T>&& c) noexcept : handle_(std::move(c.handle_)) {}

private:
    friend detail::send_operations<sender<T>, T>;
    friend detail::handle_operations<sender<T>>;
    friend detail::handle_access;
    detail::chan_handle handle_;
};

/// The receiving side of a channel. Default-constructed: nil.
template <class T>
class receiver : public detail::receive_operations<receiver<T>, T>, public detail::handle_operations<receiver<T>> {
public:
    using receives = T;
    receiver() noexcept = default;
    receiver(const chan<T>& c) noexcept : handle_(c.handle_) {}
    receiver(chan<T>&& c) noexcept : handle_(std::move(c.handle_)) {}

private:
    friend detail::receive_operations<receiver<T>, T>;
    friend detail::handle_operations<receiver<T>>;
    friend detail::handle_access;
    explicit receiver(detail::chan_handle h) noexcept : handle_(std::move(h)) {}
    detail::chan_handle handle_;
};

/// A channel: values of type T go from senders to receivers, in order. A counted handle: copies refer to the same
/// channel, which lives as long as any of them. From goroutines and plain threads, in any mix.
///
/// A party may destroy the last handle as soon as its own operation has returned, or closed() has returned true, even
/// while the other party is still inside its operation.
///
/// T must be movable and destructible without exceptions, and its move and its destructor must not call dunlin (they
/// run while both sides are held). A T whose move may throw must be copyable instead. It is sent in a box, as a copy
/// that the sender makes, and received as a copy of that: this costs one more allocation, and nothing that may throw
/// happens inside the channel. If the sender's copy throws, nothing was sent. Every send leaves `value` unchanged, even
/// a successful one. If the receiver's copy throws, the value becomes the first in the channel again and a waiting
/// receiver, or else the next one, gets it, even if the channel is closed.
template <class T>
class chan : public detail::send_operations<chan<T>, T>, public detail::receive_operations<chan<T>, T>,
    public detail::handle_operations<chan<T>> {
public:
    using sends = T;
    using receives = T;

    /// Unbuffered: a send waits for its receive. Throws std::bad_alloc.
    chan() : chan(0) {}
    /// With room for `capacity` values. Throws std::length_error "makechan: size out of range" if that is negative or
    /// would take too many bytes; std::bad_alloc.
    explicit chan(std::ptrdiff_t capacity)
        : handle_(detail::make_channel(detail::element_type_of<detail::element_of<T>>, capacity)) {
        detail::check_element<T>();
    }
    /// The nil channel: sends and receives block for ever, and it is never ready in select().
    static chan nil() noexcept { return chan(detail::chan_handle()); }

private:
    friend detail::send_operations<chan<T>, T>;
    friend detail::receive_operations<chan<T>, T>;
    friend detail::handle_operations<chan<T>>;
    friend detail::handle_access;
    friend class sender<T>;
    friend class receiver<T>;
    explicit chan(detail::chan_handle h) noexcept : handle_(std::move(h)) {}
    detail::chan_handle handle_;
};

// For types that cannot be sent: the compiler prints one line, not everything that would fail inside.
template <class T>
    requires(!std::is_object_v<T> || std::is_const_v<T>)
class chan<T> {
public:
    chan() = default;
    explicit chan(std::ptrdiff_t) {}
    static_assert(std::is_object_v<T> && !std::is_const_v<T>, DUNLIN_IS_NO_ELEMENT);
};
template <class T>
    requires(!std::is_object_v<T> || std::is_const_v<T>)
class sender<T> {
    static_assert(std::is_object_v<T> && !std::is_const_v<T>, DUNLIN_IS_NO_ELEMENT);
};
template <class T>
    requires(!std::is_object_v<T> || std::is_const_v<T>)
class receiver<T> {
    static_assert(std::is_object_v<T> && !std::is_const_v<T>, DUNLIN_IS_NO_ELEMENT);
};

namespace detail {

struct handle_access {
    template <class Handle>
    static const chan_handle& handle(const Handle& h) noexcept { return h.handle_; }
    template <class Handle>
    static chan_core* core(const Handle& h) noexcept { return h.handle_.core(); }
    template <class T>
    static receiver<T> make_receiver(chan_handle h) noexcept { return receiver<T>(std::move(h)); }
};

}  // namespace detail
}  // namespace dunlin
