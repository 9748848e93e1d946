// failing_memory.h - memory that fails for one allocation. For a test that replaces operator new by these; it defines
// the operators itself, so that it is seen to be a program of its own.
#pragma once

#include <atomic>
#include <cstdlib>
#include <new>

namespace support {

// So many allocations from now on, and the last of them fails, on whatever thread it is; 0: none does.
inline std::atomic<long> allocations_left{0};

inline void* allocate_or_null(std::size_t size) noexcept {
    for (long left = allocations_left.load(); left > 0;) {
        if (!allocations_left.compare_exchange_weak(left, left - 1)) continue;
        if (left == 1) return nullptr;
        break;
    }
    return std::malloc(size != 0 ? size : 1);
}

inline void* allocate(std::size_t size) {
    if (void* const p = allocate_or_null(size)) return p;
    throw std::bad_alloc();
}

// Are these operators the ones that the program calls? ThreadSanitizer's own come before them: there such a test would
// see nothing, and is left out (tests/CMakeLists.txt).
inline bool memory_fails() {
    allocations_left.store(1);
    try {
        ::operator delete(::operator new(1));
    } catch (const std::bad_alloc&) {
        return true;
    }
    allocations_left.store(0);
    return false;
}

}  // namespace support
