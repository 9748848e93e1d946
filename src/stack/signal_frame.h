// signal_frame.h - where a signal handler finds what it has interrupted.
#pragma once

#include <cerrno>
#include <cstdint>
#include <sys/syscall.h>
#include <ucontext.h>

#include "stack/symbols.h"

namespace dunlin::inline v0_1::stack {

inline std::uintptr_t interrupted_pc(const void* handler_context) noexcept {
    const auto* context = static_cast<const ucontext_t*>(handler_context);
#if defined(__x86_64__)
    return static_cast<std::uintptr_t>(context->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
    return context->uc_mcontext.pc;
#endif
}

inline std::uintptr_t interrupted_sp(const void* handler_context) noexcept {
    const auto* context = static_cast<const ucontext_t*>(handler_context);
#if defined(__x86_64__)
    return static_cast<std::uintptr_t>(context->uc_mcontext.gregs[REG_RSP]);
#elif defined(__aarch64__)
    return context->uc_mcontext.sp;
#endif
}

// For a frame that no kernel has made (src/explorer).
inline void set_interrupted_pc(void* handler_context, std::uintptr_t pc) noexcept {
    auto* context = static_cast<ucontext_t*>(handler_context);
#if defined(__x86_64__)
    context->uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(pc);
#elif defined(__aarch64__)
    context->uc_mcontext.pc = pc;
#endif
}

// True: what was interrupted is itself a signal handler, on the alternate stack.
inline bool interrupts_alternate_stack(const void* handler_context) noexcept {
    const auto* context = static_cast<const ucontext_t*>(handler_context);
    const std::uintptr_t sp = interrupted_sp(handler_context);
    // The flags of uc_stack do not say it: the kernel writes there whether the stack disarms itself, and no more.
    return sp - reinterpret_cast<std::uintptr_t>(context->uc_stack.ss_sp) < context->uc_stack.ss_size;
}

// A call of an address where there is no code (a null function pointer) has no frame that could be unwound.
class interrupted_call {
public:
    explicit interrupted_call(void* handler_context) noexcept
        : registers_(&static_cast<ucontext_t*>(handler_context)->uc_mcontext) {
#if defined(__x86_64__)
        pc_ = registers_->gregs[REG_RIP];
        sp_ = registers_->gregs[REG_RSP];
#elif defined(__aarch64__)
        pc_ = registers_->pc;
#endif
    }
    ~interrupted_call() { set(pc_, sp_); }
    interrupted_call(const interrupted_call&) = delete;
    interrupted_call& operator=(const interrupted_call&) = delete;

    // While this lives, the context is that of the caller, just before the address that the call returns to. Reads
    // memory that may not be there.
    void step_out_of_nowhere() noexcept {
        if (!find_symbol(static_cast<std::uintptr_t>(pc_)).object.empty()) return;
#if defined(__x86_64__)
        set(*reinterpret_cast<const word*>(sp_) - 1, sp_ + 8);
#elif defined(__aarch64__)
        set(registers_->regs[30] - 1, 0);
#endif
    }

private:
#if defined(__x86_64__)
    using word = greg_t;
    void set(word pc, word sp) noexcept {
        registers_->gregs[REG_RIP] = pc;
        registers_->gregs[REG_RSP] = sp;
    }
#elif defined(__aarch64__)
    using word = std::uintptr_t;
    void set(word pc, word) noexcept { registers_->pc = pc; }
#endif

    mcontext_t* const registers_;
    word pc_ = 0, sp_ = 0;
};

// The signal has ended a system call that had just begun to sleep: some then end with EINTR, whatever SA_RESTART says.
// Nothing has happened yet, so the call is made again when the handler returns. Its number is gone from the frame, but
// stands before the syscall instruction in libc, until glibc 2.40. On CPUs other than x86-64 the first argument is gone
// too. Where the number or the argument is gone, nothing can be done.
inline void repeat_interrupted_call(void* handler_context) noexcept {
#if defined(__x86_64__)
    auto& registers = static_cast<ucontext_t*>(handler_context)->uc_mcontext.gregs;
    if (registers[REG_RAX] != -EINTR) return;
    const auto* pc = reinterpret_cast<const unsigned char*>(registers[REG_RIP]);
    if (pc[-2] != 0x0f || pc[-1] != 0x05 || pc[-7] != 0xb8) return;  // mov $number, %eax; syscall
    const long number = pc[-6] | pc[-5] << 8 | pc[-4] << 16 | pc[-3] << 24;
    switch (number) {
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_futex:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_accept:
    case SYS_accept4:
    case SYS_connect:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_read:
    case SYS_write:
    case SYS_rt_sigtimedwait:
    case SYS_semtimedop:
        registers[REG_RAX] = number;
        registers[REG_RIP] -= 2;
        break;
    default: break;
    }
#else
    static_cast<void>(handler_context);
#endif
}

// The signal has ended a sleep of libc's nanosleep or clock_nanosleep (usleep() and std::this_thread::sleep_for() call
// them), in which libc holds no lock. To be asked before repeat_interrupted_call(). `seen_asleep`: the thread was in
// such a sleep just before the signal was sent. From glibc 2.41 on (and with musl) that is all that is known on x86-64:
// its calls share one syscall instruction, before which stands no number.
inline bool interrupts_sleep_of_libc(const void* handler_context, bool seen_asleep) noexcept {
    const mcontext_t& registers = static_cast<const ucontext_t*>(handler_context)->uc_mcontext;
    long number = -1;
#if defined(__x86_64__)
    const auto* pc = reinterpret_cast<const unsigned char*>(registers.gregs[REG_RIP]);
    if (registers.gregs[REG_RAX] != -EINTR || pc[-2] != 0x0f || pc[-1] != 0x05) return false;
    if (pc[-7] != 0xb8) return seen_asleep;
    number = pc[-6] | pc[-5] << 8 | pc[-4] << 16 | pc[-3] << 24;
#elif defined(__aarch64__)
    static_cast<void>(seen_asleep);
    constexpr std::uint32_t svc_0 = 0xd4000001;
    if (static_cast<long>(registers.regs[0]) != -EINTR) return false;
    if (reinterpret_cast<const std::uint32_t*>(registers.pc)[-1] != svc_0) return false;
    number = static_cast<long>(registers.regs[8]);
#endif
    return number == SYS_nanosleep || number == SYS_clock_nanosleep;
}

}  // namespace dunlin::stack
