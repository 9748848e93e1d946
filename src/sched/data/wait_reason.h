// wait_reason.h - why a goroutine waits: a closed list with stable texts, for dumps and deadlock reports. The words are
// Go's where Go has them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dunlin::inline v0_1::sched {

// name, text, what ends the wait, whether it can be part of a circle of waits (observe/wait_graph.h).
// program    only another goroutine or thread of the program: leaks() finds such a wait lost, and it counts as blocked
// anything   the same, but there is a limit, or the waker is not known: counts as blocked, is never found lost
// outside    time or the kernel
// New ones are added at the end: public headers have some of the numbers.
#define DUNLIN_WAIT_REASONS(X)                                             \
    X(none, "", outside, none)                                             \
    X(sleep, "sleep", outside, none)                                       \
    X(task_join, "task join", program, circle)                             \
    X(in_place_join, "runs a child in place", program, none)               \
    X(task_group_wait, "task group wait", program, circle)                 \
    X(wait_group_wait, "sync.WaitGroup.Wait", program, circle)             \
    X(semacquire, "semacquire", program, none)                             \
    X(stack_shortage, "no memory for a stack", outside, none)              \
    X(blocking_call, "blocking call", outside, none)                       \
    X(chan_receive, "chan receive", program, none)                         \
    X(chan_send, "chan send", program, none)                               \
    X(chan_receive_nil, "chan receive (nil chan)", program, none)          \
    X(chan_send_nil, "chan send (nil chan)", program, none)                \
    X(select, "select", program, none)                                     \
    X(select_no_cases, "select (no cases)", program, none)                 \
    X(mutex_lock, "sync.Mutex.Lock", program, circle)                      \
    X(rwmutex_lock, "sync.RWMutex.Lock", program, none)                    \
    X(rwmutex_rlock, "sync.RWMutex.RLock", program, none)                  \
    X(cond_wait, "sync.Cond.Wait", program, none)                          \
    X(latch_wait, "latch wait", program, none)                             \
    X(barrier_wait, "barrier wait", program, none)                         \
    X(once, "call_once", program, none)                                    \
    X(future_wait, "future wait", program, none)                           \
    X(io_wait, "IO wait", outside, none)                                   \
    X(io_in_use, "IO wait (others use the descriptor)", outside, none)     \
    X(io_close, "close (calls under way)", outside, none)                  \
    X(parked, "parked", anything, none)                                    \
    X(chan_receive_nil_limited, "chan receive (nil chan)", anything, none) \
    X(chan_send_nil_limited, "chan send (nil chan)", anything, none)

enum class wait_reason : std::uint8_t {
#define DUNLIN_REASON(name, text, ended_by, circles) name,
    DUNLIN_WAIT_REASONS(DUNLIN_REASON)
#undef DUNLIN_REASON
};

inline constexpr std::size_t wait_reason_count = 0
#define DUNLIN_REASON(name, text, ended_by, circles) +1
    DUNLIN_WAIT_REASONS(DUNLIN_REASON)
#undef DUNLIN_REASON
    ;

enum class wait_ends_by : std::uint8_t { program, anything, outside };
enum class in_circles : bool { none, circle };

constexpr wait_ends_by ended_by(wait_reason reason) noexcept {
    constexpr wait_ends_by of[] = {
#define DUNLIN_REASON(name, text, ended_by, circles) wait_ends_by::ended_by,
        DUNLIN_WAIT_REASONS(DUNLIN_REASON)
#undef DUNLIN_REASON
    };
    return of[static_cast<std::uint8_t>(reason)];
}

constexpr bool may_be_in_a_circle(wait_reason reason) noexcept {
    constexpr in_circles of[] = {
#define DUNLIN_REASON(name, text, ended_by, circles) in_circles::circles,
        DUNLIN_WAIT_REASONS(DUNLIN_REASON)
#undef DUNLIN_REASON
    };
    return of[static_cast<std::uint8_t>(reason)] == in_circles::circle;
}

constexpr const char* name(wait_reason reason) noexcept {
    constexpr const char* names[] = {
#define DUNLIN_REASON(name, text, ended_by, circles) text,
        DUNLIN_WAIT_REASONS(DUNLIN_REASON)
#undef DUNLIN_REASON
    };
    return names[static_cast<std::uint8_t>(reason)];
}

}  // namespace dunlin::sched
