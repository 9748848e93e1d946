// build.h - what kind of build this is, and how many rounds a stress has in it.
#pragma once

#include <dunlin/config.hpp>

namespace support {

inline constexpr bool under_address = DUNLIN_ADDRESS_SANITIZER, under_thread = DUNLIN_THREAD_SANITIZER;
inline constexpr bool sanitized = under_address || under_thread;

// A tenth under a sanitizer, which makes everything about ten times as slow.
constexpr int rounds(int plain) { return sanitized ? (plain + 9) / 10 : plain; }

}  // namespace support
