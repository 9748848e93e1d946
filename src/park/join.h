// join.h - waiting for the end of goroutines, and running those that have not begun on the waiter's own stack.
#pragma once

#include <source_location>

#include "sched/goroutines/goroutine.h"

namespace dunlin::inline v0_1::park {

// Waits until the joinable goroutine `child` has ended: in place if it has not begun and is the youngest here, else
// parked. From a goroutine or a plain thread. Everything the child did happens before the return.
void join(sched::goroutine* child, const std::source_location& where) noexcept;

// For reports: the goroutine that waits in join() for `child`; null: none, or a plain thread, or one with a limit. The
// world is stopped.
const sched::goroutine* joiner_of(const sched::goroutine* child) noexcept;

// True if it has ended.
bool has_ended(const sched::goroutine* child) noexcept;

// Runs goroutines of `group` that have not begun and are the youngest of this processor, one after the other, while
// `more()` says so and there is stack left. Returns at once on a plain thread.
template <class More>
void run_group_in_place(const void* group, const std::source_location& where, More more) noexcept;

// A joiner with a limit waits in the parking lot, at this address (sync/task_wait.cpp). False: the child has ended
// already.
bool announce_join_in_lot(sched::goroutine* child) noexcept;
// has_ended() for such a joiner, which looks after announce() (parking_lot.h, B3).
bool has_ended_for_lot(const sched::goroutine* child) noexcept;
inline const void* join_address(const sched::goroutine* child) noexcept { return &child->join; }
inline const sched::goroutine* child_of(const void* join_address) noexcept {
    return reinterpret_cast<const sched::goroutine*>(
        static_cast<const std::byte*>(join_address) - offsetof(sched::goroutine, join));
}

// `child` will not be joined: its struct goes back to the pool when it has ended. Any thread.
void detach(sched::goroutine* child) noexcept;
// `child` will not be joined: its end starts g, which has been made and not started. False: the child has ended
// already.
bool leave_to_heir(sched::goroutine* child, sched::goroutine* g) noexcept;

// sched::hooks.wake_joiner.
void wake_joiner(sched::goroutine* child, std::uintptr_t waiter) noexcept;

namespace detail {
bool run_youngest_of(const void* group, const std::source_location& where) noexcept;
}

template <class More>
void run_group_in_place(const void* group, const std::source_location& where, More more) noexcept {
    while (more() && detail::run_youngest_of(group, where)) {
    }
}

}  // namespace dunlin::park
