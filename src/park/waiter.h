// waiter.h - how anything waits, from a goroutine or from a plain thread.
//
// Data       A waiter stands on the stack of whoever waits and is linked into the wait queue of what it waits on, under that thing's lock. It is
//            of one of two kinds (a third, for coroutines, will need no change in the primitives): a goroutine, which is parked, or
//            a thread, which sleeps on the waiter's word.
// Protocol   wait                                        wake
//            1  lock the thing; nothing to wait for? out   1  lock the thing, take the waiter off the queue, write its result
//            2  waiter.prepare(); put it on the queue      2  unlock
//            3  unlock                                     3  waiter.wake(); from here on the waiter is gone
//            4  waiter.wait()
//            Between 2 and 4 a waker may already do all of its part: prepare() has declared the goroutine waiting, and readying it before it
//            has left is legal (sched/goroutine.cpp, "Leaving").
// Rule       Whoever took the waiter off its queue, and nobody else, calls wake(), exactly once.
#pragma once

#include <atomic>
#include <cstdint>
#include <source_location>

#include "platform/futex.h"
#include "sched/goroutine.h"

namespace dunlin::park {

class waiter {
public:
    waiter() noexcept : machine_(sched::current_machine()) {
        if (machine_ != nullptr) goroutine_ = machine_->current.load(std::memory_order_relaxed);
    }
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;

    // Step 2. A goroutine must be inside the runtime from before the thing's lock is taken (enter()): with the lock held it must not lose its processor.
    void prepare(sched::wait_reason reason, const std::source_location& where) noexcept {
        if (goroutine_ != nullptr) sched::prepare_to_park(goroutine_, reason, where);
    }

    // Step 4. Leaves the runtime.
    void wait() noexcept {
        if (goroutine_ != nullptr) {
            sched::park(machine_);
        } else {
            while (word_.load(std::memory_order_acquire) == 0) platform::futex_wait(word_, 0);
        }
    }

    // Wake, step 3.
    void wake() noexcept {
        if (goroutine_ != nullptr) {
            sched::ready(goroutine_);
        } else {
            // Release publishes what the waker wrote. The waiter may be gone at once after the store; waking a word nobody owns any more is harmless.
            word_.store(1, std::memory_order_release);
            platform::futex_wake(word_);
        }
    }

    // Into the runtime, as step 1 demands, and out again if there was nothing to wait for.
    void enter() noexcept {
        if (machine_ != nullptr) machine_ = sched::enter(machine_);
    }
    void leave() noexcept {
        if (machine_ != nullptr) sched::leave(machine_);
    }

    sched::goroutine* goroutine() const noexcept { return goroutine_; }

    waiter* next = nullptr;  // the queue's, under the thing's lock
    waiter* prev = nullptr;

private:
    sched::machine* machine_;
    sched::goroutine* goroutine_ = nullptr;
    std::atomic<std::uint32_t> word_{0};
};

}  // namespace dunlin::park
