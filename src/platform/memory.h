// memory.h - the contract over mmap and madvise: address space, guards, giving memory back.
//
// Guarantee  Nothing here throws, allocates from the heap, takes a lock or changes errno. Advice that the kernel does
//            not know is not a failure: the memory stays as usable as before.
//
// Guards     A guard is a range whose access faults. Three ways to have one; `automatic` is the first that works here:
//              by_madvise   MADV_GUARD_INSTALL (Linux 6.13): markers in the page table, 0.5 us each in batches, no
//                           mapping of its own, survives MADV_DONTNEED, inherited by fork. The markers keep their page
//                           table alive.
//              by_mprotect  PROT_NONE: 3 us, and it splits a mapping in three, of which vm.max_map_count allows 65,530.
//              by_canary    no protection: the owner writes known words and looks at them now and then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace dunlin::inline v0_1::platform {

struct memory_range {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;

    std::byte* end() const noexcept { return begin + bytes; }
};

// 4 KiB on x86-64; 4, 16 or 64 KiB on aarch64.
std::size_t page_size() noexcept;

// A huge page, and what one page of the page table maps, where pages have 4 KiB.
inline constexpr std::size_t huge_page_size = std::size_t{2} << 20;

// Address space without memory: readable, writable, private, zero, committed on touch, not counted as committed
// (MAP_NORESERVE; with vm.overcommit_memory=2 the kernel counts it all the same). `bytes` is rounded up to pages,
// `alignment` is a power of two. Null when the system refuses, with the reason (ENOMEM, EAGAIN) in *error.
std::byte* reserve(std::size_t bytes, std::size_t alignment = huge_page_size, int* error = nullptr) noexcept;

// Returns what reserve() gave; any later mapping may get the addresses.
void release(memory_range range) noexcept;

// Advice on transparent huge pages, and a name for /proc/self/maps. No effect on kernels built without them.
void no_huge_pages(memory_range range) noexcept;
void want_huge_pages(memory_range range) noexcept;
void name_range(memory_range range, const char* name) noexcept;

// Frees the pages of the ranges, which read as zero afterwards; guards stay. Uses as few system calls as the kernel
// allows. False if a range was refused (locked memory) and keeps its pages; the others are freed all the same.
bool give_back(std::span<const memory_range> ranges) noexcept;

// Space for stacks, in bytes: the size of a thread's stack (RLIMIT_STACK; 8 MiB if that is unlimited), and all
// addresses of the process (limited by the CPU, RLIMIT_AS and RLIMIT_DATA; 0 if the kernel counts reserved addresses as
// memory).
struct stack_space {
    std::size_t of_a_thread;
    std::size_t addresses;
};
stack_space space_for_stacks() noexcept;

enum class guard_kind : std::uint8_t { automatic, by_madvise, by_mprotect, by_canary, none };

// "auto", "madvise", "mprotect", "canary", "none"; nothing for any other text.
std::optional<guard_kind> parse_guard_kind(std::string_view text) noexcept;
const char* to_string(guard_kind kind) noexcept;

// The best kind that really faults here, tried on a scratch page once per process. Never `automatic` or `none`.
guard_kind probe_guards() noexcept;

// Makes ranges[0..n) fault and returns n, short at the first refusal. The ranges are whole pages of reserved memory.
// Installing a guard twice is harmless. For by_canary and none there is nothing to install: 0.
std::size_t install_guards(guard_kind kind, std::span<const memory_range> ranges) noexcept;

// Undoes install_guards(by_madvise, ...) for all guards inside the range. Other pages of the range are not changed.
bool remove_guards(memory_range range) noexcept;

// vm.max_map_count, the number of mappings a process may have; 65,530 (the kernel's default) when it cannot be read.
std::size_t max_map_count() noexcept;

}  // namespace dunlin::platform
