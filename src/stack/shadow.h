// shadow.h - the heap of AddressSanitizer, by its shadow: which bytes are in a block. Empty without it.
#pragma once

#include <dunlin/config.hpp>

#include <cstdint>

#include "stack/sanitizer.h"

namespace dunlin::inline v0_1::stack {

#if DUNLIN_ADDRESS_SANITIZER && defined(__x86_64__)
inline constexpr std::uintptr_t shadowed_heap_begin = 0x600000000000, shadowed_heap_end = 0x640000000000;

// True: the eight bytes at `a` are beside a block, in a block that was freed, or never in any. Bytes that ASan has been
// told to protect (by containers, by the program) are a part of their block.
__attribute__((no_sanitize_address, noinline)) inline bool ends_shadowed_block(std::uintptr_t a) noexcept {
    constexpr std::uint8_t beside = 0xfa, freed = 0xfd, internal = 0xfe;
    const std::uint8_t shadow = *reinterpret_cast<const std::uint8_t*>((a >> 3) + 0x7fff8000);
    return shadow == beside || shadow == freed || shadow == internal;
}
#else
inline constexpr std::uintptr_t shadowed_heap_begin = 0, shadowed_heap_end = 0;
inline bool ends_shadowed_block(std::uintptr_t) noexcept { return true; }
#endif

}  // namespace dunlin::stack
