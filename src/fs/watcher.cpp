#include "fs/watcher.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <new>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <system_error>

#include "park/waiter.h"
#include "platform/cpu.h"
#include "platform/lock.h"
#include "platform/syscall.h"
#include "platform/thread.h"
#include "sched/preempt/lifetime.h"

namespace dunlin::inline v0_1::fs {

namespace {

constexpr int most_events = 32;

platform::ranked_lock<platform::lock_rank::registry> lock;
int epoll = -1;        // lock to write; constant afterwards
int bell = -1;         // lock to write; constant afterwards. Handlers of signals read it, atomically
unsigned users = 0;    // lock
bool running = false;  // lock

int add(int fd, watched* w) noexcept {
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.ptr = w;
    return static_cast<int>(-platform::raw_syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, fd, platform::syscall_arg(&e)));
}

// Under the lock. A descriptor that was made before an error is kept for the next try.
int make_descriptors() noexcept {
    lock.assert_held();
    if (epoll < 0) {
        const long fd = platform::raw_syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
        if (fd < 0) return static_cast<int>(-fd);
        epoll = static_cast<int>(fd);
    }
    if (bell >= 0) return 0;
    const long fd = platform::raw_syscall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) return static_cast<int>(-fd);
    const int error = add(static_cast<int>(fd), nullptr);
    if (error != 0) {
        platform::raw_syscall(SYS_close, fd);
        return error;
    }
    __atomic_store_n(&bell, static_cast<int>(fd), __ATOMIC_RELAXED);
    return 0;
}

void answer_bell() noexcept {
    std::uint64_t count;
    platform::raw_syscall(SYS_read, bell, platform::syscall_arg(&count), sizeof count);
    deliver_signals();
}

bool no_user_left() noexcept {
    std::scoped_lock guard(lock);
    running = users != 0;
    return !running;
}

void watch(void*) noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    epoll_event events[most_events];
    do {
        const long n =
            platform::raw_syscall(SYS_epoll_pwait, epoll, platform::syscall_arg(events), most_events, -1, 0, 0);
        // No descriptor would ever be ready again, and this thread would not sleep.
        if (n < 0 && n != -EINTR) die_of_closed_descriptors();
        // The pointers that the kernel returns were written before watch_descriptor(); the lock orders this for C++.
        { std::scoped_lock published(lock); }
        for (long i = 0; i < n; ++i) {
            auto* w = static_cast<watched*>(events[i].data.ptr);
            w != nullptr ? w->happened() : answer_bell();
        }
    } while (!no_user_left());
}

constexpr platform::thread_kind watch_thread{watch, "dunlin-watch"};

// Under the lock.
int start_if_none() noexcept {
    lock.assert_held();
    if (running) return 0;
    if (const int error = make_descriptors()) return error;
    const int error = platform::start_thread<watch_thread>(nullptr);
    running = error == 0;
    return error;
}

}  // namespace

void die_of_closed_descriptors() noexcept {
    platform::fatal(
        "the end of a process, or a signal, cannot be seen: the runtime's own descriptor was closed by the program");
}

int begin_watching() noexcept {
    try {
        sched::start_runtime();  // it sets up what locks and threads need
    } catch (const std::system_error& e) {
        return e.code().value();
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
    park::runtime_section inside;
    std::scoped_lock guard(lock);
    const int error = start_if_none();
    if (error == 0) ++users;
    return error;
}

void end_watching() noexcept {
    park::runtime_section inside;
    std::scoped_lock guard(lock);
    if (--users == 0) ring();
}

int watch_descriptor(int fd, watched* w) noexcept {
    park::runtime_section inside;
    std::scoped_lock guard(lock);
    return add(fd, w);
}

void unwatch_descriptor(int fd) noexcept {
    epoll_event unused{};
    platform::raw_syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_DEL, fd, platform::syscall_arg(&unused));
}

// Signal handlers call this, perhaps in the middle of ThreadSanitizer's own code. So it is not instrumented, and calls
// nothing that is: builtins are compiled into this function, std::atomic's members may not be.
DUNLIN_NOT_INSTRUMENTED void ring() noexcept {
    const std::uint64_t one = 1;
    platform::raw_syscall(SYS_write, __atomic_load_n(&bell, __ATOMIC_RELAXED), platform::syscall_arg(&one), sizeof one);
}

}  // namespace dunlin::fs
