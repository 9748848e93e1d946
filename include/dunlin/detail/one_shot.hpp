// one_shot.hpp - something that happens once and can be waited for. once_flag and future are built on it; not for
// direct use.
#pragma once

#include <dunlin/config.hpp>

#include <cstdint>
#include <source_location>

#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/wait.hpp>

namespace dunlin::inline v0_1::detail {

// src/sync/once.cpp
class DUNLIN_API one_shot {
public:
    constexpr one_shot() noexcept = default;
    ~one_shot() {
        if (word_.load(std::memory_order_relaxed) == begun) destroyed();
    }
    one_shot(const one_shot&) = delete;
    one_shot& operator=(const one_shot&) = delete;

    // Acquire: what happened before set() is seen.
    bool is_set() const noexcept { return word_.load(std::memory_order_acquire) == done; }
    // True for the first caller, which then has to call set().
    bool begin() noexcept {
        std::uint32_t expected = fresh;
        return word_.compare_exchange_strong(expected, begun, std::memory_order_relaxed);
    }
    // After this call the object may be gone.
    void set() noexcept;
    wait_outcome wait(unsigned char reason, const wait_limit* limit, const std::source_location& where);

private:
    static constexpr std::uint32_t fresh = 0, begun = 1, done = 2;
    void destroyed() noexcept;

    platform::atomic<std::uint32_t> word_{fresh};
};

inline constexpr unsigned char once_reason = 21;    // sched::wait_reason; checked in src/sync/once.cpp
inline constexpr unsigned char future_reason = 22;

}  // namespace dunlin::detail
