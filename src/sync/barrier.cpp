// barrier.cpp - a number of goroutines or threads wait for each other, again and again.
//
// Data       word_ = phase | arrivals missing. Those who wait are in the lot, each with the phase whose end it waits for.
// Protocol   arrive: missing -= n (CAS). Who makes it zero runs the completion function, with nobody else able to arrive, and then stores the next phase and
//            its count in one word (seq_cst). That is the last access to the object; then it wakes those of the lot whose phase is over (park/lot.h,
//            A2 and A3). It looks at the object again only if somebody waits there: at this address may be another barrier by then.
// Tests      tests/sync/latch_barrier_test.cpp
#include <dunlin/barrier.hpp>

#include <stdexcept>
#include <string>

#include "sync/lot_wait.h"

namespace dunlin::detail {

namespace {

constexpr std::uint32_t phase_of(std::uint64_t word) noexcept { return static_cast<std::uint32_t>(word >> 32); }
constexpr std::uint32_t missing_in(std::uint64_t word) noexcept { return static_cast<std::uint32_t>(word); }

std::uint32_t checked_count(std::ptrdiff_t expected) {
    if (expected < 0 || expected > INT32_MAX) {
        throw std::invalid_argument("dunlin::barrier: a count of " + std::to_string(expected) + " is not between 0 and max(), " + std::to_string(INT32_MAX));
    }
    return static_cast<std::uint32_t>(expected);
}

}  // namespace

barrier_core::barrier_core(std::ptrdiff_t expected) : word_(checked_count(expected)), expected_(static_cast<std::uint32_t>(expected)) {}

barrier_core::~barrier_core() { park::check_nobody_waits(this, "a barrier is destroyed while goroutines wait for it"); }

barrier_core::arrival barrier_core::arrive(std::ptrdiff_t n) {
    if (n <= 0) throw std::invalid_argument("dunlin::barrier::arrive: " + std::to_string(n) + " arrivals");
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    do {
        if (n > static_cast<std::ptrdiff_t>(missing_in(word))) {
            throw std::logic_error("dunlin::barrier::arrive: " + std::to_string(n) + " arrivals, " + std::to_string(missing_in(word)) + " are expected");
        }
    } while (!word_.compare_exchange_weak(word, word - static_cast<std::uint64_t>(n), std::memory_order_acq_rel, std::memory_order_relaxed));
    return {phase_of(word), static_cast<std::ptrdiff_t>(missing_in(word)) == n};
}

void barrier_core::drop() {
    std::uint32_t expected = expected_.load(std::memory_order_relaxed);
    do {
        if (expected == 0) throw std::logic_error("dunlin::barrier::arrive_and_drop: nobody is expected any more");
    } while (!expected_.compare_exchange_weak(expected, expected - 1, std::memory_order_relaxed));
}

void barrier_core::complete(std::uint32_t phase) noexcept {
    const void* const here = this;
    // What was dropped in this phase came before an arrival in it.
    word_.store(std::uint64_t{phase + 1} << 32 | expected_.load(std::memory_order_relaxed), std::memory_order_seq_cst);
    wake_arrived(here, park::lot_kind::barrier, [here](const park::lot_node& n) noexcept {
        return phase_of(static_cast<const barrier_core*>(here)->word_.load(std::memory_order_relaxed)) != n.value;
    });
}

wait_outcome barrier_core::wait(std::uint32_t phase, const wait_limit* limit, const std::source_location& where) {
    return wait_until_arrived(this, park::lot_kind::barrier, phase, sched::wait_reason::barrier_wait, limit, where,
        [this, phase]() noexcept { return phase_of(word_.load(std::memory_order_seq_cst)) != phase; });
}

}  // namespace dunlin::detail
