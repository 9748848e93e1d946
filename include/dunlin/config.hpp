// config.hpp - version, visibility, and what is needed to compile and to link with the library. Every public header
// includes it before any other, so that one line says what is missing, before the standard library complains.
#pragma once

#define DUNLIN_VERSION_MAJOR 0
#define DUNLIN_VERSION_MINOR 1
#define DUNLIN_VERSION_PATCH 0

// Everything in the library is in the inline namespace dunlin::v0_1, named after the version whose binary interface
// this is: a program that was compiled with another version's headers does not link with this library, and in one
// process, calls of one version are never bound to functions of another. A program still writes dunlin::mutex.
#define DUNLIN_ABI_NAME "v0_1"

// Compilers go on after #error, but later messages would not help: including a header that does not exist stops them.
#if defined(__clang__) && __clang_major__ < 16
#error "dunlin needs clang 16 or later, or g++ 12 or later"
#include <dunlin/stop>
#elif !defined(__GNUC__) || (!defined(__clang__) && __GNUC__ < 12)
#error "dunlin needs g++ 12 or later, or clang 16 or later"
#include <dunlin/stop>
#elif __cplusplus < 202002L
#error "dunlin needs C++20: -std=c++20, in CMake target_compile_features(... cxx_std_20)"
#include <dunlin/stop>
#elif !defined(__linux__)
#error "dunlin is for Linux only"
#include <dunlin/stop>
#elif !defined(__LP64__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "dunlin needs a 64-bit processor, x86-64 or aarch64 (no -m32, no -mx32)"
#include <dunlin/stop>
#elif !__has_include(<bits/c++config.h>)
#error "dunlin needs GCC's standard library, libstdc++ (no -stdlib=libc++): its own one is compiled with that"
#include <dunlin/stop>
#elif !defined(__cpp_exceptions)
#error "dunlin needs exceptions (no -fno-exceptions)"
#include <dunlin/stop>
#elif !defined(__cpp_rtti)
#error "dunlin needs type information (no -fno-rtti)"
#include <dunlin/stop>
#endif

#define DUNLIN_API __attribute__((visibility("default")))

// ---- is the program compiled as the library is? ---------------------------------------------------------------------
//
// A sanitizer must be told of every switch of stacks, and the code for this is compiled into the library or is not. The
// containers of _GLIBCXX_DEBUG and the strings of _GLIBCXX_USE_CXX11_ABI=0 have a different layout, and pass between
// program and library (docs/decisions/040-one-build.md). So for each of these four settings the library defines one of
// two functions, and every object file that includes a header refers to the one that it needs. If they differ, the
// linker names the missing function; the dynamic linker does so if the library was replaced later. The functions are
// never called.
//
// Without any library, or with a static one before the files that use it, all of them are missing. What is missing then
// but never else is referred to last, as the last line of a linker is the one that is read.

#include <version>

#if defined(__has_feature)
#define DUNLIN_HAS_FEATURE(x) __has_feature(x)
#else
#define DUNLIN_HAS_FEATURE(x) 0
#endif
// g++ announces a sanitizer by the first of each pair, clang by the second. All other code asks these two macros, which
// are 0 or 1.
#if defined(__SANITIZE_ADDRESS__) || DUNLIN_HAS_FEATURE(address_sanitizer)
#define DUNLIN_ADDRESS_SANITIZER 1
#else
#define DUNLIN_ADDRESS_SANITIZER 0
#endif
#if defined(__SANITIZE_THREAD__) || DUNLIN_HAS_FEATURE(thread_sanitizer)
#define DUNLIN_THREAD_SANITIZER 1
#else
#define DUNLIN_THREAD_SANITIZER 0
#endif
#undef DUNLIN_HAS_FEATURE
#if DUNLIN_ADDRESS_SANITIZER
#define DUNLIN_BUILT_ADDRESS dunlin_must_be_built_with_address_sanitizer_as_this_program_is
#else
#define DUNLIN_BUILT_ADDRESS dunlin_must_be_built_without_address_sanitizer_as_this_program_is
#endif
#if DUNLIN_THREAD_SANITIZER
#define DUNLIN_BUILT_THREAD dunlin_must_be_built_with_thread_sanitizer_as_this_program_is
#else
#define DUNLIN_BUILT_THREAD dunlin_must_be_built_without_thread_sanitizer_as_this_program_is
#endif
#if defined(_GLIBCXX_DEBUG)
#define DUNLIN_BUILT_DEBUG dunlin_must_be_built_with_GLIBCXX_DEBUG_as_this_program_is
#else
#define DUNLIN_BUILT_DEBUG dunlin_must_be_built_without_GLIBCXX_DEBUG_as_this_program_is
#endif
#if _GLIBCXX_USE_CXX11_ABI
#define DUNLIN_BUILT_STRINGS dunlin_must_be_built_with_GLIBCXX_USE_CXX11_ABI_1_as_this_program_is
#else
#define DUNLIN_BUILT_STRINGS dunlin_must_be_built_with_GLIBCXX_USE_CXX11_ABI_0_as_this_program_is
#endif

#if __has_attribute(retain)
#define DUNLIN_RETAIN gnu::used, gnu::retain // also with --gc-sections
#else
#define DUNLIN_RETAIN gnu::used
#endif

extern "C" {
DUNLIN_API void DUNLIN_BUILT_ADDRESS() noexcept;
DUNLIN_API void DUNLIN_BUILT_THREAD() noexcept;
DUNLIN_API void DUNLIN_BUILT_DEBUG() noexcept;
DUNLIN_API void DUNLIN_BUILT_STRINGS() noexcept;
DUNLIN_API void dunlin_must_be_linked_with_this_program_and_stand_behind_the_files_that_use_it() noexcept;
}

namespace dunlin::inline v0_1 {

namespace detail {
[[DUNLIN_RETAIN, gnu::visibility("hidden")]] inline constexpr void (*built_alike[])() noexcept = {
    DUNLIN_BUILT_ADDRESS, DUNLIN_BUILT_THREAD, DUNLIN_BUILT_DEBUG, DUNLIN_BUILT_STRINGS,
    dunlin_must_be_linked_with_this_program_and_stand_behind_the_files_that_use_it};
}

// The library's version as a number that grows: 10000 * major + 100 * minor + patch.
inline constexpr int version = 10000 * DUNLIN_VERSION_MAJOR + 100 * DUNLIN_VERSION_MINOR + DUNLIN_VERSION_PATCH;

}  // namespace dunlin

#undef DUNLIN_RETAIN
