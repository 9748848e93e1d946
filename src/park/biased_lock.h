// biased_lock.h - a lock that costs no atomic operation while all that take it run on the same processor.
//
// Problem    Of the 15 ns of a channel operation the lock's compare-and-swap takes 8 (it waits until all stores before
//            it are out). Most channels are used by goroutines of one processor for thousands of operations on end: a
//            goroutine that is readied runs on its waker's processor. There, being inside the runtime is exclusion
//            enough: one thread at a time has the processor, and cannot lose it inside.
// Data       bias_: the processor that may enter without the lock below it, or null
//            sections (a processor's): the biased locks that its machine is in
// Protocol   enter on P, bias_ == P                   enter otherwise
//            B1  section = this                       R1  take the lock below (destroyable_lock.h)
//            B2  light barrier                        R2  bias_ is another processor Q: bias_ = null
//            B3  bias_ == P: in                       R3  heavy barrier (membarrier: every thread executes a fence)
//            B4  else section = null, enter otherwise R4  wait while one of Q's sections is this one
//            leave: section = null (release)          leave: unlock the lock below
// Proof      R3 is a fence in the thread on Q too. If it falls after B1, R4 sees the section, and waits for its end,
//            whose release it acquires. If it falls before B1, B3 comes after it and sees the null of R2. While bias_
//            is P, no thread but P's machine is in: R4 has passed for the others or R1 excludes them; P's own machine
//            is one thread.
//            (that B3 may be relaxed) P gives itself the bias, or the maker of the lock gives it to P at birth. What
//            the lock guards was written last by P's machines, which hand P over in order; or before P took the lock
//            below; or by the maker, before any other thread knew the lock.
// Bias       The bias is given under the lock below, to a processor that has taken the lock a thousand times in a row:
//            to take the bias away costs 7 to 11 us, as much as a thousand compare-and-swaps. Each time that it had to
//            be taken away, the number required grows by a factor of sixteen.
//            A lock may be born with a bias to its maker's processor: most channels live and die on one. When a few of
//            those biases had to be taken away, the program uses its channels differently, and no more are given.
// Several    A machine may be in up to `max_sections` biased locks at once, each with a place of its own, taken in the
//            common order as any locks are. Channels use the first places; heaps of timers, whose locks are taken under
//            those of channels, use the last.
// End        The last holder may destroy the lock below as soon as it has let go, and leaving with the bias touches the
//            processor only: so the last holder may destroy the biased lock too. Other threads may still be leaving the
//            lock, but none may be entering it.
// Caller     Inside the runtime with a processor, on a goroutine or the scheduler's stack; or a plain thread (`m`
//            null).
// Tests      tests/model/biased_lock_model_test.cpp, tests/park/biased_lock_test.cpp
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

#include "platform/membarrier.h"
#include "platform/destroyable_lock.h"
#include "sched/data/current.h"
#include "sched/data/types.h"
#include "sched/machines/machine.h"

namespace dunlin::inline v0_1::park {

class biased_lock {
public:
    constexpr biased_lock() noexcept = default;
    // Born with a bias, if that has paid so far.
    struct at_birth {};
    explicit biased_lock(at_birth) noexcept : bias_(processor_of_maker()), on_end_(born) {}
    biased_lock(const biased_lock&) = delete;
    biased_lock& operator=(const biased_lock&) = delete;

    // `place` < max_sections: one that this machine does not use now; 0 if it holds no other lock. Any other value: the
    // lock is taken without bias.
    void lock(sched::machine* m, unsigned place = 0) noexcept {
        if (m != nullptr && place < sched::max_sections) [[likely]] {
            sched::processor* p = sched::processor_of(m);
            if (p != nullptr && bias_.load(std::memory_order_relaxed) == p) [[likely]] {
                DUNLIN_DCHECK(p->sections[place].load(std::memory_order_relaxed) == nullptr,
                    "a place is used for two biased locks at once");
                // Release: R4 may read this instead of the null that ended the previous section, and must acquire that
                // section's writes all the same.
                p->sections[place].store(this, std::memory_order_release);         // B1
                ++p->operations;
                platform::light_barrier();                                         // B2
                if (bias_.load(std::memory_order_relaxed) == p) [[likely]] return;  // B3
                // Release, as B1: R4 may read this null instead of the one that ended the previous section.
                p->sections[place].store(nullptr, std::memory_order_release);  // B4
            }
        }
        lock_slow(m, place == 0);
    }

    void unlock(sched::machine* m, unsigned place = 0) noexcept {
        if (m != nullptr && place < sched::max_sections) [[likely]] {
            sched::processor* p = sched::processor_of(m);
            if (p != nullptr && p->sections[place].load(std::memory_order_relaxed) == this) [[likely]] {
                // pairs with the acquire in wait_until_left()
                p->sections[place].store(nullptr, std::memory_order_release);
                return;
            }
        }
        lock_.unlock();
    }

    static constexpr unsigned timers_place = sched::max_sections - 1;
    static constexpr unsigned no_place = sched::max_sections;

    // For std::scoped_lock.
    void lock() noexcept { lock(sched::current_machine()); }
    void unlock() noexcept { unlock(sched::current_machine()); }

    // For tests.
    const sched::processor* bias() const noexcept { return bias_.load(std::memory_order_relaxed); }
    static constexpr std::uint32_t first_bias_after = 1024;
    static constexpr std::uint32_t births_taken_away_max = 64;

private:
    // `patiently`: no other lock is held (destroyable_lock.h).
    void lock_slow(sched::machine* m, bool patiently) noexcept;
    void revoke(sched::processor* from) noexcept;
    void consider_bias(sched::processor* p) noexcept;
    static sched::processor* processor_of_maker() noexcept;

    // on_end_ of a lock that was born with its bias and still has it
    static constexpr std::uint32_t born = ~std::uint32_t{0};

    platform::atomic<sched::processor*> bias_{nullptr};  // lock_ to write
    platform::destroyable_lock lock_;
    sched::processor* last_ = nullptr;              // lock_: the processor that came last
    std::uint32_t on_end_ = 0;                      // lock_: how many times in a row
    std::uint32_t wanted_ = first_bias_after;       // lock_
};

}  // namespace dunlin::park
