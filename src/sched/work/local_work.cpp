#include "sched/work/local_work.h"

#include <utility>

#include "platform/clock.h"
#include "platform/membarrier.h"
#include "sched/data/bells.h"
#include "sched/data/current.h"
#include "sched/data/event_source.h"
#include "sched/data/steering.h"
#include "sched/machines/turns.h"
#include "sched/machines/wake.h"
#include "sched/queues/global_queue.h"
#include "sched/queues/run_queue_prefetch.h"
#include "sched/work/submit.h"

namespace dunlin::inline v0_1::sched {

namespace {

constexpr std::int64_t poll_every_ns = 1'000'000;

[[gnu::noinline]] goroutine* take_one_global(processor* p) noexcept {
    scheduler& s = the_scheduler;
    s.lock.lock();
    goroutine* g = s.global.pop_front();
    s.lock.unlock();
    if (g) {
        advance_tick(p);
        p->counts.global_hits.add();
        p->counts.global_tick_hits.add();
    }
    return g;
}

// A processor that always has something to run never comes to poll (step 5). True: polling is due. find_work() does it,
// on the scheduler's stack.
[[gnu::noinline]] bool must_poll(processor* p, std::uint32_t tick) noexcept {
    const scheduler& s = the_scheduler;
    p->looked_at_tick = tick;  // the tick stands still while goroutines ready each other
    const std::int64_t now = platform::now_ns();
    if (now < p->next_poll_ns) return false;
    p->next_poll_ns = now + poll_every_ns;
    const std::uint64_t polls = s.polls.load(std::memory_order_relaxed);
    if (std::exchange(p->polls_seen, polls) != polls) return false;
    p->poll_first = s.poller_claimed.load(std::memory_order_relaxed) == 0 && s.events->has_waiters();
    return p->poll_first;
}

// The slice is over. `chain`, if not null, is the goroutine last readied by goroutines that ready each other and have
// used up their time. It queues like all others, behind p's whole share of the global queue: if only one goroutine were
// taken from there in each slice, a thousand would wait for ten seconds. Only one is taken if joins have run children
// in place in this slice, unless it was a chain's: the share behind the youngest child would keep them from that
// (must_look_around).
[[gnu::noinline]] goroutine* begin_slice(processor* p, goroutine* chain) noexcept {
    const std::uint64_t joins = p->counts.in_place_joins.get();
    const bool joins_look_there = std::exchange(p->joins_before_slice, joins) != joins;
    p->slice.store(slice_state::goes_on, std::memory_order_relaxed);
    advance_tick(p);
    goroutine* g = nullptr;
    // Where each goroutine computes for a slice, neither queue is to wait until the other one is empty.
    const bool local_queues_turn = std::exchange(p->global_had_slice, false) && p->queue.size() != 0;
    if (!local_queues_turn && the_scheduler.global_size() != 0) {
        g = chain == nullptr && joins_look_there ? take_one_global(p) : take_global(p);
        p->global_had_slice = g != nullptr;
    }
    if (chain != nullptr) {
        push_local(p, chain);
        submit_barrier();  // S2 of wake.h: without it an idle processor may be missed, and the chain would wait for
                           // this one
        wake_if_idle();
    }
    if (g != nullptr) return g;
    g = p->queue.pop_and_prefetch();
    if (g) advance_tick(p);
    return g;
}

}  // namespace

// m comes to its own run_next at once (wake.h, Left out).
unsigned collect_before_choosing(machine* m, processor* from, std::int64_t now) noexcept {
    m->chooses = true;
    const unsigned count = the_scheduler.events->collect(from, now);
    m->chooses = false;
    return count;
}

[[gnu::noinline]] bool look_at_events(processor* p, bool chooses) noexcept {
    if (the_scheduler.stopping.load(std::memory_order_relaxed)) return false;
    if (steered() != nullptr) return true;
    p->events_due.store(false, std::memory_order_relaxed);
    event_source* events = the_scheduler.events;
    const std::int64_t deadline = events->next_deadline(p);
    if (deadline == 0) return true;
    const std::int64_t now = platform::now_ns();
    if (now < deadline) return true;
    if (chooses) {
        collect_before_choosing(current_machine(), p, now);
    } else {
        events->collect(p, now);
    }
    // If more are due, they follow the goroutines that are in the queue now.
    const std::int64_t next = events->next_deadline(p);
    if (next != 0 && next <= now) p->next_look = p->counts.switches.get() + p->queue.size();
    return true;
}

goroutine* find_local(machine* m, processor* p) noexcept {
    assert_owner(p);
    const std::uint32_t tick = p->tick.load(std::memory_order_relaxed);
    if (DUNLIN_UNLIKELY(tick % global_tick == 0)) {
        if (p->looked_at_tick != tick && must_poll(p, tick)) return nullptr;
        if (the_scheduler.global_size() != 0 && !the_scheduler.stopping.load(std::memory_order_relaxed) &&
            !turn_of_preempted(p)) {
            if (goroutine* g = take_one_global(p)) return g;
        }
    }
    const std::uint64_t executed = p->counts.switches.get();
    p->counts.switches.add();
    if (DUNLIN_UNLIKELY(executed >= p->next_look || p->events_due.load(std::memory_order_relaxed))) {
        if (steering* s = steered()) return s->choose(m, p);
        look_at_turns(p, m);
        p->next_look = executed + (looks_at_each_turn(p) ? 1 : look_at_events_every);
        if (!look_at_events(p, true)) return nullptr;
    }
    const slice_state slice = p->slice.load(std::memory_order_relaxed);
    if (DUNLIN_UNLIKELY(slice == slice_state::preempted_turn)) return nullptr;  // find_work() gives the turn to a
                                                                                // preempted goroutine
    if (goroutine* g = p->run_next.load(std::memory_order_relaxed)) {
        p->run_next.store(nullptr, std::memory_order_relaxed);
        if (DUNLIN_LIKELY(slice != slice_state::run_next_had_turn)) {
            if (DUNLIN_UNLIKELY(slice == slice_state::over)) {
                p->slice.store(slice_state::run_next_had_turn, std::memory_order_relaxed);
            }
            p->counts.run_next_hits.add();
            return g;
        }
        return begin_slice(p, g);
    }
    if (DUNLIN_UNLIKELY(slice != slice_state::goes_on)) return begin_slice(p, nullptr);
    goroutine* g = p->queue.pop_and_prefetch();
    if (g) advance_tick(p);
    return g;
}

bool may_rotate(processor* p) noexcept {
    assert_owner(p);
    const std::uint32_t tick = p->tick.load(std::memory_order_relaxed);
    const std::uint64_t executed = p->counts.switches.get();
    if (executed >= p->next_look || p->run_next.load(std::memory_order_relaxed) != nullptr ||
        p->events_due.load(std::memory_order_relaxed) ||
            p->slice.load(std::memory_order_relaxed) != slice_state::goes_on ||
        (the_scheduler.global_size() != 0 && tick % global_tick == 0)) {
        return false;
    }
    p->counts.switches.add();
    p->tick.store(tick + 1, std::memory_order_relaxed);
    return true;
}

bool look_around(processor* p) noexcept {
    look_at_turns(p, nullptr);
    return !look_at_events(p, false);
}

// The processors that share the global queue. One that is idle comes for its share soon, unless there is no thread for
// it.
static std::uint32_t sharers() noexcept {
    const scheduler& s = the_scheduler;
    const std::uint32_t procs = s.max_procs.load(std::memory_order_relaxed);
    if (DUNLIN_LIKELY(!last_thread_failed())) return procs;
    const std::uint32_t idle = idle_count(s.idle_and_spinning.load(std::memory_order_relaxed));
    return idle < procs ? procs - idle : 1;
}

goroutine* take_global(processor* p) noexcept {
    assert_owner(p);
    scheduler& s = the_scheduler;
    goroutine* batch[global_batch_max];
    s.lock.lock();
    const std::size_t size = s.global.size();
    std::size_t want = size / sharers() + 1;
    want = want < size ? want : size;
    // The rest of the batch goes into the local queue, which the caller has found empty or nearly so.
    const std::size_t room = run_queue::capacity - p->queue.size();
    const std::size_t limit = room < global_batch_max ? room + 1 : global_batch_max;
    if (want > limit) want = limit;
    s.global.pop_front(batch, want);
    s.lock.unlock();
    const std::size_t got = want;
    if (got == 0) return nullptr;
    current_machine()->trace.fresh = 0;  // another thread made the goroutine runnable, perhaps after the last one had
                                         // left
    advance_tick(p);
    p->counts.global_hits.add();
    p->counts.global_batches.add();
    if (got > 1) {
        p->queue.push_all(batch + 1, static_cast<std::uint32_t>(got - 1));
        wake_if_idle();
    }
    return batch[0];
}

}  // namespace dunlin::sched
