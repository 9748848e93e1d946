// check.h - three ways to say what must be true.
//
// DUNLIN_CHECK   always on: cheap, and what follows would corrupt the program if it were wrong.
// DUNLIN_DCHECK  in builds without NDEBUG and under sanitizers: costly, or believed to be impossible.
// fatal          the program's mistake or ours, said in words; never returns.
#pragma once

#include <dunlin/config.hpp>

#include <string_view>

#include "platform/text.h"

namespace dunlin::inline v0_1::platform {

// Ends the process with `status` and nothing else: no destructors, no atexit handlers. Buffered output of stdout is
// written if its lock is free.
[[noreturn]] void end_process(int status) noexcept;

[[noreturn]] void check_failed(const char* what, const char* file, int line) noexcept;

// "fatal: <what>" on stderr, then abort().
[[noreturn]] void fatal(std::string_view what) noexcept;

#define DUNLIN_CHECK(condition, what) \
    (__builtin_expect(!!(condition), 1) ? void(0) : ::dunlin::platform::check_failed(what, __FILE__, __LINE__))

// Not in the simulation build (the preset `sim`), whose threads are virtual: these checks ask for the real one.
#if !defined(DUNLIN_SIM) && (!defined(NDEBUG) || DUNLIN_ADDRESS_SANITIZER || DUNLIN_THREAD_SANITIZER)
#define DUNLIN_CHECKING 1
#define DUNLIN_DCHECK(condition, what) DUNLIN_CHECK(condition, what)
#else
#define DUNLIN_CHECKING 0
#define DUNLIN_DCHECK(condition, what) void(sizeof(condition))
#endif

}  // namespace dunlin::platform
