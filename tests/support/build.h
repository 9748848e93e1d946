// build.h - what kind of build this is, and how many rounds a stress has in it.
#pragma once

#include <dunlin/config.hpp>

namespace support {

inline constexpr bool under_address = DUNLIN_ADDRESS_SANITIZER, under_thread = DUNLIN_THREAD_SANITIZER;
inline constexpr bool sanitized = under_address || under_thread;
#if defined(DUNLIN_EMULATED)
inline constexpr bool emulated = true;  // runs under qemu
#else
inline constexpr bool emulated = false;
#endif

// A tenth under a sanitizer or an emulator, which make everything about ten times as slow.
constexpr int rounds(int plain) { return sanitized || emulated ? (plain + 9) / 10 : plain; }

}  // namespace support
