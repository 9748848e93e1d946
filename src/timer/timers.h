// timers.h - the event source of the scheduler as far as time is concerned, and sleeping.
#pragma once

#include <cstdint>
#include <source_location>

#include "sched/event_source.h"
#include "timer/heap.h"

namespace dunlin::timer {

// Sleeps on a futex until the deadline. The netpoller will sleep in epoll instead.
class timer_events final : public sched::event_source {
public:
    void* make_events() override;
    unsigned collect(sched::processor* p, std::int64_t now_ns) noexcept override;
    std::int64_t next_deadline(const sched::processor* p) const noexcept override;
    void move(sched::processor* from, sched::processor* to) noexcept override;
    void wait(std::int64_t deadline_ns) noexcept override;
    void interrupt() noexcept override;
    void forget_all() noexcept override;

private:
    std::atomic<std::uint32_t> interrupted_{0};
};

// Until `deadline_ns` of the monotonic clock; at once if that is past. A goroutine parks, a plain thread sleeps.
void sleep_until_ns(std::int64_t deadline_ns, const std::source_location& where);

}  // namespace dunlin::timer
