// pool.cpp - objects that are kept for the next caller that needs such an object.
//
// Data       A shelf for each processor: two stacks of boxes of pointers, `fresh` (put since the last trim) and `old`
//            (put before). All under the shelf's lock, which is nearly always free: only a caller that finds its own
//            shelf empty looks at the others'.
// Rule       No memory is allocated or freed, and no destructor run, with the lock held: malloc's lock may be held by a
//            goroutine that is preempted.
// Source     Go 1.24 sync/pool.go; `old` is its victim cache. Differs: a lock of 5 ns instead of a lock-free deque,
//            since ours must serve plain threads too; a thief gets the newest.
// Tests      tests/sync/once_future_pool_test.cpp
#include <dunlin/detail/atomic.hpp>
#include <dunlin/pool.hpp>

#include <algorithm>
#include <bit>
#include <thread>

#include "park/waiter.h"
#include "platform/destroyable_lock.h"

namespace dunlin::inline v0_1::detail {

struct pool_core::box {
    static constexpr unsigned room = 62;
    box* below = nullptr;
    std::size_t used = 0;
    void* objects[room];
};

struct alignas(platform::false_sharing_range) pool_core::shelf {
    platform::destroyable_lock lock;         // the thread that got the last object may destroy the pool
    platform::atomic<std::size_t> count{0};  // lock to write; a thread that looks for an object may read it
    box* fresh = nullptr;               // lock
    box* old = nullptr;                 // lock
    box* spare = nullptr;               // lock: an empty one, or null

    // `garbage` gets a box for which there is no use, if there is one.
    void* pop_from(box*& stack, std::unique_ptr<box>& garbage) noexcept {
        if (stack != nullptr && stack->used == 0) {  // never two in a row: only the top one is not full
            box* const empty = std::exchange(stack, stack->below);
            if (spare == nullptr) {
                spare = empty;
            } else {
                garbage.reset(empty);
            }
        }
        if (stack == nullptr) return nullptr;
        void* const object = stack->objects[--stack->used];
        count.store(count.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
        return object;
    }
    bool push(void* object) noexcept {
        if (fresh == nullptr || fresh->used == box::room) {
            if (spare == nullptr) return false;
            spare->below = fresh;
            fresh = std::exchange(spare, nullptr);
        }
        fresh->objects[fresh->used++] = object;
        count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        return true;
    }
};

namespace {

// The shelf of the caller. `m` inside the runtime, or null.
std::size_t own_shelf(sched::machine* m, std::size_t count) noexcept {
    if (m != nullptr) return sched::processor_of(m)->id & (count - 1);
    static platform::atomic<std::size_t> next{0};
    static thread_local const std::size_t mine = next.fetch_add(1, std::memory_order_relaxed);
    return mine & (count - 1);
}

}  // namespace

pool_core::pool_core(void (*destroy)(void*)) : destroy_(destroy) {
    const std::size_t wanted =
        std::max<std::size_t>(std::thread::hardware_concurrency(),
        sched::the_scheduler.max_procs.load(std::memory_order_relaxed));
    count_ = std::bit_ceil(std::clamp<std::size_t>(wanted, 1, 64));
    shelves_ = std::make_unique<shelf[]>(count_);
}

pool_core::~pool_core() {
    while (void* const object = take()) destroy_(object);  // whose destructor may put another one back
    for (std::size_t i = 0; i < count_; ++i) {
        shelf& s = shelves_[i];
        destroy_all(s.fresh);
        destroy_all(s.old);
        delete s.spare;
    }
}

void* pool_core::take() noexcept {
    std::unique_ptr<box> garbage;  // freed outside the runtime
    park::runtime_section inside;
    const std::size_t own = own_shelf(inside.machine(), count_);
    // First the fresh objects; old ones only when no shelf has a fresh one.
    for (box* shelf::*stack : {&shelf::fresh, &shelf::old}) {
        for (std::size_t i = 0; i < count_; ++i) {
            shelf& s = shelves_[(own + i) & (count_ - 1)];
            if (s.count.load(std::memory_order_relaxed) == 0) continue;
            s.lock.lock();
            void* const object = s.pop_from(s.*stack, garbage);
            s.lock.unlock();
            if (object != nullptr) return object;
        }
    }
    return nullptr;
}

void pool_core::put(void* object) {
    for (std::unique_ptr<box> more;;) {
        {
            park::runtime_section inside;
            shelf& s = shelves_[own_shelf(inside.machine(), count_)];
            s.lock.lock();
            if (more && s.spare == nullptr) s.spare = more.release();
            const bool done = s.push(object);
            s.lock.unlock();
            if (done) break;
        }
        if (!more) more = std::make_unique<box>();
    }
}

void pool_core::trim() noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
        shelf& s = shelves_[i];
        box* dropped;
        {
            park::runtime_section inside;
            s.lock.lock();
            dropped = std::exchange(s.old, std::exchange(s.fresh, nullptr));
            std::size_t left = 0;
            for (const box* b = s.old; b != nullptr; b = b->below) left += b->used;
            s.count.store(left, std::memory_order_relaxed);
            s.lock.unlock();
        }
        destroy_all(dropped);
    }
}

void pool_core::destroy_all(box* first) noexcept {
    while (first != nullptr) {
        const std::unique_ptr<box> b(std::exchange(first, first->below));
        while (b->used != 0) destroy_(b->objects[--b->used]);
    }
}

}  // namespace dunlin::detail
