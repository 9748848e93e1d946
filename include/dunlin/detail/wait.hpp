// wait.hpp - how long a call waits at most, and how its wait has ended. Not for direct use.
#pragma once

#include <dunlin/config.hpp>

#include <cstdint>

namespace dunlin::inline v0_1 {

class context;

namespace detail {

class chan_core;  // src/chan/core.h

enum class wait_outcome : unsigned char { ok, closed, timed_out, cancelled };

// How long to wait at most. deadline_ns is a moment of dunlin::clock; `done` is a context's channel, which closes when
// the context is done, or null.
struct wait_limit {
    static constexpr std::int64_t never = INT64_MAX;
    std::int64_t deadline_ns = never;
    chan_core* done = nullptr;
};

// The channel that closes when the context is done; null if it never will.
DUNLIN_API chan_core* done_channel(const context& ctx) noexcept;
[[noreturn]] DUNLIN_API void throw_cancelled(const context& ctx, const char* operation);

}  // namespace detail
}  // namespace dunlin
