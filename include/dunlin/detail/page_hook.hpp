// page_hook.hpp - how dunlin::debug, if it is linked, is told of DUNLIN_DEBUG=page=ADDRESS.
#pragma once

#include <dunlin/config.hpp>

namespace dunlin::inline v0_1::detail {

struct page_hook {
    void (*begin)(const char* address) noexcept = nullptr;  ///< in the main goroutine, before the program's function
    void (*end)() noexcept = nullptr;                       ///< there, after it
};

/// Called before the first run(), by a static object.
DUNLIN_API void set_page_hook(const page_hook& hook) noexcept;

}  // namespace dunlin::detail
