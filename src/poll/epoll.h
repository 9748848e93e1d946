// epoll.h - the backend over epoll, edge-triggered.
//
// Add        Each descriptor is added once, for everything: IN, OUT, RDHUP, PRI, ET. A wait needs no call of its own.
// Time       epoll_wait counts in milliseconds, epoll_pwait2 (Linux 5.11) in nanoseconds; where that is missing,
//            ppoll() on the epoll descriptor does the same in two calls. Both allow the kernel a slack of a thousandth
//            of the time, so a long sleep is split: all but the last 500th, and then the rest.
// Interrupt  An eventfd in the set, level-triggered, so that a poll without waiting does not consume it.
// Tests      tests/poll/epoll_test.cpp
#pragma once


#include "poll/backend.h"

#include <dunlin/detail/atomic.hpp>

namespace dunlin::inline v0_1::netpoll {

class epoll_backend final : public backend {
public:
    // Throws std::system_error.
    epoll_backend();
    ~epoll_backend() override;
    epoll_backend(const epoll_backend&) = delete;
    epoll_backend& operator=(const epoll_backend&) = delete;

    int add(int fd, std::uint64_t tag) noexcept override;
    void remove(int fd) noexcept override;
    unsigned wait(sched::polled_event* out, unsigned capacity, std::int64_t deadline_ns) noexcept override;
    void interrupt() noexcept override;

    // From now on behaves as if the kernel had no epoll_pwait2; for tests, and valgrind.
    void forget_pwait2() noexcept { has_pwait2_.store(false, std::memory_order_relaxed); }

private:
    long sleep_in_kernel(void* events, int capacity, std::int64_t deadline_ns) noexcept;
    void drain_interrupts() noexcept;

    int epoll_ = -1;
    int interrupt_ = -1;
    // orders add() before wait(): the kernel does, but C++ and ThreadSanitizer do not see it
    platform::atomic<unsigned> published_{0};
    platform::atomic<bool> has_pwait2_{true};
    // an interrupt is in the eventfd, or on its way there: no need for another
    platform::atomic<bool> interrupted_{false};
};

}  // namespace dunlin::netpoll
