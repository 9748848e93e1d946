// barrier.cpp - a number of goroutines or threads wait for each other, again and again.
//
// Data       word_ = phase | arrivals missing. Waiters are in the parking lot, each with the phase whose end it waits
//            for.
// Protocol   arrive: missing -= n (CAS). The arrival that makes it zero runs the completion function, while no other
//            can arrive, and then, under the bucket's lock, stores the next phase and its count in one word (seq_cst),
//            takes the waiters whose phase is over off the parking lot, unlocks and wakes them. The store is the last
//            access to the object, unless a waiter is linked, which keeps the object alive as long as the lock is held.
//            arrive_and_drop: the CAS and the smaller count for the next phase are one step for complete(), because
//            both are done under that lock: an arrival that is refused has dropped nothing.
// Tests      tests/sync/latch_barrier_test.cpp
#include <dunlin/barrier.hpp>

#include <mutex>
#include <stdexcept>
#include <string>

#include "sync/lot_wait.h"

namespace dunlin::inline v0_1::detail {

namespace {

constexpr std::uint32_t phase_of(std::uint64_t word) noexcept { return static_cast<std::uint32_t>(word >> 32); }
constexpr std::uint32_t missing_in(std::uint64_t word) noexcept { return static_cast<std::uint32_t>(word); }

barrier_core::arrival arrival_of(std::uint64_t before, std::ptrdiff_t n, const char* operation) {
    const std::uint32_t missing = missing_in(before);
    if (n > static_cast<std::ptrdiff_t>(missing)) {
        throw std::logic_error(operation + std::to_string(n) + " arrivals, " + std::to_string(missing)
            + " are expected");
    }
    return {phase_of(before), static_cast<std::ptrdiff_t>(missing) == n};
}

}  // namespace

void barrier_core::throw_bad_count(std::ptrdiff_t expected) {
    throw std::invalid_argument("dunlin::barrier: a count of " + std::to_string(expected)
        + " is not between 0 and max(), " + std::to_string(INT32_MAX));
}

barrier_core::~barrier_core() { park::check_no_waiters(this, "a barrier is destroyed while goroutines wait for it"); }

barrier_core::arrival barrier_core::arrive(std::ptrdiff_t n) {
    if (n <= 0) throw std::invalid_argument("dunlin::barrier::arrive: " + std::to_string(n) + " arrivals");
    return arrival_of(take_arrivals(n), n, "dunlin::barrier::arrive: ");
}

barrier_core::arrival barrier_core::arrive_and_drop() {
    std::uint64_t before;
    {
        park::runtime_section inside;
        // Pairs with the lock of complete(): the end of this phase sees the smaller count.
        const std::scoped_lock guard(park::bucket_of(this).lock);
        before = take_arrivals(1);
        if (missing_in(before) != 0) --expected_;  // never less than what is missing
    }
    return arrival_of(before, 1, "dunlin::barrier::arrive_and_drop: ");
}

// Returns the word before. If fewer than n arrivals are missing in it, nothing has changed.
std::uint64_t barrier_core::take_arrivals(std::ptrdiff_t n) noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    while (n <= static_cast<std::ptrdiff_t>(missing_in(word))) {
        // Acquire-release: what happened before each arrival happens before the completion function of the last one.
        if (word_.compare_exchange_weak(word, word - static_cast<std::uint64_t>(n), std::memory_order_acq_rel,
            std::memory_order_relaxed)) {
            break;
        }
    }
    return word;
}

void barrier_core::complete(std::uint32_t phase) noexcept {
    park::runtime_section inside;
    park::lot_bucket& b = park::bucket_of(this);
    park::wake_chain chain;
    b.lock.lock();
    word_.store(std::uint64_t{phase + 1} << 32 | expected_, std::memory_order_seq_cst);
    for (park::lot_node* n = b.front(this); n != nullptr && n->kind == park::lot_kind::barrier;) {
        park::lot_node* const next = n->after();
        if (n->value == phase) {
            b.remove(n);
            if (n->claim()) chain.add(n);
        }
        n = next;
    }
    b.lock.unlock();
    park::wake_all(chain.first());
}

wait_outcome barrier_core::wait(std::uint32_t phase, const wait_limit* limit, const std::source_location& where) {
    return wait_until_arrived(this, park::lot_kind::barrier, phase, sched::wait_reason::barrier_wait, limit, where,
        [this, phase]() noexcept { return phase_of(word_.load(std::memory_order_seq_cst)) != phase; });
}

}  // namespace dunlin::detail
