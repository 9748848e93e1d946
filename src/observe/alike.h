// alike.h - groups the goroutines of a report that are alike: same state, stack, place of creation, name and labels. A
// server's ten thousand connections become one paragraph.
//
// Memory     The world is stopped, or the program is about to end, and a stopped goroutine may hold the heap's lock. So
//            the memory is mapped, some 100 bytes per goroutine; if there is none, each goroutine is alone.
// Alike      Goroutines with equal keys. A key is a 64-bit hash of all that is compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sched/data/types.h"

namespace dunlin::inline v0_1::observe {

// Hashes what is compared.
class likeness {
public:
    void add(std::uint64_t value) noexcept {
        key_ = (key_ ^ value) * 0x9e3779b97f4a7c15;
        key_ ^= key_ >> 32;
    }
    void add(const void* address) noexcept { add(reinterpret_cast<std::uintptr_t>(address)); }
    void add(std::string_view text) noexcept {
        add(text.size());
        for (const char c : text) add(static_cast<std::uint64_t>(static_cast<unsigned char>(c)));
    }
    std::uint64_t key() const noexcept { return key_; }

private:
    std::uint64_t key_ = 0x243f6a8885a308d3;
};

class alike {
public:
    explicit alike(std::size_t at_most) noexcept;
    ~alike();
    alike(const alike&) = delete;
    alike& operator=(const alike&) = delete;

    // False: there is no memory.
    bool usable() const noexcept { return members_ != nullptr; }
    // Goroutines beyond `at_most` are dropped.
    void add(const sched::goroutine& g, std::uint64_t key) noexcept;

    // The goroutines of a group, in the order in which they were added; `in_group` is right in the first only.
    struct member {
        const sched::goroutine* g;
        const member* next;  // null: the last one
        std::uint32_t in_group;
        std::int64_t since_ns;  // in the first: when the longest wait of the group began; never: none waits
    };
    static constexpr std::int64_t never = INT64_MAX;

    // Sorts the groups by their longest waits, the longest first; groups that do not wait come last. Until then they
    // stand in the order in which they were added.
    void sort() noexcept;
    // f(member) for the first member of each group.
    template <class F>
    void for_each_group(F f) const noexcept {
        for (std::size_t i = 0; i < firsts_used_; ++i) f(*firsts_[i]);
    }

private:
    struct group {
        std::uint64_t key;
        member* first;  // null: the place is free
        member* last;
    };

    std::byte* memory_ = nullptr;
    std::size_t bytes_ = 0;
    member* members_ = nullptr;
    const member** firsts_ = nullptr;  // of each group
    std::size_t room_ = 0, used_ = 0, firsts_used_ = 0;
    group* groups_ = nullptr;
    std::size_t mask_ = 0;
};

}  // namespace dunlin::observe
