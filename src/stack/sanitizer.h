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

#include <atomic>
#include <cstddef>

#if !defined(__SANITIZE_ADDRESS__) && defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if !defined(__SANITIZE_THREAD__) && defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace dunlin::stack {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitizing = true;
#else
inline constexpr bool sanitizing = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitizing = true;
#else
inline constexpr bool thread_sanitizing = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
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
#if defined(__SANITIZE_ADDRESS__)
struct fake_stack {
    void* value = nullptr;
};
#else
struct fake_stack {};
#endif

// Just before a switch by a computation that will come back.
inline void before_switch([[maybe_unused]] fake_stack& keep, [[maybe_unused]] const sanitizer_stack& to) noexcept {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&keep.value, to.low, to.size);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to.fiber, 0);
#endif
}

// The same by one that ends here.
inline void before_last_switch([[maybe_unused]] const sanitizer_stack& to) noexcept {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(nullptr, to.low, to.size);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to.fiber, 0);
#endif
}

// The first act of a computation that comes back ...
inline void after_switch([[maybe_unused]] const fake_stack& kept) noexcept {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(kept.value, nullptr, nullptr);
#endif
}

// ... and of one that starts.
inline void after_first_switch() noexcept {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

inline void* thread_fiber() noexcept {
#if defined(__SANITIZE_THREAD__)
    return __tsan_get_current_fiber();
#else
    return nullptr;
#endif
}

// Before frames are left without returning, by other means than `throw` (which ASan intercepts): the red zones around
// their variables are forgotten.
inline void before_unwinding() noexcept {
#if defined(__SANITIZE_ADDRESS__)
    __asan_handle_no_return();
#endif
}

// A new fiber in place of `old` (which may be null and is not running).
inline void* renew_fiber([[maybe_unused]] void* old) noexcept {
#if defined(__SANITIZE_THREAD__)
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
#if defined(__SANITIZE_THREAD__)
    std::atomic_ref<void*>(static_cast<void**>(end_of_stack)[-1]).store(renew_fiber(fiber_of(end_of_stack)), std::memory_order_relaxed);
#endif
}

// LeakSanitizer looks for pointers on threads' stacks, not on ours: a goroutine that is left when the program ends
// would make everything that it holds a leak.
inline void count_as_reachable([[maybe_unused]] const void* from, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__SANITIZE_ADDRESS__)
    __lsan_register_root_region(from, bytes);
#endif
}

// A stack on which nothing runs is about to be used again: forget what was known about it.
template <class Slot>
inline void prepare_for_tools([[maybe_unused]] const Slot& s) noexcept {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(s.low(), static_cast<std::size_t>(s.end() - s.low()));
#endif
#if defined(__SANITIZE_THREAD__)
    give_new_fiber(s.end());
#endif
}

}  // namespace dunlin::stack
