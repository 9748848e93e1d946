// lost.h - goroutines that wait for something that nothing refers to any more, found by two searches that agree
// (reach.h).
#pragma once

#include <cstdint>

#include "observe/mapped.h"
#include "observe/reach.h"
#include "sched/data/types.h"

namespace dunlin::inline v0_1::observe {

class lost_goroutines {
public:
    lost_goroutines() noexcept : waits_(at_most) {}

    // Searches anew. Returns null, or why the search is not possible; then it has found none. `from`:
    // DUNLIN_STACK_POINTER_HERE. Stops the world and all threads. Call from goroutines and plain threads, not with the
    // world stopped.
    const char* find(std::uintptr_t from) noexcept;

    std::size_t count() const noexcept { return waits_.size(); }
    // True: `g` was found, and is in the same wait.
    bool contains(const sched::goroutine& g) const noexcept;

    struct wait {
        std::uint64_t id;
        std::int64_t since_ns;
    };
    const wait* begin() const noexcept { return waits_.begin(); }
    const wait* end() const noexcept { return waits_.end(); }

private:
    static constexpr std::size_t at_most = 1 << 20;
    const char* search(std::uintptr_t from, bool again) noexcept;

    mapped_array<wait> waits_;  // sorted by id
};

// DUNLIN_DEBUG=leaks: names the lost goroutines when the main goroutine has ended.
void ask_for_lost_at_end() noexcept;
void report_lost_at_end() noexcept;
// DUNLIN_DEBUG=leaks=MILLISECONDS: also searches at this interval while the program runs, and ends the process if a
// goroutine that was found has gone on.
void watch_lost(std::int64_t period_ms) noexcept;

}  // namespace dunlin::observe
