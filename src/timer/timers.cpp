#include "timer/timers.h"

#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/usable.h"
#include "sched/machines/event_notice.h"

namespace dunlin::inline v0_1::timers {

namespace {

timer_heap& heap_of(const sched::processor* p) noexcept { return *static_cast<timer_heap*>(p->events); }

struct sleeper : timer_entry {
    park::waiter waiter;
};

// A call that fires timers cannot be preempted, and the world waits for its end. A timer takes 0.2 to 1 us.
constexpr unsigned most_at_once = 128;

void end_sleep(timer_entry* t) noexcept { static_cast<sleeper*>(t)->waiter.wake(); }

}  // namespace

void* timer_events::make_events() { return new timer_heap; }

unsigned timer_events::collect(sched::processor* p, std::int64_t now_ns) noexcept {
    timer_heap& heap = heap_of(p);
    unsigned count = 0;
    sched::machine* m = DUNLIN_UNLIKELY(sched::tracing::on()) ? sched::current_machine() : nullptr;
    const sched::tracing::because time_has_come(m, sched::tracing::cause::timer);
    for (timer_entry* t; count < most_at_once && (t = heap.take_due(now_ns)) != nullptr; ++count) t->fire(t);
    if (m != nullptr && count != 0) {
        sched::tracing::note_processor(m, sched::tracing::kind::timers, sched::processor_of(m), count);
    }
    return count;
}

std::int64_t timer_events::next_deadline(const sched::processor* p) const noexcept { return heap_of(p).earliest(); }

void timer_events::move(sched::processor* from, sched::processor* to) noexcept {
    heap_of(from).move_all_to(heap_of(to));
}

void timer_events::wait(std::int64_t deadline_ns) noexcept {
    const std::int64_t until_ns = deadline_ns != 0 ? deadline_ns : platform::no_deadline;
    // One interrupt ends one wait. It may come before the wait begins: the word keeps it.
    while (interrupted_.load(std::memory_order_acquire) == 0) {
        if (!platform::futex_wait_until(interrupted_, 0, until_ns)) break;
    }
    interrupted_.store(0, std::memory_order_relaxed);
}

void timer_events::interrupt() noexcept {
    if (interrupted_.exchange(1, std::memory_order_release) == 0) platform::futex_wake(interrupted_);
}

void timer_events::forget_all() noexcept {
    const sched::scheduler& s = sched::the_scheduler;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) heap_of(s.processor_at(i)).forget();
}

void forget_everything() noexcept {
    const sched::scheduler& s = sched::the_scheduler;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) heap_of(s.processor_at(i)).forget_everything();
}

void arm(timer_entry* t, sched::machine* m) {
    if (m == nullptr) platform::check_usable();
    // A goroutine is inside the runtime, so the world does not stop before it leaves, and its processor's heap stays
    // where it is. A plain thread uses the heap of the first processor, which always exists and is never moved.
    const sched::processor* p = m != nullptr ? sched::processor_of(m) : sched::the_scheduler.processor_at(0);
    const std::int64_t when_ns = t->when_ns;  // afterwards it may have fired, and be gone
    if (heap_of(p).insert(t)) sched::timer_added(when_ns);
}

void sleep_until_ns(std::int64_t deadline_ns, const std::source_location& where) {
    if (deadline_ns <= platform::now_ns()) return;
    sleeper s;
    if (s.waiter.goroutine() == nullptr) {
        while (!s.waiter.wait_on_thread_until(deadline_ns) && platform::now_ns() < deadline_ns) {
        }
        return;
    }
    s.when_ns = deadline_ns;
    s.fire = end_sleep;
    s.ends_with_run = !s.waiter.goroutine()->independent();
    s.waiter.enter();
    s.waiter.prepare(sched::wait_reason::sleep, where);
    // From here on the timer may fire at any moment; `s` lives until this call returns.
    try {
        arm(&s, s.waiter.machine());
    } catch (...) {
        s.waiter.withdraw();
        s.waiter.leave();
        throw;
    }
    s.waiter.wait();
}

namespace {

// A deadline competes for the waiter as any other node does. It is claimed under the heap's lock: after cancel() either
// this thread alone has the entry, or the deadline has won.
struct deadline_entry : timer_entry {
    park::wait_node node;
};

bool claim_deadline(timer_entry* t) noexcept { return static_cast<deadline_entry*>(t)->node.claim(); }
void fire_deadline(timer_entry* t) noexcept { static_cast<deadline_entry*>(t)->node.owner->wake(); }

wake_cause wait_on_thread(park::waiter& w, std::int64_t deadline_ns) noexcept {
    if (w.wait_on_thread_until(deadline_ns)) return wake_cause::woken;
    park::wait_node deadline(&w);
    if (w.decide(&deadline)) return wake_cause::deadline;
    w.wait();  // a waker was quicker, and is about to wake w
    return wake_cause::woken;
}

}  // namespace

wake_cause wait_until(park::waiter& w, std::int64_t deadline_ns) noexcept {
    if (deadline_ns == never_ns) {
        w.wait();
        return wake_cause::woken;
    }
    if (w.goroutine() == nullptr) return wait_on_thread(w, deadline_ns);
    deadline_entry d;
    d.when_ns = deadline_ns;
    d.claim = claim_deadline;
    d.fire = fire_deadline;
    d.ends_with_run = !w.goroutine()->independent();
    d.node.owner = &w;
    d.node.several = true;
    bool armed = true;
    try {
        arm(&d, w.machine());
    } catch (...) {
        armed = false;
    }
    if (!armed && w.decide(&d.node)) {
        w.withdraw();
        w.leave();
        return wake_cause::no_memory;
    }
    w.wait();
    if (w.decided() == &d.node) return wake_cause::deadline;
    if (armed) {
        park::runtime_section inside;
        cancel(&d);
    }
    return wake_cause::woken;
}

}  // namespace dunlin::timers
