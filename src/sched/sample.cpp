#include "sched/sample.h"

#include <csignal>
#include <features.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/syscall.h"
#include "platform/thread.h"
#include "sched/machine.h"
#include "sched/preempt.h"
#include "sched/safe_place.h"
#include "stack/signal_frame.h"

namespace dunlin::sched {

namespace {

constexpr std::int64_t patience_ns = 20'000'000;

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 35)
constexpr bool unwinder_takes_locks = false;
#else
constexpr bool unwinder_takes_locks = true;
#endif

enum state : std::uint32_t { none, asked, taking, taken };

struct request {
    std::atomic<std::uint32_t> state{none};
    std::atomic<machine*> of{nullptr};  // written before `asked`
    stack::trace frames;                // whoever has made it `taking`, until it is `taken`
};
request the_request;

machine* machine_of(const goroutine& g) noexcept {
    machine* m = the_scheduler.machines.load(std::memory_order_acquire);
    while (m != nullptr && m->current.load(std::memory_order_relaxed) != &g) m = m->all_next;
    return m;
}

// False: it need not be asked.
bool call(const goroutine& g, machine* m) noexcept {
    if (g.state.load(std::memory_order_acquire) == goroutine_state::preempted) {
        std::uint32_t expected = 0;
        if (!m->resume_word.compare_exchange_strong(expected, resume_to_look, std::memory_order_release, std::memory_order_relaxed)) return false;
        platform::futex_wake(m->resume_word);
        return true;
    }
    if (preemption_mode != preemption::signal || !platform::thread_is_running(m->tid)) return false;
    return platform::raw_syscall(SYS_tgkill, platform::raw_syscall(SYS_getpid), m->tid, preemption_signal) == 0;
}

bool wait_until_taken() noexcept {
    request& r = the_request;
    const std::int64_t until = platform::now_ns() + patience_ns;
    for (;;) {
        const std::uint32_t now = r.state.load(std::memory_order_acquire);
        if (now == taken) return true;
        if (!platform::futex_wait_until(r.state, now, until)) return r.state.load(std::memory_order_acquire) == taken;
    }
}

// On m's own thread, above the frame of the signal.
bool answer(machine* m, bool may_look) noexcept {
    request& r = the_request;
    std::uint32_t expected = asked;
    if (r.state.load(std::memory_order_acquire) != asked || r.of.load(std::memory_order_relaxed) != m ||
        !r.state.compare_exchange_strong(expected, taking, std::memory_order_acquire)) {
        return false;
    }
    r.frames.size = 0;
    if (may_look) r.frames = stack::capture_trace();
    r.state.store(taken, std::memory_order_release);
    platform::futex_wake(r.state);
    return true;
}

}  // namespace

stack::trace sample(const goroutine& g) noexcept {
    [[maybe_unused]] static const stack::trace first = stack::capture_trace();  // the unwinder's first call sets it up, under a lock
    request& r = the_request;
    machine* m = machine_of(g);
    // Still `taking`: the one before hangs in the unwinder, and writes when it comes out.
    if (m == nullptr || r.state.load(std::memory_order_acquire) == taking) return {};
    r.of.store(m, std::memory_order_relaxed);
    r.state.store(asked, std::memory_order_release);
    stack::trace result;
    if (call(g, m) && wait_until_taken()) result = r.frames;
    std::uint32_t expected = asked;
    r.state.compare_exchange_strong(expected, none, std::memory_order_relaxed);
    expected = resume_to_look;
    m->resume_word.compare_exchange_strong(expected, 0, std::memory_order_relaxed);
    return result;
}

const void* asleep_at(const goroutine& g) noexcept {
    const machine* m = machine_of(g);
    return m != nullptr && m->in_runtime.load(std::memory_order_relaxed) == 0 ? platform::thread_sleeps_at(m->tid) : nullptr;
}

bool sample_if_asked(machine* m, const void* context) noexcept {
    // Inside the runtime its place is one that every parked goroutine shows, and it may hold a lock of ours.
    const bool inside = m->in_runtime.load(std::memory_order_relaxed) != 0 || m->unstoppable != 0;
    return answer(m, !inside && (!unwinder_takes_locks || may_stop_at(stack::interrupted_pc(context))));
}

bool sample_if_asked_again(machine* m) noexcept { return answer(m, !unwinder_takes_locks || !m->stopped_in_library); }

}  // namespace dunlin::sched
