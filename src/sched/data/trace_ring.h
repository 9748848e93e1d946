// trace_ring.h - where a machine's events go (trace.h).
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::sched::tracing {

struct chunk;

// What brings goroutines back at the moment; in the file's numbers.
enum class cause : std::uint8_t { goroutine = 1, timer, poller, outside, runtime };

struct ring {
    chunk* now = nullptr;               // where the next event goes; null: none yet, or none is free
    std::uint32_t generation = 0;       // of the trace that `now` is of
    cause why = cause::goroutine;
    // when a goroutine has left, a moment ago: the next begins to run then. 0: not so
    std::uint64_t fresh = 0;
    std::uint64_t lost = 0;             // events since there was no chunk
    std::uint32_t draw = 1;             // which of those that become runnable are measured (trace.h)
};

}  // namespace dunlin::sched::tracing
