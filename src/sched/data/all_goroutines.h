// all_goroutines.h - the table of all goroutine structs ever made, and a walk over it, for dumps and for the end of
// run().
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstddef>

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

struct goroutine_chunks {
    static constexpr std::size_t chunk_bytes = std::size_t{2} << 20;
    static constexpr std::size_t max = 1 << 16;  // 65,536 chunks of 2 MiB: 700 million goroutines
    platform::atomic<std::size_t> count{0};
    platform::atomic<std::size_t> last_used{0};       // structs cut from the last chunk
    platform::atomic<goroutine*> at[max] = {};
};

DUNLIN_HIDDEN extern goroutine_chunks the_goroutines;  // only goroutines/pool.cpp changes it
inline constexpr std::size_t goroutines_in_a_chunk = goroutine_chunks::chunk_bytes / sizeof(goroutine);

// Calls f(goroutine&) for each. States may change meanwhile unless the world is stopped. Structs that were not used
// for long are in no cache: the next ones are fetched meanwhile, which takes a fraction of the time.
template <class F>
void for_each_goroutine(F f) {
    const goroutine_chunks& chunks = the_goroutines;
    const std::size_t n = chunks.count.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < n; ++i) {
        goroutine* chunk = chunks.at[i].load(std::memory_order_relaxed);
        const std::size_t used = i + 1 < n ? goroutines_in_a_chunk
            : chunks.last_used.load(std::memory_order_acquire);
        for (std::size_t k = 0; k < used; ++k) {
            constexpr std::size_t ahead = 12;  // a fetch of one that is not used, or not there, does no harm
            const auto* next = reinterpret_cast<const std::byte*>(chunk + k + ahead);
            __builtin_prefetch(next);
            __builtin_prefetch(next + platform::cache_line);
            f(chunk[k]);
        }
    }
}

}  // namespace dunlin::sched
