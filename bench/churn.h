// churn.h - values that are allocated by one and freed by another: of memory_bench.cpp and of peers/cpp.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "measure.h"
#include "registry.h"

namespace bench {

/// So many values of 64 to 4096 bytes, each a copy of the beginning of one pattern, in sizes from a fixed seed.
class churn {
public:
    using value = std::vector<unsigned char>;
    static constexpr long capacity = 128;  // of what they go through

    explicit churn(long values) : values_(values), pattern_(size_max) {
        for (std::size_t i = 0; i < size_max; ++i) pattern_[i] = static_cast<unsigned char>(i * 31);
        splitmix64 random(1);
        for (long i = 0; i < values; ++i) expected_ += weight(next_size(random));
    }

    long values() const { return values_; }

    template <class Send>
    void produce(Send&& send) const {
        splitmix64 random(1);
        for (long i = 0; i < values_; ++i)
            send(value(pattern_.begin(), pattern_.begin() + static_cast<std::ptrdiff_t>(next_size(random))));
    }

    /// Takes values until there are no more, and frees each; all must have come.
    template <class Receive>
    void expect_consumed(Receive&& receive) const {
        long sum = 0;
        while (const std::optional<value> v = receive()) sum += static_cast<long>(v->size()) + v->back();
        expect("alloc-churn", sum, expected_);
    }

private:
    static constexpr std::size_t size_min = 64, size_max = 4096;
    static std::size_t next_size(splitmix64& random) { return size_min + random.next() % (size_max - size_min + 1); }
    long weight(std::size_t size) const { return static_cast<long>(size) + pattern_[size - 1]; }

    long values_;
    value pattern_;
    long expected_ = 0;
};

}  // namespace bench
