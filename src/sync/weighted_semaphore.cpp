// weighted_semaphore.cpp - permits that are taken several at a time.
//
// Data       permits_ and closed_, under the lock of the bucket in which this address falls; waiters are in the
//            object's queue there, each with the number that it wants.
// Protocol   acquire    lock; closed: out; the queue is empty and there are enough: take them; may not wait: out;
//                       queue, unlock, wait. Woken: the waker has taken the permits for it, or `granted` is false:
//                       closed
//            release    lock; add; serve; unlock; wake
//            serve      while the first in the queue wants no more than there are: take its permits, off the queue
//            given up   under the lock, off the queue: serve, since waiters behind it may want fewer
//            close      lock; closed_; the whole queue off, not granted; unlock; wake
// Complete   Whenever the lock is free, the first in the queue that is not giving up wants more than there are: every
//            step that adds permits, or takes the first away, serves before it unlocks.
// Lifetime   Each call's last access to the object is under the bucket's lock, and a waiter is woken after that: a
//            woken waiter may destroy the object.
// Tests      tests/sync/shared_work_test.cpp
#include <dunlin/weighted_semaphore.hpp>

#include <limits>
#include <stdexcept>
#include <string>

#include "sync/lot_wait.h"

namespace dunlin::inline v0_1 {

using park::lot_bucket;
using park::lot_kind;
using park::lot_node;

namespace {

void check_number(const char* operation, std::ptrdiff_t n) {
    if (n >= 0) return;
    throw std::invalid_argument("dunlin::weighted_semaphore" + std::string(operation) + ": " + std::to_string(n) +
                                " permits");
}

// Under the bucket's lock.
park::wait_node* serve(lot_bucket& b, const void* address, std::ptrdiff_t& permits) noexcept {
    park::wake_chain chain;
    while (lot_node* n = b.front(address)) {
        if (n->value > static_cast<std::uint64_t>(permits)) break;
        b.remove(n);
        if (!n->claim()) continue;  // its deadline was first
        permits -= static_cast<std::ptrdiff_t>(n->value);
        n->granted = true;
        chain.add(n);
    }
    return chain.first();
}

// The bucket's lock for a scope, inside the runtime.
struct locked {
    explicit locked(const void* address) noexcept : bucket(park::bucket_of(address)) { bucket.lock.lock(); }
    ~locked() { bucket.lock.unlock(); }
    locked(const locked&) = delete;
    locked& operator=(const locked&) = delete;

    park::runtime_section inside;  // first: it is left last
    lot_bucket& bucket;
};

}  // namespace

semaphore_closed::semaphore_closed() : std::system_error(make_error_code(errc::closed), "semaphore acquire") {}
semaphore_closed::~semaphore_closed() = default;

weighted_semaphore::weighted_semaphore(std::ptrdiff_t permits) : permits_(permits) { check_number("", permits); }

weighted_semaphore::~weighted_semaphore() {
    park::check_no_waiters(this, "a weighted_semaphore is destroyed while goroutines wait for it");
}

// Under the bucket's lock.
bool weighted_semaphore::can_take(std::ptrdiff_t n) const noexcept {
    return n <= permits_ && !park::bucket_of(this).any(this);
}

detail::wait_outcome weighted_semaphore::take(std::ptrdiff_t n, const detail::wait_limit* limit,
    const std::source_location& where) {
    check_number("::acquire", n);
    park::waiter w;
    lot_node node(&w, this, lot_kind::weighted, limit != nullptr);
    node.value = static_cast<std::uint64_t>(n);
    node.serve = [](lot_bucket& b, const void* object) noexcept {
        auto* self = static_cast<weighted_semaphore*>(const_cast<void*>(object));
        return serve(b, object, self->permits_);
    };
    lot_bucket& b = park::bucket_of(this);
    w.enter_if_it_waits([limit] { return detail::may_wait(limit); });
    b.lock.lock();
    const bool closed = closed_;
    const bool at_once = !closed && can_take(n);
    if (at_once) permits_ -= n;
    if (closed || at_once || detail::cancelled_already(limit) || detail::is_past(limit)) {
        b.lock.unlock();
        w.leave();
        if (closed) throw semaphore_closed();
        if (at_once) return detail::wait_outcome::ok;
        return detail::cancelled_already(limit) ? detail::wait_outcome::cancelled : detail::wait_outcome::timed_out;
    }
    b.announce();
    w.prepare(sched::wait_reason::semacquire, where);
    b.push_back(&node);
    b.lock.unlock();
    const detail::wait_outcome outcome =
        wait_in_lot(b, node, w, limit, [this, &b]() noexcept { return serve(b, this, permits_); });
    if (outcome == detail::wait_outcome::ok && !node.granted) throw semaphore_closed();
    return outcome;
}

bool weighted_semaphore::try_acquire(std::ptrdiff_t n) noexcept {
    const locked guard(this);
    if (n < 0 || closed_ || !can_take(n)) return false;
    permits_ -= n;
    return true;
}

void weighted_semaphore::release(std::ptrdiff_t n) {
    check_number("::release", n);
    std::ptrdiff_t have;
    bool fits;
    {
        park::runtime_section inside;
        lot_bucket& b = park::bucket_of(this);
        b.lock.lock();
        have = permits_;
        fits = have <= std::numeric_limits<std::ptrdiff_t>::max() - n;
        if (fits) permits_ += n;
        park::wait_node* const woken = serve(b, this, permits_);
        b.lock.unlock();
        park::wake_all(woken);
    }
    if (fits) return;
    throw std::overflow_error("dunlin::weighted_semaphore::release: " + std::to_string(have) + " permits and " +
                              std::to_string(n) + " more are more than a std::ptrdiff_t counts");
}

void weighted_semaphore::close() noexcept {
    park::runtime_section inside;
    lot_bucket& b = park::bucket_of(this);
    b.lock.lock();
    closed_ = true;
    park::wait_node* const woken = b.take_all(this);  // none is granted
    b.lock.unlock();
    park::wake_all(woken);
}

bool weighted_semaphore::closed() const noexcept {
    const locked guard(this);
    return closed_;
}

std::ptrdiff_t weighted_semaphore::available() const noexcept {
    const locked guard(this);
    return permits_;
}

}  // namespace dunlin
