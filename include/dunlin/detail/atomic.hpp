// atomic.hpp - the runtime's atomic variables: those of std, under a name of their own. The simulation build (the
// preset `sim`) compiles the same files with variables whose every access a simulation sees.
#pragma once

#include <dunlin/config.hpp>

#include <atomic>

#if defined(DUNLIN_SIM)
#include <dunlin/detail/checked_atomic.hpp>
#endif

namespace dunlin::inline v0_1::platform {

#if defined(DUNLIN_SIM)
template <class T>
using atomic = checked_atomic<T>;
#else
template <class T>
using atomic = std::atomic<T>;
#endif

}  // namespace dunlin::platform
