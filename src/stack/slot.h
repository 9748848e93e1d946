// slot.h - the shape of a goroutine's stack: its slot of address space and the record that describes it.
//
//   slot (a power of two, aligned to its own size but for a shift, see below)                  higher addresses ->
//   +------------------+---------------------------------------------------------+-----------------+
//   |  guard, 16 KiB   |  usable; the stack grows down, from top towards low()   | colour, <= 1 KiB|
//   +------------------+---------------------------------------------------------+-----------------+
//   base()             low()                                                     top               end()
//
// The guard is wide because a frame may jump over a single page without touching it. The colour differs between
// neighbours: with all tops at the same offset in a page, thousands of parked goroutines would share a few sets of the
// L1 and L2 caches (2 times slower switches at 10,000 goroutines). It is at most 1 KiB so that a goroutine with modest
// frames stays in one page.
//
// A page of the page table maps 2 MiB. Slots of 4 MiB and more begin 1 MiB behind a multiple of their size, so that the
// end of one, where its goroutine runs, and the guard of the next are mapped by the same page: a parked goroutine has
// one page of its own there, not two.
//
// The record lives outside the slot, so that a free stack costs no page. Records are type-stable: never freed, so a
// stale pointer still points to a record, though perhaps to one in another use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dunlin::inline v0_1::stack {

inline constexpr std::size_t guard_bytes = std::size_t{16} << 10;
inline constexpr std::size_t colour_step = 64;
inline constexpr std::size_t colours = 16;
inline constexpr std::size_t colour_bytes = colour_step * colours;

// Size classes: class c has slots of 32 KiB << c, up to 1 GiB.
inline constexpr unsigned smallest_slot_shift = 15;
inline constexpr unsigned class_count = 16;
inline constexpr unsigned dense_class = 3;      // 256 KiB: eight in what one page of the page table maps
// 1 MiB: a sanitizer's frames are larger, and its shadow of a stack is made at once
inline constexpr unsigned checked_class = 5;
inline constexpr unsigned shifted_class = 7;    // 4 MiB: from here on slots are shifted
inline constexpr std::size_t slot_shifted_by = std::size_t{1} << 20;
inline constexpr unsigned no_class = class_count;

constexpr unsigned slot_shift(unsigned size_class) noexcept { return smallest_slot_shift + size_class; }
constexpr std::size_t slot_bytes(unsigned size_class) noexcept { return std::size_t{1} << slot_shift(size_class); }

// The address of a slot, modulo its size.
constexpr std::size_t slot_offset(unsigned size_class) noexcept {
    return size_class >= shifted_class ? slot_shifted_by : 0;
}

// The same for whole pages, where there is room: otherwise neighbours, whose slots lie megabytes apart, would share a
// few sets of the TLB, and of the caches that hold the page table. It costs address space only: a page in which no
// stack begins is not touched.
constexpr std::size_t page_colours(unsigned size_class) noexcept { return size_class >= shifted_class ? 64 : 1; }
inline constexpr std::size_t page_colour_step = 4096;

// What a goroutine of this class can use at least, whatever its colours.
constexpr std::size_t usable_bytes(unsigned size_class) noexcept {
    return slot_bytes(size_class) - guard_bytes - colour_bytes - (page_colours(size_class) - 1) * page_colour_step;
}

// What must be left of another goroutine's stack if a goroutine that expects a stack of this class is to run there: all
// but 64 KiB, and of small ones three quarters.
constexpr std::size_t least_in_place(unsigned size_class) noexcept {
    const std::size_t least = usable_bytes(size_class), quarter = least / 4;
    return least - (quarter < (std::size_t{64} << 10) ? quarter : std::size_t{64} << 10);
}

// How a slot is protected against overflow now. `bare`: not yet, or no longer; never seen by a holder.
enum class protection : std::uint8_t { bare, by_madvise, by_mprotect, by_canary, none };

struct slot {
    enum class place : std::uint8_t { in_use, warm, cold, trimming };

    slot* next;              // the owner of the list that the slot is on: the arena, or the slot's holder
    slot* prev;              // the arena, under its lock
    std::byte* top;          // constant: the first stack pointer, a multiple of 64; the stack grows down from here
    std::uint8_t size_class; // constant
    place where;             // the arena, under its lock
    protection guard;        // the arena, before the slot is handed out; constant for the holder
    std::uint8_t unused[5];

    std::byte* base() const noexcept {
        const std::size_t offset = slot_offset(size_class);
        return reinterpret_cast<std::byte*>(
            ((reinterpret_cast<std::uintptr_t>(top) - offset) & ~(slot_bytes(size_class) - 1)) + offset);
    }
    // The lowest usable byte.
    std::byte* low() const noexcept { return base() + guard_bytes; }
    std::byte* end() const noexcept { return base() + slot_bytes(size_class); }
    std::size_t usable() const noexcept { return static_cast<std::size_t>(top - low()); }
};
// A million goroutines at 4.9 KB each, in dense slots: 4096 for the page, 512 of page table, 192 for the goroutine's
// struct, and this.
static_assert(sizeof(slot) == 32);

// Where the kernel cannot guard a stack, four words below low() tell whether it grew beyond its end. They cost the
// stack a second resident page (4 KiB at its low end); stacks with real guards pay nothing.
inline constexpr std::size_t canary_words = 4;
inline constexpr std::uint64_t canary_value = 0x6475'6e6c'696e'f00d;

inline std::uint64_t* canary_of(const slot& s) noexcept {
    return reinterpret_cast<std::uint64_t*>(s.low()) - canary_words;
}

// Cheap enough for every park: one predicted branch when there is no canary, one cache line when there is. False: the
// goroutine that runs on this stack has overwritten what lies below it. If the check comes often, that is less than 16
// KiB, and so not of another stack.
inline bool canary_intact(const slot& s) noexcept {
    if (s.guard != protection::by_canary) [[likely]] {
        return true;
    }
    const std::uint64_t* word = canary_of(s);
    return word[0] == canary_value && word[1] == canary_value && word[2] == canary_value && word[3] == canary_value;
}

}  // namespace dunlin::stack
