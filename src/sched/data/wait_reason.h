// wait_reason.h - why a goroutine waits: a closed list with stable texts, for dumps and deadlock reports. The words are
// Go's where Go has them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dunlin::inline v0_1::sched {

#define DUNLIN_WAIT_REASONS(X)                   \
    X(none, "")                                  \
    X(sleep, "sleep")                            \
    X(task_join, "task join")                    \
    X(in_place_join, "runs a child in place")    \
    X(task_group_wait, "task group wait")        \
    X(wait_group_wait, "sync.WaitGroup.Wait")    \
    X(semacquire, "semacquire")                  \
    X(stack_shortage, "no memory for a stack")   \
    X(blocking_call, "blocking call")            \
    X(chan_receive, "chan receive")              \
    X(chan_send, "chan send")                    \
    X(chan_receive_nil, "chan receive (nil chan)") \
    X(chan_send_nil, "chan send (nil chan)")     \
    X(select, "select")                          \
    X(select_no_cases, "select (no cases)")      \
    X(mutex_lock, "sync.Mutex.Lock")             \
    X(rwmutex_lock, "sync.RWMutex.Lock")         \
    X(rwmutex_rlock, "sync.RWMutex.RLock")       \
    X(cond_wait, "sync.Cond.Wait")               \
    X(latch_wait, "latch wait")                  \
    X(barrier_wait, "barrier wait")              \
    X(once, "call_once")                         \
    X(future_wait, "future wait")                \
    X(io_wait, "IO wait")                        \
    X(io_turn, "IO wait (others use the descriptor)") \
    X(io_close, "close (calls under way)")       \
    X(parked, "parked")                          \
    X(chan_receive_nil_limited, "chan receive (nil chan)") \
    X(chan_send_nil_limited, "chan send (nil chan)")

enum class wait_reason : std::uint8_t {
#define DUNLIN_REASON(name, text) name,
    DUNLIN_WAIT_REASONS(DUNLIN_REASON)
#undef DUNLIN_REASON
};

// Can a wait for this reason be part of a circle of waits (observe/wait_graph.h)?
constexpr bool may_be_in_a_circle(wait_reason reason) noexcept {
    return reason == wait_reason::mutex_lock || reason == wait_reason::task_join ||
        reason == wait_reason::wait_group_wait || reason == wait_reason::task_group_wait;
}

inline constexpr std::size_t wait_reason_count = 0
#define DUNLIN_REASON(name, text) +1
    DUNLIN_WAIT_REASONS(DUNLIN_REASON)
#undef DUNLIN_REASON
    ;

constexpr const char* name(wait_reason reason) noexcept {
    constexpr const char* names[] = {
#define DUNLIN_REASON(name, text) text,
        DUNLIN_WAIT_REASONS(DUNLIN_REASON)
#undef DUNLIN_REASON
    };
    return names[static_cast<std::uint8_t>(reason)];
}

}  // namespace dunlin::sched
