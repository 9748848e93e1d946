#include "poll/epoll.h"

#include <cerrno>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <system_error>
#include <time.h>

#include "platform/check.h"
#include "platform/clock.h"
#include "platform/syscall.h"
#include "platform/valgrind.h"

namespace dunlin::inline v0_1::netpoll {

namespace {

constexpr std::uint64_t interrupt_tag = ~std::uint64_t{0};
constexpr std::int64_t long_sleep_ns = 1'000'000;  // for longer sleeps the slack is worth a second step
constexpr int most_events = sched::event_batch::capacity;

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

timespec to_timespec(std::int64_t ns) noexcept { return {ns / 1'000'000'000, ns % 1'000'000'000}; }

long wait_at_once(int epoll, epoll_event* events, int capacity) noexcept {
    return platform::raw_syscall(SYS_epoll_pwait, epoll, platform::syscall_arg(events), capacity, 0, 0, 0);
}

std::uint32_t meaning_of(std::uint32_t mask) noexcept {
    std::uint32_t what = 0;
    if (mask & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI)) what |= readable;
    if (mask & (EPOLLOUT | EPOLLHUP | EPOLLERR)) what |= writable;
    if (mask & (EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI)) what |= peer_closed;
    return what;
}

}  // namespace

epoll_backend::epoll_backend() {
    if (platform::under_valgrind()) forget_pwait2();
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ < 0) throw std::system_error(errno, std::generic_category(), "dunlin: epoll_create1");
    interrupt_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.u64 = interrupt_tag;
    if (interrupt_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, interrupt_, &e) != 0) {
        const int error = errno;
        if (interrupt_ >= 0) platform::raw_syscall(SYS_close, interrupt_);
        platform::raw_syscall(SYS_close, epoll_);
        throw std::system_error(error, std::generic_category(), "dunlin: eventfd for the poller");
    }
}

epoll_backend::~epoll_backend() {
    platform::raw_syscall(SYS_close, interrupt_);
    platform::raw_syscall(SYS_close, epoll_);
}

int epoll_backend::add(int fd, std::uint64_t tag) noexcept {
    epoll_event e{};
    e.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET;
    e.data.u64 = tag;
    // Release pairs with the load in wait(): the kernel orders the two calls, but C++ and ThreadSanitizer do not see
    // it.
    published_.fetch_add(1, std::memory_order_release);
    return static_cast<int>(-platform::raw_syscall(SYS_epoll_ctl, epoll_, EPOLL_CTL_ADD, fd,
        platform::syscall_arg(&e)));
}

void epoll_backend::remove(int fd) noexcept {
    epoll_event unused{};
    platform::raw_syscall(SYS_epoll_ctl, epoll_, EPOLL_CTL_DEL, fd, platform::syscall_arg(&unused));
}

// The number of events, or -errno. May end a little before the deadline.
long epoll_backend::sleep_in_kernel(void* events, int capacity, std::int64_t deadline_ns) noexcept {
    timespec time;
    const timespec* limit = nullptr;
    if (deadline_ns != for_ever) {
        std::int64_t left = deadline_ns - platform::now_ns();
        if (left <= 0) return wait_at_once(epoll_, static_cast<epoll_event*>(events), capacity);
        if (left > long_sleep_ns) left -= left / 500;
        time = to_timespec(left);
        limit = &time;
    }
    if (has_pwait2_.load(std::memory_order_relaxed)) {
        const long n = platform::raw_syscall(SYS_epoll_pwait2, epoll_, platform::syscall_arg(events), capacity,
            platform::syscall_arg(limit), 0, 0);
        if (n != -ENOSYS && n != -EPERM) return n;
        has_pwait2_.store(false, std::memory_order_relaxed);
    }
    pollfd all{epoll_, POLLIN, 0};
    const long n = platform::raw_syscall(SYS_ppoll, platform::syscall_arg(&all), 1, platform::syscall_arg(limit), 0, 0);
    return n <= 0 ? n : wait_at_once(epoll_, static_cast<epoll_event*>(events), capacity);
}

void epoll_backend::drain_interrupts() noexcept {
    std::uint64_t count;
    platform::raw_syscall(SYS_read, interrupt_, platform::syscall_arg(&count), sizeof count);
    // After the read. An interrupt between the two writes nothing to the eventfd, but the machine that returns from
    // this wait sees what the interrupter has changed, since this exchange reads the value of the interrupter's
    // exchange. In the other order the read would consume the interrupter's write while its mark stays set, and no
    // write would be left to end a later wait.
    interrupted_.exchange(false, std::memory_order_seq_cst);
}

unsigned epoll_backend::wait(sched::polled_event* out, unsigned capacity, std::int64_t deadline_ns) noexcept {
    epoll_event events[most_events];
    const int room = capacity < most_events ? static_cast<int>(capacity) : most_events;
    for (;;) {
        const long n = deadline_ns == do_not_wait ? wait_at_once(epoll_, events, room)
            : sleep_in_kernel(events, room, deadline_ns);
        // The program has closed the runtime's descriptor, with closefrom(3) say, or seccomp forbids the call: no
        // descriptor would ever be ready again.
        if (n < 0 && n != -EINTR) {
            platform::fatal(n == -EBADF || n == -EINVAL
                                ? "epoll_wait fails: the runtime's own descriptor was closed by the program"
                                : "epoll_wait fails: the kernel, or a filter of system calls, refuses it");
        }
        published_.load(std::memory_order_acquire);
        unsigned got = 0;
        bool interrupted = false;
        for (long i = 0; i < n; ++i) {
            if (events[i].data.u64 == interrupt_tag) {
                interrupted = true;
            } else {
                out[got++] = {events[i].data.u64, meaning_of(events[i].events)};
            }
        }
        if (deadline_ns == do_not_wait) return got;
        if (interrupted) drain_interrupts();
        if (got != 0 || interrupted) return got;
        if (deadline_ns != for_ever && platform::now_ns() >= deadline_ns) return 0;
    }
}

void epoll_backend::interrupt() noexcept {
    // Seq_cst, as in drain_interrupts(): if the interrupter finds the mark set, there is an interrupt that has not been
    // consumed yet.
    if (interrupted_.exchange(true, std::memory_order_seq_cst)) return;
    const std::uint64_t one = 1;
    platform::raw_syscall(SYS_write, interrupt_, platform::syscall_arg(&one), sizeof one);
}

}  // namespace dunlin::netpoll
