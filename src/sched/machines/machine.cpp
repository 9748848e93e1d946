#include "sched/machines/machine.h"

#include <dunlin/detail/atomic.hpp>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "platform/check.h"
#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/thread.h"
#include "sched/data/bells.h"
#include "sched/data/event_source.h"
#include "sched/data/hooks.h"
#include "sched/machines/deadlock.h"
#include "sched/machines/preempted.h"
#include "sched/machines/processor.h"
#include "sched/machines/waits.h"
#include "sched/machines/wake.h"
#include "sched/queues/global_queue.h"

namespace dunlin::inline v0_1::sched {

void forget_thread(machine* m) noexcept {
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    m->wired_g = nullptr;
    m->lowered = false;
    m->ended = true;
    ++s.ended_machines;
    s.machine_count.store(s.machine_count.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
    check_for_deadlock();
}

void has_come(machine* m) noexcept {
    // Relaxed: only the number matters; no request depends on it (a request may depend on yet_to_look).
    if (!std::exchange(m->counted_as_coming, false)) return;
    the_scheduler.coming_machines.fetch_sub(1, std::memory_order_relaxed);
}

// ---- threads --------------------------------------------------------------------------------------------------------

bool write_off_threads_that_wait() noexcept {
    scheduler& s = the_scheduler;
    bool any = false;
    for (machine* m = s.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
        registration is = m->registration_state.load(std::memory_order_relaxed);
        if (is == registration::under_way) {
            m->registration_state.compare_exchange_strong(is, registration::seen, std::memory_order_relaxed);
        } else if (is == registration::seen && !platform::thread_is_running(m->tid)) {
            // Before the CAS of `registration_state`, whose release pairs with the acquire in register_thread(): or the
            // thread's fetch_sub could come first, and the count would wrap.
            s.threads_written_off.fetch_add(1, std::memory_order_relaxed);
            if (!m->registration_state.compare_exchange_strong(is, registration::written_off, std::memory_order_release,
                    std::memory_order_relaxed)) {
                s.threads_written_off.fetch_sub(1, std::memory_order_relaxed);
                continue;
            }
            s.coming_machines.fetch_sub(1, std::memory_order_relaxed);
            // As in make_machine(): acquires what was released by the requests that were left to this thread. The
            // maker makes them again.
            s.yet_to_look.fetch_sub(1, std::memory_order_acq_rel);
            any = true;
        }
    }
    return any;
}

namespace {

void register_thread(machine* m) noexcept {
    if (hooks.register_thread == nullptr) return;
    if (platform::simulation_here() != nullptr) return hooks.register_thread();
    scheduler& s = the_scheduler;
    if (s.threads_written_off.load(std::memory_order_relaxed) != 0) return;
    m->registration_state.store(registration::under_way, std::memory_order_relaxed);
    hooks.register_thread();
    // Acquire pairs with the release in write_off_threads_that_wait(): this thread was counted before it is taken off.
    const registration was = m->registration_state.exchange(registration::none, std::memory_order_acquire);
    if (was != registration::written_off) return;
    s.threads_written_off.fetch_sub(1, std::memory_order_relaxed);
    s.coming_machines.fetch_add(1, std::memory_order_relaxed);
    s.yet_to_look.fetch_add(1, std::memory_order_relaxed);
}

void thread_main(void* raw) noexcept {
    machine* m = static_cast<machine*>(raw);
    set_current_machine(m);
    m->tid = platform::thread_id();
    m->exceptions = stack::thread_exception_state();
    m->error_number = &errno;
    if constexpr (stack::address_sanitizing) {
        const platform::stack_bounds bounds = platform::thread_stack();
        m->own_stack = {bounds.low, bounds.size, nullptr};
    } else {
        m->own_stack.fiber = stack::thread_fiber();
    }
    platform::use_short_slices();  // docs/decisions/026-short-slices.md
    m->exact_timers = false;
    const platform::signal_stack for_signals;
    register_thread(m);
    hooks.machine_thread(true);
    m->counted_as_coming = true;
    machine_main(m);
    // Reached only if this thread is to end (must_end, or dismissed). The record may already serve another thread; code
    // of the program that runs at the exit of this thread runs as on a plain thread.
    set_current_machine(nullptr);
    hooks.machine_thread(false);
}

constexpr platform::thread_kind machine_thread{thread_main, "dunlin-m", true};

// Takes the record of a machine whose thread has ended; it is on the list of all machines already. Null: there is none.
machine* take_ended_record() noexcept {
    scheduler& s = the_scheduler;
    std::scoped_lock guard(s.lock);
    s.lock.assert_held();
    for (machine* m = s.machines.load(std::memory_order_relaxed); m != nullptr &&
        s.ended_machines != 0; m = m->all_next) {
        if (!m->ended) continue;
        --s.ended_machines;
        m->ended = false;
        m->spinning = false;
        m->must_end = false;
        m->dismissed = false;
        m->in_runtime.store(1, std::memory_order_relaxed);
        return m;
    }
    return nullptr;
}

// The caller holds no lock. On the list before it runs: the end of run() must not miss a machine.
void list(machine* m) noexcept {
    scheduler& s = the_scheduler;
    std::scoped_lock guard(s.lock);
    s.lock.assert_held();
    m->all_next = s.machines.load(std::memory_order_relaxed);
    s.machines.store(m, std::memory_order_release);
    if (m->ended) ++s.ended_machines;
}

// The caller holds no lock. Returns 0 or an error number: no thread or no memory.
int make_machine() noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    const std::uint32_t count = s.machine_count.load(std::memory_order_relaxed);
    if (count >= max_machines) {
        s.lock.unlock();
        platform::fatal(
            "thread exhaustion: the program has 10000 threads that run goroutines (what do they block on? see runtime::dump())");
    }
    // Counted before the thread exists: the deadlock check must not miss a machine that is on its way.
    s.machine_count.store(count + 1, std::memory_order_relaxed);
    s.lock.unlock();
    machine* m = take_ended_record();
    if (m == nullptr && (m = new (std::nothrow) machine) != nullptr) {
        m->id = count;
        list(m);
    }
    int error = ENOMEM;
    if (m != nullptr) {
        m->random = platform::random_source(static_cast<std::uint64_t>(platform::now_ns()) * 2654435761u + count);
        s.coming_machines.fetch_add(1, std::memory_order_relaxed);
        s.yet_to_look.fetch_add(1, std::memory_order_relaxed);
        error = platform::start_thread<machine_thread>(m);
        if (error == 0) return 0;
        s.coming_machines.fetch_sub(1, std::memory_order_relaxed);
        // Acquire: the maker, which may have left a request to this machine, has released what the requester did
        // before (maker_main); make_machines_ahead() looks for it.
        s.yet_to_look.fetch_sub(1, std::memory_order_acq_rel);
    }
    s.lock.lock();
    s.machine_count.store(s.machine_count.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
    if (m != nullptr) {
        m->ended = true;  // the record waits for its next thread
        ++s.ended_machines;
    }
    check_for_deadlock();  // the other machines may have gone to sleep meanwhile
    s.lock.unlock();
    return error;
}

// Has any machine ever had a thread? The last one may just have ended, and another may be had in a moment.
static bool any_thread_was_ever_started() noexcept {
    for (const machine* m = the_scheduler.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
        if (m->tid != 0) return true;
    }
    return false;
}

void report_no_thread(int error) noexcept {
    const std::uint32_t have = the_scheduler.machine_count.load(std::memory_order_relaxed);
    if (have == 0 && !any_thread_was_ever_started()) {
        platform::text_writer(2) << "fatal: dunlin cannot start its first thread: " << std::strerror(error)
            << " (limits: ulimit -u, pids.max, memory)\n";
        platform::end_process(2);
    }
    static platform::atomic<bool> reported{false};
    if (reported.exchange(true, std::memory_order_relaxed)) return;
    platform::text_writer out(2, maker_waits_for_stderr_ms);
    out << "dunlin: no more threads (" << std::strerror(error) << "): going on with " << have
        << " (limits: ulimit -u, the cgroup's pids.max, memory)\n";
}

// Under the lock. The kernel nearly always starts a woken thread on the CPU where it slept; if there are few CPUs, even
// when that CPU is busy and another is not. So `here` is for a waker that is about to sleep, `elsewhere` for one that
// goes on.
machine* choose_idle_machine(const idle_machine_list& idle, wake_place place) noexcept {
    the_scheduler.lock.assert_held();
    constexpr int looks = 4;
    if (place == wake_place::anywhere) return idle.newest;
    const int cpu = platform::current_cpu();
    if (place == wake_place::here) {
        machine* m = idle.newest_on[static_cast<unsigned>(cpu) % idle.cpus];
        return m != nullptr ? m : idle.newest;
    }
    machine* m = idle.newest;
    for (int i = 0; i < looks && m != nullptr; ++i, m = m->idle_next) {
        if (m->slept_on_cpu != cpu) return m;
    }
    return idle.newest;
}

machine* pop_idle_machine(wake_place place) noexcept {
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    machine* m = choose_idle_machine(s.idle_machines, place);
    if (m == nullptr) return nullptr;
    s.idle_machines.remove(m);
    s.idle_machine_count = s.idle_machine_count - 1;
    return m;
}

// The caller has taken the machine off the idle list.
void hand_to(machine* m, processor* p, bool spinning) noexcept {
    m->handed_p = p;
    m->handed_spinning = spinning;
    // Release publishes handed_p; pairs with the acquire in sleep_on_the_idle_list().
    m->wake_word.store(1, std::memory_order_release);
    platform::futex_wake(m->wake_word);
}

}  // namespace

bool start_idle_machine(processor* p, bool spinning, wake_place place) noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    machine* m = pop_idle_machine(place);
    s.lock.unlock();
    if (m != nullptr) hand_to(m, p, spinning);
    return m != nullptr;
}

namespace {

processor* take_offered(processor** link) noexcept {
    processor* p = *link;
    if (p == nullptr) return nullptr;
    *link = std::exchange(p->idle_next, nullptr);
    the_scheduler.offered_count = the_scheduler.offered_count - 1;
    return p;
}

}  // namespace

void offer_processor(processor* p) noexcept {
    scheduler& s = the_scheduler;
    machine* taker = nullptr;
    s.lock.lock_in_a_crowd();
    if (s.takers_coming == s.offered_count && (taker = pop_idle_machine(wake_place::here)) != nullptr) {
        s.takers_coming = s.takers_coming + 1;
    }
    const bool taker_comes = s.takers_coming > s.offered_count;
    if (taker_comes) {
        p->idle_next = s.offered;
        s.offered = p;
        s.offered_count = s.offered_count + 1;
    }
    s.lock.unlock();
    if (!taker_comes) return start_machine(p, false, wake_place::here);
    if (taker == nullptr) return;
    taker->comes_for_offer = true;
    taker->wake_word.store(1, std::memory_order_release);  // as in hand_to()
    platform::futex_wake(taker->wake_word);
}

processor* catch_offered() noexcept {
    the_scheduler.lock.assert_held();
    for (processor** link = &the_scheduler.offered; *link != nullptr; link = &(*link)->idle_next) {
        const std::uint32_t tick = (*link)->tick.load(std::memory_order_relaxed);
        if (std::exchange((*link)->caught_tick, tick) != tick) return take_offered(link);
    }
    return nullptr;
}

void make_first_record() {
    // a start before it has failed later
    if (the_scheduler.machines.load(std::memory_order_relaxed) != nullptr) return;
    machine* m = new machine;
    m->ended = true;  // as if it had served a thread: make_machine() takes it
    list(m);
}

bool make_spare_machine(bool is_needed) noexcept {
    const int error = make_machine();
    if (error != 0 && is_needed) report_no_thread(error);
    return error == 0;
}

void end_idle_machines(unsigned count) noexcept {
    scheduler& s = the_scheduler;
    for (; count != 0; --count) {
        s.lock.lock();
        machine* m = pop_idle_machine(wake_place::anywhere);
        if (m != nullptr) m->must_end = true;
        s.lock.unlock();
        if (m == nullptr) return;
        m->wake_word.store(1, std::memory_order_release);
        platform::futex_wake(m->wake_word);
        s.hand_offs.threads_ended.add();
    }
}

bool start_wired_machine(processor* p) noexcept {
    scheduler& s = the_scheduler;
    if (!last_thread_failed()) return false;
    machine* its = nullptr;
    s.lock.lock();
    drain_to_global(p);
    // Each is taken off and put back, so the order stays.
    for (std::size_t n = s.global.size(); n != 0; --n) {
        goroutine* g = s.global.pop_front();
        if (its == nullptr && (g->flags & goroutine::wired) != 0) {
            its = g->extra->wired_to;
        } else {
            s.global.push_back(g);
        }
    }
    if (its != nullptr) --s.wired_machines_waiting;
    s.lock.unlock();
    if (its != nullptr) hand_to(its, p, false);
    return its != nullptr;
}

void start_machine(processor* p, bool spinning, wake_place place) noexcept {
    scheduler& s = the_scheduler;
    if (start_idle_machine(p, spinning, place)) return;
    if (resume_one_with(p) != nullptr || start_wired_machine(p)) {
        want_spare_machine();
        if (!spinning) return;
        // F1 and F2 of wake.h: no machine acts on this count any more.
        s.idle_and_spinning.fetch_sub(one_spinning, std::memory_order_seq_cst);
        settle_free_clock();
        wake_if_idle();
        return;
    }
    // The processor is idle until the new thread takes it, and any machine may take it meanwhile. This is necessary:
    // the thread maker may have to wait for the allocator, and the goroutine that holds the allocator's lock must be
    // able to get a processor.
    s.lock.lock();
    // A machine that has fallen asleep meanwhile looked before there was anything for it, and perhaps no new thread can
    // be had: so the list is looked at once more.
    machine* m = pop_idle_machine(place);
    if (m == nullptr) {
        put_idle_processor(p, spinning);
        drain_to_global(p);
    }
    s.lock.unlock();
    if (m != nullptr) return hand_to(m, p, spinning);
    want_spare_machine();
    // the machine that sleeps in the poller can take it at once
    if (s.poller_claimed.load(std::memory_order_seq_cst) != 0) s.events->interrupt();
}

namespace {

// Called with the scheduler lock held, which it releases.
void sleep_on_the_idle_list(scheduler& s, machine* m) noexcept DUNLIN_RELEASES(s.lock) {
    s.lock.assert_held();
    has_come(m);
    m->slept_on_cpu = platform::current_cpu();
    s.idle_machines.push(m);
    s.idle_machine_count = s.idle_machine_count + 1;
    check_for_deadlock();
    s.lock.unlock();
    while (m->wake_word.load(std::memory_order_acquire) == 0) platform::futex_wait(m->wake_word, 0);
    m->wake_word.store(0, std::memory_order_relaxed);
}

}  // namespace

void sleep_until_handed_a_processor(machine* m) noexcept {
    scheduler& s = the_scheduler;
    processor* p = nullptr;
    s.lock.lock_in_a_crowd();
    for (;;) {
        // A processor may have been put on the idle list, for lack of a thread, after this machine's search. So look
        // again, under the lock of the idle list: a thread that puts one there from now on finds this machine on the
        // list.
        if (p == nullptr && (s.global.size() != 0 || s.preempted.size != 0) &&
            !s.stopping.load(std::memory_order_relaxed))
            p = take_idle_processor();
        if (p != nullptr) break;
        sleep_on_the_idle_list(s, m);
        if (!std::exchange(m->comes_for_offer, false)) {
            p = std::exchange(m->handed_p, nullptr);
            if (p == nullptr) return;  // woken to end (must_end)
            m->spinning = m->handed_spinning;
            return give(p, m);
        }
        s.lock.lock_in_a_crowd();
        s.takers_coming = s.takers_coming - 1;
        p = take_offered(&s.offered);  // null: a goroutine has caught it (catch_offered)
    }
    s.lock.unlock();
    has_come(m);
    m->spinning = false;
    give(p, m);
    wake_monitor_if_asleep();
}

}  // namespace dunlin::sched
