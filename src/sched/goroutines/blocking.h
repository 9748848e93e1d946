// blocking.h - calls that a goroutine announces as blocking.
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

struct blocking_entry {
    // 0: the call is not timed. -1 (steered): in a simulation for users.
    static constexpr std::int64_t steered = -1;
    std::int64_t began_ns = 0;
    wait_reason reason_before = wait_reason::none;
};

// Called at the beginning and at the end of a call. `score` remembers how long calls at this place take. Any thread; on
// a plain thread they do nothing.
blocking_entry begin_blocking(platform::atomic<unsigned char>& score) noexcept;
void end_blocking(platform::atomic<unsigned char>& score, const blocking_entry& entry) noexcept;

// A no_preempt scope. begin_no_preempt(): false if the goroutine is in one already, or if this is a plain thread.
bool begin_no_preempt() noexcept;
void end_no_preempt() noexcept;

}  // namespace dunlin::sched
