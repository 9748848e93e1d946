#include "sched/preempt/program_handler.h"

#include <dunlin/detail/atomic.hpp>

#include "platform/thread.h"
#include "stack/signal_frame.h"
#include "stack/slot.h"

namespace dunlin::inline v0_1::sched {

namespace {

// The same for all handlers: a function of libc, or the kernel's.
platform::atomic<const void*> handlers_return_to{nullptr};

// Scans stack frames that are in use, so without the sanitizers' checks.
[[gnu::noinline]] __attribute__((no_sanitize("address", "thread"))) bool has_word(
    const std::uintptr_t* begin, const std::uintptr_t* end, std::uintptr_t word) noexcept {
    for (; begin < end; ++begin) {
        if (*begin == word) return true;
    }
    return false;
}

}  // namespace

void note_handler_return(const void* address) noexcept {
    handlers_return_to.store(address, std::memory_order_relaxed);
}

bool interrupts_program_handler(const machine* m, const void* context) noexcept {
    if (stack::interrupts_alternate_stack(context)) return true;
    if (!platform::blocks_more_than_usual(static_cast<const ucontext_t*>(context)->uc_sigmask)) return false;
    const goroutine* g = m->current.load(std::memory_order_relaxed);
    if (g == nullptr || g->stack == nullptr) return false;
    const std::uintptr_t sp = stack::interrupted_sp(context), low = reinterpret_cast<std::uintptr_t>(g->stack->low());
    if (sp < low || sp - low >= g->stack->usable()) return true;  // a stack that the program has made: to be careful
    constexpr std::uintptr_t word = sizeof(std::uintptr_t);
    return has_word(reinterpret_cast<const std::uintptr_t*>((sp + word - 1) & ~(word - 1)),
        reinterpret_cast<const std::uintptr_t*>(g->stack->top),
        reinterpret_cast<std::uintptr_t>(handlers_return_to.load(std::memory_order_relaxed)));
}

}  // namespace dunlin::sched
