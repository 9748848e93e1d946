// netpoll.h - the scheduler's event source: timers, and the descriptors that goroutines and threads wait for.
//
// Until the first descriptor is opened there is no epoll instance, and the machine that sleeps in the poller sleeps
// on a futex there (timer/timers.h).
#pragma once


#include "timer/timers.h"

#include <dunlin/detail/atomic.hpp>

namespace dunlin::inline v0_1::netpoll {

// Not final: tests hold the runtime up in a call of this.
class poller : public sched::event_source {
public:
    void* make_events() override { return timers_.make_events(); }
    unsigned collect(sched::processor* p, std::int64_t now_ns) noexcept override { return timers_.collect(p, now_ns); }
    std::int64_t next_deadline(const sched::processor* p) const noexcept override { return timers_.next_deadline(p); }
    void move(sched::processor* from, sched::processor* to) noexcept override { timers_.move(from, to); }

    bool has_waiters() const noexcept override;
    unsigned poll() noexcept override;
    void wait(std::int64_t deadline_ns, sched::event_batch& found) noexcept override;
    unsigned deliver(const sched::event_batch& found) noexcept override;
    void interrupt() noexcept override;
    void forget_all() noexcept override;
    void forget_lost() noexcept override;

private:
    timers::timer_events timers_;
    std::uint64_t frozen_before_ = 0;  // how many goroutines all earlier runs had left; the world is stopped
};

// Makes the epoll instance if there is none. Returns 0, or errno. Starts the runtime, because a machine must sleep in
// the poller.
int start_polling() noexcept;
// Sets the resolver's function: it is called when run() ends and all goroutines stand still, some of them frozen. It
// takes no lock that is held outside the runtime.
void at_end_of_run(void (*forget)() noexcept) noexcept;
// The backend's add() and remove().
int add_fd(int fd, std::uint64_t tag) noexcept;
void remove_fd(int fd) noexcept;
// For tests: the number of calls of add_fd() that are still to fail, alternately with ENOSPC (as beyond
// fs.epoll.max_user_watches) and ENOMEM.
extern platform::atomic<int> adds_refused;

}  // namespace dunlin::netpoll
