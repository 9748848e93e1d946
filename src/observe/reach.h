// reach.h - which goroutines can be woken by nothing that is left: a search of all memory for what refers to them.
//
// Rule       A goroutine that waits stands in a queue: its node, on its stack, is what a waker comes to, by way of the
//            channel, from a handle. So one whose stack and closure are referred to by nothing that any thread or
//            goroutine can still come to will wait for ever. Nor is it in the way that its own handles, and those of
//            others of its kind, refer to the channel.
// Search     While all threads stand still (platform/standstill.h), as a conservative garbage collector does it, and
//            LeakSanitizer. A word that is the address of something refers to it, whatever it is.
//              roots     registers of threads, their stacks; all memory that can be read and is none of the below; the
//                        stacks and closures of goroutines that do not wait, or wait for time, a descriptor or a call
//              blocks    of the heap (heap_map.h), once something refers to them
//              waiting   stack and closure of a goroutine that waits, once something refers to them; it may go on then
//            A pointer into a block is enough. What is below a stack pointer is nothing.
//            Three ways to a waiter have no address in memory, or one that is no way, and are followed by themselves:
//            the lot (the object's address is asked for instead of its node), joins (the child goes on: so does its
//            joiner) and children that run in place (one stack).
// Exact      Nothing runs, registers are read, and words that look like addresses err to one side: a goroutine that is
//            said to be lost is, unless a reference to it is kept where it cannot be read: encoded (a tag in its upper
//            bits, compressed), in the kernel, or in a file. Queues of the lot are looked at before the threads stand
//            still, by their locks; a search is believed when a second one agrees, about the same wait.
// Misses     What an old value on a stack or in a register, or memory that is not known as a heap, still refers to.
// Cost       One to two nanoseconds for eight bytes of memory in use. It ends after three seconds without a result.
// Tests      tests/runtime/leaks_test.cpp, tests/runtime/leak_patterns_test.cpp
#pragma once

#include <cstdint>
#include <optional>

#include "observe/heap_map.h"
#include "observe/mapped.h"
#include "platform/memory_map.h"
#include "platform/standstill.h"
#include "sched/data/types.h"
#include "stack/here.h"

namespace dunlin::inline v0_1::observe {

class reach {
public:
    struct waiting {
        const sched::goroutine* g;
        std::uint64_t id;
        std::int64_t since_ns;
        const void* object;             // what it waits for in the lot; null: nothing
        std::uintptr_t sp;              // 0: it runs another in place, and stands on that one's stack
        std::uint32_t next_on_stack;    // of those that stand on the same one; the one on top comes first
        bool reached;
    };
    struct thread_place {
        std::uintptr_t sp, thread_pointer;  // the latter 0: not known
    };
    static constexpr std::uint32_t none = mapped_index::none;

    // Of `waiting` goroutines at most. The world is stopped.
    explicit reach(std::size_t waiting) noexcept;
    reach(const reach&) = delete;
    reach& operator=(const reach&) = delete;

    // Null: it has been done. Else why not. `from`: DUNLIN_STACK_POINTER_HERE.
    const char* search(std::uintptr_t from) noexcept;

    // f(waiting) for those that are lost. After a search.
    template <class F>
    void for_each_lost(F f) const noexcept {
        for (const waiting& w : waiting_) {
            if (!w.reached) f(w);
        }
    }
    // Is it lost in this search as well?
    bool lost(std::uint64_t id, std::int64_t since_ns) const noexcept {
        const std::uint32_t n = by_id_.find(id);
        return n != none && waiting_[n].since_ns == since_ns && !waiting_[n].reached;
    }

private:
    void add(const sched::goroutine& g) noexcept;
    void note_objects() noexcept;
    const char* search_standing(std::uintptr_t from, const platform::standstill& still) noexcept;

    bool list_holes() noexcept;
    void hole(std::uintptr_t begin, std::size_t bytes) noexcept;
    void scan_threads(std::uintptr_t from, const platform::standstill& still) noexcept;
    void scan_memory() noexcept;
    void scan_root(std::uintptr_t begin, std::uintptr_t end) noexcept;
    void scan_piece(std::uintptr_t from, const std::uintptr_t* words, std::size_t count, std::uintptr_t end) noexcept;
    void scan_goroutines() noexcept;
    void scan_closure(const sched::goroutine& g) noexcept;
    std::uintptr_t unused_to(const platform::mapped_region& r) const noexcept;
    const thread_place* first_at(std::uintptr_t address) const noexcept;
    bool thread_stands_in(const stack::slot& s) const noexcept;

    void look(std::uintptr_t word) noexcept;
    void look_at_all(const std::uintptr_t* words, std::size_t count) noexcept;
    void look_at_slot(const stack::slot& s, std::uintptr_t word) noexcept;
    void look_at_descriptor(const sched::goroutine& g, std::uintptr_t word) noexcept;
    bool note_ended(const sched::goroutine& g) noexcept;
    void look_from(const waiting& w) noexcept;
    void reach_stack(const stack::slot* s) noexcept;
    const stack::slot* slot_of(std::uintptr_t word) const noexcept;
    const sched::goroutine* descriptor_of(std::uintptr_t word) const noexcept;
    bool in_time() noexcept;
    void reach_joiner(const sched::goroutine& child) noexcept;
    void push(address_range range) noexcept;
    void drain() noexcept;
    void follow_objects() noexcept;
    bool object_reached(const void* object) const noexcept;
    void give_up(const char* why) noexcept {
        if (refused_ == nullptr) refused_ = why;
    }

    static constexpr std::size_t max_regions = 1 << 16, max_stack_pointers = 1 << 14;

    mapped_array<waiting> waiting_;
    mapped_index by_id_, by_stack_, by_descriptor_;
    std::size_t chunk_room_;
    mapped_index chunks_;                         // of descriptors, by their addresses in units of their size
    std::size_t ended_room_;
    mapped_index ended_;                          // descriptors of ended goroutines that were looked at, or are free
    std::size_t ended_count_ = 0;
    mapped_array<platform::mapped_region> regions_;
    mapped_array<address_range> holes_;           // what is no root, sorted
    mapped_array<thread_place> stack_pointers_;   // of threads, sorted by where they stand
    mapped_array<address_range> to_do_;           // words to be looked at: of stacks and closures; then of blocks
    std::optional<mapped_array<address_range>> blocks_to_do_;
    std::optional<heap_map> heap_;
    address_range stacks_{~std::uintptr_t{0}, 0}, descriptors_{~std::uintptr_t{0}, 0};
    std::int64_t until_ns_ = 0;
    mapped_array<std::byte> reader_room_;
    platform::memory_reader* reader_ = nullptr;
    std::uint32_t looks_ = 0;
    const char* refused_ = nullptr;
};

}  // namespace dunlin::observe
