#include "chan/timer_channel.h"

#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include <dunlin/timer.hpp>

#include "platform/check.h"
#include "platform/clock.h"
#include "sched/preempt/lifetime.h"
#include "timer/timers.h"

namespace dunlin::inline v0_1 {
namespace detail {

timer_channel::timer_channel(std::int64_t due_ns, std::int64_t period_ns)
    : chan_core(element_type_of<clock::time_point>, 1, storage_, destroy), due_ns_(due_ns), period_ns_(period_ns) {
    kind_ = channel_kind::timer;
    claim = claim_reference;
    fire = fire_entry;
    ends_with_run = false;  // a plain thread may wait for it
}

timer_channel* timer_channel::make(std::int64_t due_ns, std::int64_t period_ns) {
    // A machine must look at the heap.
    if (sched::current_machine() == nullptr) sched::start_runtime();
    return new timer_channel(due_ns, period_ns);
}

void timer_channel::destroy(chan_core* c) noexcept {
    auto* t = static_cast<timer_channel*>(c);
    {
        park::runtime_section inside;
        timers::cancel(t);
    }
    delete t;
}

// Under the heap's lock, which destroy() takes in cancel() before it frees anything.
bool timer_channel::claim_reference(timers::timer_entry* e) noexcept {
    return static_cast<timer_channel*>(e)->reference_if_alive();
}

void timer_channel::look_at_clock() noexcept {
    if (!receivers_wait()) take_tick();
}

void timer_channel::take_tick() noexcept {
    if (!pending_ || due_ns_ == wait_limit::never) return;
    const std::int64_t now = platform::now_ns();
    if (now < due_ns_) return;
    clock::time_point value{clock::duration(due_ns_)};
    if (period_ns_ == 0) {
        pending_ = false;
    } else {
        // Ticks that were not fetched are skipped, never bunched.
        due_ns_ = platform::deadline_after(due_ns_ + (now - due_ns_) / period_ns_ * period_ns_, period_ns_);
    }
    buffer_if_room(&value);
}

void timer_channel::put_into_heap() {
    if (!pending_ || due_ns_ == wait_limit::never || armed.load(std::memory_order_relaxed)) return;
    when_ns = due_ns_;
    timers::arm(this, sched::current_machine());
}

void timer_channel::arm() {
    if (!receivers_wait()) put_into_heap();
}

void timer_channel::disarm() noexcept { timers::cancel(this); }

void timer_channel::fire_entry(timers::timer_entry* e) noexcept { static_cast<timer_channel*>(e)->serve(); }

void timer_channel::serve() noexcept {
    lock.lock();
    take_tick();
    park::wait_node* served = serve_first_receiver();
    if (receivers_wait()) {
        try {
            put_into_heap();
        } catch (...) {
            // cannot happen: its own place was freed a moment ago
            platform::fatal("no memory for a timer on which goroutines wait");
        }
    }
    lock.unlock();
    if (served != nullptr) served->owner->wake();
    chan_handle::release(this);  // claim_reference()'s
}

bool timer_channel::stop() noexcept {
    timers::cancel(this);
    const bool unread = drop_buffered();
    return std::exchange(pending_, false) || unread;
}

bool timer_channel::reset(std::int64_t due_ns, std::int64_t period_ns) {
    const bool was = stop();
    due_ns_ = due_ns;
    period_ns_ = period_ns;
    pending_ = true;
    if (!receivers_wait()) return was;
    try {
        put_into_heap();
    } catch (...) {
        pending_ = false;
        throw;
    }
    return was;
}

chan_core* make_timer_channel(std::int64_t due_ns, std::int64_t period_ns) {
    return timer_channel::make(due_ns, period_ns);
}

bool stop_timer_channel(chan_core* c) noexcept {
    park::runtime_section inside;
    c->lock.lock();
    const bool was = static_cast<timer_channel*>(c)->stop();
    c->lock.unlock();
    return was;
}

bool reset_timer_channel(chan_core* c, std::int64_t due_ns, std::int64_t period_ns) {
    park::runtime_section inside;
    std::unique_lock guard(c->lock);
    return static_cast<timer_channel*>(c)->reset(due_ns, period_ns);
}

void throw_uninitialized_timer(const char* operation) {
    throw std::logic_error(std::string("dunlin::timer::") + operation
        + ": called on uninitialized Timer (default-constructed or moved from)");
}

void throw_non_positive_interval(const char* operation) {
    throw std::invalid_argument(std::string("non-positive interval for ") + operation);
}

}  // namespace detail
}  // namespace dunlin
