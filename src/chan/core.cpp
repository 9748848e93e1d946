#include "chan/core.h"

#include <limits>
#include <memory>
#include <stdexcept>

#include <dunlin/error.hpp>

#include "chan/timer_channel.h"
#include "timer/timers.h"

namespace dunlin::inline v0_1::detail {

// ---- the ring -------------------------------------------------------------------------------------------------------

chan_core::~chan_core() {
    for (std::size_t left = count_.load(std::memory_order_relaxed); left != 0; --left) {
        destroy_element(element(first_));
        if (++first_ == capacity_) first_ = 0;
    }
    while (put_back_ != nullptr) delete std::exchange(put_back_, put_back_->next);
}

void chan_core::buffer_if_room(void* value) noexcept {
    if (count_.load(std::memory_order_relaxed) < capacity_) push(value);
}

park::wait_node* chan_core::serve_first_receiver() noexcept {
    if (count_.load(std::memory_order_relaxed) == 0) return nullptr;
    auto* peer = static_cast<chan_node*>(receivers_.pop_claimed());
    if (peer == nullptr) return nullptr;
    pop(peer->slot);
    peer->ok = true;
    return peer;
}

bool chan_core::drop_buffered() noexcept {
    if (count_.load(std::memory_order_relaxed) == 0) return false;
    destroy_element(element(first_));
    count_.store(0, std::memory_order_relaxed);
    return true;
}

// ---- one operation, under the lock ----------------------------------------------------------------------------------

inline timer_channel* chan_core::timer() noexcept { return static_cast<timer_channel*>(this); }

[[gnu::noinline]] bool chan_core::has_before_buffer() noexcept {
    if (kind_ == channel_kind::timer) timer()->look_at_clock();
    return put_back_ != nullptr;
}

[[gnu::noinline]] bool chan_core::serve_before_buffer(void* slot) noexcept {
    if (!has_before_buffer()) return false;
    ::new (slot) boxed(std::exchange(put_back_, put_back_->next));
    return true;
}

std::size_t chan_core::put_back_length() const noexcept {
    std::size_t n = 0;
    for (const box_base* b = put_back_; b != nullptr; b = b->next) ++n;
    return n;
}

void chan_core::put_back(boxed& value, park::wait_node*& woken) noexcept {
    if (auto* peer = static_cast<chan_node*>(receivers_.pop_claimed())) {
        move(peer->slot, &value);
        peer->ok = true;
        woken = peer;
        return;
    }
    value->next = put_back_;
    put_back_ = value.release();
}

bool chan_core::close(park::wait_node*& woken) noexcept {
    if (closed_.load(std::memory_order_relaxed)) return false;
    closed_.store(true, std::memory_order_release);
    // Their nodes already say ok = false.
    woken = receivers_.take_all();
    if (senders_.empty()) return true;
    park::wait_node** end = &woken;  // empty, or of waiters that a select() on both sides has queued
    while (*end != nullptr) end = &(*end)->next;
    *end = senders_.take_all();
    return true;
}

park::wait_node* chan_core::serve_all_receivers(void* value) noexcept {
    park::wait_node* const woken = receivers_.take_all();
    for (park::wait_node* n = woken; n != nullptr; n = n->next) {
        auto* peer = static_cast<chan_node*>(n);
        move(peer->slot, value);
        peer->ok = true;
    }
    return woken;
}

void chan_core::enqueue_timer_receiver(chan_node* n) {
    timer()->arm();
    receivers_.push_back(n);
}

void chan_core::disarm_timer() noexcept { timer()->disarm(); }

// ---- waiting --------------------------------------------------------------------------------------------------------

namespace {

enum class direction : bool { send, receive };

[[gnu::noinline]] void wait_for_ever(direction d, const std::source_location& where) noexcept {
    park::waiter w;
    w.enter();
    w.prepare(d == direction::send ? sched::wait_reason::chan_send_nil : sched::wait_reason::chan_receive_nil, where);
    w.wait();
}

[[gnu::noinline]] wait_outcome wait_on_nil(direction d, const wait_limit* limit, const std::source_location& where) {
    if (limit == nullptr) {
        for (;;) wait_for_ever(d, where);
    }
    park::waiter w;
    w.enter_if_it_waits([limit] { return may_wait(limit); });
    // The reasons differ from those of a wait without limit: of a wait without limit a report may say that it never
    // ends.
    using sched::wait_reason;
    w.prepare(d == direction::send ? wait_reason::chan_send_nil_limited : wait_reason::chan_receive_nil_limited, where);
    switch (wait_limited(w, *limit)) {
    case end_of_wait::no_memory: throw std::bad_alloc();
    case end_of_wait::cancelled: return wait_outcome::cancelled;
    default: return wait_outcome::timed_out;
    }
}

// The rest of a wait with a limit. The node is queued, no lock is held. Takes over a reference to the context: the
// party that serves this wait may let the channel and the context go.
[[gnu::noinline]] wait_outcome wait_out_limit(chan_core* c, direction d, park::waiter& w, chan_node& node,
    const wait_limit& limit) {
    const chan_handle context_stays(limit.done);
    const end_of_wait end = wait_limited(w, limit);
    if (end == end_of_wait::served) return node.ok ? wait_outcome::ok : wait_outcome::closed;
    {
        park::runtime_section inside;
        c->lock.lock();
        d == direction::send ? c->forget_sender(&node) : c->forget_receiver(&node);
        c->lock.unlock();
    }
    if (end == end_of_wait::no_memory) throw std::bad_alloc();
    return end == end_of_wait::cancelled ? wait_outcome::cancelled : wait_outcome::timed_out;
}

// The second half of a send and a receive: nothing is possible at once, the lock is held, the caller is inside the
// runtime. Inlined: a frame of its own would be saved and restored around each switch.
[[gnu::always_inline]] inline wait_outcome wait_in_queue(chan_core* c, direction d, void* slot, sched::machine* m,
    const wait_limit* limit,
    const std::source_location& where) {
    park::waiter w(m);
    chan_node node(&w);
    node.slot = slot;
    node.several = limit != nullptr;
    w.prepare(d == direction::send ? sched::wait_reason::chan_send : sched::wait_reason::chan_receive, where);
    if (d == direction::send) {
        c->enqueue_sender(&node);
    } else {
        try {
            c->enqueue_receiver(&node);
        } catch (...) {
            w.withdraw();
            c->lock.unlock(m);
            w.leave();
            throw;
        }
    }
    if (limit != nullptr) {
        chan_handle::reference(limit->done);
        c->lock.unlock(m);
        return wait_out_limit(c, d, w, node, *limit);
    }
    c->lock.unlock(m);
    w.wait();
    return node.ok ? wait_outcome::ok : wait_outcome::closed;
}

// The outcome where may_wait() has said no.
inline wait_outcome refused(const wait_limit* limit) noexcept {
    return cancelled_already(limit) ? wait_outcome::cancelled : wait_outcome::timed_out;
}

inline wait_outcome outcome_of(channel_status s) noexcept {
    return s == channel_status::ok ? wait_outcome::ok : wait_outcome::closed;
}

}  // namespace

wait_outcome channel_send(chan_core* c, void* value, const wait_limit* limit, const std::source_location& where) {
    if (DUNLIN_UNLIKELY(c == nullptr)) return wait_on_nil(direction::send, limit, where);
    sched::machine* m = enter_runtime([limit] { return may_wait(limit); });
    park::wait_node* woken = nullptr;
    c->lock.lock(m);
    const channel_status status = c->send(value, woken);
    if (status == channel_status::would_block && may_wait(limit)) {
        return wait_in_queue(c, direction::send, value, m, limit, where);
    }
    c->lock.unlock(m);
    if (woken != nullptr) woken->owner->wake_from(m);
    leave_runtime(m);
    return status == channel_status::would_block ? refused(limit) : outcome_of(status);
}

wait_outcome channel_receive(chan_core* c, void* slot, const wait_limit* limit, const std::source_location& where) {
    if (DUNLIN_UNLIKELY(c == nullptr)) return wait_on_nil(direction::receive, limit, where);
    sched::machine* m = enter_runtime([limit] { return may_wait(limit); });
    park::wait_node* woken = nullptr;
    c->lock.lock(m);
    const channel_status status = c->receive(slot, woken);
    if (status == channel_status::would_block && may_wait(limit)) {
        return wait_in_queue(c, direction::receive, slot, m, limit, where);
    }
    c->lock.unlock(m);
    if (woken != nullptr) woken->owner->wake_from(m);
    leave_runtime(m);
    return status == channel_status::would_block ? refused(limit) : outcome_of(status);
}

channel_status channel_try_send(chan_core* c, void* value) noexcept {
    if (c == nullptr) return channel_status::would_block;
    park::runtime_section inside;
    park::wait_node* woken = nullptr;
    c->lock.lock(inside.machine());
    const channel_status status = c->send(value, woken);
    c->lock.unlock(inside.machine());
    if (woken != nullptr) woken->owner->wake_from(inside.machine());
    return status;
}

channel_status channel_try_receive(chan_core* c, void* slot) noexcept {
    if (c == nullptr) return channel_status::would_block;
    park::runtime_section inside;
    park::wait_node* woken = nullptr;
    c->lock.lock(inside.machine());
    const channel_status status = c->receive(slot, woken);
    c->lock.unlock(inside.machine());
    if (woken != nullptr) woken->owner->wake_from(inside.machine());
    return status;
}

// ---- the rest -------------------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t align_for(const element_type& type) noexcept {
    return type.align > alignof(chan_core) ? type.align : alignof(chan_core);
}

constexpr std::size_t buffer_offset(const element_type& type) noexcept {
    const std::size_t align = align_for(type);
    return (sizeof(chan_core) + align - 1) / align * align;
}

// The ordinary new is faster than the aligned one.
void* allocate(std::size_t bytes, std::size_t align) {
    return align <= __STDCPP_DEFAULT_NEW_ALIGNMENT__ ? ::operator new(bytes)
        : ::operator new(bytes, std::align_val_t{align});
}

void deallocate(void* p, std::size_t align) noexcept {
    if (align <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) {  // as an expression with ?: clang 16 calls both
        ::operator delete(p);
    } else {
        ::operator delete(p, std::align_val_t{align});
    }
}

}  // namespace

chan_core* make_channel(const element_type& type, std::ptrdiff_t capacity) {
    const std::size_t offset = buffer_offset(type);
    const std::size_t most =
        (static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) - offset) / type.size;
    if (capacity < 0 || static_cast<std::size_t>(capacity) > most) {
        throw std::length_error("makechan: size out of range");
    }
    const auto n = static_cast<std::size_t>(capacity);
    auto* memory = static_cast<std::byte*>(allocate(offset + n * type.size, align_for(type)));
    return ::new (memory) chan_core(type, n, memory + offset, chan_core::destroy_plain);
}

void chan_core::destroy_plain(chan_core* c) noexcept {
    const std::size_t align = align_for(c->type_);
    c->~chan_core();
    deallocate(c, align);
}

void destroy_channel(chan_core* c) noexcept { c->destroy_(c); }

void channel_close(chan_core* c) {
    if (c == nullptr) throw channel_closed("close of nil channel");
    park::wait_node* woken = nullptr;
    bool first;
    {
        park::runtime_section inside;
        c->lock.lock();
        first = c->close(woken);
        c->lock.unlock();
        park::wake_all(woken);
    }
    if (!first) throw channel_closed("close of closed channel");
}

void channel_put_back(chan_core* c, boxed& value) noexcept {
    park::runtime_section inside;
    park::wait_node* woken = nullptr;
    c->lock.lock(inside.machine());
    c->put_back(value, woken);
    c->lock.unlock(inside.machine());
    if (woken != nullptr) woken->owner->wake_from(inside.machine());
}

box_base::~box_base() = default;

void throw_receive_on_closed() { throw channel_closed("receive on closed channel"); }
void throw_send_on_closed() { throw channel_closed("send on closed channel"); }

std::size_t channel_length(chan_core* c) noexcept {
    if (c == nullptr) return 0;
    if (!c->is_boxed()) return c->length();
    park::runtime_section inside;
    c->lock.lock(inside.machine());
    const std::size_t length = c->length() + c->put_back_length();
    c->lock.unlock(inside.machine());
    return length;
}
std::size_t channel_capacity(const chan_core* c) noexcept { return c != nullptr ? c->capacity() : 0; }

bool channel_is_closed(chan_core* c) noexcept {
    if (c == nullptr || !c->is_closed()) return false;
    // The closer may still hold the lock, and the caller may let the channel go as soon as it has this answer: so the
    // closer is waited for.
    park::runtime_section inside;
    c->lock.lock(inside.machine());
    c->lock.unlock(inside.machine());
    return true;
}

}  // namespace dunlin::detail
