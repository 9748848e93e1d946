// waiter.h - how anything waits, from a goroutine or from a plain thread, for one thing or for several.
//
// Data       A waiter stands on the stack of the goroutine or thread that waits. It is of one of two kinds: a
//            goroutine, which is parked, or a thread, which sleeps on the waiter's word. A wait_node is its place in
//            the queue of one thing that it waits for, under that thing's lock. Most wait for one thing and need one
//            node, which the waiter itself is; a select has one per case, and a deadline or a context is one more.
// Protocol   wait                                        wake
//            1  lock the thing; nothing to wait for? out   1  lock the thing, take a node off the queue
//            2  prepare(); put the node on the queue       2  claim() it; false: another waker has claimed the waiter,
//                                                             or its goroutine is frozen; take the next node
//            3  unlock                                     3  write its result, unlock
//            4  wait()                                     4  waiter.wake(); from here on the waiter and its nodes are
//                                                             gone
//            5  waited for several: take the other nodes off their queues
//            Between 2 and 4 a waker may already do all of its part: prepare() has declared the goroutine waiting, and
//            readying it before it has left is legal (sched/goroutines/goroutine.cpp, "Leaving").
// Rule       The waker that has claimed a node, and no other, wakes its waiter, exactly once. A waiter with one node is
//            claimed by the waker that takes the node off its queue; one with several by compare-and-swap on
//            `decided_`. A node that was taken off without success may be touched until the lock is given back: step 5
//            takes the same lock.
// Giving up  A waiter that has prepared, and finds that it need not or cannot wait, claims itself with decide(); true:
//            withdraw() and undo step 2; false: a waker is about to wake it: wait().
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>
#include <source_location>

#include "park/contention.h"
#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/usable.h"
#include "sched/data/steering.h"
#include "sched/goroutines/goroutine.h"

namespace dunlin::inline v0_1::park {

class waiter;

struct wait_node {
    wait_node* next = nullptr;  // the queue's, under the thing's lock
    wait_node* prev = nullptr;
    waiter* owner;
    bool linked = false;        // the same
    bool several = false;       // constant while linked: its waiter has other nodes, or a deadline

    explicit wait_node(waiter* w = nullptr) noexcept : owner(w) {}

    // Step 2. The caller has taken it off its queue and holds the lock.
    inline bool claim() noexcept;
};

class waiter : public wait_node {
public:
    waiter() noexcept : waiter(sched::current_machine()) {}
    explicit waiter(sched::machine* m) noexcept : wait_node(this), machine_(m) {
        if (machine_ != nullptr) goroutine_ = machine_->current.load(std::memory_order_relaxed);
    }
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;

    // Step 2. A goroutine must be inside the runtime from before the thing's lock is taken (enter()): with the lock
    // held it must not lose its processor.
    void prepare(sched::wait_reason reason, const std::source_location& where) noexcept {
        if (goroutine_ != nullptr) {
            sched::prepare_to_park(goroutine_, reason, where);
        } else {
            reason_ = reason;
        }
    }

    // Step 4. Leaves the runtime.
    void wait() noexcept {
        if (waits_counter.load(std::memory_order_relaxed) != nullptr) [[unlikely]] return wait_counted();
        wait_uncounted();
    }
    void wait_uncounted() noexcept {
        if (goroutine_ != nullptr) {
            sched::park(machine_);
        } else {
            platform::check_usable();
            if (sched::steering* s = sched::steered()) s->from_outside();
            while (word_.load(std::memory_order_acquire) == 0) platform::futex_wait(word_, 0);
        }
    }

    // The same for a plain thread, until a moment of the monotonic clock. False: that moment is past, and the thread
    // has not been woken yet.
    bool wait_on_thread_until(std::int64_t deadline_ns) noexcept {
        if (waits_counter.load(std::memory_order_relaxed) == nullptr) return wait_on_thread_uncounted(deadline_ns);
        const std::int64_t began_ns = platform::now_ns();
        const bool woken = wait_on_thread_uncounted(deadline_ns);
        count_wait(reason_, platform::now_ns() - began_ns);
        return woken;
    }

    // Wake, step 4.
    void wake() noexcept {
        if (goroutine_ != nullptr) {
            sched::ready(goroutine_);
        } else {
            // Release publishes what the waker wrote. The waiter may be gone right after this store. Waking a word that
            // has no owner any more is harmless.
            word_.store(1, std::memory_order_release);
            platform::futex_wake(word_);
        }
    }

    // The same for a waker that has been inside the runtime since before it claimed the waiter. m: what enter()
    // returned; null on a plain thread.
    void wake_from(sched::machine* m) noexcept {
        if (goroutine_ != nullptr && m != nullptr) {
            sched::ready_inside_runtime(m, goroutine_);
        } else {
            wake();
        }
    }

    // For a waiter with several nodes: true for the first caller. One atomic word settles that. Its order publishes
    // nothing: a waker sees what the waiter has prepared by the lock under which it took the node, and the waiter sees
    // the result, written after the claim, by the wake.
    bool decide(wait_node* by) noexcept {
        wait_node* undecided = nullptr;
        return decided_.compare_exchange_strong(undecided, by, std::memory_order_acq_rel, std::memory_order_acquire);
    }
    // The node that woke it.
    wait_node* decided() const noexcept { return decided_.load(std::memory_order_acquire); }

    // Undoes prepare(), after the waiter's own decide(). Stays inside the runtime.
    void withdraw() noexcept {
        if (goroutine_ != nullptr) {
            sched::transition<sched::goroutine_state::waiting, sched::goroutine_state::running>(goroutine_->state);
        }
    }

    // Makes the waiter usable for another wait. No node is linked.
    void again() noexcept {
        machine_ = sched::current_machine();
        decided_.store(nullptr, std::memory_order_relaxed);
        word_.store(0, std::memory_order_relaxed);
    }

    // enter() goes into the runtime, as step 1 demands; leave() goes out again, if there was nothing to wait for.
    void enter() noexcept {
        if (machine_ != nullptr) machine_ = sched::enter_to_wait(machine_);
    }
    // enter() for a call that may wait only if its arguments, the limit above all, allow it.
    template <class MayWait>
    void enter_if_it_waits(MayWait may_wait) noexcept {
        if (machine_ != nullptr) machine_ = sched::enter_to_wait_if(machine_, may_wait);
    }
    void leave() noexcept {
        if (machine_ != nullptr) sched::leave(machine_);
    }

    sched::goroutine* goroutine() const noexcept { return goroutine_; }
    // Valid while inside the runtime.
    sched::machine* machine() const noexcept { return machine_; }

    // True: its run() has returned, and the goroutine is frozen for good. Nothing reaches it any more, and what is
    // handed to a waiter must not go to it.
    bool is_frozen() const noexcept {
        return goroutine_ != nullptr &&
            goroutine_->state.load(std::memory_order_relaxed) == sched::goroutine_state::frozen;
    }

private:
    bool wait_on_thread_uncounted(std::int64_t deadline_ns) noexcept {
        platform::check_usable();
        if (sched::steering* s = sched::steered()) s->from_outside();
        while (word_.load(std::memory_order_acquire) == 0) {
            if (!platform::futex_wait_until(word_, 0, deadline_ns)) return word_.load(std::memory_order_acquire) != 0;
        }
        return true;
    }
    // Defined in contention.cpp. Called by the waiter itself, outside the runtime.
    void wait_counted() noexcept;
    static void count_wait(sched::wait_reason reason, std::int64_t ns) noexcept;

    sched::machine* machine_;
    sched::goroutine* goroutine_ = nullptr;
    platform::atomic<wait_node*> decided_{nullptr};
    platform::atomic<std::uint32_t> word_{0};
    sched::wait_reason reason_ = sched::wait_reason::none;  // of a plain thread
};

inline bool wait_node::claim() noexcept {
    if (__builtin_expect(owner->is_frozen(), 0)) return false;
    return !several || owner->decide(this);
}

// Keeps a goroutine inside the runtime for a scope; does nothing on a plain thread. A caller that takes a lock of the
// runtime needs one. Scopes may nest, and may be used in a timer's fire().
class runtime_section {
public:
    runtime_section() noexcept : machine_(sched::current_machine()) {
        if (machine_ == nullptr) {
            platform::check_alone();
            return;
        }
        outermost_ = machine_->in_runtime.load(std::memory_order_relaxed) == 0;
        if (outermost_) machine_ = sched::enter(machine_);
    }
    ~runtime_section() {
        if (outermost_) sched::leave(machine_);
    }
    runtime_section(const runtime_section&) = delete;
    runtime_section& operator=(const runtime_section&) = delete;

    sched::machine* machine() const noexcept { return machine_; }

private:
    sched::machine* machine_;
    bool outermost_ = false;
};

}  // namespace dunlin::park
