#include "sched/goroutines/yield.h"

#include "platform/membarrier.h"
#include "platform/thread.h"
#include "sched/goroutines/switch.h"
#include "sched/machines/trace.h"
#include "sched/queues/global_queue.h"

namespace dunlin::inline v0_1::sched {

namespace {

// A goroutine that yields goes to the tail of the local queue, and every eighth time to the tail of the global one. Go
// always uses the global queue. A processor would then take the scheduler lock for each yield, and several would
// contend for it (77 ns a yield at P = 2). The local queue is as fair among the goroutines in it, and every eighth
// yield lets the oldest of the global queue run, so that those have their turns too. find_local() gives the guarantee
// for the global queue (every 61st tick).
constexpr std::uint64_t yields_per_exchange = 8;

// No other goroutine is runnable here. (Work on other processors is left to them, or to an idle machine.)
[[gnu::noinline]] void yield_alone(machine* m, processor* p) noexcept {
    advance_tick(p);
    leave(m);
}

// Puts self at the tail of the global queue and returns the goroutine at its head, to run. Null: other processors have
// taken all of them, self included.
[[gnu::noinline]] goroutine* exchange_with_global(processor* p, goroutine* self) noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    goroutine* oldest = s.global.exchange(self);
    s.lock.unlock();
    p->counts.global_hits.add();
    advance_tick(p);
    return oldest != nullptr ? oldest : take_global(p);
}

// Queues self and chooses the goroutine that runs instead (null: none is left, since another processor was quicker, or
// find_work() has to choose). False: there was none, and self still runs.
[[gnu::always_inline]] inline bool give_way(machine* m, processor* p, goroutine* self, goroutine*& next) noexcept {
    self->saved.store(0, std::memory_order_relaxed);
    transition<goroutine_state::running, goroutine_state::runnable>(self->state);
    if (DUNLIN_UNLIKELY(turn_of_preempted(p))) {
        push_local(p, self);
        next = nullptr;
        return true;
    }
    const bool others = the_scheduler.global_size() != 0;
    if (others && p->counts.yields.get() % yields_per_exchange == 0 &&
        p->run_next.load(std::memory_order_relaxed) == nullptr) {
        next = exchange_with_global(p, self);
        return true;
    }
    if (may_rotate(p) && (next = p->queue.rotate(self)) != nullptr) return true;
    next = find_local(m, p);
    if (next != nullptr || DUNLIN_UNLIKELY(find_work_is_due(p))) {
        push_local(p, self);
        return true;
    }
    if (others) {
        next = exchange_with_global(p, self);
        return true;
    }
    transition<goroutine_state::runnable, goroutine_state::running>(self->state);
    return false;
}

// self is already queued, and another machine may be waiting until it has left.
[[gnu::noinline, gnu::cold]] void note_yield(machine* m, const goroutine* self) noexcept {
    if (tracing::on()) tracing::note(m, tracing::kind::yield, self);
}

}  // namespace

void yield() noexcept {
    machine* m = current_machine();
    if (m == nullptr) {
        platform::give_turn_away();
        return;
    }
    m = enter(m);
    processor* p = processor_of(m);
    goroutine* self = m->current.load(std::memory_order_relaxed);
    p->counts.yields.add();
    if (DUNLIN_UNLIKELY(the_scheduler.stopping.load(std::memory_order_relaxed))) {
        leave(requeue(m, self));
        return;
    }
    goroutine* next = nullptr;
    if (!give_way(m, p, self, next)) {
        yield_alone(m, p);
        return;
    }
    submit_barrier();
    wake_if_idle();
    if (DUNLIN_UNLIKELY(self->marks.traced()) && next != self) note_yield(m, self);
    if (next == self) {
        transition<goroutine_state::runnable, goroutine_state::running>(self->state);
    } else {
        m = switch_away(m, self, next);
    }
    leave(m);
}

}  // namespace dunlin::sched
