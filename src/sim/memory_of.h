// memory_of.h - what memory is to virtual threads: store buffers (tso), or older values that a load may find (cxx), and
// in all modes which write happens before which access.
//
// Data       A `place` for each atomic variable touched. The newest value, but for what stands in buffers, is always in
//            the variable itself, so that what runs outside of the simulation finds it there.
//            cxx: the history of a place, each value with the view that an acquiring load of it obtains. A thread's
//            view names for each place the oldest value that it may still find.
// Order      `sync` of a value is the clock of the thread that released it, or of the release fence before its store; a
//            read-modify-write continues the release sequence. Clocks follow the orders that the program names, in each
//            mode alike: a memory order that is too weak shows as a data race even where the hardware would forgive it.
// Compilers  move stores and loads across each other where no fence, locked operation or call forbids it. A store is
//            `issued` when one of these stands behind it; a heavy barrier does not wait for one that is not. So a light
//            barrier that is left out is seen, although no instruction stands for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "sim/types.h"

namespace dunlin::inline v0_1::sim {

// A value that was stored.
struct stored {
    std::uint64_t value = 0;
    vector_clock sync{};
    view seen;  // cxx
};

struct place {
    std::uintptr_t address = 0;
    std::uint32_t number = 0;      // its index here
    stored newest;                 // its `sync`; its value only in cxx
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

// A thread's part of it.
struct thread_memory {
    unsigned thread = 0;
    std::vector<buffered> buffer;
    vector_clock now{};        // what happened before
    vector_clock released{};   // the clock at its last release fence
    vector_clock readable{};   // what an acquire fence would obtain
    view sees, released_view, readable_view;   // the same three as views
    bool looked_past_store = false;  // a load since an unissued store: the two may be the other way round
    view issued_view;          // at the last point that the compiler moves nothing across
    view from_barrier;         // what barriers of others have shown it, from that point on
};

class shared_memory {
public:
    void begin(memory mode) noexcept;
    memory mode() const noexcept { return mode_; }

    place& at(const void* address, unsigned size);
    void forget(const void* address) noexcept;

    // The value that stands in t's own buffer.
    const buffered* own(const thread_memory& t, const void* address) const noexcept;

    // How many values a load may find (the newest is the first), and the load of one of them.
    unsigned readable(const thread_memory& t, const place& p, std::memory_order order) const noexcept;
    std::uint64_t load(thread_memory& t, place& p, unsigned size, unsigned which, std::memory_order order);
    // Visible at once.
    void store(thread_memory& t, place& p, unsigned size, std::uint64_t value, std::memory_order order, bool modifies);
    // Into its buffer, and out of it.
    void put(thread_memory& t, void* address, unsigned size, std::uint64_t value, std::memory_order order);
    const buffered flush(thread_memory& t);
    std::uint32_t place_of_front(const thread_memory& t);
    void fence(thread_memory& t, std::memory_order order);
    void issue(thread_memory& t);
    bool has_unissued(const thread_memory& t) const noexcept { return !t.buffer.empty() && !t.buffer.back().issued; }
    // cxx: a fence in each of these threads, in one moment.
    void fence_all(std::vector<thread_memory*> threads, thread_memory& by);
    // cxx: the thread looks again and again, and will see the newest value in the end. True: it has not yet.
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

}  // namespace dunlin::sim
