// context.h - the switch from one stack to another.
//
// Data       A `context` is where a stopped computation goes on: stack pointer, frame pointer, address. Everything else
//            that must survive lies on its stack: switch_context() is inline assembly that declares every other
//            register clobbered, so the compiler saves what it needs around it and nothing else. That is cheaper than
//            saving a fixed set, and the jump at its end leaves the CPU's return predictor in step (5 ns instead of 18
//            for two goroutines in the same code; docs/decisions/003-switch.md).
// Rule       The function that contains switch_context() is compiled once, not inlined into user code, and reads
//            nothing thread-local across it except through sched/data/current.h: after the switch it may be on another
//            thread.
// Not saved  The rounding mode and exception mask of the floating-point units (MXCSR, x87 control word): they belong to
//            the thread, as in every pthread program that does not set them. Saving them would add 1.3 ns to each
//            switch.
// Unwinding  A computation that was started by make_context() ends at dunlin_context_entry, whose CFI says "no caller".
#pragma once

#include <cstddef>

namespace dunlin::inline v0_1::stack {

struct context {
    void* sp = nullptr;
    void* fp = nullptr;
    void* pc = nullptr;
};

extern "C" void dunlin_context_entry();  // entry_<cpu>.S: calls dunlin_goroutine_loop() on a fresh stack

// A context that starts dunlin_goroutine_loop() with an empty stack below `top` (16-byte aligned).
inline context make_context(void* top) noexcept {
    return {top, nullptr, reinterpret_cast<void*>(&dunlin_context_entry)};
}

// A context that enters `entry`, which never returns, with an empty stack below `top` (16-byte aligned).
inline context make_context(void* top, void (*entry)()) noexcept {
#if defined(__x86_64__)
    constexpr std::size_t return_address = 8;  // as after a call
#else
    constexpr std::size_t return_address = 0;
#endif
    return {static_cast<std::byte*>(top) - return_address, nullptr, reinterpret_cast<void*>(entry)};
}

#if defined(__x86_64__)

// Saves where we are in *from and goes on at *to. Returns when another context switches to *from.
[[gnu::always_inline]] inline void switch_context(context* from, const context* to) noexcept {
    asm volatile(
        "leaq 1f(%%rip), %%rax\n\t"
        "movq %%rsp, 0(%%rdi)\n\t"
        "movq %%rbp, 8(%%rdi)\n\t"
        "movq %%rax, 16(%%rdi)\n\t"
        "movq 16(%%rsi), %%rax\n\t"
        "movq 0(%%rsi), %%rsp\n\t"
        "movq 8(%%rsi), %%rbp\n\t"
        "jmp *%%rax\n\t"
        ".p2align 4\n"
        "1:\n\t"
        "endbr64\n\t"
        : "+D"(from), "+S"(to)
        :
        : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2",
            "xmm3", "xmm4",
          "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc", "memory"
#if defined(__AVX512F__)
          ,
          "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27",
              "xmm28", "xmm29",
          "xmm30", "xmm31", "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#endif
    );
}

// Goes on at *to and never comes back; another context may use the stack we stand on from now on.
[[noreturn, gnu::always_inline]] inline void jump_context(const context* to) noexcept {
    asm volatile(
        "movq 16(%%rsi), %%rax\n\t"
        "movq 0(%%rsi), %%rsp\n\t"
        "movq 8(%%rsi), %%rbp\n\t"
        "jmp *%%rax\n\t"
        :
        : "S"(to)
        : "rax", "memory");
    __builtin_unreachable();
}

#elif defined(__aarch64__)

[[gnu::always_inline]] inline void switch_context(context* from, const context* to) noexcept {
    register context* x0 asm("x0") = from;
    register const context* x1 asm("x1") = to;
    asm volatile(
        "adr x2, 1f\n\t"
        "mov x3, sp\n\t"
        "stp x3, x29, [x0]\n\t"
        "str x2, [x0, #16]\n\t"
        "ldp x3, x29, [x1]\n\t"
        "ldr x2, [x1, #16]\n\t"
        "mov sp, x3\n\t"
        "br x2\n\t"
        ".p2align 4\n"
        "1:\n\t"
        "hint #36\n\t"  // bti j: a landing pad for the indirect branch where branch targets are enforced
        : "+r"(x0), "+r"(x1)
        :
        // x18 too: Linux leaves the platform register to the compiler, and gcc uses it.
        : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18",
            "x19", "x20",
          "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7",
              "v8", "v9",
          "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24",
              "v25", "v26", "v27",
          "v28", "v29", "v30", "v31",
#if defined(__ARM_FEATURE_SVE)
          "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10", "p11", "p12", "p13", "p14", "p15",
#endif
          "cc", "memory");
}

[[noreturn, gnu::always_inline]] inline void jump_context(const context* to) noexcept {
    register const context* x1 asm("x1") = to;
    asm volatile(
        "ldp x3, x29, [x1]\n\t"
        "ldr x2, [x1, #16]\n\t"
        "mov sp, x3\n\t"
        "br x2\n\t"
        :
        : "r"(x1)
        : "x2", "x3", "memory");
    __builtin_unreachable();
}

#else
#error "dunlin: no context switch for this CPU; add one here and an entry_<cpu>.S"
#endif

}  // namespace dunlin::stack
