// signal_frame.h - where a signal handler finds what it has interrupted.
#pragma once

#include <cstdint>
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

}  // namespace dunlin::stack
