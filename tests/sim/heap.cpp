#include "sim/heap.h"

#include <dunlin/detail/atomic.hpp>

#include <cstdlib>
#include <new>

#include "platform/futex.h"
#include "explorer/explore.h"

namespace dunlin::inline v0_1::sim_cases {

namespace {

// As in libc: free, held, held and perhaps waited for.
constexpr std::uint32_t unlocked = 0, held = 1, waited_for = 2;
constinit platform::atomic<std::uint32_t> heap_lock{unlocked};
bool there_is_one = false;

void lock() {
    std::uint32_t word = unlocked;
    if (heap_lock.compare_exchange_strong(word, held, std::memory_order_acquire, std::memory_order_relaxed)) return;
    while (heap_lock.exchange(waited_for, std::memory_order_acquire) != unlocked) {
        platform::futex_wait(heap_lock, waited_for);
    }
}

void unlock() {
    if (heap_lock.exchange(unlocked, std::memory_order_release) == waited_for) platform::futex_wake(heap_lock);
}

}  // namespace

void lock_the_heap() { there_is_one = true; }

void allocate(std::int64_t ns) {
    const explorer::in_libc here;
    lock();
    if (ns != 0) explorer::compute(ns);
    unlock();
}

}  // namespace dunlin::sim_cases

namespace {

// The simulation's own memory has no lock.
void pass_heap() {
    using namespace dunlin;
    const explorer::world* w = explorer::here();
    if (sim_cases::there_is_one && w != nullptr && w->is_in_program()) sim_cases::allocate(0);
}

}  // namespace

void* operator new(std::size_t size) {
    pass_heap();
    if (void* p = std::malloc(size != 0 ? size : 1)) return p;
    throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    pass_heap();
    return std::malloc(size != 0 ? size : 1);
}
void* operator new(std::size_t size, std::align_val_t to) {
    pass_heap();
    const auto n = static_cast<std::size_t>(to);
    if (void* p = std::aligned_alloc(n, (size + n - 1) / n * n)) return p;
    throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
    if (p != nullptr) pass_heap();
    std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { operator delete(p); }
void operator delete(void* p, std::align_val_t) noexcept { operator delete(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { operator delete(p); }
