#include "timer/timers.h"

#include "park/waiter.h"
#include "platform/clock.h"
#include "platform/futex.h"

namespace dunlin::timer {

namespace {

timer_heap& heap_of(const sched::processor* p) noexcept { return *static_cast<timer_heap*>(p->events); }

struct sleeper : timer_entry {
    park::waiter waiter;
};

void end_sleep(timer_entry* t) noexcept { static_cast<sleeper*>(t)->waiter.wake(); }

}  // namespace

void* timer_events::make_events() { return new timer_heap; }

unsigned timer_events::collect(sched::processor* p, std::int64_t now_ns) noexcept {
    timer_heap& heap = heap_of(p);
    unsigned count = 0;
    while (timer_entry* t = heap.take_due(now_ns)) {
        t->fire(t);
        ++count;
    }
    return count;
}

std::int64_t timer_events::next_deadline(const sched::processor* p) const noexcept { return heap_of(p).earliest(); }

void timer_events::move(sched::processor* from, sched::processor* to) noexcept { heap_of(from).move_all_to(heap_of(to)); }

void timer_events::wait(std::int64_t deadline_ns) noexcept {
    // One interrupt ends one wait. It may come before the wait begins: the word keeps it.
    while (interrupted_.load(std::memory_order_acquire) == 0) {
        if (!platform::futex_wait_until(interrupted_, 0, deadline_ns)) break;
    }
    interrupted_.store(0, std::memory_order_relaxed);
}

void timer_events::interrupt() noexcept {
    if (interrupted_.exchange(1, std::memory_order_release) == 0) platform::futex_wake(interrupted_);
}

void timer_events::forget_all() noexcept {
    const sched::scheduler& s = sched::the_scheduler;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) heap_of(s.processor_at(i)).clear();
}

void sleep_until_ns(std::int64_t deadline_ns, const std::source_location& where) {
    if (deadline_ns <= platform::now_ns()) return;
    sleeper s;
    if (s.waiter.goroutine() == nullptr) {
        std::atomic<std::uint32_t> never{0};
        while (platform::now_ns() < deadline_ns) platform::futex_wait_until(never, 0, deadline_ns);
        return;
    }
    s.when_ns = deadline_ns;
    s.fire = end_sleep;
    s.waiter.enter();
    sched::machine* m = sched::current_machine();
    s.waiter.prepare(sched::wait_reason::sleep, where);
    bool earliest;
    try {
        earliest = heap_of(sched::processor_of(m)).insert(&s);
    } catch (...) {
        sched::transition<sched::goroutine_state::waiting, sched::goroutine_state::running>(s.waiter.goroutine()->state);
        s.waiter.leave();
        throw;
    }
    // From here on the timer may fire at any moment; `s` lives until we are back.
    if (earliest) sched::timer_added(deadline_ns);
    s.waiter.wait();
}

}  // namespace dunlin::timer
