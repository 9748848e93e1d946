// valgrind.h - what valgrind has to be told, and whether it is running.
//
// Protocol   Valgrind's "client requests": instructions that rotate a register by a whole turn and then do nothing. A
//            processor executes them in two nanoseconds; valgrind knows the sequence, reads the request from the block
//            that rax (x4) points to and puts its answer into rdx (x3). Sequence and numbers are those of
//            valgrind/valgrind.h and fixed for ever; they are written here so that the library is the same wherever it
//            is compiled.
// Stacks     If the stack pointer moves by less than 2 MiB, valgrind takes that for a frame that comes or goes, and
//            marks the memory between. Two goroutines' stacks may be that near. So each slot is registered once, when
//            it is cut (addresses never go back, stack/arena.h), and a move into another registered stack means
//            nothing. Valgrind looks the stacks up one by one: with very many goroutines that park it becomes slow.
// Memory     Memory that no frame has touched counts as not set, and memory that is not a stack yet as not there.
//            Otherwise the search for leaks, at the end, would read all of the address space that is reserved for
//            stacks (three milliseconds for each goroutine).
// Not there  Valgrind 3.19 (Debian 12) does not know pidfd_open, process_madvise and epoll_pwait2, and complains about
//            each call; the callers behave as on an old kernel.
// Tests      tests/tools/valgrind_test.py
#pragma once

#include <cstddef>
#include <cstdint>

namespace dunlin::inline v0_1::platform {

// Valgrind's answer; `otherwise` if there is no valgrind.
inline std::uintptr_t ask_valgrind(std::uintptr_t request, std::uintptr_t otherwise, std::uintptr_t a = 0,
    std::uintptr_t b = 0) noexcept {
    const volatile std::uintptr_t block[6] = {request, a, b, 0, 0, 0};
#if defined(__x86_64__)
    std::uintptr_t answer = otherwise;
    asm volatile(
        "rolq $3, %%rdi\n\t"
        "rolq $13, %%rdi\n\t"
        "rolq $61, %%rdi\n\t"
        "rolq $51, %%rdi\n\t"
        "xchgq %%rbx, %%rbx\n\t"
        : "+d"(answer)
        : "a"(block)
        : "cc", "memory");
    return answer;
#elif defined(__aarch64__)
    register std::uintptr_t x3 asm("x3") = otherwise;
    register const volatile std::uintptr_t* x4 asm("x4") = block;
    asm volatile(
        "ror x12, x12, #3\n\t"
        "ror x12, x12, #13\n\t"
        "ror x12, x12, #51\n\t"
        "ror x12, x12, #61\n\t"
        "orr x10, x10, x10\n\t"
        : "+r"(x3)
        : "r"(x4)
        : "cc", "memory");
    return x3;
#else
    return otherwise;
#endif
}

inline bool under_valgrind() noexcept { return ask_valgrind(0x1001, 0) != 0; }

inline constexpr std::uintptr_t memcheck = 'M' << 24 | 'C' << 16;

// Memory that must not be touched until it is a stack.
inline void tell_valgrind_of_no_memory(const std::byte* begin, std::size_t bytes) noexcept {
    ask_valgrind(memcheck + 0, 0, reinterpret_cast<std::uintptr_t>(begin), bytes);
}

// A stack, and the `bytes_below` its lowest byte that are written all the same.
inline void tell_valgrind_of_stack(const std::byte* lowest, const std::byte* end, std::size_t bytes_below) noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(lowest);
    const auto behind = reinterpret_cast<std::uintptr_t>(end);
    ask_valgrind(0x1501, 0, begin, behind - 1);
    ask_valgrind(memcheck + 1, 0, begin - bytes_below, behind - begin + bytes_below);
}

}  // namespace dunlin::platform
