// contention.h - what block and mutex profiles have counted: how often and how long, by stack, by what was waited for,
// and by the goroutine's name and labels.
//
// Data       A table of fixed size, mapped when a profile is first switched on: counting allocates nothing, except for
//            a goroutine with a name or labels. When the table is full, what finds no place is counted for a stack
//            without frames.
// Tests      tests/runtime/contention_test.cpp
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "platform/lock.h"
#include "sched/data/types.h"
#include "stack/trace.h"

namespace dunlin::inline v0_1::observe {

class contention_table {
public:
    using labels = std::vector<std::pair<std::string, std::string>>;
    struct record {
        stack::trace frames;
        double count = 0, delay_ns = 0;
        sched::wait_reason reason = sched::wait_reason::none;
        const labels* with = nullptr;  // of the goroutine, with its name; lives for ever. Null: none
    };

    // Must come before the first add(). Throws std::bad_alloc.
    void prepare();
    // Counts what the caller does here. Call from outside the runtime; g is the caller, or null.
    void add(const stack::trace& frames, sched::wait_reason reason, const sched::goroutine* g, double count,
        double delay_ns) noexcept;
    // Throws std::bad_alloc.
    std::vector<record> all();

private:
    struct entry {
        std::uint64_t key;  // 0: free
        record what;
    };
    static constexpr std::size_t places = 8192, most = places / 2;  // a power of two

    entry& find(std::uint64_t key) noexcept;

    platform::ranked_lock<platform::lock_rank::leaf> lock_;
    entry* entries_ = nullptr;  // lock_
    std::size_t used_ = 0;      // lock_
};

// Waits by reason and length. This is one of several shards, since threads count at the same time.
struct park_times {
    std::array<platform::atomic<std::uint64_t>, sched::wait_limits_ns.size() + 1> by_length;
    platform::atomic<std::uint64_t> total_ns;
};
inline constexpr std::size_t park_time_shards = 8;
DUNLIN_HIDDEN extern park_times park_times_of[park_time_shards][sched::wait_reason_count];

// Keeps park::waits_counter set while a trace runs.
void count_waits_for_trace(bool on) noexcept;

}  // namespace dunlin::observe
