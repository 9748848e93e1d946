// mutex_holder.h - for reports: which goroutine or thread holds a mutex.
#pragma once

#include <cstdint>

#include <dunlin/mutex.hpp>

#include "platform/text.h"

namespace dunlin::inline v0_1::detail {

struct mutex_holder {
    // Prints ", which goroutine 7 has held for 3.1 ms"; nothing if the mutex is free. Called while the mutex has a
    // waiter, which keeps it alive.
    static void print(platform::text_writer& out, const void* mutex_address) noexcept;
    // The goroutine's id; 0 if it is free, or a thread holds it.
    static std::uint64_t goroutine(const void* mutex_address) noexcept;
    // Where that stands, or the mark of a thread, which no goroutine's id equals.
    static const void* owner_of(const void* mutex_address) noexcept;
};

}  // namespace dunlin::detail
