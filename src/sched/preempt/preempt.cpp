#include "sched/preempt/preempt.h"

#include <algorithm>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/thread.h"
#include "sched/data/bells.h"
#include "sched/machines/machine.h"
#include "sched/machines/preempted.h"
#include "sched/machines/processor.h"
#include "sched/machines/trace.h"
#include "sched/machines/wake.h"
#include "sched/preempt/frozen.h"
#include "sched/preempt/program_handler.h"
#include "sched/preempt/safe_point.h"
#include "sched/preempt/stack_capture.h"
#include "stack/signal_frame.h"

namespace dunlin::inline v0_1::sched {

preemption preemption_mode = preemption::signal;
bool preempt_anywhere = false;
int preemption_signal = SIGURG;

constexpr std::uint32_t short_slices_of_spinners = 8;

// One stop in a loop is enough to shorten the slices. It takes short_slices_of_spinners stops elsewhere to undo that,
// because the holder of a spin lock may be stopped anywhere. What the thread's last goroutine did says nothing about
// this one.
void note_spinning(machine* m, const goroutine* g, bool spins) noexcept {
    const std::uint32_t before = m->spinner == g->id ? std::uint32_t{m->spins} : 0;
    m->spinner = g->id;
    m->spins = spins ? short_slices_of_spinners : before - (before != 0);
}

namespace {

constexpr std::uint32_t rejects_max = 10;
constexpr std::int64_t debt_max_ns = 10 * slice_ns;
constexpr std::int64_t stop_patience_ns = 300'000;

// Called in the handler: may the thread stop here?
bool is_stoppable(machine* m, void* context) noexcept {
    if (m->in_runtime.load(std::memory_order_relaxed) != 0 || m->unstoppable != 0) return false;
    if (!m->detached.load(std::memory_order_relaxed) || m->condemned.load(std::memory_order_relaxed)) return false;
    const goroutine* g = m->current.load(std::memory_order_relaxed);
    if (g == nullptr || (g->flags & goroutine::pinned)) return false;
    // If it were stopped in a handler of the program, it would still be there when its run() ends (freeze.cpp,
    // Handlers).
    if (interrupts_program_handler(m, context)) return false;
    const std::uintptr_t pc = stack::interrupted_pc(context);
    m->stopped_in_library = !may_stop_at(pc);
    const bool spins = spins_at(pc);
    if (m->stopped_in_library && !spins && !preempt_anywhere) {
        m->rejects = m->rejects + 1;
        if (m->rejects <= rejects_max) return false;
    }
    note_spinning(m, g, spins);
    return true;
}

// Queues the machine as preempted, and changes the goroutine's state. False: it need not stop, because it has a
// processor again, is condemned, or the world stops.
bool queue_preempted(machine* m, goroutine* g) noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    if (!m->detached.load(std::memory_order_acquire) || m->condemned.load(std::memory_order_relaxed) ||
        s.stopping.load(std::memory_order_relaxed)) {
        s.lock.unlock();
        return false;
    }
    processor* p = take_idle_processor();
    m->detached.store(false, std::memory_order_relaxed);
    if (p == nullptr) {
        if (DUNLIN_UNLIKELY(tracing::on())) tracing::note(m, tracing::kind::preempted, g);
        transition<goroutine_state::running, goroutine_state::preempted>(g->state);
        m->resume_word.store(resume_order::stay, std::memory_order_release);
        m->slept_on_cpu = platform::current_cpu();
        const std::int64_t computed = platform::this_thread_use().cpu_ns - m->detached_cpu_ns;
        m->debt_ns = std::min(m->debt_ns + computed, debt_max_ns);
        if (s.preempted.size == 0) s.preempted_since_ns = s.coarse_now_ns.load(std::memory_order_relaxed);
        if (m->slice_used_ns != 0) {
            // It gets the rest of its slice as soon as the goroutines for which it was stopped have run.
            s.preempted_since_ns = 0;
            s.preempted.push_front(m);
        } else {
            s.preempted.push_back(m);
        }
        preempted_changed(s);
        s.hand_offs.preemptions.add();
    }
    s.lock.unlock();
    if (p == nullptr) return true;
    give(p, m);
    wake_monitor_if_asleep();
    return false;
}

// The monitor may wait for the answer. Release pairs with the acquire in wait_until_stopped(): what this thread did
// last happens before what the processor's next machine does.
void answer(machine* m) noexcept {
    if (m->answered.exchange(1, std::memory_order_release) == 0) platform::futex_wake(m->answered);
}

// Sleeps until it is this goroutine's turn.
void sleep_preempted(machine* m, goroutine* g, const void* context) noexcept {
    std::uint32_t how;
    while ((how = m->resume_word.load(std::memory_order_acquire)) == resume_order::stay || how == resume_order::look) {
        if (how == resume_order::stay) {
            platform::futex_wait(m->resume_word, resume_order::stay);
        } else if (m->resume_word.compare_exchange_strong(how, resume_order::stay, std::memory_order_acquire,
            std::memory_order_relaxed)) {
            // The word is reset before the look: so the next request sets it again, and is not mistaken for this one.
            capture_if_asked_again(m, context);
        }
    }
    capture_if_asked_again(m, context);  // it may have been asked just now, and let go before it saw the request
    if (how == resume_order::end_thread) end_frozen_thread(m);
    // Not transition(): the end of run() may freeze the goroutine at the same moment (freeze_goroutine), and then its
    // state must stay frozen.
    goroutine_state expected = goroutine_state::preempted;
    g->state.compare_exchange_strong(expected, goroutine_state::running, std::memory_order_acq_rel,
        std::memory_order_relaxed);
    if (how != resume_order::with_processor) {
        if (DUNLIN_UNLIKELY(tracing::on())) tracing::note(m, tracing::kind::resumed, g, 0, 1);
        return;
    }
    const platform::thread_use use = platform::this_thread_use();
    m->resumed_cpu_ns = use.cpu_ns;
    m->resumed_sleeps = use.sleeps;
    m->resumed_ns = platform::real_now_ns();
    processor* p = m->handed_p;
    m->handed_p = nullptr;
    give(p, m);
    if (DUNLIN_UNLIKELY(tracing::on())) tracing::note(m, tracing::kind::resumed, g);
}

}  // namespace

void ask_to_stop(machine* m) noexcept {
    m->answered.store(0, std::memory_order_relaxed);
    // Release pairs with the exchange in stop_if_asked(): a handler that sees the request sees answered = 0, and its
    // answer is not overwritten.
    m->preempt_asked.store(true, std::memory_order_release);
    the_scheduler.hand_offs.stop_requests.add();
    platform::send_request(m->tid, preemption_signal);
}

void wait_until_stopped(machine* m) noexcept {
    const std::int64_t until = platform::real_now_ns() + stop_patience_ns;
    while (m->answered.load(std::memory_order_acquire) == 0 && platform::futex_wait_until(m->answered, 0, until)) {}
}

bool may_be_stopped_here() noexcept {
    const machine* m = current_machine();
    return m != nullptr && m->in_runtime.load(std::memory_order_relaxed) == 0 && m->unstoppable == 0 &&
        m->current.load(std::memory_order_relaxed) != nullptr;
}

void stop_if_asked(machine* m, void* context) noexcept {
    if (!m->preempt_asked.exchange(false, std::memory_order_acquire)) return;
    if (!is_stoppable(m, context)) return answer(m);
    m->rejects = 0;
    goroutine* g = m->current.load(std::memory_order_relaxed);
    // From here to the end the thread acts as if inside the runtime. The fence is for the compiler: it keeps the store
    // before the lock. A machine without a processor has no taker that would look at in_runtime.
    m->in_runtime.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const bool stop = queue_preempted(m, g);
    answer(m);
    if (stop) sleep_preempted(m, g, context);
    m->in_runtime.store(0, std::memory_order_release);
}

// Under the lock. m, which is stopped, is about to go on without a processor.
static void detach(machine* m) noexcept {
    the_scheduler.lock.assert_held();
    m->borrower = nullptr;
    m->detached_cpu_ns = platform::thread_cpu_ns(m->tid);
    m->detached.store(true, std::memory_order_relaxed);
}

void let_preempted_go() noexcept {
    scheduler& s = the_scheduler;
    if (s.preempted_size.load(std::memory_order_relaxed) == 0) return;
    s.lock.lock();
    while (machine* m = s.preempted.pop_front()) {
        detach(m);
        s.hand_offs.thaws.add();
        m->resume_word.store(resume_order::without_processor, std::memory_order_release);
        platform::futex_wake(m->resume_word);
    }
    preempted_changed(s);
    // pairs with the exchange in look_at_detached_machines(), which then sees that they are detached
    s.detached_unlisted.store(true, std::memory_order_release);
    s.lock.unlock();
}

void abandon_preempted() noexcept {
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    while (machine* m = pop_preempted(s, any_cpu)) {
        if (m->condemned.load(std::memory_order_relaxed) && !m->stopped_in_library) {
            keep_frozen(m);
            continue;
        }
        if (!m->condemned.load(std::memory_order_relaxed)) detach(m);  // an independent goroutine's
        m->resume_word.store(resume_order::without_processor, std::memory_order_release);
        platform::futex_wake(m->resume_word);
    }
    s.detached_unlisted.store(true, std::memory_order_release);
}

}  // namespace dunlin::sched
