// freeze.cpp - see freeze.h.
//
// Problem    When run() returns, main() returns, static objects are destroyed, and a goroutine that still computes would use them. Its thread must
//            stand still, but not where it holds a lock that the exiting thread wants: malloc's, stdio's, the loader's.
// Protocol   A signal (SIGURG, as Go's preemption: ignored by default, used by nobody, passed on by debuggers) is sent to the thread. Its handler looks
//            where the thread was interrupted. In the program's own code, or in a library other than libc, the loader and their like: it never
//            returns. In one of those three: it returns, and the thread is asked again a millisecond later.
//            A thread that sleeps in the kernel gets no signal (its call would end early, and it would run): the monitor goes on asking after run()
//            has returned, and catches it when it comes out.
// Limits     A program that blocks SIGURG in a goroutine, or handles it itself, keeps its computing goroutines running until the process is gone.
//            Statically linked, libc cannot be told from the program: then nobody is frozen in code
//            below the end of the text segment, that is, nobody at all.
#include "sched/freeze.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <link.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/syscall.h"
#include "platform/thread.h"
#include "sched/current.h"
#include "stack/sanitizer.h"
#include "stack/signal_frame.h"

namespace dunlin::sched {

namespace {

constexpr int freeze_signal = SIGURG;
constexpr std::int64_t ask_again_ns = 200'000;
constexpr std::int64_t grace_ns = 1'000'000;
// ThreadSanitizer makes a thread tens of times slower and keeps its signals back, but tells of every access after the exit.
constexpr std::int64_t patience_ns = stack::thread_sanitizing ? 500'000'000 : 20'000'000;
constexpr std::int64_t settled_ns = 2'000'000;

struct code_range {
    std::uintptr_t begin, end;
};

// Where nobody is frozen. Filled once, before the handler is installed.
constexpr std::size_t max_ranges = 32;
code_range untouchable[max_ranges];
std::size_t untouchable_count = 0;

struct sigaction previous;
std::atomic<std::uint32_t> never{0};

// ThreadSanitizer is not among them: it keeps a signal until the thread leaves one of its functions, and calls the handler there.
bool must_not_stop_in(const char* library) noexcept {
    const char* slash = std::strrchr(library, '/');
    const char* name = slash ? slash + 1 : library;
    for (const char* prefix : {"libc.", "libc-", "ld-linux", "ld-musl", "libgcc_s", "libpthread", "libstdc++", "libc++", "libunwind",
        "libjemalloc", "libtcmalloc",
                               "libmimalloc", "libasan", "libubsan", "liblsan", "libclang_rt"}) {
        if (std::strncmp(name, prefix, std::strlen(prefix)) == 0) return true;
    }
    return false;
}

int note_library(dl_phdr_info* info, std::size_t, void*) {
    // The vdso has no name worth trusting, and no locks.
    if (info->dlpi_name == nullptr || !must_not_stop_in(info->dlpi_name)) return 0;
    for (int i = 0; i < info->dlpi_phnum && untouchable_count < max_ranges; ++i) {
        const auto& segment = info->dlpi_phdr[i];
        if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X)) continue;
        const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
        untouchable[untouchable_count++] = {begin, begin + segment.p_memsz};
    }
    return 0;
}

bool may_stop_at(std::uintptr_t pc) noexcept {
    for (std::size_t i = 0; i < untouchable_count; ++i) {
        if (pc >= untouchable[i].begin && pc < untouchable[i].end) return false;
    }
    return untouchable_count != 0;
}

void on_signal(int signal, siginfo_t* info, void* context) {
    machine* m = current_machine();
    if (m == nullptr || !m->freeze_asked.load(std::memory_order_acquire)) {
        if (previous.sa_flags & SA_SIGINFO) {
            previous.sa_sigaction(signal, info, context);
        } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
            previous.sa_handler(signal);
        }
        return;
    }
    // Inside the runtime it loses itself in enter_slow(), or may hold one of our locks.
    if (m->in_runtime.load(std::memory_order_relaxed) != 0 || m->coming_in.load(std::memory_order_relaxed)) return;
    if (!m->condemned.load(std::memory_order_relaxed) || !may_stop_at(stack::interrupted_pc(context))) return;
    m->frozen.store(true, std::memory_order_release);
    for (;;) platform::futex_wait(never, 0);
}

template <class F>
void for_each_asked(F f) noexcept {
    for (machine* m = the_scheduler.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
        if (m->freeze_asked.load(std::memory_order_acquire) && m->condemned.load(std::memory_order_acquire) && !m->frozen.load(std::memory_order_acquire)) {
            f(m);
        }
    }
}

// False: it has been asleep in the kernel for a while. A moment's sleep (a contended lock, a page fault) does not count: it comes out and runs.
bool ask(machine* m) noexcept {
    const std::int64_t now = platform::now_ns();
    m->asked_ns = now;
    if (!platform::thread_is_running(m->tid)) {
        if (m->asleep_since_ns == 0) m->asleep_since_ns = now;
        return now - m->asleep_since_ns < settled_ns;
    }
    m->asleep_since_ns = 0;
    platform::raw_syscall(SYS_tgkill, platform::raw_syscall(SYS_getpid), m->tid, freeze_signal);
    return true;
}

}  // namespace

void install_freeze_handler() noexcept {
    dl_iterate_phdr(note_library, nullptr);
    struct sigaction ours {};
    ours.sa_sigaction = on_signal;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigfillset(&ours.sa_mask);
    sigaction(freeze_signal, &ours, &previous);
}

void stop_condemned_machines() noexcept {
    const machine* self = current_machine();
    const auto condemned = [self](const machine* m) { return m != self && m->condemned.load(std::memory_order_acquire); };
    const std::int64_t grace = platform::now_ns() + grace_ns;
    for (bool any = true; any && platform::now_ns() < grace;) {
        any = false;
        for (machine* m = the_scheduler.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
            if (condemned(m) && !m->frozen.load(std::memory_order_acquire)) any = true;
        }
        if (any) platform::futex_wait_until(never, 0, platform::now_ns() + grace_ns / 50);
    }
    for (machine* m = the_scheduler.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
        if (condemned(m)) m->freeze_asked.store(true, std::memory_order_release);
    }
    const std::int64_t until = platform::now_ns() + patience_ns;
    for (bool waiting = true; waiting && platform::now_ns() < until;) {
        waiting = false;
        for_each_asked([&](machine* m) {
            if (platform::now_ns() - m->asked_ns < ask_again_ns || ask(m)) waiting = true;
        });
        if (waiting) platform::futex_wait_until(never, 0, platform::now_ns() + ask_again_ns / 4);
    }
}

void freeze_again() noexcept {
    for_each_asked([](machine* m) { ask(m); });
}

}  // namespace dunlin::sched
