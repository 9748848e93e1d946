// fd_mutex.h - decides which operations may use a descriptor: one reader and one writer at a time, any number of
// others, none after close().
//
// Problem    The kernel reuses a descriptor's number as soon as it is closed: a read that is on its way into the kernel
//            would then read from another file. So the last user closes it.
// Data       one word: closed; a reader is in; a writer is in; readers wait; writers wait; the number of uses, being
//            open counts as one
// Protocol   enter      CAS: in and one use more; fails if closed, or if one of that kind is in (then the caller
//                       queues, fd_record.cpp)
//            leave      CAS: out and one use less. If others of that kind wait, the leaver lets one of them in instead
//                       (under the descriptor's lock)
//            close      CAS: closed; the user that brings the uses to zero from then on closes the descriptor
//            The bits for waiters change only under the descriptor's lock, and are set only while a reader (or writer)
//            is in. So either that reader sees them when it leaves, or the CAS that would set them fails.
// Order      acquire on the way in, release on the way out: the next reader sees what the last one did (how far it
//            read), and the user that closes the descriptor sees everything.
// Source     Go 1.24 internal/poll/fd_mutex.go. Differs: one that leaves lets a waiter in, so none tries again; a
//            context can end a wait, too.
// Tests      tests/poll/fd_mutex_test.cpp
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

#include "platform/check.h"

namespace dunlin::inline v0_1::netpoll {

enum class direction : std::uint8_t { read, write };

class fd_mutex {
public:
    enum class entry : std::uint8_t { in, busy, closed };

    // Called by a reader or a writer.
    entry enter(direction d) noexcept {
        std::uint32_t w = word_.load(std::memory_order_relaxed);
        do {
            if (w & closed_bit) return entry::closed;
            if (w & inside(d)) return entry::busy;
        } while (!word_.compare_exchange_weak(
            w, one_more(w) | inside(d), std::memory_order_acquire, std::memory_order_relaxed));
        return entry::in;
    }
    // False: others of this kind wait; the caller is still in, and must let one of them in instead of itself. `last`:
    // the caller must close the descriptor.
    bool leave(direction d, bool& last) noexcept {
        std::uint32_t w = word_.load(std::memory_order_relaxed);
        do {
            if (!(w & inside(d))) platform::fatal("a descriptor's fd mutex is left by one that is not in");
            if (w & waiting(d)) return false;
        } while (!word_.compare_exchange_weak(
            w, (w & ~inside(d)) - one_use, std::memory_order_acq_rel, std::memory_order_relaxed));
        last = w < 2 * one_use;
        return true;
    }

    // For any other use. False: closed.
    bool use() noexcept {
        std::uint32_t w = word_.load(std::memory_order_relaxed);
        do {
            if (w & closed_bit) return false;
        } while (!word_.compare_exchange_weak(w, one_more(w), std::memory_order_acquire, std::memory_order_relaxed));
        return true;
    }
    // True: the caller must close the descriptor.
    bool end_use() noexcept {
        const std::uint32_t before = word_.fetch_sub(one_use, std::memory_order_acq_rel);
        if (before < one_use) platform::fatal("a descriptor is given up by one that does not use it");
        return before < 2 * one_use;
    }

    // False: it was closed already. True: the caller now owns the use that counts for being open, and must end it.
    bool close() noexcept {
        std::uint32_t w = word_.load(std::memory_order_relaxed);
        do {
            if (w & closed_bit) return false;
        } while (!word_.compare_exchange_weak(w, w | closed_bit, std::memory_order_acq_rel, std::memory_order_relaxed));
        return true;
    }
    bool closed() const noexcept { return word_.load(std::memory_order_acquire) & closed_bit; }
    bool in_use() const noexcept { return word_.load(std::memory_order_acquire) >= one_use; }

    // Under the descriptor's lock: announces that the caller is about to wait until it may enter. Any result but busy:
    // the caller need not wait.
    entry announce(direction d) noexcept {
        std::uint32_t w = word_.load(std::memory_order_relaxed);
        do {
            if (w & closed_bit) return entry::closed;
            if (!(w & inside(d))) return entry::in;  // it is free now: enter() again
        } while (!word_.compare_exchange_weak(w, w | waiting(d), std::memory_order_relaxed));
        return entry::busy;
    }
    void clear_waiting(direction d) noexcept { word_.fetch_and(~waiting(d), std::memory_order_relaxed); }

    // Opens the fd mutex again, for another descriptor. No other thread knows it.
    void reopen() noexcept { word_.store(one_use, std::memory_order_release); }

private:
    static constexpr std::uint32_t closed_bit = 1, one_use = 32;
    static constexpr std::uint32_t inside(direction d) noexcept { return d == direction::read ? 2 : 4; }
    static constexpr std::uint32_t waiting(direction d) noexcept { return d == direction::read ? 8 : 16; }
    static std::uint32_t one_more(std::uint32_t w) noexcept {
        if (w + one_use < w) {
            platform::fatal("too many concurrent operations on a single file or socket (at most 134217726)");
        }
        return w + one_use;
    }

    platform::atomic<std::uint32_t> word_{one_use};
};

}  // namespace dunlin::netpoll
