// barrier.hpp - a number of goroutines or threads wait for each other, again and again.
#pragma once

#include <dunlin/config.hpp>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <type_traits>
#include <utility>

#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/wait.hpp>

namespace dunlin::inline v0_1 {

namespace detail {

// src/sync/barrier.cpp
class DUNLIN_API barrier_core {
public:
    constexpr explicit barrier_core(std::ptrdiff_t expected)
        : word_(checked(expected)), expected_(static_cast<std::uint32_t>(expected)) {}
    ~barrier_core();
    barrier_core(const barrier_core&) = delete;
    barrier_core& operator=(const barrier_core&) = delete;

    struct arrival {
        std::uint32_t phase;
        bool last;  // the caller has to complete() the phase
    };
    arrival arrive(std::ptrdiff_t n);  // throws
    arrival arrive_and_drop();         // throws; then nothing has changed
    void complete(std::uint32_t phase) noexcept;
    wait_outcome wait(std::uint32_t phase, const wait_limit* limit, const std::source_location& where);

private:
    static constexpr std::uint32_t checked(std::ptrdiff_t expected) {
        if (expected < 0 || expected > INT32_MAX) throw_bad_count(expected);
        return static_cast<std::uint32_t>(expected);
    }
    [[noreturn]] static void throw_bad_count(std::ptrdiff_t expected);
    std::uint64_t take_arrivals(std::ptrdiff_t n) noexcept;

    platform::atomic<std::uint64_t> word_;  // phase:32 | missing arrivals:32
    std::uint32_t expected_;           // bucket's lock: arrivals of the next phase
};

struct no_completion {
    void operator()() const noexcept {}
};

}  // namespace detail

/// A fixed number of goroutines or threads that wait for each other, phase after phase; with the interface of
/// std::barrier. The last one to arrive in a phase calls the completion function; then all go on.
///
/// It may be destroyed as soon as all waits of the last phase have returned, even if the arrive() that ended the phase
/// has not returned yet.
/// Order     What happens before an arrival happens before the completion function, and the completion function happens
///           before the return of the phase's waits.
template <class CompletionFunction = detail::no_completion>
class barrier {
    static_assert(std::is_nothrow_invocable_v<CompletionFunction&>,
        "a completion function must be callable without arguments and noexcept");

public:
    /// The proof of an arrival, to wait with.
    class arrival_token {
    public:
        arrival_token(arrival_token&&) = default;
        arrival_token& operator=(arrival_token&&) = default;

    private:
        friend class barrier;
        explicit arrival_token(std::uint32_t phase) noexcept : phase_(phase) {}
        std::uint32_t phase_;
    };

    static constexpr std::ptrdiff_t max() noexcept { return INT32_MAX; }

    /// Throws std::invalid_argument if `expected` is negative or more than max().
    constexpr explicit barrier(std::ptrdiff_t expected, CompletionFunction f = CompletionFunction()) : core_(expected),
        completion_(std::move(f)) {}

    /// Arrives n times, without waiting. Throws std::invalid_argument if n is not positive; std::logic_error if fewer
    /// than n arrivals are still expected.
    [[nodiscard]] arrival_token arrive(std::ptrdiff_t n = 1) {
        return arrival_token(complete_if_last(core_.arrive(n)));
    }
    /// Waits until the token's phase has ended; returns at once if it has. Blocks the goroutine; on a plain thread,
    /// that thread.
    void wait(arrival_token&& token, std::source_location where = std::source_location::current()) const {
        core_.wait(token.phase_, nullptr, where);
    }
    /// The same until `ctx` is done: throws context_cancelled then; the arrival counts all the same. Throws
    /// std::bad_alloc.
    void wait(arrival_token&& token, const context& ctx,
        std::source_location where = std::source_location::current()) const {
        const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
        if (core_.wait(token.phase_, &limit, where) == detail::wait_outcome::cancelled) {
            detail::throw_cancelled(ctx, "barrier wait");
        }
    }
    void arrive_and_wait(std::source_location where = std::source_location::current()) { wait(arrive(), where); }
    void arrive_and_wait(const context& ctx, std::source_location where = std::source_location::current()) {
        wait(arrive(), ctx, where);
    }
    /// Arrives, and takes no part in later phases. Throws std::logic_error if no more arrivals are expected in this
    /// phase; in that case the caller still takes part.
    void arrive_and_drop() { complete_if_last(core_.arrive_and_drop()); }

private:
    std::uint32_t complete_if_last(const detail::barrier_core::arrival& a) {
        if (a.last) {
            completion_();
            core_.complete(a.phase);
        }
        return a.phase;
    }

    mutable detail::barrier_core core_;
    [[no_unique_address]] CompletionFunction completion_;
};

}  // namespace dunlin
