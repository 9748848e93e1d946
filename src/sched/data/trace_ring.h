// trace_ring.h - where a machine's events go (trace.h).
#pragma once

#include <cstdint>

#include <dunlin/detail/atomic.hpp>

namespace dunlin::inline v0_1::sched::tracing {

struct chunk;

// What makes goroutines runnable at the moment; the numbers are those in the file.
enum class cause : std::uint8_t { goroutine = 1, timer, poller, outside, runtime };

struct ring {
    chunk* now = nullptr;               // where the next event goes; null: none yet, or none is free
    std::uint32_t generation = 0;       // of the trace to which `now` belongs
    cause why = cause::goroutine;
    // the time when a goroutine left just now: the next one begins to run then. 0: none did
    std::uint64_t fresh = 0;
    // Events lost since there has been no chunk, and when the last one was. Readers look at both.
    platform::atomic<std::uint64_t> lost{0}, lost_at{0};
    std::uint32_t draw = 1;             // draws which goroutines that become runnable are measured (trace.h)
};

}  // namespace dunlin::sched::tracing
