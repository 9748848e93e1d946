// contention.h - where block and mutex profiles get what they count: how long a waiter has waited, and how long an
// unlock has made others wait.
//
// Off        A wait costs one load and one branch more, and so does an unlock with waiters. An unlock that finds no
//            waiter costs nothing more.
// Waits      are measured around the park, on the stack of the waiter, and reported outside the runtime.
// Unlocks    Each unlock that takes the lock of the mutex's bucket is charged with the time that all in the queue have
//            waited since the previous unlock, or since they queued. So the holder that keeps the mutex for long is
//            charged, not the holder whose unlock wakes the longest waiter. The moment of the previous unlock stands in
//            the bucket (parking_lot.h); two busy mutexes in one bucket overwrite it for each other, and are then
//            charged from the queueing on. If there are more than `looked_at` waiters, each of the others counts as the
//            mean of the last one looked at and the last in the queue.
// Source     Go 1.24 runtime/mprof.go (what is sampled), runtime/sema.go (what is charged to whom).
// Tests      tests/runtime/contention_test.cpp, tests/tools/profile_test.py
#pragma once

#include <dunlin/config.hpp>

#include <dunlin/detail/atomic.hpp>
#include <cstdint>

#include "platform/cpu.h"
#include "sched/data/wait_reason.h"

namespace dunlin::inline v0_1::park {

// The functions that count. They run on the stack of the goroutine or thread that is charged, outside the runtime.
struct contention_counter {
    // Null: waits are events of a trace (sched/machines/trace.h), no more.
    void (*waited)(sched::wait_reason reason, std::int64_t ns) noexcept;
    void (*made_wait)(std::int64_t ns) noexcept;
};

// Null: off. They may be switched at any time: a wait or an unlock that is under way may be counted or not.
DUNLIN_HIDDEN extern platform::atomic<const contention_counter*> waits_counter;
DUNLIN_HIDDEN extern platform::atomic<const contention_counter*> unlocks_counter;

inline bool counts_unlocks() noexcept { return unlocks_counter.load(std::memory_order_relaxed) != nullptr; }

class lot_bucket;

// An unlock constructs it before it enters the runtime, so that its destructor runs outside.
class unlock_charge {
public:
    unlock_charge() noexcept = default;
    unlock_charge(const unlock_charge&) = delete;
    unlock_charge& operator=(const unlock_charge&) = delete;
    ~unlock_charge() {
        if (ns_ != 0) [[unlikely]] tell();
    }

    // The bucket is locked, and the waiters for `address` are lock_nodes, still in the queue.
    void add(lot_bucket& b, const void* address) noexcept {
        if (counts_unlocks()) [[unlikely]] look(b, address);
    }

private:
    void look(lot_bucket& b, const void* address) noexcept;
    void tell() const noexcept;

    std::int64_t ns_ = 0;
};

}  // namespace dunlin::park
