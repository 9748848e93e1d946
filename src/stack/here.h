// here.h - where the caller stands on its stack, with its registers.
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::stack {

// Where the caller of a search stands: what is below, on its stack, is the search's own. Must be the first statement of
// a function that keeps nothing of its own: its frame then has the registers of its caller.
#if defined(__x86_64__)
inline std::uintptr_t thread_pointer_here() noexcept {
    std::uintptr_t result;
    asm("mov %%fs:0, %0" : "=r"(result));
    return result;
}
#define DUNLIN_STACK_POINTER_HERE(name)       \
    __builtin_unwind_init();                  \
    std::uintptr_t name;                      \
    asm volatile("mov %%rsp, %0" : "=r"(name))
#elif defined(__aarch64__)
inline std::uintptr_t thread_pointer_here() noexcept {
    std::uintptr_t result;
    asm("mrs %0, tpidr_el0" : "=r"(result));
    return result;
}
#define DUNLIN_STACK_POINTER_HERE(name)       \
    __builtin_unwind_init();                  \
    std::uintptr_t name;                      \
    asm volatile("mov %0, sp" : "=r"(name))
#endif

}  // namespace dunlin::stack
