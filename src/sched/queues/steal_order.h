// steal_order.h - visits every processor once, in a random order, without a shuffled list: starts anywhere and steps by
// a number coprime to the count.
#pragma once

#include <cstdint>
#include <numeric>

namespace dunlin::inline v0_1::sched {

class steal_order {
public:
    constexpr steal_order(std::uint32_t count, std::uint64_t random) noexcept
        : count_(count), position_(static_cast<std::uint32_t>(random % count)),
            step_(coprime(count, static_cast<std::uint32_t>(random >> 32))) {}

    constexpr bool done() const noexcept { return visited_ == count_; }
    constexpr std::uint32_t position() const noexcept { return position_; }
    constexpr void next() noexcept {
        ++visited_;
        position_ = (position_ + step_) % count_;
    }

private:
    // A step that is coprime to the count visits every position once before it visits one again. Numbers coprime to the
    // count are dense, so few gcds are computed.
    static constexpr std::uint32_t coprime(std::uint32_t count, std::uint32_t random) noexcept {
        std::uint32_t step = random % count + 1;
        while (std::gcd(step, count) != 1) step = step % count + 1;
        return step;
    }

    std::uint32_t count_;
    std::uint32_t position_;
    std::uint32_t step_;
    std::uint32_t visited_ = 0;
};

}  // namespace dunlin::sched
