// memory_of.h - what memory is to virtual threads: store buffers (tso), or older values that a load may find (cxx), and
// in all modes which write happens before which access.
//
// Data       There is a `place` for each atomic variable that was touched. The newest value, except for stores that are
//            still in buffers, is always in the variable itself, so that code outside of the simulation finds it there.
//            cxx: the history of a place, each value with the view that an acquiring load of it obtains. A thread's
//            view names, for each place, the oldest value that the thread may still find.
// Order      `sync` of a value is the clock of the thread that released it, or of the release fence before its store; a
//            read-modify-write continues the release sequence. Clocks follow the orders that the program names, in each
//            mode alike: a memory order that is too weak shows as a data race even where the hardware would forgive it.
// Compilers  move stores and loads across each other where no fence, locked operation or call forbids it. A store is
//            `issued` once one of these follows it; a heavy barrier does not wait for a store that is not issued. So a
//            missing light barrier is found, although it is no instruction.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "explorer/types.h"

namespace dunlin::inline v0_1::explorer {

// A value that was stored.
struct stored {
    std::uint64_t value = 0;
    vector_clock sync{};
    view seen;  // cxx
};

struct place {
    std::uintptr_t address = 0;
    std::uint32_t number = 0;      // its index here
    stored newest;                 // not cxx: only its `sync` is used
    std::vector<stored> history;   // cxx: the last one is the newest
    std::uint32_t first = 0;       // cxx: the number of history[0]
};

struct buffered {
    std::uintptr_t address;
    unsigned size;
    std::uint64_t value;
    vector_clock sync;
    bool issued;
    bool passed;  // something else was chosen while it could have become visible
};

// A thread's part of the memory.
struct thread_memory {
    unsigned thread = 0;
    std::vector<buffered> buffer;
    vector_clock now{};        // what happened before
    vector_clock released{};   // the clock at its last release fence
    vector_clock readable{};   // what an acquire fence would obtain
    view sees, released_view, readable_view;   // the same three as views
    bool looked_past_store = false;  // a load has followed an unissued store: the compiler may have swapped the two
    view issued_view;          // its view at the last point that the compiler moves nothing across
    view from_barrier;         // what others' barriers have shown it: seen from the next such point on
};

class shared_memory {
public:
    void begin(memory mode) noexcept;
    memory mode() const noexcept { return mode_; }

    place& at(const void* address, unsigned size);
    void forget(const void* address) noexcept;

    // The newest store to `address` in t's own buffer; null: there is none.
    const buffered* own(const thread_memory& t, const void* address) const noexcept;

    // How many values a load may find (the newest is the first), and the load of one of them.
    unsigned readable(const thread_memory& t, const place& p, std::memory_order order) const noexcept;
    std::uint64_t load(thread_memory& t, place& p, unsigned size, unsigned which, std::memory_order order);
    // A store that is visible at once.
    void store(thread_memory& t, place& p, unsigned size, std::uint64_t value, std::memory_order order, bool modifies);
    // A store goes into its thread's buffer, and out of it.
    void put(thread_memory& t, void* address, unsigned size, std::uint64_t value, std::memory_order order);
    const buffered flush(thread_memory& t);
    std::uint32_t place_of_front(const thread_memory& t);
    void fence(thread_memory& t, std::memory_order order);
    void issue(thread_memory& t);
    bool has_unissued(const thread_memory& t) const noexcept { return !t.buffer.empty() && !t.buffer.back().issued; }
    // cxx: a fence in each of these threads, at one moment.
    void fence_all(std::vector<thread_memory*> threads, thread_memory& by);
    // cxx: a thread that looks again and again sees the newest value in the end. True: until now it had not.
    bool catch_up(thread_memory& t, std::uintptr_t address);

    static std::uint64_t read(const void* address, unsigned size) noexcept;

private:
    static void write(void* address, unsigned size, std::uint64_t value) noexcept;
    static bool acquires(std::memory_order order) noexcept;
    static bool releases(std::memory_order order) noexcept;

    memory mode_ = memory::sequential;
    std::unordered_map<std::uintptr_t, std::uint32_t> numbers_;
    std::vector<place> places_;
    view total_;  // what sequentially consistent operations have shown
};

}  // namespace dunlin::explorer
