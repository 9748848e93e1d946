// simulated_point.hpp - where a simulation for users (dunlin/sim.hpp) may switch a goroutine away, in calls that need
// not enter the runtime: two locks that are free, taken in two orders, are a deadlock to be found.
#pragma once

#include <dunlin/config.hpp>

#include <cstdint>

namespace dunlin::inline v0_1::detail {

// src/sync/simulated_point.cpp
/// Not 0: a simulation is on. Changed by it alone; relaxed: its goroutines run on the thread that has changed it, or
/// were handed over to another.
DUNLIN_API extern std::uint32_t simulations;
DUNLIN_API void simulated_point() noexcept;

inline void pass_simulation() noexcept {
    if (__atomic_load_n(&simulations, __ATOMIC_RELAXED) != 0) [[unlikely]] simulated_point();
}

}  // namespace dunlin::detail
