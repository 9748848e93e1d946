// signal_frame.h - where a signal handler finds what it has interrupted.
#pragma once

#include <cerrno>
#include <cstdint>
#include <sys/syscall.h>
#include <ucontext.h>

namespace dunlin::stack {

inline std::uintptr_t interrupted_pc(const void* handler_context) noexcept {
    const auto* context = static_cast<const ucontext_t*>(handler_context);
#if defined(__x86_64__)
    return static_cast<std::uintptr_t>(context->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
    return context->uc_mcontext.pc;
#endif
}

// The signal has ended a system call that had just begun to sleep: some end with EINTR then, whatever SA_RESTART says. Nothing has happened yet, so the
// call is made again when the handler returns. Its number is gone from the frame, but stands before the instruction in libc. Elsewhere than on
// x86-64 the first argument is gone too: nothing can be done.
inline void repeat_interrupted_call(void* handler_context) noexcept {
#if defined(__x86_64__)
    auto& registers = static_cast<ucontext_t*>(handler_context)->uc_mcontext.gregs;
    if (registers[REG_RAX] != -EINTR) return;
    const auto* pc = reinterpret_cast<const unsigned char*>(registers[REG_RIP]);
    if (pc[-2] != 0x0f || pc[-1] != 0x05 || pc[-7] != 0xb8) return;  // mov $number, %eax; syscall
    const long number = pc[-6] | pc[-5] << 8 | pc[-4] << 16 | pc[-3] << 24;
    switch (number) {
        case SYS_poll: case SYS_ppoll: case SYS_select: case SYS_pselect6: case SYS_epoll_wait: case SYS_epoll_pwait: case SYS_nanosleep:
        case SYS_clock_nanosleep: case SYS_futex: case SYS_recvfrom: case SYS_recvmsg: case SYS_accept: case SYS_accept4: case SYS_connect:
        case SYS_sendto: case SYS_sendmsg: case SYS_read: case SYS_write: case SYS_rt_sigtimedwait: case SYS_semtimedop:
            registers[REG_RAX] = number;
            registers[REG_RIP] -= 2;
            break;
        default: break;
    }
#else
    static_cast<void>(handler_context);
#endif
}

}  // namespace dunlin::stack
