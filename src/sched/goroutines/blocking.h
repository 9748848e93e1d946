// blocking.h - calls that a goroutine announces as blocking.
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

struct blocking_entry {
    // 0: it is not timed. -1: in a simulation for users.
    static constexpr std::int64_t steered = -1;
    std::int64_t began_ns = 0;
    wait_reason reason_before = wait_reason::none;
};

// The beginning and the end of a call. `score` remembers how long calls at this place take. Any thread; a plain one
// does nothing here.
blocking_entry begin_blocking(platform::atomic<unsigned char>& score) noexcept;
void end_blocking(platform::atomic<unsigned char>& score, const blocking_entry& entry) noexcept;

// A no_preempt scope. begin: false if the goroutine is in one already, or this is a plain thread.
bool begin_no_preempt() noexcept;
void end_no_preempt() noexcept;

}  // namespace dunlin::sched
