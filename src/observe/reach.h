// reach.h - which goroutines nothing can wake any more: a search of all memory for references to them.
//
// Rule       A goroutine that waits stands in a queue. A waker gets from a handle to the channel, and from there to the
//            waiter's node, which is on the waiter's stack. So a goroutine will wait for ever if nothing that any
//            thread or goroutine can still get to refers to its stack or closure. Its own handles, and those of other
//            such goroutines, may still refer to the channel: that changes nothing.
// Search     It takes place while all threads stand still (platform/standstill.h), and works like a conservative
//            garbage collector or LeakSanitizer. A word that is the address of something refers to it, whatever the
//            word is meant to be.
//              roots     registers and stacks of threads; all memory that can be read and is none of the below; stacks
//                        and closures of goroutines that do not wait, or that wait for a time, a descriptor or a call
//              blocks    of the heap (heap_map.h), once something refers to them
//              waiting   stack and closure of a goroutine that waits, once something refers to them: the goroutine may
//                        then go on
//            A pointer into a block is enough. Memory below a stack pointer does not count.
//            Three ways to a waiter have no address in memory, or one that leads nowhere, and are followed separately:
//            the parking lot (the search asks for the object's address instead of the node's), joins (if the child goes
//            on, so does its joiner) and children that run in place (they share one stack).
// Exact      Nothing runs, registers are read, and words that only look like addresses err to one side. So a goroutine
//            that is reported as lost is lost, unless a reference to it is kept where it cannot be read: encoded (a tag
//            in its upper bits, compressed), in the kernel, or in a file. The queues of the parking lot are read before
//            the threads stand still, under their locks; a search is believed when a second one agrees about the same
//            wait.
// Misses     Goroutines to which an old value on a stack or in a register, or memory that is not known as a heap, still
//            refers.
// Cost       One to two nanoseconds per eight bytes of memory in use. After three seconds the search ends without a
//            result.
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
        const void* object;             // what it waits for in the parking lot; null: nothing
        std::uintptr_t sp;              // 0: it runs another goroutine in place, on the same stack
        std::uint32_t next_on_stack;    // the next goroutine on the same stack; the one on top comes first
        bool reached;
    };
    struct thread_place {
        std::uintptr_t sp, thread_pointer;  // the latter 0: not known
    };
    static constexpr std::uint32_t none = mapped_index::none;

    // For `waiting` goroutines at most. The world is stopped.
    explicit reach(std::size_t waiting) noexcept;
    reach(const reach&) = delete;
    reach& operator=(const reach&) = delete;

    // Returns null, or why the search is not possible. `from`: DUNLIN_STACK_POINTER_HERE.
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
    void look_at_struct(const sched::goroutine& g, std::uintptr_t word) noexcept;
    bool note_ended(const sched::goroutine& g) noexcept;
    void look_from(const waiting& w) noexcept;
    void reach_stack(const stack::slot* s) noexcept;
    const stack::slot* slot_of(std::uintptr_t word) const noexcept;
    const sched::goroutine* struct_of(std::uintptr_t word) const noexcept;
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
    mapped_index by_id_, by_stack_, by_struct_;
    std::size_t chunk_room_;
    mapped_index chunks_;                         // chunks of goroutine structs, by address in units of the chunk size
    std::size_t ended_room_;
    mapped_index ended_;                          // structs of ended goroutines that were looked at, or are free
    std::size_t ended_count_ = 0;
    mapped_array<platform::mapped_region> regions_;
    mapped_array<address_range> holes_;           // what is not a root, sorted
    mapped_array<thread_place> stack_pointers_;   // of threads, sorted by stack pointer
    mapped_array<address_range> to_do_;           // ranges to look through: stacks and closures; then blocks
    std::optional<mapped_array<address_range>> blocks_to_do_;
    std::optional<heap_map> heap_;
    address_range stacks_{~std::uintptr_t{0}, 0}, structs_{~std::uintptr_t{0}, 0};
    std::int64_t until_ns_ = 0;
    mapped_array<std::byte> reader_room_;
    platform::memory_reader* reader_ = nullptr;
    std::uint32_t looks_ = 0;
    const char* refused_ = nullptr;
};

}  // namespace dunlin::observe
