// mutex_holder.h - for reports: who holds a mutex.
#pragma once

#include <cstdint>

#include <dunlin/mutex.hpp>

#include "platform/text.h"

namespace dunlin::detail {

struct mutex_holder {
    // ", which goroutine 7 has held for 3.1 ms"; nothing if nobody does. Somebody waits for it, so it is alive.
    static void print(platform::text_writer& out, const void* mutex_address) noexcept;
    // The goroutine's id; 0 if nobody holds it, or a thread.
    static std::uint64_t goroutine(const void* mutex_address) noexcept;
};

}  // namespace dunlin::detail
