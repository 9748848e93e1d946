// turn_trial.h - how far a processor is with trying whether its goroutines are better off with one processor (turns.h,
// Trial).
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

namespace dunlin::inline v0_1::sched {

// Of a processor. Its owner, or the thread that has stopped the world; thieves read `together`.
struct turn_trial {
    enum class phase : std::uint8_t {
        none,
        settles,   // its wakes are deferred: the goroutines come together here
        measures,  // the same, and its turns are measured
    };
    // how many turns are looked at before a trial, and belong to each of its phases
    static constexpr unsigned looked_at = 32, settling = 8, measured = 32;
    static constexpr std::int64_t first_pause_ns = 1'000'000, longest_pause_ns = 320'000'000;

    phase now = phase::none;
    unsigned left = 0;                 // turns of this phase
    std::uint32_t turn_ns_before = 0;  // the processor's turn_ns when the trial began
    std::int64_t step_ns_before = 0;   // how long a step took then
    std::int64_t looked_ns = 0;        // when the last turn ended, or the next one began
    // One is under way, or the last one has found that one processor does more than two. Relaxed: a hint.
    platform::atomic<bool> together{false};
    // of the phase, or of the long turns before a trial: how many, what they took, and their steps
    unsigned seen = 0;
    std::int64_t seen_ns = 0;
    std::uint64_t seen_steps = 0;
    std::int64_t not_before_ns = 0;    // when the next one may begin
    std::int64_t pause_ns = first_pause_ns;

    bool under_way() const noexcept { return now != phase::none; }
    void see(std::int64_t took_ns, std::uint64_t steps) noexcept {
        ++seen;
        seen_ns += took_ns;
        seen_steps += steps;
    }
    // How long a step took in what has been seen, which is forgotten; something has been.
    std::int64_t take_step_ns() noexcept {
        const std::int64_t step_ns = seen_ns / static_cast<std::int64_t>(seen_steps);
        forget();
        return step_ns;
    }
    void forget() noexcept {
        seen = 0;
        seen_ns = 0;
        seen_steps = 0;
    }
};

}  // namespace dunlin::sched
