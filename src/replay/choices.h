// choices.h - what one execution of a simulation for users draws from its seed; and the hash of what was decided.
#pragma once

#include <cstdint>
#include <vector>

#include "platform/random.h"
#include "replay/search.h"
#include "sched/data/types.h"

namespace dunlin::inline v0_1::replay {

// A hash of everything that was decided, in order.
class choice_hash {
public:
    void add(std::uint64_t value) noexcept {
        value_ = (value_ ^ value) * 0x9e3779b97f4a7c15u;
        value_ ^= value_ >> 29;
    }
    std::uint64_t value() const noexcept { return value_; }

private:
    std::uint64_t value_ = 0x243f6a8885a308d3u;
};

// What is known of a goroutine. Goroutines are numbered in the order in which they first became runnable.
struct candidate {
    std::uint64_t number = 0;    // 1: f's goroutine; 0: not known
    std::uint64_t priority = 0;  // pct
    sched::goroutine* g = nullptr;
    std::uint32_t host = 0;      // network.h
    bool queued = false;         // it is among those that can run
    bool yielded = false;        // when it last stopped running
    bool off = false;            // its host is off: it never runs again
};

class choices {
public:
    // depth: the depth of pct; 0: random. s: if it is not null, it is asked instead.
    void begin(std::uint64_t seed, unsigned depth, std::int64_t longest_delay_ns, search* s);

    std::uint64_t below(std::uint64_t bound) noexcept;  // bound > 0
    bool uses_priorities() const noexcept { return depth_ != 0; }

    // pct: the priority of a new goroutine; that of one that gives way. Does the goroutine that runs at step `step`
    // lose its own there?
    std::uint64_t new_priority() noexcept { return source_.next() | high; }
    std::uint64_t lowest_priority() noexcept { return --lowest_; }
    bool is_change_point(std::uint64_t step) noexcept;

    // random: is the running goroutine switched away? Which of the `count` that can run, the oldest first, runs next?
    bool switches_away() noexcept { return of_256(switch_odds_); }
    std::size_t which(std::size_t count) noexcept;

    // How long all goroutines that can run have to wait before the next one runs; mostly 0.
    std::int64_t delay_ns() noexcept;
    // How long a call of blocking() takes before the function that it calls, or after it.
    std::int64_t drawn_time() noexcept;

    // Null, or the search that is asked instead of all the above. Numbers that it cannot try one by one are drawn all
    // the same.
    search* every_order() const noexcept { return search_; }
    std::int64_t longest_delay_ns() const noexcept { return longest_delay_ns_; }

private:
    static constexpr std::uint64_t high = std::uint64_t{1} << 63;

    bool of_256(unsigned odds) noexcept { return odds != 0 && (source_.next() >> 56) < odds; }

    platform::random_source source_;
    search* search_ = nullptr;
    unsigned depth_ = 0;
    std::vector<std::uint64_t> change_points_;  // steps
    std::uint64_t lowest_ = high;
    unsigned switch_odds_ = 0;                   // of 256
    unsigned delay_odds_ = 0;
    unsigned newest_odds_ = 0, oldest_odds_ = 0;
    std::int64_t longest_delay_ns_ = 0;
};

}  // namespace dunlin::replay
