// collect.h - what a report finds out about a goroutine while the world is stopped, in whatever form it is written
// then.
#pragma once

#include <cstdint>

#include "observe/alike.h"
#include "sched/data/types.h"
#include "sched/preempt/sample.h"
#include "stack/trace.h"

namespace dunlin::inline v0_1::observe {

bool alive(const sched::goroutine& g) noexcept;

// How long those of a group have waited.
struct waited {
    std::int64_t shortest_ns, longest_ns;

    explicit waited(const alike::member* m) noexcept;
};

// Its registers are in its descriptor.
bool has_trace(const sched::goroutine& g) noexcept;
// The caller's own, that of a parked goroutine, or of one that computes.
stack::trace trace_of(const sched::goroutine& g, const sched::samples& samples) noexcept;

// The mutex that it waits for, null if it is something else. A search for each: only so many.
const void* mutex_of(const sched::goroutine& g) noexcept;
void allow_searches(int count) noexcept;

// A lock that a std::lock_guard takes is called from a header of the C++ library: the function that made the guard is
// meant.
bool locked_by_library(const sched::goroutine& g) noexcept;

// Equal for those that are alike (alike.h).
std::uint64_t key_of(const sched::goroutine& g, const sched::samples& samples) noexcept;

}  // namespace dunlin::observe
