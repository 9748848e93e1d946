// simulated_point.hpp - where a simulation for users (dunlin/sim.hpp) may switch a goroutine away, in calls that need
// not enter the runtime: it must find the deadlock of two locks that are free and are taken in two orders.
//
// The fast paths do not ask whether there is a simulation. They compare with a variable instead of a constant, which
// costs no instruction; a simulation sets the variable so that the fast paths fail, and the slow paths ask.
#pragma once

#include <dunlin/config.hpp>

#include <cstddef>
#include <cstdint>

namespace dunlin::inline v0_1::detail {

/// Only a simulation changes it. Relaxed is enough: the simulation's goroutines run on the thread that has changed it,
/// or were handed over to another thread.
struct fast_path_bounds {
    /// The word of a free lock. In a simulation: one that no lock has.
    std::uint32_t free_word = 0;
    /// A shared_mutex whose word is less has room. In a simulation: 0.
    std::uint32_t most_readers = (1u << 30) - 1;
    /// A semaphore that has more can be taken. In a simulation: the maximum.
    std::ptrdiff_t no_permits = 0;
};

// src/sync/simulated_point.cpp
DUNLIN_API extern fast_path_bounds fast_paths;
DUNLIN_API void simulated_point() noexcept;

inline std::uint32_t free_word() noexcept { return __atomic_load_n(&fast_paths.free_word, __ATOMIC_RELAXED); }
inline std::uint32_t most_readers() noexcept { return __atomic_load_n(&fast_paths.most_readers, __ATOMIC_RELAXED); }
inline std::ptrdiff_t no_permits() noexcept { return __atomic_load_n(&fast_paths.no_permits, __ATOMIC_RELAXED); }

/// Called on slow paths.
inline void pass_simulation() noexcept {
    if (free_word() != 0) [[unlikely]] simulated_point();
}

}  // namespace dunlin::detail
