#include "sched/machines/preempted.h"

#include "platform/futex.h"
#include "platform/thread.h"
#include "sched/machines/handshake.h"
#include "sched/machines/processor.h"
#include "sched/machines/wake.h"

namespace dunlin::inline v0_1::sched {

namespace {

// With as many processors as CPUs, the kernel starts a woken thread where it slept even if another thread runs there,
// and leaves another CPU idle for up to a millisecond.
bool cpus_are_scarce(const scheduler& s) noexcept {
    return s.max_procs.load(std::memory_order_relaxed) >= s.cpus.load(std::memory_order_relaxed);
}

}  // namespace

// No machine is passed over twice.
machine* pop_preempted(scheduler& s, int cpu) noexcept {
    s.lock.assert_held();
    machine* m = s.preempted.pop_front();
    if (m == nullptr) return nullptr;
    machine* second = s.preempted.head;
    if (second != nullptr && m->slice_used_ns == 0 && m->slept_on_cpu != cpu && second->slept_on_cpu == cpu &&
        !m->passed_over && cpus_are_scarce(s)) {
        m->passed_over = true;
        s.preempted.pop_front();
        s.preempted.push_front(m);
        m = second;
    }
    // Each missed turn makes a debt smaller, so this loop ends.
    while (m->debt_ns >= slice_ns && s.preempted.size != 0) {
        m->debt_ns -= slice_ns;
        s.preempted.push_back(m);
        m = s.preempted.pop_front();
    }
    m->passed_over = false;
    preempted_changed(s);
    s.preempted_since_ns = s.coarse_now_ns.load(std::memory_order_relaxed);
    return m;
}

namespace {

// Takes the machine whose turn it is off the queue. Null: there is none, or the world stops and no machine has a turn.
machine* take_next_in_turn(int cpu) noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    machine* m = s.stopping.load(std::memory_order_relaxed) ? nullptr : pop_preempted(s, cpu);
    s.lock.unlock();
    return m;
}

void resume(machine* m, processor* p) noexcept {
    p->slice_used_ns = m->slice_used_ns;
    // The goroutines that wait for p were next to have a slice. This turn does not begin one for a chain among them, if
    // m's goroutine leaves early.
    const bool others = has_local_work(p) || the_scheduler.global_size() != 0;
    p->slice.store(others ? slice_state::over : slice_state::goes_on, std::memory_order_relaxed);
    advance_tick(p);
    m->handed_p = p;
    // Release publishes handed_p and what the processor's last owner did; pairs with the acquire in sleep_preempted().
    m->resume_word.store(resume_order::with_processor, std::memory_order_release);
    platform::futex_wake(m->resume_word);
}

}  // namespace

const machine* resume_one_with(processor* p, int cpu) noexcept {
    machine* m = take_next_in_turn(cpu);
    if (m != nullptr) resume(m, p);
    return m;
}

bool give_turn_to_preempted(machine* m) noexcept {
    machine* next = take_next_in_turn(platform::current_cpu());
    if (next == nullptr) return false;
    wake_if_idle();  // m does not come to its own run_next now (wake.h, Left out)
    resume(next, release_processor(m));
    return true;
}

}  // namespace dunlin::sched
