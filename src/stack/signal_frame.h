// signal_frame.h - where a signal handler finds what it has interrupted.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
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

// How far above the word through which a handler returns the kernel has stored: the stack pointer of what the handler
// has interrupted, and the signal stack that was in force. 0 where the word is not a part of the kernel's frame.
#if defined(__x86_64__)
inline constexpr std::size_t saved_sp_above_return =
    sizeof(void*) + offsetof(ucontext_t, uc_mcontext) + offsetof(mcontext_t, gregs) + REG_RSP * sizeof(greg_t);
inline constexpr std::size_t signal_stack_above_return = sizeof(void*) + offsetof(ucontext_t, uc_stack);
#elif defined(__aarch64__)
inline constexpr std::size_t saved_sp_above_return = 0, signal_stack_above_return = 0;
#endif

// How much of the alternate stack the calling handler has left, if it runs there; else more than any handler needs.
inline std::size_t room_on_signal_stack(const void* handler_context) noexcept {
    const stack_t& s = static_cast<const ucontext_t*>(handler_context)->uc_stack;
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    const std::uintptr_t used_from = here - reinterpret_cast<std::uintptr_t>(s.ss_sp);
    return used_from < s.ss_size ? used_from : std::size_t{1} << 20;
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

}  // namespace dunlin::stack
