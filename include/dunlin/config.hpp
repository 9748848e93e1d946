// config.hpp - version and visibility.
#pragma once

#define DUNLIN_VERSION_MAJOR 0
#define DUNLIN_VERSION_MINOR 1
#define DUNLIN_VERSION_PATCH 0

#if !defined(__GNUC__)
#error "dunlin needs g++ 12 or clang 16, or later"
#endif
#if __cplusplus < 202002L
#error "dunlin needs C++20 (-std=c++20)"
#endif

#define DUNLIN_API __attribute__((visibility("default")))

namespace dunlin {

// The library's version as a number that grows: 10000 * major + 100 * minor + patch.
inline constexpr int version = 10000 * DUNLIN_VERSION_MAJOR + 100 * DUNLIN_VERSION_MINOR + DUNLIN_VERSION_PATCH;

}  // namespace dunlin
