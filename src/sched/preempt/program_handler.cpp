#include "sched/preempt/program_handler.h"

#include <dunlin/detail/atomic.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "platform/memory_map.h"
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

// How far above the stack pointer the frames of a handler may reach.
constexpr std::uintptr_t far = 64 << 10;

template <class T>
bool read_at(std::uintptr_t from, T& to) noexcept {
    return platform::read_own_memory(from, &to, sizeof to) == sizeof to;
}

// `at` is a word found above `sp` on a stack that the program has made, whose end is not known: what lies above it may
// be a signal stack, with what handlers of another thread have left there. A handler that runs on a signal stack which
// disarms itself is one on this stack all the same (interrupts_alternate_stack() cannot tell).
bool is_of_this_stack(std::uintptr_t at, std::uintptr_t sp) noexcept {
    if (stack::saved_sp_above_return == 0) return true;
    std::uintptr_t saved_sp = 0;
    stack_t in_force{};
    if (!read_at(at + stack::signal_stack_above_return, in_force) ||
        !read_at(at + stack::saved_sp_above_return, saved_sp)) {
        return false;
    }
    const auto low = reinterpret_cast<std::uintptr_t>(in_force.ss_sp);
    if (at - low < in_force.ss_size) return sp - low < in_force.ss_size;
    return saved_sp - at < far;
}

// As has_word(), for such a stack. The kernel reads it, which stops where nothing is mapped. In small pieces, as this
// may run on a signal stack of the program's own.
[[gnu::noinline]] bool has_frame_above(std::uintptr_t sp, std::uintptr_t word) noexcept {
    // ThreadSanitizer runs all handlers with all signals blocked, and calls them itself: the kernel's frame is not
    // there
    if (stack::thread_sanitizing) return false;
    std::uintptr_t piece[64];
    for (std::uintptr_t piece_at = sp; piece_at < sp + far; piece_at += sizeof piece) {
        const long n = platform::read_own_memory(piece_at, piece, sizeof piece);
        if (n <= 0) return n != -EFAULT && n < 0;  // it cannot be read: to be careful
        const auto words = static_cast<std::size_t>(n) / sizeof word;
        for (std::size_t i = 0; i < words; ++i) {
            if (piece[i] == word && is_of_this_stack(piece_at + i * sizeof word, sp)) return true;
        }
        if (words != std::size(piece)) return false;
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
    constexpr std::uintptr_t word = sizeof(std::uintptr_t);
    const std::uintptr_t sp = (stack::interrupted_sp(context) + word - 1) & ~(word - 1);
    const std::uintptr_t low = reinterpret_cast<std::uintptr_t>(g->stack->low());
    const auto returns_to = reinterpret_cast<std::uintptr_t>(handlers_return_to.load(std::memory_order_relaxed));
    if (sp < low || sp - low >= g->stack->usable()) return has_frame_above(sp, returns_to);
    return has_word(reinterpret_cast<const std::uintptr_t*>(sp),
        reinterpret_cast<const std::uintptr_t*>(g->stack->top), returns_to);
}

}  // namespace dunlin::sched
