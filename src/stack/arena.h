// arena.h - where stacks come from and where they go.
//
// Problem    A million stacks of 256 KiB to 8 MiB, each with a guard, in a process that may have 65,530 mappings; a
//            stack must be available in nanoseconds when one was freed a moment ago, and its memory must not stay for
//            ever when it was freed long ago.
// Guarantee  G1: a slot has one owner at a time: the arena, a holder (between allocate and recycle), or a running trim.
//            G2: a held slot is protected as `slot::guard` says, and its memory is not given back.
//            G3: no system call is made under the lock, except to reserve a region (a handful in a program's life).
//            Address space is never returned, so lookup() needs no lock. Nothing throws; nothing uses the heap.
//
// Data       region   address space with slots of one class, aligned as slot.h says; beside it an array of the
//                     slots' records, so that address -> record is arithmetic. Slots are cut from it in address order
//            warm     free slots that were used and may have memory, most recently freed first
//            cold     free slots without memory: given back by trim(), or cut and not needed yet. Neighbours follow
//                     each other, because they share page tables
//            group    the slots in one 2 MiB of address space, which is what one page of the page table maps
//
// Protocol   allocate                                   trim (one at a time)
//            A1  lock: take from warm, else cold,       T1  lock: take the coldest of warm, and the cold rest of each
//                else cut new ones; mark in_use             group that this leaves without a user; mark trimming
//            A2  unlock                                 T2  unlock
//            A3  guard those that are bare              T3  give memory back (of whole groups, remove the guards too,
//            A4  lock: put on cold what is too much         so that the page table goes)
//                                                       T4  lock: put all on cold
// Proof      A slot that T1 has marked is on no list, so A1 cannot get it before T4. A slot that A1 has marked is on no
//            list, so T1 cannot take it, and its group has a user, so T1 does not take the group.
// Fork       As with any lock: the child of a process with other threads may only exec.
// Tests      tests/stack/arena_test.cpp
// Rejected   One mmap per stack (6 to 8 us, and 32,000 of them are all that fit). MADV_FREE (memory does not fall until
//            there is pressure, which users read as a leak). Guards kept in groups given back: the markers keep 512
//            bytes of page table per slot for ever, and to install one again costs 0.5 us against 1.5 us for the page
//            fault that follows.
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/cpu.h"
#include "platform/lock.h"
#include "platform/memory.h"
#include "stack/slot.h"
#include "stack/slot_list.h"

namespace dunlin::inline v0_1::stack {

// The smallest class whose stacks have at least `usable` bytes; no_class if there is none.
unsigned class_for(std::size_t usable) noexcept;

// The class for programs that say nothing: as much address space as the system gives a thread's stack; only what is
// touched becomes memory. Less where the address space is small.
unsigned class_like_a_thread(const platform::stack_space& space) noexcept;

struct arena_stats {
    std::size_t reserved_bytes = 0;      // address space for stacks
    std::size_t slots_in_use = 0;        // handed out and not recycled (holders' caches included)
    std::size_t slots_warm = 0;          // free, with memory
    std::size_t slots_cold = 0;          // free, without
    std::size_t slots_given_back = 0;    // by trim, since the start
    std::size_t guards_by_mprotect = 0;  // each costs two mappings
    std::size_t canaries = 0;            // stacks for which no guard was available, counted each time one is prepared
    platform::guard_kind kind = platform::guard_kind::automatic;  // in force; automatic: no stack was needed yet
};

// Of the mappings that the kernel allows (vm.max_map_count): four for each of the ten thousand threads that the runtime
// may have, and some for the program and its libraries. Guards that take mappings leave so many, or half of them all.
inline constexpr std::size_t mappings_left = 4 * std::size_t{10'000} + 8000;

class arena {
public:
    constexpr arena() noexcept = default;
    arena(const arena&) = delete;
    arena& operator=(const arena&) = delete;

    // How slots are guarded that are prepared from now on; call before the first allocate(). A slot that the kernel
    // refuses to guard this way gets the next best: madvise, mprotect (while mappings last), canary.
    void use_guards(platform::guard_kind kind) noexcept;

    // Puts up to `want` slots on an intrusive list (`*head`, by `next`, ending with null), the best one to use first.
    // Returns how many. Fewer only if there are no more; then, and for a class that does not exist here (EINVAL),
    // *error has the reason (ENOMEM).
    std::size_t allocate(unsigned size_class, slot** head, std::size_t want, int* error = nullptr) noexcept;

    // Takes `count` slots of one class back, linked by `next`, the most recently used at the head.
    void recycle(slot* head, slot* tail, std::size_t count, unsigned size_class) noexcept;

    // Gives back the memory of up to `max_slots` warm slots, in each class the coldest first. Returns how many; 0 when
    // another trim is running. Makes system calls (about 1 us for a slot) and needs 16 KiB of stack: for a background
    // thread.
    std::size_t trim(std::size_t max_slots) noexcept;

    // The same, but takes only the slots that were not needed between the last two calls of note_idle(), nor since.
    // With a note every second it brings memory down after a peak and leaves alone what a steady load uses.
    void note_idle() noexcept;
    std::size_t trim_idle(std::size_t max_slots) noexcept;
    // Is there anything that trim() would take?
    bool anything_warm() noexcept;

    struct found {
        slot* owner = nullptr;  // null: not in a slot that was ever cut
        bool in_guard = false;  // below low(): where a stack overflow faults (if the slot's guard is one that faults)
    };
    // For signal handlers: no lock, no allocation. The record's fields that are not constant are right only for the
    // slot's holder.
    found lookup(const void* address) const noexcept;

    // f(range) for each range of address space that was reserved for stacks.
    template <class F>
    void for_each_range(F f) const noexcept {
        const std::size_t regions = region_count_.load(std::memory_order_acquire);
        for (std::size_t i = 0; i < regions; ++i) f(platform::memory_range{regions_[i].begin, regions_[i].bytes});
    }

    arena_stats stats() noexcept;

private:
    struct region {
        std::byte* begin = nullptr;             // constant once counted in regions_
        std::size_t bytes = 0;                  // constant
        slot* records = nullptr;                // constant; the array, by slot index
        unsigned size_class = 0;                // constant
        // under the lock, written with release; lookup() reads with acquire
        platform::atomic<std::size_t> slots_cut{0};

        std::size_t slots() const noexcept { return bytes >> slot_shift(size_class); }
    };

    struct class_state {
        slot_list warm;
        slot_list cold;
        region* youngest = nullptr;      // the one that slots are cut from
        std::size_t reserved_bytes = 0;
        std::size_t slots_cut = 0;
        std::size_t slots_trimming = 0;
        std::size_t warm_low_water = 0;  // the fewest warm slots since the last note_idle()
        std::size_t idle = 0;            // what that was at the last note_idle(), less what trim_idle() has taken
    };

    static constexpr std::size_t max_regions = 512;  // regions double in size, up to 64 GiB: enough for 47 bits
    static constexpr std::size_t batch = 64;         // slots that are cut, guarded or taken under the lock at once

    slot_list take_free(unsigned size_class, std::size_t want) noexcept;
    slot_list cut(unsigned size_class, int* error) noexcept;
    region* grow(unsigned size_class, int* error) noexcept;
    void put_back(slot_list& surplus, unsigned size_class) noexcept;

    void prepare(const slot_list& slots) noexcept;
    std::size_t guard_by(platform::guard_kind kind, std::span<slot* const> slots) noexcept;
    std::size_t take_mprotect_budget(std::size_t want) noexcept;
    platform::guard_kind kind_in_force() noexcept;

    struct victims;
    std::size_t take_idle(unsigned size_class, std::size_t want) noexcept;
    std::size_t trim_class(unsigned size_class, std::size_t max_slots) noexcept;
    void choose_victims(class_state& c, victims& chosen, std::size_t max_slots) noexcept;
    static void add_whole_group(class_state& c, victims& chosen, slot* member) noexcept;

    platform::ranked_lock<platform::lock_rank::arena> lock_;
    std::array<class_state, class_count> classes_{};  // under lock_
    std::array<region, max_regions> regions_{};       // written under lock_, read by lookup() up to region_count_
    // under lock_, written with release; lookup() reads with acquire
    platform::atomic<std::size_t> region_count_{0};
    std::size_t slots_given_back_ = 0;                // under lock_

    platform::ranked_lock<platform::lock_rank::trim> trim_lock_;  // held by the one trim that runs; taken before lock_

    platform::atomic<platform::guard_kind> kind_{platform::guard_kind::automatic};
    platform::atomic<std::size_t> guards_by_mprotect_{0};  // a budget: reserved before the calls, never above its limit
    platform::atomic<std::size_t> canaries_{0};
};

// The arena that goroutines use. Constant-initialised and, in effect, never destroyed: usable before and after main.
DUNLIN_HIDDEN extern arena stacks;

}  // namespace dunlin::stack
