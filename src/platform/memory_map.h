// memory_map.h - lists the memory of the process without using the heap, and reads it, whatever it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/memory.h"

namespace dunlin::inline v0_1::platform {

struct mapped_region {
    std::uintptr_t begin, end;
    bool writable;
    bool anonymous;  // not of a file; also [heap] and [stack]
    bool main_stack;
    bool guarded;    // memory before it cannot be read, as before the stack that libc makes for a thread
};

// Fills `into` with the readable regions, except for devices and the kernel's own, in the order of addresses. Returns
// how many there are (those that do not fit are left out); 0: they cannot be listed.
std::size_t read_memory_map(std::span<mapped_region> into) noexcept;

// Copies the memory at `from` as far as it can be read: up to a guard (of MADV_GUARD_INSTALL, which the map does not
// show) or the end of a file. Returns how many bytes; negative: the kernel's error, and nothing was copied.
long read_own_memory(std::uintptr_t from, void* to, std::size_t bytes) noexcept;

// Reads memory of which nothing is known but that it is mapped, a piece at a time: pages that were never touched are
// left out, and memory that cannot be read (a guard, a file that has become shorter) is skipped.
class memory_reader {
public:
    memory_reader() noexcept;
    ~memory_reader();
    memory_reader(const memory_reader&) = delete;
    memory_reader& operator=(const memory_reader&) = delete;

    // f(from, words, count) for the whole words in [begin, end), copied; the first stands at `from`.
    template <class F>
    void for_each_piece(std::uintptr_t begin, std::uintptr_t end, F f) noexcept {
        for (std::uintptr_t at = begin; at < end;) {
            const std::uintptr_t from = next_present(at, end);
            if (from >= end) return;
            const std::size_t bytes = copy(from, end);
            if (bytes >= sizeof(std::uintptr_t))
                f(from, static_cast<const std::uintptr_t*>(piece_), bytes / sizeof(std::uintptr_t));
            at = bytes != 0 ? from + bytes : (from / page_ + 1) * page_;
        }
    }

    // False: the kernel does not let the process read its own memory this way, and pieces were left out for that.
    bool works() const noexcept { return works_; }

private:
    static constexpr std::size_t piece_words = 8192, known_pages = 512;
    std::uintptr_t next_present(std::uintptr_t from, std::uintptr_t end) noexcept;
    std::size_t copy(std::uintptr_t from, std::uintptr_t end) noexcept;
    bool present(std::uintptr_t page_number) noexcept;

    const std::uintptr_t page_;
    int pages_file_;  // what the kernel knows of each page; -1: not available
    bool works_ = true;
    std::uintptr_t known_from_ = 0, known_to_ = 0;  // page numbers
    std::uintptr_t piece_[piece_words];
    std::uint64_t known_[known_pages];
};

}  // namespace dunlin::platform
