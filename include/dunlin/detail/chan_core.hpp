// chan_core.hpp - the channel without its element type, compiled once. Not for direct use: dunlin/chan.hpp, select.hpp
// and timer.hpp are built on it.
#pragma once

#include <dunlin/config.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <source_location>
#include <type_traits>
#include <utility>

#include <dunlin/clock.hpp>
#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/wait.hpp>

namespace dunlin::inline v0_1 {

/// The result of a call that does not wait, or that waits for a limited time only.
enum class channel_status : unsigned char {
    ok,           ///< the value was sent or received
    would_block,  ///< no partner and no value there; for a timed call, until its time ran out
    closed,       ///< the channel is closed, and for a receive, drained
};

namespace detail {

// What a channel must know about its elements. Null functions: copying the bytes is enough, and there is nothing to
// destroy.
struct element_type {
    std::size_t size;
    std::size_t align;
    void (*move)(void* to, void* from) noexcept;  // constructs *to; leaves *from moved from
    void (*destroy)(void*) noexcept;
    bool boxed = false;  // it is a `boxed`, and may be put back
};

// An element whose move or copy may throw lies in a box; the channel moves the box's address.
struct DUNLIN_API box_base {
    virtual ~box_base();
    box_base* next = nullptr;  // the channel's list of those that were put back
};
using boxed = std::unique_ptr<box_base>;

template <class T>
struct box final : box_base {
    explicit box(const T& v) : value(v) {}
    T value;
};

template <class T>
inline constexpr bool needs_box = !std::is_nothrow_move_constructible_v<T>;

// A T, as the channel sees it.
template <class T>
using element_of = std::conditional_t<needs_box<T>, boxed, T>;

template <class T>
inline constexpr element_type element_type_of = {
    sizeof(T),
    alignof(T),
    std::is_trivially_copyable_v<T> ? nullptr
        : +[](void* to, void* from) noexcept { ::new (to) T(std::move(*static_cast<T*>(from))); },
    std::is_trivially_destructible_v<T> ? nullptr : +[](void* at) noexcept { std::destroy_at(static_cast<T*>(at)); },
    std::is_same_v<T, boxed>,
};

// The first member of a channel, so that handles can be copied without a call.
struct chan_references {
    platform::atomic<std::uint32_t> references{1};
};

// Throws std::length_error "makechan: size out of range", std::bad_alloc.
DUNLIN_API chan_core* make_channel(const element_type& type, std::ptrdiff_t capacity);
DUNLIN_API void destroy_channel(chan_core* c) noexcept;  // after the last reference

// `value` is moved from if the outcome is ok, and only then. A null channel: waits for ever. `limit` null: no limit.
// This and the next throw std::bad_alloc if there is no memory for a deadline.
DUNLIN_API wait_outcome channel_send(chan_core* c, void* value, const wait_limit* limit,
    const std::source_location& where);
// Constructs the element at `slot` if the outcome is ok, and only then.
DUNLIN_API wait_outcome channel_receive(chan_core* c, void* slot, const wait_limit* limit,
    const std::source_location& where);
DUNLIN_API channel_status channel_try_send(chan_core* c, void* value) noexcept;
DUNLIN_API channel_status channel_try_receive(chan_core* c, void* slot) noexcept;
DUNLIN_API void channel_close(chan_core* c);  // throws channel_closed
// Makes `value`, which was received from c, the first to be received again, before all that is there.
DUNLIN_API void channel_put_back(chan_core* c, boxed& value) noexcept;
DUNLIN_API std::size_t channel_length(chan_core* c) noexcept;
DUNLIN_API std::size_t channel_capacity(const chan_core* c) noexcept;
DUNLIN_API bool channel_is_closed(chan_core* c) noexcept;

[[noreturn]] DUNLIN_API void throw_send_on_closed();
[[noreturn]] DUNLIN_API void throw_receive_on_closed();

// A counted reference to a channel, or to none (nil).
class chan_handle {
public:
    chan_handle() noexcept = default;
    explicit chan_handle(chan_core* c) noexcept : core_(c) {}  // takes the caller's reference
    chan_handle(const chan_handle& other) noexcept : core_(other.core_) { reference(core_); }
    chan_handle(chan_handle&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
    chan_handle& operator=(chan_handle other) noexcept {
        std::swap(core_, other.core_);
        return *this;
    }
    ~chan_handle() { release(core_); }

    chan_core* core() const noexcept { return core_; }
    // Gives the reference to the caller.
    chan_core* detach() noexcept { return std::exchange(core_, nullptr); }

    static void reference(chan_core* c) noexcept {
        if (c != nullptr) reinterpret_cast<chan_references*>(c)->references.fetch_add(1, std::memory_order_relaxed);
    }
    static void release(chan_core* c) noexcept {
        // Acquire-release: the last holder, which destroys the channel, sees what the others did with it.
        if (c != nullptr && reinterpret_cast<chan_references*>(c)->references.fetch_sub(1,
            std::memory_order_acq_rel) == 1) {
            destroy_channel(c);
        }
    }

private:
    chan_core* core_ = nullptr;
};

// Room for one T that may or may not be there.
template <class T>
union element_slot {
    element_slot() noexcept {}
    ~element_slot() {}
    T value;
};

// The element that a send of `value` gives to the channel. For a type whose move may throw it is a copy, in a box:
// `value` is unchanged, whatever becomes of the copy. Throws what copying T throws, std::bad_alloc.
template <class T>
class outgoing {
public:
    explicit outgoing(T& value) noexcept(!needs_box<T>) : element_(make(value)) {}
    void* slot() noexcept {
        if constexpr (needs_box<T>) {
            return &element_;
        } else {
            return const_cast<void*>(static_cast<const volatile void*>(element_));
        }
    }

private:
    static auto make(T& value) noexcept(!needs_box<T>) {
        if constexpr (needs_box<T>) {
            return boxed(std::make_unique<box<T>>(value));
        } else {
            return std::addressof(value);
        }
    }
    std::conditional_t<needs_box<T>, boxed, T*> element_;
};

// Returns what make(T&&), or make(const T&) for a T in a box, makes of the element in `slot`, which was received from
// c. The result is a prvalue, so that nothing is moved in between. If make throws, a T in a box is first in its channel
// again.
template <class T, class Make>
auto take_as(element_slot<element_of<T>>& slot, [[maybe_unused]] chan_core* c, Make make) {
    struct guard {
        element_of<T>& element;
        ~guard() { std::destroy_at(std::addressof(element)); }
    } const end{slot.value};
    if constexpr (needs_box<T>) {
        try {
            return make(std::as_const(static_cast<box<T>&>(*slot.value).value));
        } catch (...) {
            channel_put_back(c, slot.value);
            throw;
        }
    } else {
        return make(std::move(slot.value));
    }
}

}  // namespace detail
}  // namespace dunlin
