// freeze.cpp - see freeze.h.
//
// Problem    When run() returns, main() returns, static objects are destroyed, and a goroutine that still computes
//            would use them. Its thread must be stopped, but not where it holds a lock that the exiting thread needs:
//            malloc's, stdio's, the loader's.
// Protocol   The preemption signal (preempt.h; SIGURG unless chosen otherwise: ignored by default, used for little
//            else, passed on by debuggers) is sent to the thread. Its handler looks where the thread was interrupted.
//            If it may stop there (safe_point.h) the handler mostly never returns (frozen.h). Otherwise it returns, and
//            the thread is asked again 0.2 ms later, or by the monitor in a later round. A thread that sleeps in the
//            kernel gets no signal (its call would end early, and it would run): the monitor goes on asking after run()
//            has returned, and stops it when it has left the kernel. But if it sleeps until a time, it is stopped in
//            that call, in which libc holds no lock: one that sleeps again and again would hardly ever be found
//            elsewhere. A thread in on_thread_stack() gets no signal either: it may hold any lock of this library, as a
//            plain thread may, and goes on (thread_stack.h).
// Patience   20 ms, and for each thread a millisecond of CPU time since it was asked: on a busy computer it may take
//            longer before a thread runs at all, and a thread can stop only while it runs. A thread that has had both
//            without stopping is left to the monitor.
// Handlers   A thread that is interrupted in a signal handler of the program (program_handler.h) is not stopped there:
//            a sanitizer's handler, or a crash reporter's, holds locks that the exit of the process wants, and only its
//            report says why the program died; and a profiler's may have interrupted malloc. The end of run() waits for
//            such a thread, as for a report of our own (crash.h): ten seconds at most, whether it sleeps or not, once a
//            signal has found it there.
// Limits     If a program blocks SIGURG in a goroutine, or handles it itself, its computing goroutines run on until the
//            process is gone. In a statically linked program libc cannot be told from the program: then no computing
//            goroutine is frozen at all.
#include "sched/preempt/freeze.h"

#include <dunlin/detail/atomic.hpp>

#include <csignal>
#include <utility>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/thread.h"
#include "sched/data/bells.h"
#include "sched/data/current.h"
#include "sched/goroutines/thread_stack.h"
#include "sched/preempt/frozen.h"
#include "sched/preempt/preempt.h"
#include "sched/preempt/program_handler.h"
#include "sched/preempt/safe_point.h"
#include "sched/preempt/stack_capture.h"
#include "stack/interrupted_call.h"
#include "stack/sanitizer.h"
#include "stack/signal_frame.h"

namespace dunlin::inline v0_1::sched {

namespace {

constexpr std::int64_t ask_again_ns = 200'000;
constexpr std::int64_t grace_ns = 1'000'000;
// A sanitizer makes a thread many times slower, runs mostly in a library of its own or delays signals, and reports
// every access after the exit.
constexpr std::int64_t patience_ns = stack::sanitizing ? 500'000'000 : 20'000'000;
constexpr std::int64_t chance_ns = 1'000'000;       // of CPU time
constexpr std::int64_t longest_ns = 1'000'000'000;  // even if the thread gets no CPU time
constexpr std::int64_t settled_ns = 2'000'000;
constexpr std::int64_t handler_patience_ns = 10'000'000'000;

struct sigaction previous;
platform::atomic<std::uint32_t> never{0};

void pass_on(int signal, siginfo_t* info, void* context) noexcept {
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signal, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(signal);
    }
}

// Did the runtime send this signal? If the kernel does not say: yes, if a request to this machine is open.
bool is_request(const machine* m, const siginfo_t& info) noexcept {
    const platform::signal_source source = platform::source_of(info);
    if (source != platform::signal_source::unknown) return source == platform::signal_source::request;
    return m != nullptr && (m->freeze_asked.load(std::memory_order_relaxed) ||
        m->preempt_asked.load(std::memory_order_relaxed) ||
        m->capture.state.load(std::memory_order_relaxed) == machine_capture::asked);
}

void do_what_is_asked(machine* m, void* context, bool sleeps) noexcept {
    capture_if_asked(m, context);
    if (!m->freeze_asked.load(std::memory_order_acquire)) return stop_if_asked(m, context);
    // Inside the runtime the machine will lose its goroutine in enter_slow(), or may hold a lock of the runtime.
    if (m->in_runtime.load(std::memory_order_relaxed) != 0 || m->unstoppable != 0) return;
    // the call on the thread's own stack is about to begin, or has just ended
    if (m->in_thread_call.load(std::memory_order_relaxed)) return;
    const bool in_handler = interrupts_program_handler(m, context);
    m->in_handler.store(in_handler, std::memory_order_relaxed);
    if (in_handler) return;
    if (!m->condemned.load(std::memory_order_relaxed)) return;
    if (!sleeps && !may_stop_at(stack::interrupted_pc(context))) return;
    freeze_here(m);
}

// The kernel keeps one pending signal of a kind for a thread, so a signal of the program may replace a request, and a
// request may arrive after it has been met. So each arrival does whatever is requested, and one that was not a request
// goes on to the program's handler.
void on_signal(int signal, siginfo_t* info, void* context) {
    note_handler_return(__builtin_return_address(0));
    machine* m = current_machine();
    const bool seen_asleep = m != nullptr && m->asked_in_sleep.load(std::memory_order_relaxed);
    const bool sleeps = !stack::sanitizing && stack::interrupts_sleep_of_libc(context, seen_asleep);
    const bool ours = is_request(m, *info);
    const bool leaves = m != nullptr && m->freeze_asked.load(std::memory_order_acquire);
    if (ours) {
        const auto pc = reinterpret_cast<const void*>(stack::interrupted_pc(context));
        if (!leaves || !stack::goes_on_with_call(pc)) stack::repeat_interrupted_call(context);
    } else {
        pass_on(signal, info, context);  // first: the thread may not come back from what follows
    }
    if (m != nullptr) do_what_is_asked(m, context, sleeps);
    if (ours && !leaves) stack::go_on_with_call(context);
}

template <class F>
void for_each_asked(F f) noexcept {
    for (machine* m = the_scheduler.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
        if (!m->freeze_asked.load(std::memory_order_acquire) || !m->condemned.load(std::memory_order_acquire)) continue;
        if (!m->frozen.load(std::memory_order_acquire) && !m->in_thread_call.load(std::memory_order_relaxed)) f(m);
    }
}

void ask(machine* m) noexcept {
    const std::int64_t now = platform::real_now_ns();
    m->asked_ns = now;
    const bool running = platform::thread_is_running(m->tid);
    const bool sleeps = !running && !stack::sanitizing && platform::thread_waits_for_time(m->tid);
    m->asked_in_sleep.store(sleeps, std::memory_order_relaxed);
    if (running) {
        m->asleep_since_ns = 0;
    } else {
        if (m->asleep_since_ns == 0) m->asleep_since_ns = now;
        if (!sleeps) return;
    }
    platform::send_request(m->tid, preemption_signal);
}

// True: the machine is likely to stop soon. Not if it has been asleep in the kernel for a while; a moment's sleep (a
// contended lock, a page fault) does not count, since the thread then leaves the kernel and runs.
bool may_stop_soon(const machine* m, bool patient) noexcept {
    if (m->asleep_since_ns != 0) return platform::real_now_ns() - m->asleep_since_ns < settled_ns;
    return patient || platform::thread_cpu_ns(m->tid) - m->asked_cpu_ns < chance_ns;
}

}  // namespace

void install_freeze_handler() noexcept {
    // An earlier start may have failed after this, for lack of a thread: then our own handler must not count as the
    // previous one.
    static bool installed = false;
    if (std::exchange(installed, true)) return;
    note_unsafe_points();
    struct sigaction ours {};
    ours.sa_sigaction = on_signal;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigfillset(&ours.sa_mask);
    sigaction(preemption_signal, &ours, &previous);
}

void stop_condemned_machines() noexcept {
    // Skips the calling thread: it may have called exit() in a goroutine, and is then here again as a plain thread.
    const auto condemned = [self = platform::thread_id()](const machine* m) {
        return m->tid != self && m->condemned.load(std::memory_order_acquire);
    };
    const std::int64_t grace = platform::real_now_ns() + grace_ns;
    for (bool any = true; any && platform::real_now_ns() < grace;) {
        any = false;
        for (machine* m = the_scheduler.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
            // The end of an earlier run() has asked these machines in vain: they are not waited for again.
            if (!condemned(m) || m->freeze_asked.load(std::memory_order_relaxed)) continue;
            const bool excused = m->in_thread_call.load(std::memory_order_relaxed);
            if (!m->frozen.load(std::memory_order_acquire) && !excused) any = true;
        }
        if (any) platform::futex_wait_until(never, 0, platform::real_now_ns() + grace_ns / 50);
    }
    for (machine* m = the_scheduler.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
        if (!condemned(m) || m->freeze_asked.load(std::memory_order_relaxed)) continue;
        m->asleep_since_ns = 0;  // these may be left over from another goroutine on m
        m->asked_in_sleep.store(false, std::memory_order_relaxed);
        m->in_handler.store(false, std::memory_order_relaxed);
        m->asked_cpu_ns = platform::thread_cpu_ns(m->tid);
        m->freeze_asked.store(true, std::memory_order_release);
    }
    const std::int64_t begin = platform::real_now_ns();
    for (bool waiting = true; waiting;) {
        const std::int64_t waited_ns = platform::real_now_ns() - begin;
        waiting = false;
        for_each_asked([&](machine* m) {
            if (platform::real_now_ns() - m->asked_ns >= ask_again_ns) ask(m);
            if (m->in_handler.load(std::memory_order_relaxed)) {
                waiting = waiting || waited_ns < handler_patience_ns;
            } else if (waited_ns < longest_ns && may_stop_soon(m, waited_ns < patience_ns)) {
                waiting = true;
            }
        });
        if (waiting) platform::futex_wait_until(never, 0, platform::real_now_ns() + ask_again_ns / 4);
    }
}

bool freeze_again() noexcept {
    bool any = false;
    for_each_asked([&](machine* m) {
        ask(m);
        any = true;
    });
    return any;
}

}  // namespace dunlin::sched
