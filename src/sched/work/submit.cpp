#include "sched/work/submit.h"

#include <utility>

#include "platform/membarrier.h"
#include "sched/data/current.h"
#include "sched/machines/trace.h"
#include "sched/machines/turns.h"
#include "sched/machines/waits.h"
#include "sched/queues/global_queue.h"
#include "sched/queues/run_queue_prefetch.h"

namespace dunlin::inline v0_1::sched {

void push_global(goroutine_list& list) noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    s.global.push_back(list);
    s.lock.unlock();
}

void push_global(goroutine* g) noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    s.global.push_back(g);
    s.lock.unlock();
}

[[gnu::noinline]] static void overflow(processor* p, goroutine* g) noexcept {
    goroutine* half[run_queue::capacity / 2];
    const std::uint32_t taken = p->queue.take_half(half);
    scheduler& s = the_scheduler;
    s.lock.lock();
    s.global.push_back(half, taken, g);
    s.lock.unlock();
    p->counts.overflows.add();
}

void push_local(processor* p, goroutine* g) noexcept {
    assert_owner(p);
    if (DUNLIN_UNLIKELY(!p->queue.push(g))) overflow(p, g);
}

namespace {

// `self` has readied g. If self is expected to park soon, g is left to this processor, in run_next. If self is expected
// to go on, g goes into the queue, for any processor: a thief would have to wait before it takes a run_next, and then
// interrupt the owner.
void push_in_long_turn(processor* p, goroutine* g, const goroutine* self) noexcept {
    if (self == nullptr || self->marks.lingers() == 0) {
        goroutine* before = exchange_run_next(p, g);
        submit_barrier();
        defer_wake(p);
        if (before == nullptr) return;
        g = before;
    }
    note_long_turn(p, short_turn_ns);  // the queue is for others too
    push_local(p, g);
    submit_barrier();
    wake_if_idle();
}

}  // namespace

bool push_with_a_look(processor* p, goroutine* g) noexcept {
    machine* m = current_machine();
    if (DUNLIN_UNLIKELY(tracing::looks())) {
        tracing::note_runnable(m, g);
        if (!p->looks_at_turns) return false;
    }
    goroutine* self = m->current.load(std::memory_order_relaxed);
    if (has_short_turns(p) && (self == nullptr || self->marks.lingers() == 0)) {
        if (const std::uint64_t turns = turns_to_stamp_for(p); turns != 0) stamp(g, turns);
        p->look_at_push(false);
        return false;
    }
    const bool others_free = the_scheduler.idle_and_spinning.load(std::memory_order_relaxed) != 0;
    if (const std::uint32_t stands_for = note_readying(p, self, others_free)) stamp(g, stands_for);
    if (!others_free || m->chooses) return false;
    push_in_long_turn(p, g, self);
    return true;
}

void push_out_of_run_next(processor* p, goroutine* before) noexcept {
    const bool for_any_processor = before->stack == nullptr || p->queue.size() >= short_queue;
    push_local(p, before);
    submit_barrier();
    if (for_any_processor) {
        wake_if_idle();
    } else {
        wake_for_run_next(p);
    }
}

}  // namespace dunlin::sched
