// collect.h - what a report finds out about a goroutine while the world is stopped, whatever the form of the report.
#pragma once

#include <cstdint>

#include "observe/alike.h"
#include "sched/data/types.h"
#include "sched/preempt/stack_capture.h"
#include "stack/trace.h"

namespace dunlin::inline v0_1::observe {

bool alive(const sched::goroutine& g) noexcept;

// How long the goroutines of a group have waited.
struct waited {
    std::int64_t shortest_ns, longest_ns;

    explicit waited(const alike::member* m) noexcept;
};

// True: its registers are saved in its struct.
bool has_trace(const sched::goroutine& g) noexcept;
// The trace of the caller, of a parked goroutine, or of one that computes (its sample).
stack::trace trace_of(const sched::goroutine& g, const sched::stack_captures& captures) noexcept;

// The mutex that it waits for; null: it waits for something else, or allow_searches() is used up. Each call is a search
// of the parking lot, so their number is limited.
const void* mutex_of(const sched::goroutine& g) noexcept;
void allow_searches(int count) noexcept;

// True: the place where it waits is none of the program's, and its stack is known. It is in a header of the C++ library
// (a std::lock_guard's) or of dunlin's, from which a wait cannot be given a place, or there is none. The report then
// names the function of the program that led there.
bool waits_in_library(const sched::goroutine& g) noexcept;

// Equal for goroutines that are alike (alike.h).
std::uint64_t key_of(const sched::goroutine& g, const sched::stack_captures& captures) noexcept;

}  // namespace dunlin::observe
