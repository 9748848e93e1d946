// heap.h - timers: one 4-ary heap per processor, exact to the nanosecond, with true removal.
//
// Data       entries {when, timer*} in one array, the index of each kept in its timer; 16 bytes an entry, four children in one cache line. Guarded by
//            a lock; `earliest` is readable without it.
// Why        A deadline is mostly set and then removed: 6 to 8 ns here, the same as a timing wheel, which would round to its tick. Lazy deletion (Go)
//            costs 12 to 82 ns and hides a deadlock until the dead entry is cleaned away.
// Lifetime   A timer belongs to its user, who removes it (or learns that it has fired) before it goes away. The callback runs with no lock held, inside the
//            runtime, must not block, and after `remove` has returned false it may still be running: fired_ says when it has begun.
// Tests      tests/timer/heap_test.cpp
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "platform/lock.h"

namespace dunlin::timer {

class timer_heap;

struct timer_entry {
    std::int64_t when_ns = 0;            // constant while in a heap
    void (*fire)(timer_entry*) noexcept = nullptr;  // constant
    std::atomic<timer_heap*> heap{nullptr};  // written under the heap's lock, or both when it moves
    std::uint32_t index = 0;             // heap lock
    std::atomic<bool> armed{false};      // written under the heap's lock
};

class timer_heap {
public:
    // Throws std::bad_alloc, and then nothing has changed. True if it is the earliest now.
    bool insert(timer_entry* t);

    // True if it was taken out before it fired.
    bool remove(timer_entry* t) noexcept;

    // Everything goes into `other`, whose owner lives on. Nothing happens if there is no memory for it.
    void move_all_to(timer_heap& other) noexcept;

    // Takes the earliest out if it is due, else null. The caller fires it, without the lock.
    timer_entry* take_due(std::int64_t now_ns) noexcept;

    // 0: none. Seq_cst pairs with timer_added() (sched/find_work.cpp, step 8).
    std::int64_t earliest() const noexcept { return earliest_.load(std::memory_order_seq_cst); }

    std::size_t size() const noexcept;
    void clear() noexcept;

    // For tests: parents before children, indexes right.
    bool valid() const;

private:
    struct entry {
        std::int64_t when;
        timer_entry* timer;
    };

    // By value: what they are given may stand in the array that they rearrange.
    void place(std::size_t at, entry e) noexcept;
    void sift_up(std::size_t at, entry e) noexcept;
    void sift_down(std::size_t at, entry e) noexcept;
    void take_out(std::size_t at) noexcept;
    void publish_earliest() noexcept;

    mutable platform::futex_lock lock_;
    std::vector<entry> entries_;
    std::atomic<std::int64_t> earliest_{0};
};

}  // namespace dunlin::timer
