#include "sched/preempt/frozen.h"

#include <dunlin/detail/atomic.hpp>

#include <algorithm>

#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/syscall.h"
#include "platform/text.h"
#include "platform/thread.h"
#include "sched/data/bells.h"
#include "sched/machines/deadlock.h"
#include "sched/machines/lost_holders.h"
#include "sched/machines/machine.h"
#include "sched/preempt/crash.h"
#include "sched/preempt/safe_point.h"

namespace dunlin::inline v0_1::sched {

namespace {

constexpr std::int64_t ms = 1'000'000;
constexpr std::uint32_t frozen_kept = 16;
constexpr std::int64_t first_look_ns = 5 * ms, longest_look_ns = 1000 * ms;
constexpr std::int64_t sure_after_ns = 100 * ms;  // by then a lock that is merely contended has changed its owner
// longer, since the thread that is waited for may be any thread, also one that is at work
constexpr std::int64_t sure_of_unnamed_ns = 1000 * ms;
constexpr unsigned most_looks = 64;  // per round, at goroutines that may wait; each look takes 10 us
constexpr std::int64_t let_go_ns = 2000 * ms;
constexpr std::int64_t let_unnamed_go_ns = 100 * ms;  // of CPU time for each candidate; there may be fifteen others
constexpr std::int64_t alone_after_ns = 20 * ms;  // by then it is known whether other threads want the owner's CPU

// Found by the monitor, read by the thread maker.
struct suspicion {
    machine* owner = nullptr;
    const void* lock = nullptr;
    pid_t waiter = 0;
    const char* unnamed = nullptr;  // as in platform::lock_wait; not null: the owner is only one of several candidates
    const goroutine* lost = nullptr;  // it held the lock, and cannot go on
    std::int64_t since_ns = 0;

    bool found() const noexcept { return owner != nullptr || lost != nullptr; }
    bool same(const suspicion& other) const noexcept {
        return owner == other.owner && lost == other.lost && same_wait(other);
    }
    bool same_wait(const suspicion& other) const noexcept {
        return lock == other.lock && waiter == other.waiter && unnamed == other.unnamed;
    }
};

struct watch {
    std::uint32_t frozen = 0;  // times_frozen at the last look
    std::int64_t next_ns = 0;
    std::int64_t wait_ns = first_look_ns;
    suspicion suspect;
    std::size_t looked = 0;  // so many threads were passed in earlier rounds; this one continues behind them
};
watch the_watch;                        // monitor
suspicion to_let_go;                    // monitor; published to the thread maker by the wish
std::uint32_t turns_of_wait = 0;        // monitor: how many candidates have had a turn in this wait
platform::atomic<bool> letting_go{false};    // set by the monitor, cleared by the thread maker
machine* waited_for = nullptr;          // scheduler lock: the last machine that was seen to hold what another thread
                                        // waits for; its thread does not end
suspicion gone_on;                      // thread maker: the suspicion whose owner goes on
std::int64_t gone_on_until_ns = 0;      // thread maker; 0: no owner goes on
// thread maker: the CPU time of the owner when it was let go; -1: it has been decided whether others want its CPU
std::int64_t owner_cpu_ns = 0;

const void* said_of = nullptr;  // monitor: the lock last reported as staying locked

void order(machine* m, std::uint32_t what) noexcept {
    m->resume_word.store(what, std::memory_order_release);
    platform::futex_wake(m->resume_word);
}

// Under the lock. False: m is no longer on the list.
bool take_off_list(machine* m) noexcept {
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    bool found = false;
    for (std::uint32_t n = s.frozen.size; n != 0; --n) {
        machine* each = s.frozen.pop_front();
        if (each == m) {
            found = true;
        } else {
            s.frozen.push_back(each);
        }
    }
    return found;
}

// If nothing names the holder, each frozen machine gets a turn, the one frozen last first. `turns` of them have had
// theirs and are frozen again, hence the first of the list.
machine* frozen_holder(const platform::lock_wait& wait, std::uint32_t turns) noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    machine* m = s.frozen.head;
    if (wait.unnamed == nullptr) {
        while (m != nullptr && !wait.may_be_held_by(m->tid)) m = m->idle_next;
    } else if (m != nullptr) {
        for (std::uint32_t older = s.frozen.size - 1 - turns % s.frozen.size; older != 0; --older) m = m->idle_next;
    }
    if (m != nullptr) waited_for = m;
    s.lock.unlock();
    return m;
}

// Null: the thread is not a machine's.
const machine* machine_of(pid_t tid) noexcept {
    const machine* m = the_scheduler.machines.load(std::memory_order_acquire);
    while (m != nullptr && m->tid != tid) m = m->all_next;
    return m;
}

// The thread's goroutine belongs to an ended run() and is not frozen yet: it sleeps in the kernel, perhaps for a lock.
bool is_left_awake(pid_t tid) noexcept {
    const machine* m = machine_of(tid);
    return m != nullptr && m->condemned.load(std::memory_order_relaxed) && !m->frozen.load(std::memory_order_relaxed);
}

// Follows the holders: one that was left behind while it waited for another lock stops once it has that, and is let go
// then.
suspicion look_at(pid_t waiter, std::int64_t now_ns, unsigned links = 8) noexcept {
    if (waiter == 0) return {};
    platform::lock_wait wait = platform::lock_waited_for(waiter);
    if (may_stop_at(wait.code)) wait.unnamed = nullptr;  // the code that waits is the program's own, or this library's
    if (wait.lock == nullptr) return {};
    suspicion found{nullptr, wait.lock, waiter, wait.unnamed, nullptr, now_ns};
    found.owner = frozen_holder(wait, found.same_wait(to_let_go) ? turns_of_wait : 0);
    if (found.owner != nullptr) return found;
    if (wait.unnamed == nullptr && wait.lock != said_of) found.lost = lost_holder(wait.owners);
    if (found.found()) return found;
    for (const pid_t owner : wait.owners) {
        if (links == 0 || owner <= 0 || owner == waiter || !is_left_awake(owner)) continue;
        return look_at(owner, now_ns, links - 1);
    }
    return {};
}

// False: of no interest as a waiter, since its goroutine belongs to an ended run() (look_at() reaches it if it holds
// something), or since it is inside the runtime, where it waits for no lock of libc; except as its thread begins.
bool may_wait_for_frozen(pid_t tid) noexcept {
    const machine* m = machine_of(tid);
    return m == nullptr || m->registration_state.load(std::memory_order_relaxed) != registration::none ||
        (!m->condemned.load(std::memory_order_relaxed) && m->current.load(std::memory_order_relaxed) != nullptr &&
            m->in_runtime.load(std::memory_order_relaxed) == 0);
}

suspicion find_suspect(std::int64_t now_ns) noexcept {
    const scheduler& s = the_scheduler;
    watch& w = the_watch;
    // The waiter of the last suspect comes before the others: no other suspect may come between two looks at it.
    const pid_t first[] = {static_cast<pid_t>(platform::raw_syscall(SYS_getpid)),
        s.exiting.load(std::memory_order_relaxed), s.runner.load(std::memory_order_relaxed), w.suspect.waiter};
    for (const pid_t tid : first) {
        if (const suspicion found = look_at(tid, now_ns); found.found()) return found;
    }
    platform::thread_ids threads;
    std::size_t passed = 0;
    for (unsigned looks = 0; looks < most_looks; ++passed) {
        const pid_t tid = threads.next();
        if (tid == 0) {
            passed = 0;
            break;
        }
        if (passed < w.looked || !may_wait_for_frozen(tid)) continue;
        ++looks;
        if (const suspicion found = look_at(tid, now_ns); found.found()) return found;
    }
    w.looked = passed;
    return {};
}

const char* name_of_waiter(pid_t tid) noexcept {
    if (tid == platform::raw_syscall(SYS_getpid)) return "the main thread";
    if (tid == the_scheduler.exiting.load(std::memory_order_relaxed)) return "the thread that called exit()";
    if (tid == the_scheduler.runner.load(std::memory_order_relaxed)) return "the thread that called run()";
    const machine* m = machine_of(tid);
    if (m == nullptr) return "a thread of the program";
    return m->registration_state.load(std::memory_order_relaxed) == registration::none ? "a goroutine's thread" : "a new thread";
}

// What is said here is said by the thread maker while a goroutine that stands still may hold any lock of the program's:
// without the heap, and without a long wait for stderr.
constexpr int patience_with_stderr_ms = 100;

void say_that_it_stays_locked(const suspicion& found) noexcept {
    platform::text_writer out(2, patience_with_stderr_ms);
    out << "dunlin: " << name_of_waiter(found.waiter) << " waits for the lock at " << found.lock << ", which ";
    print_identity(out, found.lost);
    out << " held when its run() returned\n    created at ";
    print_where(out, found.lost->created_at, false);
    out << "\n    it stays locked: that goroutine is lost, because it has called this library or because many others were "
           "left behind after it. What to do: have run() wait for what is left (run_options::at_end), or end goroutines "
           "before main returns\n";
}

void say_that_it_goes_on(const suspicion& found) noexcept {
    const goroutine* g = found.owner->current.load(std::memory_order_relaxed);
    if (g == nullptr) return;
    const char* waiter = name_of_waiter(found.waiter);
    platform::text_writer out(2, patience_with_stderr_ms);
    if (found.unnamed != nullptr) {
        out << "dunlin: " << waiter << " waits for the thread that " << found.unnamed << " at " << found.lock
            << ". That may be one that stands still since its run() returned, as ";
        print_identity(out, g);
    } else {
        out << "dunlin: " << waiter << " waits for the lock at " << found.lock << ", which ";
        print_identity(out, g);
        out << " held when its run() returned";
    }
    out << "\n    created at ";
    print_where(out, g->created_at, false);
    out << (found.unnamed != nullptr ? "\n    those go on in turn until the wait ends"
                                     : "\n    it goes on until it has given the lock back");
    out << ". What to do: have run() wait for what is left (run_options::at_end), or end goroutines "
           "before main returns\n";
}

bool still_holds(const suspicion& found) noexcept {
    const platform::lock_wait wait = platform::lock_waited_for(found.waiter);
    if (wait.lock != found.lock) return false;
    return found.unnamed != nullptr ? wait.unnamed == found.unnamed : wait.may_be_held_by(found.owner->tid);
}

// If other threads want the owner's CPU, the owner needs its share of it, or it never gets as far as the unlock. If it
// has the CPU to itself, the kernel may wake the waiter on another idle CPU, too late; not if the owner uses only
// leftover time, because its CPU then counts as idle.
void lower_if_alone(std::int64_t now_ns) noexcept {
    const std::int64_t since_ns = now_ns - (gone_on_until_ns - let_go_ns);
    if (owner_cpu_ns < 0 || since_ns < alone_after_ns) return;
    const std::int64_t used_ns = platform::thread_cpu_ns(gone_on.owner->tid) - owner_cpu_ns;
    owner_cpu_ns = -1;
    if (used_ns > since_ns - since_ns / 4) platform::use_leftover_time(gone_on.owner->tid);
}

}  // namespace

void keep_frozen(machine* m) noexcept {
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    m->frozen.store(true, std::memory_order_release);
    s.frozen.push_back(m);
    s.times_frozen.store(s.times_frozen.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    if (stack::sanitizing || s.frozen.size <= frozen_kept) return;
    machine* oldest = s.frozen.pop_front();
    if (oldest == waited_for) {
        s.frozen.push_back(oldest);
        oldest = s.frozen.pop_front();
    }
    note_lost_holder(oldest->tid, nullptr, oldest->current.load(std::memory_order_relaxed));
    order(oldest, resume_order::end_thread);
}

void freeze_here(machine* m) noexcept {
    scheduler& s = the_scheduler;
    m->in_runtime.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // for the compiler: the store comes before the lock. A
                                                          // machine without a processor has no taker
    s.lock.lock();
    if (!m->condemned.load(std::memory_order_relaxed) || !m->freeze_asked.load(std::memory_order_relaxed)) {
        s.lock.unlock();
        m->in_runtime.store(0, std::memory_order_release);
        return;
    }
    if (goroutine* g = m->current.load(std::memory_order_relaxed)) {
        g->state.store(goroutine_state::frozen, std::memory_order_release);
    }
    m->resume_word.store(resume_order::stay, std::memory_order_relaxed);
    keep_frozen(m);
    s.lock.unlock();
    call_monitor_for_lost();
    std::uint32_t how;
    while ((how = m->resume_word.load(std::memory_order_acquire)) == resume_order::stay) {
        platform::futex_wait(m->resume_word, resume_order::stay);
    }
    if (how == resume_order::end_thread) end_frozen_thread(m);
    m->in_runtime.store(0, std::memory_order_release);
}

void end_frozen_thread(machine* m) noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    m->condemned = false;
    --s.condemned_machines;
    m->frozen.store(false, std::memory_order_relaxed);
    m->freeze_asked.store(false, std::memory_order_relaxed);
    m->detached.store(false, std::memory_order_relaxed);
    m->current.store(nullptr, std::memory_order_relaxed);
    m->leaving = nullptr;
    m->call = {};  // it was stopped on its way to the call
    m->in_thread_call.store(false, std::memory_order_relaxed);  // for the same reason
    // The record will serve another thread.
    m->preempt_asked.store(false, std::memory_order_relaxed);
    m->preempt_later.store(false, std::memory_order_relaxed);
    m->rejects = 0;
    m->unstoppable = 0;
    m->resumed_ns = 0;
    m->slice_used_ns = m->debt_ns = 0;
    m->passed_over = false;
    forget_thread(m);
    s.lock.unlock();
    platform::raw_syscall(SYS_exit, 0);
    __builtin_unreachable();
}

static void hand_to_maker(const suspicion& found) noexcept {
    to_let_go = found;
    letting_go.store(true, std::memory_order_relaxed);
    want_lock_holder_let_go();
}

std::int64_t look_at_frozen(std::int64_t now_ns) noexcept {
    scheduler& s = the_scheduler;
    watch& w = the_watch;
    const std::uint32_t frozen = s.times_frozen.load(std::memory_order_acquire);
    if (frozen == 0) return 0;
    if (frozen != w.frozen) {
        w.frozen = frozen;
        w.wait_ns = first_look_ns;
        w.next_ns = now_ns + first_look_ns;
    }
    if (now_ns < w.next_ns) return w.next_ns;
    const suspicion found = letting_go.load(std::memory_order_acquire) ? suspicion{} : find_suspect(now_ns);
    if (found.lost != nullptr && found.same(w.suspect)) {
        if (now_ns - w.suspect.since_ns >= sure_of_unnamed_ns) {
            said_of = found.lock;
            hand_to_maker(found);
            w.suspect = {};
        }
    } else if (found.owner != nullptr && found.same(w.suspect)) {
        // The first time, an unnamed wait must last longer: it may end by itself. Later it has lasted through another
        // candidate's turn.
        const bool first = found.unnamed != nullptr && !found.same_wait(to_let_go);
        if (now_ns - w.suspect.since_ns >= (first ? sure_of_unnamed_ns : sure_after_ns)) {
            turns_of_wait = found.same_wait(to_let_go) ? turns_of_wait + 1 : 1;
            hand_to_maker(found);
            w.suspect = {};
        }
    } else {
        w.suspect = found;
    }
    const std::int64_t longest = w.looked != 0 ? sure_after_ns : longest_look_ns;
    w.wait_ns = w.suspect.found() ? sure_after_ns : std::min(2 * w.wait_ns, longest);
    w.next_ns = now_ns + w.wait_ns;
    return w.next_ns;
}

void let_lock_holder_go() noexcept {
    scheduler& s = the_scheduler;
    if (to_let_go.lost != nullptr) {  // nothing can be let go
        say_that_it_stays_locked(to_let_go);
        letting_go.store(false, std::memory_order_release);
        call_monitor_for_lost();
        return;
    }
    const bool said = to_let_go.unnamed != nullptr && to_let_go.same_wait(gone_on);
    gone_on = to_let_go;
    if (!said) say_that_it_goes_on(gone_on);
    s.lock.lock();
    const bool there = take_off_list(gone_on.owner);
    if (there) {
        gone_on.owner->frozen.store(false, std::memory_order_relaxed);
        gone_on.owner->freeze_asked.store(false, std::memory_order_relaxed);
        if (gone_on.unnamed == nullptr) gone_on.owner->lowered = true;  // as long as the thread lives
    }
    s.lock.unlock();
    if (!there) {
        letting_go.store(false, std::memory_order_release);
        call_monitor_for_lost();
        return;
    }
    if (gone_on.unnamed == nullptr) platform::give_right_of_way(gone_on.waiter, gone_on.owner->tid);
    owner_cpu_ns = platform::thread_cpu_ns(gone_on.owner->tid);
    order(gone_on.owner, resume_order::without_processor);
    gone_on_until_ns = platform::real_now_ns() + let_go_ns;
}

bool lock_holder_goes_on() noexcept {
    scheduler& s = the_scheduler;
    if (gone_on_until_ns == 0) return false;
    const std::int64_t now_ns = platform::real_now_ns();
    const bool unnamed = gone_on.unnamed != nullptr;
    const bool had_turn = unnamed && platform::thread_cpu_ns(gone_on.owner->tid) - owner_cpu_ns >= let_unnamed_go_ns;
    if (now_ns < gone_on_until_ns && !had_turn && still_holds(gone_on)) {
        if (!unnamed) {
            lower_if_alone(now_ns);
            platform::place_beside(gone_on.waiter, gone_on.owner->tid);
        }
        return true;
    }
    gone_on_until_ns = 0;
    s.lock.lock();
    if (gone_on.owner->condemned) gone_on.owner->freeze_asked.store(true, std::memory_order_release);
    s.lock.unlock();
    letting_go.store(false, std::memory_order_release);
    call_monitor_for_lost();  // the monitor asks the owner to stop again
    return false;
}

}  // namespace dunlin::sched
