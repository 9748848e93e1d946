// syscall.h - system calls that leave errno alone.
//
// A goroutine may be on another thread after a call into the runtime, and compilers keep the address of errno; what the
// runtime itself does must therefore never write errno. The result is the kernel's: a value, or -error.
#pragma once

#include <sys/syscall.h>

#include "platform/simulated.h"

namespace dunlin::inline v0_1::platform {

[[gnu::always_inline]] inline long raw_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
    long f = 0) noexcept {
    if constexpr (may_be_simulated) {
        if (simulation* s = simulation_here()) {
            if (long answer = 0; s->system_call(number, {a, b, c, d, e, f}, answer)) return answer;
        }
    }
#if defined(__x86_64__)
    long result;
    register long r10 asm("r10") = d;
    register long r8 asm("r8") = e;
    register long r9 asm("r9") = f;
    asm volatile("syscall"
                 : "=a"(result)
                 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 asm("x8") = number;
    register long x0 asm("x0") = a;
    register long x1 asm("x1") = b;
    register long x2 asm("x2") = c;
    register long x3 asm("x3") = d;
    register long x4 asm("x4") = e;
    register long x5 asm("x5") = f;
    asm volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#endif
}

template <class T>
[[gnu::always_inline]] inline long syscall_arg(T* pointer) noexcept {
    return reinterpret_cast<long>(pointer);
}

}  // namespace dunlin::platform
