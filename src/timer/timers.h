// timers.h - the event source of the scheduler as far as time is concerned, sleeping, and waiting until a deadline.
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>
#include <source_location>

#include "park/waiter.h"
#include "platform/clock.h"
#include "sched/data/event_source.h"
#include "timer/heap.h"

namespace dunlin::inline v0_1::timers {

inline constexpr std::int64_t never_ns = platform::time_max;

// The half of the event source that is about time (sched/data/event_source.h says what each does); the whole is
// poll/netpoll.h.
class timer_events {
public:
    void* make_events();
    unsigned collect(sched::processor* p, std::int64_t now_ns) noexcept;
    std::int64_t next_deadline(const sched::processor* p) const noexcept;
    void move(sched::processor* from, sched::processor* to) noexcept;
    // Sleeps on a futex; for programs without descriptors.
    void wait(std::int64_t deadline_ns) noexcept;
    void interrupt() noexcept;
    void forget_all() noexcept;

private:
    platform::atomic<std::uint32_t> interrupted_{0};
};

// Sleeps until `deadline_ns` of the monotonic clock; returns at once if that is past. A goroutine parks, a plain thread
// sleeps. Throws std::bad_alloc.
void sleep_until_ns(std::int64_t deadline_ns, const std::source_location& where);

// Puts t into the heap of the machine's processor (`m` inside the runtime; null: a plain thread's goes to the first
// processor). Throws std::bad_alloc, and then nothing has changed.
void arm(timer_entry* t, sched::machine* m);

// Drops all timers, also those of channels, which forget_all() leaves to plain threads. For the end of a simulation:
// its goroutines go no further, and its times are not times of the real clock. Inside the runtime.
void forget_everything() noexcept;

enum class wake_cause : std::uint8_t { woken, deadline, no_memory };

// waiter::wait() with a deadline (never_ns: none). The nodes of `w` have `several` set. After `deadline` and
// `no_memory` no waker will wake it any more. Leaves the runtime.
wake_cause wait_until(park::waiter& w, std::int64_t deadline_ns) noexcept;

}  // namespace dunlin::timers
