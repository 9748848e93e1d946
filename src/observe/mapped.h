// mapped.h - memory for reports that are made while the world is stopped. It is mapped, since a stopped goroutine may
// hold the heap's lock.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/memory.h"

namespace dunlin::inline v0_1::observe {

// An array with room for `room` elements, all zero. T needs no destructor.
template <class T>
class mapped_array {
public:
    explicit mapped_array(std::size_t room) noexcept
        : range_{platform::reserve(room * sizeof(T) + 1, platform::page_size()), room * sizeof(T) + 1}, room_(room) {}
    ~mapped_array() {
        if (usable()) platform::release(range_);
    }
    mapped_array(const mapped_array&) = delete;
    mapped_array& operator=(const mapped_array&) = delete;

    // False: there is no memory.
    bool usable() const noexcept { return range_.begin != nullptr; }
    platform::memory_range range() const noexcept { return range_; }
    std::size_t size() const noexcept { return size_; }
    T& operator[](std::size_t i) const noexcept { return data()[i]; }
    T* begin() const noexcept { return data(); }
    T* end() const noexcept { return data() + size_; }
    // False: there is no room.
    bool add(const T& value) noexcept {
        if (size_ == room_) return false;
        data()[size_++] = value;
        return true;
    }
    void shrink(std::size_t size) noexcept { size_ = size; }

private:
    T* data() const noexcept { return reinterpret_cast<T*>(range_.begin); }

    platform::memory_range range_;
    std::size_t room_, size_ = 0;
};

// A map from keys, none of which is 0, to numbers; of `at_most` keys at most.
class mapped_index {
public:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    explicit mapped_index(std::size_t at_most) noexcept
        : places_(std::bit_ceil(2 * at_most + 2)), mask_(std::bit_ceil(2 * at_most + 2) - 1) {}

    bool usable() const noexcept { return places_.usable(); }
    platform::memory_range range() const noexcept { return places_.range(); }
    void set(std::uint64_t key, std::uint32_t number) noexcept { place(key) = {key, number}; }
    std::uint32_t find(std::uint64_t key) const noexcept {
        const entry& e = place(key);
        return key != 0 && e.key == key ? e.number : none;
    }

private:
    struct entry {
        std::uint64_t key;  // 0: the place is free
        std::uint32_t number;
    };
    entry& place(std::uint64_t key) const noexcept {
        std::size_t at = (key * 0x9e3779b97f4a7c15 >> 17) & mask_;
        while (places_[at].key != 0 && places_[at].key != key) at = (at + 1) & mask_;  // half of the places stay free
        return places_[at];
    }

    mapped_array<entry> places_;
    std::size_t mask_;
};

}  // namespace dunlin::observe
