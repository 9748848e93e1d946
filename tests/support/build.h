// build.h - what kind of build this is, and how many rounds a stress has in it.
#pragma once

namespace support {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool under_address = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool under_address = true;
#else
inline constexpr bool under_address = false;
#endif
#else
inline constexpr bool under_address = false;
#endif

#if defined(__SANITIZE_THREAD__)
inline constexpr bool under_thread = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool under_thread = true;
#else
inline constexpr bool under_thread = false;
#endif
#else
inline constexpr bool under_thread = false;
#endif

inline constexpr bool sanitized = under_address || under_thread;

// A tenth under a sanitizer, which makes everything about ten times as slow.
constexpr int rounds(int plain) { return sanitized ? (plain + 9) / 10 : plain; }

}  // namespace support
