// lines.h - which virtual CPU has a copy of which cache line, and how long another CPU waits for the line.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "explorer/costs.h"

namespace dunlin::inline v0_1::explorer {

enum class access_kind : std::uint8_t { load, store, modify };

class lines {
public:
    static constexpr unsigned most_cpus = 256;
    explicit lines(const costs& c);

    struct wait {
        std::int64_t queued_ns = 0;  // until those that have asked earlier have had the line
        std::int64_t moved_ns = 0;   // from then until the line is here
        bool any() const noexcept { return moved_ns != 0; }
    };
    // The CPU has the line from then on, until another CPU writes it.
    wait access(const void* at, access_kind kind, unsigned cpu, std::int64_t now_ns);

private:
    struct line {
        std::uintptr_t number = 0;                     // address / 64; 0: free
        std::array<std::uint64_t, most_cpus / 64> copies{};
        std::int64_t busy_until_ns = 0;
    };

    line& at(std::uintptr_t number);
    void grow();
    bool has(const line& l, unsigned cpu) const noexcept { return (l.copies[cpu / 64] >> cpu % 64 & 1) != 0; }
    bool is_far(const line& l, unsigned cpu, bool farthest) const noexcept;

    std::vector<line> table_;
    std::size_t used_ = 0;
    // The line that a CPU keeps, and until when.
    struct kept {
        std::uintptr_t line = 0;
        std::int64_t until_ns = 0;
    };
    std::array<kept, most_cpus> kept_{};
    std::int64_t near_ns_, far_ns_, shared_ns_, keeps_ns_;
    unsigned in_socket_;
};

}  // namespace dunlin::explorer
