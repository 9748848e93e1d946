// os_thread.cpp - lock_os_thread() and what follows from it. Goroutines that wait for a processor in enter_slow() are
// wired to their thread in the same way (wire_until_back()); rules 4 and 6 are not about them.
//
// Rules      1  A wired goroutine runs only on its machine, and that machine runs nothing else.
//            2  When it leaves (parks, yields), its machine gives the processor away and sleeps: wait_for_wired().
//            3  When another machine finds it in a queue, it gives its own processor to the wired machine:
//               hand_to_its_machine().
//            4  When it ends wired, its thread ends with it: whatever it did to the thread is gone. (Go: the same.)
//            5  Threads are never copies of a wired one: all are created by the thread maker (thread_maker.h).
//            6  A waiter that is wired runs no child in place. If a child ends wired in place, the thread ends as well,
//               and the waiter goes on on another thread.
// Source     Go 1.24 runtime/proc.go: LockOSThread, stoplockedm, startlockedm, templateThread. Differs: the main
//            goroutine of run() has no thread of its own.
#include "sched/goroutines/os_thread.h"

#include <memory>
#include <mutex>

#include "platform/futex.h"
#include "platform/thread.h"
#include "sched/data/event_source.h"
#include "sched/goroutines/goroutine.h"
#include "sched/machines/deadlock.h"
#include "sched/machines/event_notice.h"
#include "sched/machines/lost_holders.h"
#include "sched/machines/processor.h"
#include "sched/machines/wake.h"
#include "sched/queues/global_queue.h"

namespace dunlin::inline v0_1::sched {

namespace {

// Gives m's processor to another machine if there is anything to run, else to the idle list.
void give_processor_away(machine* m) noexcept {
    scheduler& s = the_scheduler;
    processor* p = release_processor(m);
    s.lock.lock();
    const bool busy = !s.stopping.load(std::memory_order_relaxed) &&
                      (p->queue.size() != 0 || p->run_next.load(std::memory_order_relaxed) != nullptr ||
                          s.global.size() != 0);
    if (!busy) put_idle_processor(p, false);
    s.lock.unlock();
    if (busy) {
        start_machine(p, false, wake_place::here);
        return;
    }
    retired_for_another();
}

}  // namespace

void lock_os_thread() {
    if (current_machine() == nullptr) return;  // a plain thread always runs the same code
    auto spare = std::make_unique<goroutine_extra>();
    machine* m = enter(current_machine());
    goroutine* self = m->current.load(std::memory_order_relaxed);
    if (!self->extra) self->extra = spare.release();
    if (self->extra->thread_locks++ == 0) {
        self->flags |= goroutine::wired;
        self->extra->wired_to = m;
        m->wired_g = self;
    }
    leave(m);
}

void unlock_os_thread() noexcept {
    machine* m = current_machine();
    if (m == nullptr) return;
    m = enter(m);
    goroutine* self = m->current.load(std::memory_order_relaxed);
    if (self->extra && self->extra->thread_locks != 0 && --self->extra->thread_locks == 0) {
        self->flags &= static_cast<std::uint8_t>(~goroutine::wired);
        self->extra->wired_to = nullptr;
        m->wired_g = nullptr;
    }
    leave(m);
}

void wire_until_back(machine* m, goroutine* self) noexcept {
    the_scheduler.lock.assert_held();
    if (self->extra == nullptr) self->extra = &m->for_return;
    self->extra->wired_to = m;
    self->flags |= goroutine::wired;
    m->wired_g = self;
}

void unwire(machine* m, goroutine* self) noexcept {
    assert_inside(m);
    m->wired_g = nullptr;
    self->flags &= static_cast<std::uint8_t>(~goroutine::wired);
    self->extra->wired_to = nullptr;
    if (self->extra == &m->for_return) self->extra = nullptr;
}

goroutine* wait_for_wired(machine* m) noexcept {
    scheduler& s = the_scheduler;
    // The goroutine that the wired one chose when it left cannot run here.
    if (goroutine* chosen = m->next) {
        m->next = nullptr;
        put_run_next(processor_of(m), chosen);
    }
    if (m->p.load(std::memory_order_relaxed) != nullptr) give_processor_away(m);
    s.lock.lock();
    ++s.wired_machines_waiting;
    check_for_deadlock();
    s.lock.unlock();
    while (m->wake_word.load(std::memory_order_acquire) == 0) platform::futex_wait(m->wake_word, 0);
    m->wake_word.store(0, std::memory_order_relaxed);
    processor* p = m->handed_p;
    m->handed_p = nullptr;
    if (p == nullptr) return nullptr;
    give(p, m);
    return m->wired_g;
}

void hand_to_its_machine(machine* m, goroutine* g) noexcept {
    scheduler& s = the_scheduler;
    machine* its = g->extra->wired_to;
    // The wired machine may still be on its way to sleep: its wake word keeps the message.
    processor* p = release_processor(m);
    s.lock.lock();
    // may be -1 until that machine has counted itself as waiting: this is right, since it is to run then
    --s.wired_machines_waiting;
    s.lock.unlock();
    its->handed_p = p;
    its->wake_word.store(1, std::memory_order_release);
    platform::futex_wake(its->wake_word);
}

std::uint32_t machines_to_end() noexcept {
    scheduler& s = the_scheduler;
    std::uint32_t count = 0;
    const std::scoped_lock guard(s.lock);
    for (const machine* m = s.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
        if (!m->ended && (m->must_end || m->dismissed)) ++count;
    }
    return count;
}

void end_machine(machine* m) noexcept {
    scheduler& s = the_scheduler;
    // First: once the processor is given away, the end of run() no longer waits for this thread, so stop_at_exit() must
    // be able to see it.
    platform::begin_thread_end();
    if (m->p.load(std::memory_order_relaxed) != nullptr) give_processor_away(m);
    s.lock.lock();
    forget_thread(m);
    s.lock.unlock();
}

void dismiss_wired_machines() noexcept {
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    for (machine* m = s.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
        if (m->ended || m->must_end || m->dismissed || m->condemned || m->wired_g == nullptr) continue;
        if (m->wired_g->independent()) continue;  // it goes on
        note_lost_holder(m->tid, nullptr, m->wired_g);
        if (m->wired_g->extra == &m->for_return) m->wired_g->extra = nullptr;  // the record will serve another thread
        m->dismissed = true;
        --s.wired_machines_waiting;
        m->handed_p = nullptr;
        m->wake_word.store(1, std::memory_order_release);
        platform::futex_wake(m->wake_word);
    }
}

}  // namespace dunlin::sched
