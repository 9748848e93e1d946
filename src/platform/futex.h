// futex.h - sleep while a word has a value. Raw system calls: no errno is touched, no libc lock is taken.
//
// Both calls are safe in signal handlers and in threads that do not belong to the runtime.
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

namespace dunlin::inline v0_1::platform {

// Every other number is a moment: 0 and those below it are past, and a caller of the library may give them.
inline constexpr std::int64_t no_deadline = INT64_MAX;

// Sleeps while `word` == `expected`. May return early (a signal, a spurious wake): callers loop.
void futex_wait(const platform::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept;

// The same, until `deadline_ns` of the monotonic clock at the latest. Returns false when the deadline passed.
bool futex_wait_until(const platform::atomic<std::uint32_t>& word, std::uint32_t expected,
    std::int64_t deadline_ns) noexcept;

// Wakes at most `count` sleepers.
void futex_wake(const platform::atomic<std::uint32_t>& word, int count = 1) noexcept;

}  // namespace dunlin::platform
