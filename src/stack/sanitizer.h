// sanitizer.h - tells AddressSanitizer and ThreadSanitizer when the stack changes. Everything here is empty in ordinary
// builds.
//
// ASan       wants to know where the stack we go to begins and ends, and keeps a "fake stack" per computation.
// TSan       keeps a shadow call stack and a vector clock per "fiber". One fiber per stack: goroutines that run one
//            after the other on the same stack without parking count as one thread of control. Switches synchronise, so
//            a goroutine is ordered after the one that ran before it on its thread: else every thread_local of every
//            library (errno, caches) would be reported as a race between goroutines. The price: a race between two
//            goroutines is seen only when they run on different threads (two processors or more), and then in most
//            runs. docs/decisions/008-tsan.md.
#pragma once

#include <dunlin/config.hpp>

#include <atomic>
#include <cstddef>

#if DUNLIN_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif
#if DUNLIN_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace dunlin::inline v0_1::stack {

#if DUNLIN_ADDRESS_SANITIZER || DUNLIN_THREAD_SANITIZER
inline constexpr bool sanitizing = true;
#else
inline constexpr bool sanitizing = false;
#endif
#if DUNLIN_THREAD_SANITIZER
inline constexpr bool thread_sanitizing = true;
#else
inline constexpr bool thread_sanitizing = false;
#endif
#if DUNLIN_ADDRESS_SANITIZER
inline constexpr bool address_sanitizing = true;
#else
inline constexpr bool address_sanitizing = false;
#endif

// What the sanitizers know about one stack.
struct sanitizer_stack {
    const void* low = nullptr;
    std::size_t size = 0;
    void* fiber = nullptr;
};

// What ASan gives a computation to keep while it is stopped. Takes no room in ordinary builds.
#if DUNLIN_ADDRESS_SANITIZER
struct fake_stack {
    void* value = nullptr;
};
#else
struct fake_stack {};
#endif

// These are part of the function that switches, in every build: if the fiber changes within a function, ThreadSanitizer
// counts the function's entry for one fiber and its end for the other.

// Just before a switch by a computation that will come back.
[[gnu::always_inline]] inline void before_switch([[maybe_unused]] fake_stack& keep,
    [[maybe_unused]] const sanitizer_stack& to) noexcept {
#if DUNLIN_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(&keep.value, to.low, to.size);
#endif
#if DUNLIN_THREAD_SANITIZER
    __tsan_switch_to_fiber(to.fiber, 0);
#endif
}

// The same by a computation that ends here.
[[gnu::always_inline]] inline void before_last_switch([[maybe_unused]] const sanitizer_stack& to) noexcept {
#if DUNLIN_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(nullptr, to.low, to.size);
#endif
#if DUNLIN_THREAD_SANITIZER
    __tsan_switch_to_fiber(to.fiber, 0);
#endif
}

// The first act of a computation that comes back ...
[[gnu::always_inline]] inline void after_switch([[maybe_unused]] const fake_stack& kept) noexcept {
#if DUNLIN_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(kept.value, nullptr, nullptr);
#endif
}

// ... and of one that starts.
[[gnu::always_inline]] inline void after_first_switch() noexcept {
#if DUNLIN_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

inline void* thread_fiber() noexcept {
#if DUNLIN_THREAD_SANITIZER
    return __tsan_get_current_fiber();
#else
    return nullptr;
#endif
}

// Before frames are left without returning, by other means than `throw` (which ASan intercepts): the red zones around
// their variables are forgotten.
[[gnu::always_inline]] inline void before_unwinding() noexcept {
#if DUNLIN_ADDRESS_SANITIZER
    __asan_handle_no_return();
#endif
}

// A new fiber in place of `old` (which may be null and is not running).
inline void* renew_fiber([[maybe_unused]] void* old) noexcept {
#if DUNLIN_THREAD_SANITIZER
    if (old) __tsan_destroy_fiber(old);
    return __tsan_create_fiber(0);
#else
    return nullptr;
#endif
}

// Where the fiber of a goroutine's stack is noted: in the stack's topmost word, which has no other use (slot.h: top is
// below end - 64). Relaxed: written while the stack is not in use, read by a thread that is about to switch to it.
inline void* fiber_of(void* end_of_stack) noexcept {
    return std::atomic_ref<void*>(static_cast<void**>(end_of_stack)[-1]).load(std::memory_order_relaxed);
}
inline void give_new_fiber([[maybe_unused]] void* end_of_stack) noexcept {
#if DUNLIN_THREAD_SANITIZER
    std::atomic_ref<void*>(static_cast<void**>(end_of_stack)[-1]).store(renew_fiber(fiber_of(end_of_stack)),
        std::memory_order_relaxed);
#endif
}

// LeakSanitizer looks for pointers on threads' stacks, not on ours: a goroutine that is left when the program ends
// would make everything that it holds a leak.
inline void count_as_reachable([[maybe_unused]] const void* from, [[maybe_unused]] std::size_t bytes) noexcept {
#if DUNLIN_ADDRESS_SANITIZER
    __lsan_register_root_region(from, bytes);
#endif
}

// A stack on which nothing runs is about to be used again: forget what was known about it.
template <class Slot>
inline void prepare_for_tools([[maybe_unused]] const Slot& s) noexcept {
#if DUNLIN_ADDRESS_SANITIZER
    __asan_unpoison_memory_region(s.low(), static_cast<std::size_t>(s.end() - s.low()));
#endif
#if DUNLIN_THREAD_SANITIZER
    give_new_fiber(s.end());
#endif
}

}  // namespace dunlin::stack
