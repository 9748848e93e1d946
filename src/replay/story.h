// story.h - the last choices of an execution, to be printed when it has failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "platform/text.h"
#include "sched/data/types.h"
#include "stack/trace.h"

namespace dunlin::inline v0_1::replay {

// How the goroutine that ran stopped running.
enum class leaving : std::uint8_t { nothing, waits, yields, ended, switched_away, goes_on };

struct choice {
    std::uint64_t step = 0;
    std::int64_t at_ns = 0;             // since the execution began
    std::uint64_t ran = 0;              // 0: none ran
    leaving how = leaving::nothing;
    sched::wait_reason reason = sched::wait_reason::none;
    std::int64_t jumped_ns = 0;         // how far the time went on while nothing could run
    std::uint64_t next = 0;             // the goroutine that runs now
    stack::trace frames;                // of `who`, if it is still on its stack
};

class story {
public:
    static constexpr std::size_t kept = 40;

    // Choices are kept, with their frames, from step `from` on, and only if `detailed`.
    void begin(std::uint64_t from, bool detailed);
    bool wants(std::uint64_t step) const noexcept { return detailed_ && step >= from_; }
    choice& add() noexcept;
    // One line for each choice.
    void print(platform::text_writer& out) const noexcept;
    bool empty() const noexcept { return count_ == 0; }

private:
    std::vector<choice> ring_;
    std::uint64_t from_ = 0, count_ = 0;
    bool detailed_ = false;
};

}  // namespace dunlin::replay
