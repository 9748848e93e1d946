#include "sched/preempt/stack_capture.h"

#include <dunlin/detail/atomic.hpp>

#include <csetjmp>
#include <csignal>
#include <features.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/thread.h"
#include "sched/machines/machine.h"
#include "sched/preempt/crash.h"
#include "sched/preempt/fatal_signal.h"
#include "sched/preempt/preempt.h"
#include "sched/preempt/safe_point.h"
#include "stack/signal_frame.h"

namespace dunlin::inline v0_1::sched {

namespace {

// After 5 ms the monitor lets all preempted goroutines go on (detached.cpp).
constexpr std::int64_t patience_ns = 4'000'000;

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 35)
constexpr bool unwinder_takes_locks = false;
#else
constexpr bool unwinder_takes_locks = true;
#endif

platform::atomic<std::uint32_t> pending{0};

const machine* machine_of(const goroutine& g) noexcept {
    const machine* m = the_scheduler.machines.load(std::memory_order_acquire);
    while (m != nullptr && m->current.load(std::memory_order_relaxed) != &g) m = m->all_next;
    return m;
}

// Called by the machine that has answered, or by the asker for a request that it withdraws.
void one_less_pending() noexcept {
    if (pending.fetch_sub(1, std::memory_order_release) == 1) platform::futex_wake(pending);
}

void withdraw(machine* m) noexcept {
    std::uint32_t expected = machine_capture::asked;
    if (m->capture.state.compare_exchange_strong(expected, machine_capture::none, std::memory_order_relaxed)) {
        one_less_pending();
    }
    expected = resume_order::look;
    m->resume_word.compare_exchange_strong(expected, resume_order::stay, std::memory_order_relaxed);
}

// Asks m. False: m cannot be asked.
bool call(machine* m, bool preempted) noexcept {
    if (preempted) {
        std::uint32_t expected = resume_order::stay;
        if (!m->resume_word.compare_exchange_strong(expected, resume_order::look, std::memory_order_release,
            std::memory_order_relaxed)) {
            return false;
        }
        platform::futex_wake(m->resume_word);
        return true;
    }
    return platform::send_request(m->tid, preemption_signal);
}

void ask(machine* m) noexcept {
    const goroutine* g = m->current.load(std::memory_order_relaxed);
    if (g == nullptr || m == current_machine() ||
        m->capture.state.load(std::memory_order_acquire) == machine_capture::taking) {
        return;
    }
    m->capture.state.store(machine_capture::none, std::memory_order_relaxed);
    const goroutine_state state = g->state.load(std::memory_order_acquire);
    const bool preempted = state == goroutine_state::preempted;
    const bool computes = state == goroutine_state::running && !(g->flags & goroutine::pinned) &&
        m->in_runtime.load(std::memory_order_relaxed) == 0 &&
        g->reason.load(std::memory_order_relaxed) != wait_reason::blocking_call;
    if (!preempted && !(computes && preemption_mode == preemption::signal && platform::thread_is_running(m->tid))) {
        return;
    }
    pending.fetch_add(1, std::memory_order_relaxed);
    m->capture.state.store(machine_capture::asked, std::memory_order_release);
    if (!call(m, preempted)) withdraw(m);
}

// What the unwinder needs, with the registers that the kernel stores if a fault interrupts it.
constexpr std::size_t room_for_unwinder = 16 << 10;

bool may_unwind_at(std::uintptr_t pc) noexcept { return unwinder_takes_locks ? may_stop_at(pc) : !is_in_unwinder(pc); }

}  // namespace

// All signals are blocked here: without the unblocking below, a fault would end the process.
[[gnu::noinline]] void unwind_interrupted(machine* m, const void* context, stack::trace& frames) noexcept {
    void* const innermost = reinterpret_cast<void*>(stack::interrupted_pc(context) + 1);
    frames.pc[0] = innermost;
    frames.size = 1;
    if (!crash_handlers_in_force() || !may_unwind_at(stack::interrupted_pc(context))) return;
    // The goroutine may have given its thread a signal stack of its own, however small.
    if (stack::room_on_signal_stack(context) < room_for_unwinder) return;
    sigset_t faults, before;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    sigaddset(&faults, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &faults, &before);
    sigjmp_buf out;
    if (sigsetjmp(out, 0) == 0) {
        m->capture.escape = &out;
        std::atomic_signal_fence(std::memory_order_seq_cst);  // for the handler of the fault, on this thread
        stack::capture_trace(frames);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    m->capture.escape = nullptr;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (frames.size != 0) return;  // if it is 0: a fault, or nothing could be unwound
    frames.pc[0] = innermost;
    frames.size = 1;
}

namespace {

void answer(machine* m, const void* context, bool may_look) noexcept {
    std::uint32_t expected = machine_capture::asked;
    if (m->capture.state.load(std::memory_order_relaxed) != expected) return;
    if (!m->capture.state.compare_exchange_strong(expected, machine_capture::taking, std::memory_order_acquire,
        std::memory_order_relaxed)) {
        return;
    }
    m->capture.frames.size = 0;
    if (may_look) unwind_interrupted(m, context, m->capture.frames);
    m->capture.state.store(machine_capture::taken, std::memory_order_release);
    one_less_pending();
}

template <class F>
void for_each_machine(F f) noexcept {
    for (machine* m = the_scheduler.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) f(m);
}

}  // namespace

stack_captures::stack_captures() noexcept {
    // the first call of the unwinder initialises it, under a lock
    [[maybe_unused]] static const stack::trace first = stack::capture_trace();
    for_each_machine(ask);
    const std::int64_t until = platform::real_now_ns() + patience_ns;
    // Acquire pairs with the release of one_less_pending(); what each machine has written is published by its own
    // state.
    for (std::uint32_t left; (left = pending.load(std::memory_order_acquire)) != 0;) {
        if (!platform::futex_wait_until(pending, left, until)) break;
    }
    for_each_machine(withdraw);
}

stack_captures::~stack_captures() {
    for_each_machine([](machine* m) {
        std::uint32_t expected = machine_capture::taken;
        m->capture.state.compare_exchange_strong(expected, machine_capture::none, std::memory_order_relaxed);
    });
}

stack::trace stack_captures::of(const goroutine& g) const noexcept {
    const goroutine_state state = g.state.load(std::memory_order_acquire);
    if (state != goroutine_state::running && state != goroutine_state::preempted) return {};
    const machine* m = machine_of(g);
    if (m == nullptr || m->capture.state.load(std::memory_order_acquire) != machine_capture::taken) return {};
    return m->capture.frames;
}

platform::sleeping_call asleep_in(const goroutine& g) noexcept {
    const machine* m = machine_of(g);
    if (m == nullptr || m->in_runtime.load(std::memory_order_relaxed) != 0) return {};
    return platform::thread_sleeps_in(m->tid);
}

namespace {

// The thread that looks at a sleeper's stack, and where it goes on after a fault. One at a time: the world is stopped.
platform::atomic<pid_t> walker{0};
sigjmp_buf out_of_walk;

}  // namespace

stack::trace frames_of_sleeper(const goroutine& g, const platform::sleeping_call& call) noexcept {
    stack::trace frames;
    const auto low = reinterpret_cast<std::uintptr_t>(g.stack != nullptr ? g.stack->low() : nullptr);
    if (call.at == nullptr || low == 0 || reinterpret_cast<std::uintptr_t>(call.sp) - low >= g.stack->usable()) {
        return frames;
    }
    // The sleeper may hold a lock of the unwinder's.
    if (unwinder_takes_locks || !crash_handlers_in_force()) return frames;
    sigset_t faults, before;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    sigaddset(&faults, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &faults, &before);
    if (sigsetjmp(out_of_walk, 0) == 0) {
        walker.store(platform::thread_id(), std::memory_order_relaxed);
        std::atomic_signal_fence(std::memory_order_seq_cst);  // for the handler of the fault, on this thread
        stack::capture_trace_of_sleeper(call.sp, call.at, frames);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    walker.store(0, std::memory_order_relaxed);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    const platform::sleeping_call now = asleep_in(g);
    if (now.at != call.at || now.sp != call.sp) frames.size = 0;
    return frames;
}

void end_walk_that_faults() noexcept {
    if (walker.load(std::memory_order_relaxed) == platform::thread_id()) siglongjmp(out_of_walk, 1);
}

void capture_if_asked(machine* m, const void* context) noexcept {
    // Inside the runtime the thread may hold one of its locks.
    const bool inside = m->in_runtime.load(std::memory_order_relaxed) != 0 || m->unstoppable != 0;
    answer(m, context, !inside);
}

void capture_if_asked_again(machine* m, const void* context) noexcept {
    answer(m, context, true);
}

void end_sample_that_faults(machine* m) noexcept {
    if (m->capture.escape != nullptr) siglongjmp(*static_cast<sigjmp_buf*>(m->capture.escape), 1);
}

}  // namespace dunlin::sched
