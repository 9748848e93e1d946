// heap_map.h - the blocks of the program's heap, found from outside the allocator while nothing changes, and which of
// them were reached.
//
// glibc      Chunks follow each other. Each begins with a header of two words; the second is the chunk's size. The
//            chunks lead from the first one of a heap to its end. If they do not, because a thread was stopped within
//            malloc() or other code has memory there, the heap is not known. The main heap is the one at the program
//            break; other heaps lie at multiples of 64 MiB and begin with a record. Large blocks have mappings of their
//            own, which are not known.
// ASan       Its shadow says where a block ends; freed blocks do not count.
// Others     Not known. For the search, what is not known is not a heap: all of it counts as reached.
// Tests      tests/runtime/leaks_test.cpp
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "observe/mapped.h"
#include "platform/memory_map.h"

namespace dunlin::inline v0_1::observe {

struct address_range {
    std::uintptr_t begin, end;

    bool contains(std::uintptr_t a) const noexcept { return a >= begin && a < end; }
};

class heap_map {
public:
    // Searches the regions for heaps, until `until_ns` at most: what was not searched by then counts as no heap.
    heap_map(std::span<const platform::mapped_region> regions, std::int64_t until_ns) noexcept;
    heap_map(const heap_map&) = delete;
    heap_map& operator=(const heap_map&) = delete;

    // False: there is no memory.
    bool usable() const noexcept { return usable_; }
    std::size_t blocks() const noexcept { return blocks_; }

    // f(range) for each heap; the range includes the allocator's records.
    template <class F>
    void for_each_heap(F f) const noexcept {
        for (const heap& h : heaps_) f(address_range{h.records, h.end});
    }
    bool in_heap(std::uintptr_t a) const noexcept { return a >= lowest_ && a < highest_ && find_heap(a) != nullptr; }
    // `word` stands at `place`, in memory up to `end`. How many bytes from `place` on are the main heap's record of its
    // free chunks, which refers to blocks but does not own them; 0: it does not begin here.
    std::size_t bytes_of_record_at(std::uintptr_t place, std::uintptr_t word, std::uintptr_t end) const noexcept {
        return word != top_of_main_ || word == 0 || end - place < record_bytes ? 0 : bytes_of_record(place);
    }

    // The block that `a` points into, if there is one and it was not reached before. From then on it counts as reached.
    std::optional<address_range> reach(std::uintptr_t a) noexcept;
    // `a`, in a heap, points into a block that was reached, or into none.
    bool reached(std::uintptr_t a) const noexcept;

private:
    struct heap {
        std::uintptr_t records, begin, end;  // its chunks: from begin to end
        std::size_t first_bit;      // in the bit maps: one bit per 16 bytes
        bool shadowed;              // ASan's
    };
    static constexpr std::size_t max_heaps = 4096;
    static constexpr std::uintptr_t bins = 127, bin_bytes = 16, bins_at = 16, record_bytes = bins_at + bins * bin_bytes;

    void add_glibc_main(const platform::mapped_region& r) noexcept;
    void add_glibc_others(const platform::mapped_region& r) noexcept;
    void add_shadowed(const platform::mapped_region& r) noexcept;
    std::size_t chunks_between(std::uintptr_t begin, std::uintptr_t& end, std::uintptr_t flags) const noexcept;
    bool add(std::uintptr_t records, std::uintptr_t begin, std::uintptr_t end, bool shadowed) noexcept;
    std::size_t bytes_of_record(std::uintptr_t place) const noexcept;
    void note_chunks() noexcept;
    const heap* find_heap(std::uintptr_t a) const noexcept;
    // The block of the chunk; an empty range: none.
    address_range chunk_at(const heap& h, std::uintptr_t a) const noexcept;
    std::uintptr_t chunk_begin(const heap& h, std::uintptr_t a) const noexcept;

    mapped_array<heap> heaps_;
    const std::int64_t until_ns_;
    std::size_t bits_ = 0, blocks_ = 0;
    std::uintptr_t lowest_ = ~std::uintptr_t{0}, highest_ = 0;
    std::uintptr_t top_of_main_ = 0;  // its last chunk: the memory not handed out yet
    bool usable_ = false;
    std::optional<mapped_array<std::uint64_t>> starts_, reached_;
};

}  // namespace dunlin::observe
