// blocking.cpp - see blocking.h.
//
// Problem    A call may take 100 ns or a second, and which is not known beforehand. Handing the processor on costs 5 to
//            10 us and a thread's wake-up; keeping it costs the other goroutines the whole time of the call.
// Protocol   begin   the goroutine notes that it is in such a call (its wait reason, and the machine's blocking_tick)
//                    and leaves the runtime with its processor, which the monitor takes if the call lasts
//                    (retake.cpp). So a short call costs only a few stores. Where calls have lasted before (score),
//                    and a goroutine waits, the processor is handed on at once.
//            end     enter(): the processor is still here, or the goroutine gets another, or queues
//                    (reenter.cpp). The goroutine gives way here if its slice is over (preempt_later): the
//                    monitor never takes a processor from an endless series of short calls.
// Score      0 to 4 for each place. 0: there has been no call. If a goroutine waits, the first call calls the monitor,
//            which would find the call only in its next round, up to a millisecond later. 1: no call has lasted yet,
//            and none is timed. When the monitor has taken the processor from a call it notes the place (slow_place),
//            and the next call there, or the end of this one, makes the score 3: so a hundred goroutines that look up a
//            name do not each wait for the monitor. Above 1 calls are timed: two up if the call took at least
//            worth_handing_on_ns, one down if not. From 3 on the processor is handed on at once.
// Source     Go 1.24 runtime/proc.go, entersyscall, entersyscallblock, exitsyscall. Differs: Go's runtime knows which
//            calls block; here each place learns it.
#include "sched/goroutines/blocking.h"

#include <dunlin/detail/atomic.hpp>

#include <algorithm>

#include "platform/clock.h"
#include "sched/data/bells.h"
#include "sched/data/steering.h"
#include "sched/goroutines/goroutine.h"
#include "sched/goroutines/yield.h"
#include "sched/machines/processor.h"
#include "sched/machines/trace.h"
#include "sched/machines/wake.h"

namespace dunlin::inline v0_1::sched {

namespace {

constexpr unsigned char never_called = 0, none_has_lasted = 1, hand_on_from = 3, highest = 4;
// More than the 5 to 10 us that handing on costs this thread: the woken thread begins to run only tens of microseconds
// later (wake.h), and a call that is over by then has gained nothing by it.
constexpr std::int64_t worth_handing_on_ns = 30'000;

bool work_waits_for(const processor* p) noexcept {
    const scheduler& s = the_scheduler;
    return p->run_next.load(std::memory_order_relaxed) != nullptr || p->queue.size() != 0 || s.global_size() != 0 ||
           s.preempted_size.load(std::memory_order_relaxed) != 0;
}

// From here on the thread is without a processor, as if the monitor had taken it: the next enter() finds `taken`.
void hand_on_at_once(machine* m) noexcept {
    processor* p = release_processor(m);
    m->taken.store(1, std::memory_order_relaxed);
    p->counts.hand_offs.add();
    if (spare_machines() < 2) want_spare_machine();  // in time for the next call
    offer_processor(p);
}

void learn(platform::atomic<unsigned char>& score, bool lasted) noexcept {
    const unsigned char before = score.load(std::memory_order_relaxed);
    const int after = lasted ? std::min<int>(std::max(before, none_has_lasted) + 2, highest)
        : std::max<int>(before - 1, none_has_lasted);
    if (after != before) score.store(static_cast<unsigned char>(after), std::memory_order_relaxed);
}

void learn_from_monitor(platform::atomic<unsigned char>& score) noexcept {
    the_scheduler.slow_place.store(nullptr, std::memory_order_relaxed);
    if (score.load(std::memory_order_relaxed) <= none_has_lasted) learn(score, true);
}

// If a call began before the trace, only its end is noted: the list of goroutines at the beginning of the trace shows
// this one in a call.
[[gnu::noinline, gnu::cold]] void note_if_traced(machine* m, tracing::kind what, const goroutine* self) noexcept {
    if (tracing::on()) tracing::note(m, what, self);
}

}  // namespace

blocking_entry begin_blocking(platform::atomic<unsigned char>& score) noexcept {
    blocking_entry entry;
    machine* m = current_machine();
    if (m == nullptr) return entry;
    if (steering* s = steered()) [[unlikely]] {
        s->begin_call();
        entry.began_ns = blocking_entry::steered;
        return entry;
    }
    m = enter(m);
    processor* p = processor_of(m);
    goroutine* self = m->current.load(std::memory_order_relaxed);
    entry.reason_before = self->reason.load(std::memory_order_relaxed);
    self->waits_since_ns = the_scheduler.coarse_now_ns.load(std::memory_order_relaxed);
    m->blocking_tick = m->blocking_tick + 1;
    m->blocking_place = &score;
    self->reason.store(wait_reason::blocking_call, std::memory_order_relaxed);
    p->counts.blocking_calls.add();
    if (DUNLIN_UNLIKELY(self->marks.traced())) note_if_traced(m, tracing::kind::call, self);
    if (DUNLIN_UNLIKELY(the_scheduler.slow_place.load(std::memory_order_relaxed) == &score)) learn_from_monitor(score);
    if (const unsigned char lasts = score.load(std::memory_order_relaxed); DUNLIN_UNLIKELY(lasts != none_has_lasted)) {
        if (lasts == never_called) {
            unsigned char expected = never_called;
            // this fails if another call has learnt from the monitor meanwhile
            score.compare_exchange_strong(expected, none_has_lasted, std::memory_order_relaxed);
            if (work_waits_for(p)) hurry_monitor();
        } else {
            entry.began_ns = platform::real_now_ns();
            if (lasts >= hand_on_from && work_waits_for(p) && m->wired_g == nullptr) hand_on_at_once(m);
        }
    }
    leave(m);
    return entry;
}

void end_blocking(platform::atomic<unsigned char>& score, const blocking_entry& entry) noexcept {
    machine* m = current_machine();
    if (m == nullptr) return;
    // Learn before the goroutine queues for a processor, which may take long: others make calls at this place
    // meanwhile.
    if (DUNLIN_UNLIKELY(entry.began_ns != 0)) {
        if (entry.began_ns == blocking_entry::steered) {
            if (steering* s = steered()) s->end_call();
            return;
        }
        learn(score, platform::real_now_ns() - entry.began_ns >= worth_handing_on_ns);
    } else if (DUNLIN_UNLIKELY(the_scheduler.slow_place.load(std::memory_order_relaxed) == &score)) {
        learn_from_monitor(score);
    }
    goroutine* self = m->current.load(std::memory_order_relaxed);
    self->reason.store(entry.reason_before, std::memory_order_relaxed);
    m = enter_from_call(m);
    if (DUNLIN_UNLIKELY(self->marks.traced())) note_if_traced(m, tracing::kind::call_end, self);
    const bool slice_is_over = is_asked(m) ||
        (m->preempt_later.load(std::memory_order_relaxed) && !(self->flags & goroutine::pinned));
    if (DUNLIN_UNLIKELY(slice_is_over)) {
        m->asked.store(nullptr, std::memory_order_relaxed);
        m->preempt_later.store(false, std::memory_order_relaxed);
    }
    leave(m);
    if (DUNLIN_UNLIKELY(slice_is_over)) yield();
}

bool begin_no_preempt() noexcept {
    machine* m = current_machine();
    if (m == nullptr) return false;
    m = enter(m);
    goroutine* self = m->current.load(std::memory_order_relaxed);
    const bool outermost = !(self->flags & goroutine::pinned);
    self->flags |= goroutine::pinned;
    leave(m);
    return outermost;
}

void end_no_preempt() noexcept {
    machine* m = enter(current_machine());
    goroutine* self = m->current.load(std::memory_order_relaxed);
    self->flags &= static_cast<std::uint8_t>(~goroutine::pinned);
    const bool others_have_waited = m->preempt_later.load(std::memory_order_relaxed);
    if (others_have_waited) m->preempt_later.store(false, std::memory_order_relaxed);
    leave(m);
    if (others_have_waited) yield();
}

}  // namespace dunlin::sched
