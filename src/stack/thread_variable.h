// thread_variable.h - read dunlin_current_machine afresh: see sched/data/current.h.
#pragma once

namespace dunlin::inline v0_1::stack {

template <class T>
[[gnu::always_inline]] inline void load_thread_pointer_variable(T*& result) noexcept {
#if defined(__x86_64__)
    asm volatile(
        "movq dunlin_current_machine@gottpoff(%%rip), %0\n\t"
        "movq %%fs:(%0), %0"
        : "=r"(result)
        :
        : "memory");
#elif defined(__aarch64__)
    void* base;
    asm volatile(
        "mrs %1, tpidr_el0\n\t"
        "adrp %0, :gottprel:dunlin_current_machine\n\t"
        "ldr %0, [%0, :gottprel_lo12:dunlin_current_machine]\n\t"
        "ldr %0, [%1, %0]"
        : "=&r"(result), "=&r"(base)
        :
        : "memory");
#endif
}

}  // namespace dunlin::stack
