// run_queue.h - a processor's local run queue: 256 goroutines, first in first out, that others may steal from.
//
// Problem    The owner pushes and pops all the time, thieves take half of the queue now and then, and a join wants the
//            youngest back (the child that the waiter spawned last is at the tail). Go's ring (head by CAS, tail
//            written by its owner) cannot give up its tail: a thief that has read the old tail may take what the owner
//            has just taken back.
// Data       One 64-bit word says everything:   version:47 | size:9 | head:8     and 256 slots.
//            In checking builds the version wraps soon (platform/wrap.h).
//            The queue's contents are slots[head .. head+size). Each operation is one CAS on the word; slots are
//            written before the CAS that makes them visible and read before the CAS that claims them.
// Why it     A claim succeeds only if the word is unchanged since it was read. The contents of [head, head+size) change
// is right   only when something is taken out (at head or tail) and something is pushed later; taking out always raises
//            `version`. So an unchanged word means unchanged contents: the slots read before the CAS are the ones
//            claimed. 2^47 pops at 5 ns each take eight days: a thief would have to sleep exactly that long between its
//            load and its CAS.
// Order      The release of a push pairs with the acquire in take_half(), pop() and peek(): it publishes the slot and
//            everything in the goroutine to other threads.
//            A push is also sequentially consistent: it is step S1 of the wake protocol (wake.h), and the load of S3
//            must not pass it. So a push needs no S2 between the two.
// Rejected   Go's ring plus a Dekker handshake for the tail: a join costs the same, and there is more to prove.
//            Chase-Lev: steals one at a time, and its pop needs the fence that the CAS here already provides. Measured:
//            docs/decisions/005-run-queue.md.
// Tests      tests/sched/run_queue_test.cpp, tests/model/run_queue_model_test.cpp
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

#include "platform/check.h"
#include "platform/cpu.h"
#include "platform/wrap.h"

namespace dunlin::inline v0_1::sched {

struct goroutine;

class alignas(platform::false_sharing_range) run_queue {
    static constexpr unsigned head_bits = 8;

public:
    static constexpr std::uint32_t capacity = 1u << head_bits;

    // Owner only. False when the queue is full.
    bool push(goroutine* g) noexcept {
        // Acquire pairs with the release in pop() and take_half(): a slot is free for writing only after the thread
        // that took its goroutine has read it.
        std::uint64_t w = word_.load(std::memory_order_acquire);
        do {
            if (size(w) == capacity) return false;
            slots_[(head(w) + size(w)) % capacity].store(g, std::memory_order_relaxed);
        } while (!word_.compare_exchange_weak(w, w + one_more, std::memory_order_seq_cst, std::memory_order_acquire));
        return true;
    }

    // Owner only: takes the oldest and puts g behind the youngest, in one step. Returns null and changes nothing if the
    // queue is empty or full.
    goroutine* rotate(goroutine* g) noexcept;

    // Owner only: `count` goroutines at once. The caller knows that there is room (only the owner adds).
    void push_all(goroutine* const* list, std::uint32_t count) noexcept {
        std::uint64_t w = word_.load(std::memory_order_acquire);
        DUNLIN_DCHECK(size(w) + count <= capacity, "goroutines would be lost: the queue has no room for them");
        do {
            for (std::uint32_t i = 0; i < count; ++i) {
                slots_[(head(w) + size(w) + i) % capacity].store(list[i], std::memory_order_relaxed);
            }
        } while (!word_.compare_exchange_weak(
            w, w + one_more * count, std::memory_order_seq_cst, std::memory_order_acquire));
    }

    // Any thread. The oldest, or null.
    goroutine* pop() noexcept {
        std::uint64_t w = word_.load(std::memory_order_acquire);
        goroutine* g;
        do {
            if (size(w) == 0) return nullptr;
            g = slots_[head(w)].load(std::memory_order_relaxed);
        } while (!word_.compare_exchange_weak(w, without_oldest(w, 1), std::memory_order_acq_rel,
            std::memory_order_acquire));
        return g;
    }

    // The owner's pop. While goroutines are queued a switch mostly waits for memory, so this prefetches structs
    // some places ahead, and the stacks of goroutines whose struct has arrived.
    goroutine* pop_and_prefetch() noexcept;

    // Owner only. Takes the youngest if `wanted(g)` is true, else returns null.
    template <class Predicate>
    goroutine* pop_youngest_if(Predicate wanted) noexcept {
        std::uint64_t w = word_.load(std::memory_order_acquire);
        goroutine* g;
        do {
            if (size(w) == 0) return nullptr;
            g = slots_[(head(w) + size(w) - 1) % capacity].load(std::memory_order_relaxed);
            // While the queue holds more than a thief's share, only the owner takes from the tail. Otherwise a thief
            // may take this very goroutine; then the CAS fails. Looking at g meanwhile is harmless: structs are
            // type-stable.
            if (!wanted(g)) return nullptr;
        } while (!word_.compare_exchange_weak(
            w, w - one_more + one_version, std::memory_order_acq_rel, std::memory_order_acquire));
        return g;
    }

    // Any thread. Copies the older half, rounded up, into `out` (room for capacity / 2) and takes it. Returns how many.
    std::uint32_t take_half(goroutine** out) noexcept {
        std::uint64_t w = word_.load(std::memory_order_acquire);
        std::uint32_t count;
        do {
            count = size(w) - size(w) / 2;
            for (std::uint32_t i = 0; i < count; ++i) {
                out[i] = slots_[(head(w) + i) % capacity].load(std::memory_order_relaxed);
            }
            if (count == 0) return 0;
        } while (!word_.compare_exchange_weak(w, without_oldest(w, count), std::memory_order_acq_rel,
            std::memory_order_acquire));
        return count;
    }

    // Seq_cst: step R3 of the wake protocol reads it after the retiring machine has announced itself.
    std::uint32_t size() const noexcept { return size(word_.load(std::memory_order_seq_cst)); }

    // Changes whenever something is taken out.
    std::uint64_t takings() const noexcept { return word_.load(std::memory_order_relaxed) >> version_shift; }

    // The oldest, or null; a moment later it may belong to another processor, or be gone. For callers that only ask
    // what kind of goroutine it is.
    const goroutine* peek() const noexcept {
        const std::uint64_t w = word_.load(std::memory_order_acquire);
        return size(w) != 0 ? slots_[head(w)].load(std::memory_order_relaxed) : nullptr;
    }

    // The i-th oldest, for dumps while the world is stopped.
    goroutine* at(std::uint32_t i) const noexcept {
        const std::uint64_t w = word_.load(std::memory_order_acquire);
        return i < size(w) ? slots_[(head(w) + i) % capacity].load(std::memory_order_relaxed) : nullptr;
    }

private:
    // Prefetches for the goroutines behind the one that was taken; w is the word before the taking.
    void prefetch_behind(std::uint64_t w) const noexcept;

    static constexpr unsigned size_shift = head_bits;
    static constexpr unsigned version_shift = 2 * head_bits + 1;
    static constexpr std::uint64_t one_more = std::uint64_t{1} << size_shift;
    static constexpr std::uint64_t one_version = std::uint64_t{1} << version_shift;

    static constexpr std::uint32_t head(std::uint64_t w) noexcept { return w & (capacity - 1); }
    static constexpr std::uint32_t size(std::uint64_t w) noexcept { return (w >> size_shift) & (2 * capacity - 1); }
    static constexpr std::uint64_t without_oldest(std::uint64_t w, std::uint32_t count) noexcept {
        const std::uint64_t moved = (w & ~std::uint64_t{capacity - 1}) | ((head(w) + count) & (capacity - 1));
        return moved - one_more * count + one_version;
    }

    platform::atomic<std::uint64_t> word_{platform::counter_start<std::uint64_t>(64 - version_shift) << version_shift};
    // Relaxed atomics: a thief may read a slot that the owner is writing, and then its CAS fails.
    platform::atomic<goroutine*> slots_[capacity] = {};
};

}  // namespace dunlin::sched
