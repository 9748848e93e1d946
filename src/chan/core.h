// core.h - the channel: a ring of elements, a queue of waiting senders and one of waiting receivers, one lock.
//
// Invariants under the lock
//   C1  receivers wait only while the buffer is empty and no sender waits; senders only while it is full and no
//       receiver waits. Exception: a select that offers both on the same channel stands in both queues. It never meets
//       itself, since only other parties look at the queues.
//   C2  the party that takes a waiter's node off its queue moves the element before it wakes the waiter: into a
//       receiver's slot; out of a sender's slot, to the receiver, or into the buffer if that was full. A woken waiter
//       has its result and does not try again.
//   C3  a closed channel has no waiters.
// Lifetime   Every handle holds a reference; waiters hold none: a call relies on its caller's handle.
// Timers     The buffer of a timer's channel (timer_channel.h) is filled, and emptied, by the clock: every operation on
//            it calls look_at_clock() first.
// Put back   Elements are moved under the lock, which must not throw. So elements whose moves may throw are boxed, and
//            a receiver takes its value out of the box afterwards. If that throws, the box goes back to the channel,
//            ahead of the buffer, which takes neither memory nor room.
// Source     Go 1.24 runtime/chan.go. Differs: direct switch instead of a detour, hand-over to plain threads, moves
//            instead of copies.
// Tests      tests/chan/, tests/go/chan_test.cpp, tests/go/select_test.cpp
#pragma once

#include <cstring>

#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/chan_core.hpp>

#include "chan/limited_wait.h"
#include "park/biased_lock.h"
#include "park/wait_queue.h"

namespace dunlin::inline v0_1::detail {

class timer_channel;

// What a receive must look at before the buffer: nothing; the clock; what was put back.
enum class channel_kind : std::uint8_t { plain, timer, boxed };

// A place in a channel's queue.
struct chan_node : park::wait_node {
    void* slot = nullptr;      // where the element is (sender) or shall be constructed (receiver)
    bool ok = false;           // set by the waker: the element was moved. False: the channel was closed

    using park::wait_node::wait_node;
};

class chan_core : public chan_references {
public:
    using destroyer = void (*)(chan_core*) noexcept;

    // `destroy` frees the whole object, after the last reference.
    chan_core(const element_type& type, std::size_t capacity, std::byte* buffer, destroyer destroy) noexcept
        : type_(type),
          kind_(type.boxed ? channel_kind::boxed : channel_kind::plain),
          capacity_(capacity),
          buffer_(buffer),
          destroy_(destroy) {}
    chan_core(const chan_core&) = delete;
    chan_core& operator=(const chan_core&) = delete;
    ~chan_core();

    park::biased_lock lock{park::biased_lock::at_birth()};

    // All under the lock. ---------------------------------------------------------------------------------------------

    // Would a send (a receive) go through now, or fail at once because the channel is closed? The waiter that would be
    // served may be gone: the attempt finds that out.
    bool may_send() const noexcept { return closed_ || count_ < capacity_ || !receivers_.empty(); }
    bool may_receive() noexcept;

    // ok, would_block, or closed. `woken` is the waiter that the caller has to wake after the unlock, or null.
    channel_status send(void* value, park::wait_node*& woken) noexcept;
    channel_status receive(void* slot, park::wait_node*& woken) noexcept;
    // `woken`: all waiters, to be woken after the unlock. False: it was closed already.
    bool close(park::wait_node*& woken) noexcept;
    // Gives a copy of `value`, of a type whose bytes can be copied, to each receiver that waits. The caller wakes them
    // after the unlock.
    park::wait_node* serve_all_receivers(void* value) noexcept;

    void enqueue_sender(chan_node* n) noexcept { senders_.push_back(n); }
    void enqueue_receiver(chan_node* n) {  // throws std::bad_alloc if it is a timer's
        if (DUNLIN_UNLIKELY(kind_ == channel_kind::timer)) return enqueue_timer_receiver(n);
        receivers_.push_back(n);
    }
    void forget_sender(chan_node* n) noexcept {
        if (n->linked) senders_.remove(n);
    }
    void forget_receiver(chan_node* n) noexcept {
        if (!n->linked) return;
        receivers_.remove(n);
        if (DUNLIN_UNLIKELY(kind_ == channel_kind::timer) && receivers_.empty()) disarm_timer();
    }
    // `value` was received, but could not be taken out of its box. The first receiver that waits gets it, and the
    // caller wakes that one after the unlock; if there is none, the next receiver that comes gets it.
    void put_back(boxed& value, park::wait_node*& woken) noexcept;

    // Any thread. -----------------------------------------------------------------------------------------------------

    std::size_t length() const noexcept {
        return kind_ != channel_kind::timer ? count_.load(std::memory_order_relaxed) : 0;
    }
    std::size_t put_back_length() const noexcept;  // under the lock
    std::size_t capacity() const noexcept { return kind_ != channel_kind::timer ? capacity_ : 0; }
    bool is_boxed() const noexcept { return kind_ == channel_kind::boxed; }
    bool is_closed() const noexcept { return closed_.load(std::memory_order_acquire); }

    // Adds a reference for a caller that has none. Called under a lock that the end of the channel takes as well.
    // False: the channel is at its end. Relaxed: that lock orders.
    bool reference_if_alive() noexcept {
        std::uint32_t n = references.load(std::memory_order_relaxed);
        do {
            if (n == 0) return false;
        } while (!references.compare_exchange_weak(n, n + 1, std::memory_order_relaxed));
        return true;
    }

protected:
    // For a timer's channel, under the lock.
    bool receivers_wait() const noexcept { return !receivers_.empty(); }
    void buffer_if_room(void* value) noexcept;
    bool drop_buffered() noexcept;
    // Gives the oldest value to the receiver that has waited longest; null: there is no value, or no receiver.
    park::wait_node* serve_first_receiver() noexcept;

private:
    friend class timer_channel;
    friend void destroy_channel(chan_core* c) noexcept;
    static void destroy_plain(chan_core* c) noexcept;
    friend chan_core* make_channel(const element_type& type, std::ptrdiff_t capacity);

    std::byte* element(std::size_t i) const noexcept { return buffer_ + i * type_.size; }
    void move(void* to, void* from) const noexcept;
    void destroy_element(void* at) const noexcept {
        if (type_.destroy != nullptr) type_.destroy(at);
    }
    void push(void* value) noexcept;
    void pop(void* slot) noexcept;
    timer_channel* timer() noexcept;  // of kind timer
    bool serve_before_buffer(void* slot) noexcept;
    bool has_before_buffer() noexcept;
    void enqueue_timer_receiver(chan_node* n);
    void disarm_timer() noexcept;

    // Ordered by use: a send that meets its receiver needs the first line only.
    const element_type& type_;           // constant
    park::wait_queue receivers_;         // lock
    platform::atomic<std::size_t> count_{0};  // lock to write
    platform::atomic<bool> closed_{false};    // lock to write. Release, for is_closed()
    channel_kind kind_;                  // constant
    park::wait_queue senders_;           // lock
    const std::size_t capacity_;         // constant
    std::size_t first_ = 0;              // lock: the oldest element
    std::byte* const buffer_;            // constant; the elements: lock
    box_base* put_back_ = nullptr;       // lock: comes before the buffer. While there is any, no receiver waits
    const destroyer destroy_;            // constant
};

// Like park::runtime_section, for callers that may park in between: waiting leaves the runtime. Null on a plain thread.
// may_wait(): may the call wait, as far as its arguments say?
template <class MayWait>
inline sched::machine* enter_runtime(MayWait may_wait) noexcept {
    sched::machine* m = sched::current_machine();
    return m != nullptr ? sched::enter_to_wait_if(m, may_wait) : nullptr;
}
inline void leave_runtime(sched::machine* m) noexcept {
    if (m != nullptr) sched::leave(m);
}

inline void chan_core::move(void* to, void* from) const noexcept {
    if (type_.move != nullptr) {
        type_.move(to, from);
        return;
    }
    // memcpy() of a constant size is one or two instructions.
    switch (type_.size) {
    case 8: std::memcpy(to, from, 8); return;
    case 4: std::memcpy(to, from, 4); return;
    case 16: std::memcpy(to, from, 16); return;
    case 1: std::memcpy(to, from, 1); return;
    default: std::memcpy(to, from, type_.size);
    }
}

// Inlined, with what they call: the calls would be a fifth of a send and of a receive.

inline void chan_core::push(void* value) noexcept {
    const std::size_t count = count_.load(std::memory_order_relaxed);
    std::size_t at = first_ + count;
    if (at >= capacity_) at -= capacity_;
    move(element(at), value);
    count_.store(count + 1, std::memory_order_relaxed);
}

inline void chan_core::pop(void* slot) noexcept {
    std::byte* from = element(first_);
    move(slot, from);
    destroy_element(from);
    if (++first_ == capacity_) first_ = 0;
    count_.store(count_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
}

inline bool chan_core::may_receive() noexcept {
    if (DUNLIN_UNLIKELY(kind_ != channel_kind::plain) && has_before_buffer()) return true;
    return count_.load(std::memory_order_relaxed) != 0 || closed_.load(std::memory_order_relaxed) || !senders_.empty();
}

[[gnu::always_inline]] inline channel_status chan_core::send(void* value, park::wait_node*& woken) noexcept {
    if (DUNLIN_UNLIKELY(closed_.load(std::memory_order_relaxed))) return channel_status::closed;
    if (auto* peer = static_cast<chan_node*>(receivers_.pop_claimed())) {
        move(peer->slot, value);
        peer->ok = true;
        woken = peer;
        return channel_status::ok;
    }
    if (count_.load(std::memory_order_relaxed) == capacity_) return channel_status::would_block;
    push(value);
    return channel_status::ok;
}

[[gnu::always_inline]] inline channel_status chan_core::receive(void* slot, park::wait_node*& woken) noexcept {
    if (DUNLIN_UNLIKELY(kind_ != channel_kind::plain) && serve_before_buffer(slot)) return channel_status::ok;
    if (count_.load(std::memory_order_relaxed) != 0) {
        pop(slot);
        // The buffer was full if a sender waits: its element follows.
        if (auto* peer = static_cast<chan_node*>(senders_.pop_claimed())) {
            push(peer->slot);
            peer->ok = true;
            woken = peer;
        }
        return channel_status::ok;
    }
    if (auto* peer = static_cast<chan_node*>(senders_.pop_claimed())) {
        move(slot, peer->slot);
        peer->ok = true;
        woken = peer;
        return channel_status::ok;
    }
    return closed_.load(std::memory_order_relaxed) ? channel_status::closed : channel_status::would_block;
}

}  // namespace dunlin::detail
