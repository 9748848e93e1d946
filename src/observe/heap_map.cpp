#include "observe/heap_map.h"

#include <algorithm>
#include <bit>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/syscall.h"
#include "stack/sanitizer.h"
#include "stack/shadow.h"

namespace dunlin::inline v0_1::observe {

namespace {

constexpr std::uintptr_t unit = 16;
// A chunk: the size of the chunk before it if that one is free, its own size with three flags, then the block. A block
// may use the first word of the next chunk.
constexpr std::uintptr_t header = 16, size_at = 8, least_chunk = 32;
constexpr std::uintptr_t previous_in_use = 1, own_mapping = 2, not_main = 4, flags_mask = 7;
constexpr std::size_t chunks_between_looks = 4096;  // at the clock
constexpr std::uintptr_t other_heaps_align = std::uintptr_t{64} << 20;

std::uintptr_t word_at(std::uintptr_t address) noexcept { return *reinterpret_cast<const std::uintptr_t*>(address); }

address_range shadowed_block(std::uintptr_t a, std::uintptr_t begin, std::uintptr_t end) noexcept {
    if (stack::ends_shadowed_block(a)) return {0, 0};
    std::uintptr_t first = a & ~std::uintptr_t{7}, last = first + 8;
    while (first > begin && !stack::ends_shadowed_block(first - 8)) first -= 8;
    while (last < end && !stack::ends_shadowed_block(last)) last += 8;
    return {first, last};
}

}  // namespace

heap_map::heap_map(std::span<const platform::mapped_region> regions, std::int64_t until_ns) noexcept
    : heaps_(max_heaps), until_ns_(until_ns) {
    if (!heaps_.usable()) return;
    for (const platform::mapped_region& r : regions) {
        if (!r.writable || !r.anonymous) continue;
        if (r.begin >= stack::shadowed_heap_begin && r.begin < stack::shadowed_heap_end) {
            add_shadowed(r);
        } else if (!stack::sanitizing) {
            add_glibc_main(r);
            add_glibc_others(r);
        }
    }
    std::sort(heaps_.begin(), heaps_.end(), [](const heap& a, const heap& b) { return a.begin < b.begin; });
    for (heap& h : heaps_) {
        h.first_bit = bits_;
        bits_ += ((h.end - h.begin) / unit + 63) / 64 * 64;
        lowest_ = std::min(lowest_, h.begin);
        highest_ = std::max(highest_, h.end);
    }
    starts_.emplace(bits_ / 64 + 1);
    reached_.emplace(bits_ / 64 + 1);
    usable_ = starts_->usable() && reached_->usable();
    if (usable_) note_chunks();
}

// How many chunks lead from `begin` to exactly `end`; 0: they do not. A heap that has a successor ends with two headers
// that are too small to be chunks: `end` is moved before them.
std::size_t heap_map::chunks_between(std::uintptr_t begin, std::uintptr_t& end, std::uintptr_t flags) const noexcept {
    constexpr std::uintptr_t first_flags = previous_in_use | not_main;  // of the first chunk only: free chunks do not
                                                                        // keep them
    if ((word_at(begin + size_at) & first_flags) != (previous_in_use | flags)) return 0;
    std::size_t count = 0;
    std::uintptr_t at = begin;
    while (at + header < end) {
        const std::uintptr_t raw = word_at(at + size_at), size = raw & ~flags_mask;
        if (size == header && end - at == 2 * header && (word_at(at + header + size_at) & ~flags_mask) == 0) {
            end = at;
            return count;
        }
        if ((raw & own_mapping) != 0 || size < least_chunk || size % unit != 0 || size > end - at) return 0;
        at += size;
        if (++count % chunks_between_looks == 0 && platform::now_ns() > until_ns_) return 0;
    }
    if (at + header == end && (word_at(at + size_at) & ~flags_mask) == 0) end = at;
    return at == end ? count : 0;
}

bool heap_map::add(std::uintptr_t records, std::uintptr_t begin, std::uintptr_t end, bool shadowed) noexcept {
    return heaps_.add({records, begin, end, 0, shadowed});
}

// The heap that ends at the program break, or at the page behind it.
void heap_map::add_glibc_main(const platform::mapped_region& r) noexcept {
    auto program_break = static_cast<std::uintptr_t>(platform::raw_syscall(SYS_brk, 0));
    if (program_break <= r.begin || program_break > r.end) return;
    const std::uintptr_t begin = (r.begin + unit - 1) & ~(unit - 1);
    const std::size_t n = chunks_between(begin, program_break, 0);
    if (n == 0 || !add(begin, begin, program_break, false)) return;
    blocks_ += n;
    top_of_main_ = begin;
    for (;;) {
        const std::uintptr_t next = top_of_main_ + (word_at(top_of_main_ + size_at) & ~flags_mask);
        if (next == program_break) return;
        top_of_main_ = next;
    }
}

// Such a heap begins at a multiple of 64 MiB with {arena, previous heap, size, writable size, ...}. In the first heap
// of an arena the arena follows. Its size differs between versions, so the first chunk is the one from which chunks
// lead to the end. Until the memory is known to be a heap it may be anything, even a guard: it is copied, not read.
void heap_map::add_glibc_others(const platform::mapped_region& r) noexcept {
    constexpr std::uintptr_t arena_bytes_at_most = 8192;
    for (std::uintptr_t at = (r.begin + other_heaps_align - 1) & ~(other_heaps_align - 1); at < r.end;
         at += other_heaps_align) {
        if (r.end - at < 4096) return;
        struct {
            std::uintptr_t arena, previous, size, writable;
        } head;
        if (platform::read_own_memory(at, &head, sizeof head) != sizeof head) continue;
        const std::uintptr_t size = head.size;
        if (size < 4096 || size % 4096 != 0 || size > r.end - at || head.writable < size || head.writable % 4096 != 0)
            continue;
        // the arena stands at the beginning of a heap, too
        if (head.arena % other_heaps_align - sizeof head >= 4096) continue;
        for (std::uintptr_t first = at + 32; first < at + std::min(size, arena_bytes_at_most); first += unit) {
            std::uintptr_t end = at + size;
            const std::size_t n = chunks_between(first, end, not_main);
            if (n == 0) continue;
            if (add(at, first, end, false)) blocks_ += n;
            break;
        }
    }
}

void heap_map::add_shadowed(const platform::mapped_region& r) noexcept {
    if (add(r.begin, r.begin, r.end, true)) blocks_ += (r.end - r.begin) / least_chunk;
}

void heap_map::note_chunks() noexcept {
    for (const heap& h : heaps_) {
        if (h.shadowed) continue;
        for (std::uintptr_t at = h.begin; at < h.end; at += word_at(at + size_at) & ~flags_mask) {
            const std::size_t bit = h.first_bit + (at - h.begin) / unit;
            (*starts_)[bit / 64] |= std::uint64_t{1} << bit % 64;
        }
    }
}

const heap_map::heap* heap_map::find_heap(std::uintptr_t a) const noexcept {
    const heap* const after = std::upper_bound(heaps_.begin(), heaps_.end(), a, [](std::uintptr_t at, const heap& h) {
        return at < h.begin;
    });
    return after != heaps_.begin() && a < after[-1].end ? after - 1 : nullptr;
}

// An arena: ..., the last chunk, another chunk, 127 bins of two words. Both words of an empty bin hold the address two
// words before the bin. Something else may refer to the last chunk, with a guard behind it: the memory is copied, not
// read.
std::size_t heap_map::bytes_of_record(std::uintptr_t place) const noexcept {
    constexpr std::uintptr_t large = 64, enough = 16;
    std::size_t empty = 0;
    for (std::uintptr_t i = large; i < bins && empty < enough; ++i) {
        const std::uintptr_t bin = place + bins_at + i * bin_bytes;
        std::uintptr_t links[2];
        if (platform::read_own_memory(bin, links, sizeof links) != sizeof links) return 0;
        empty += links[0] == bin - bins_at && links[1] == bin - bins_at;
    }
    return empty >= enough ? record_bytes : 0;
}

// The last chunk that begins at `a` or before.
std::uintptr_t heap_map::chunk_begin(const heap& h, std::uintptr_t a) const noexcept {
    std::size_t bit = h.first_bit + (a - h.begin) / unit;
    std::uint64_t word = (*starts_)[bit / 64] & ~std::uint64_t{0} >> (63 - bit % 64);
    while (word == 0 && bit / 64 * 64 > h.first_bit) {
        bit = bit / 64 * 64 - 1;
        word = (*starts_)[bit / 64];
    }
    if (word == 0) return 0;
    bit = bit / 64 * 64 + (63 - static_cast<std::size_t>(std::countl_zero(word)));
    return h.begin + (bit - h.first_bit) * unit;
}

address_range heap_map::chunk_at(const heap& h, std::uintptr_t a) const noexcept {
    if (h.shadowed) return shadowed_block(a, h.begin, h.end);
    std::uintptr_t begin = chunk_begin(h, a);
    // The first word of a header is the last word of the block before it.
    if (begin != 0 && a - begin < size_at) begin = begin > h.begin ? chunk_begin(h, begin - 1) : 0;
    if (begin == 0 || (a - begin >= size_at && a - begin < header)) return {0, 0};
    const std::uintptr_t end = begin + (word_at(begin + size_at) & ~flags_mask);
    if (end == h.end) return {0, 0};  // the rest of the heap
    return {begin + header, end + size_at};
}

std::optional<address_range> heap_map::reach(std::uintptr_t a) noexcept {
    const heap* const h = a >= lowest_ && a < highest_ ? find_heap(a) : nullptr;
    if (h == nullptr) return std::nullopt;
    const address_range block = chunk_at(*h, a);
    if (block.begin == 0) return std::nullopt;
    const std::size_t bit = h->first_bit + (block.begin - h->begin) / unit;
    std::uint64_t& word = (*reached_)[bit / 64];
    const std::uint64_t mask = std::uint64_t{1} << bit % 64;
    if ((word & mask) != 0) return std::nullopt;
    word |= mask;
    return block;
}

bool heap_map::reached(std::uintptr_t a) const noexcept {
    const heap* const h = find_heap(a);
    if (h == nullptr) return true;
    const address_range block = chunk_at(*h, a);
    if (block.begin == 0) return true;
    const std::size_t bit = h->first_bit + (block.begin - h->begin) / unit;
    return ((*reached_)[bit / 64] >> bit % 64 & 1) != 0;
}

}  // namespace dunlin::observe
