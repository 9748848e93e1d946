// cpu.h - the few instructions that C++ has no name for, one line per CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "platform/simulated.h"

namespace dunlin::inline v0_1::platform {

inline constexpr std::size_t cache_line = 64;

// Two lines: the adjacent-line prefetcher of x86 makes neighbours share, so state of different owners stays 128 bytes
// apart.
inline constexpr std::size_t false_sharing_range = 128;

// Tells the CPU that this is a spin loop. About 25 ns on the machines measured, 1 ns on others: never count time with
// it.
inline void pause() noexcept {
    if (simulation* s = simulation_here()) return s->pause();
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
}

// The machine code of the hints by which a loop tells the CPU that it waits.
#if defined(__x86_64__)
inline constexpr std::size_t spin_hint_bytes = 2, spin_hint_step = 1;
inline bool is_spin_hint(const std::uint8_t* code) noexcept { return code[0] == 0xf3 && code[1] == 0x90; }  // pause
#elif defined(__aarch64__)
inline constexpr std::size_t spin_hint_bytes = 4, spin_hint_step = 4;
inline bool is_spin_hint(const std::uint8_t* code) noexcept {
    std::uint32_t word;
    std::memcpy(&word, code, sizeof word);
    return word == 0xd503203f || word == 0xd503205f || word == 0xd5033fdf;  // yield, wfe, isb
}
#endif

inline void prefetch(const void* address) noexcept { __builtin_prefetch(address, 1, 3); }

// For a variable that is declared here and defined in another file of the library: it is linked together with its
// users, so its address needs no table, which -fPIC would use otherwise (-fvisibility=hidden is about definitions
// only). This saves two of the 53 instructions of a mutex's lock and unlock.
#define DUNLIN_HIDDEN __attribute__((visibility("hidden")))

// For a function that ThreadSanitizer must not instrument, because it may run in a thread that ThreadSanitizer does not
// know yet or any more. Everything that it calls must always be inlined; otherwise that is instrumented all the same.
#if defined(__clang__)
#define DUNLIN_NOT_INSTRUMENTED __attribute__((disable_sanitizer_instrumentation))
#else
#define DUNLIN_NOT_INSTRUMENTED __attribute__((no_sanitize("thread")))
#endif

// Hints that a condition is usually true, or rarely.
#define DUNLIN_LIKELY(x) __builtin_expect(!!(x), 1)
#define DUNLIN_UNLIKELY(x) __builtin_expect(!!(x), 0)

}  // namespace dunlin::platform
