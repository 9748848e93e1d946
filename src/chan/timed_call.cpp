// timed_call.cpp - after_func(): a timer that starts a goroutine.
//
// Data       An entry in the heap of timers, a lock, pending. References: the timer that the program holds; one while
//            the entry is pending; one while the goroutine runs.
// Protocol   start and reset arm the entry and take its reference; stop cancels the entry and drops the reference.
//            claim() happens under the heap's lock and needs nothing: fire() takes over the pending reference. A stop
//            that comes between claim and fire finds cancel() false: it is too late, the goroutine starts, and stop
//            returns false. So the result of stop is always right.
// End of run An entry that the heap forgets (heap.h) keeps its pending reference, since the program's destructors must
//            not run then. A handle that still has the timer drops that reference in stop, in reset (both return true:
//            the function was not started and never will be), and when it goes away.
// Order      this lock before heap's lock.
#include <mutex>
#include <new>

#include <dunlin/timer.hpp>

#include "park/waiter.h"
#include "platform/lock.h"
#include "sched/goroutines/goroutine.h"
#include "sched/goroutines/independent.h"
#include "sched/preempt/lifetime.h"
#include "timer/timers.h"

namespace dunlin::inline v0_1::detail {

namespace {

struct call_entry : timers::timer_entry {
    timed_call* call;
};

constexpr std::int64_t try_again_ns = 1'000'000;

struct releaser {
    timed_call* call;
    ~releaser() { call->release(); }
};

void run_call(void* raw) {
    timed_call* call = *static_cast<timed_call**>(raw);
    releaser guard{call};
    call->run();
}

// On a machine, inside the runtime.
void start_call(timers::timer_entry* e) noexcept;

}  // namespace

struct timed_call_access {
    struct parts {
        platform::ranked_lock<platform::lock_rank::object> lock;
        call_entry entry;
    };
    static_assert(sizeof(parts) <= sizeof(timed_call::entry_) && alignof(parts) <= 8);
    static parts& of(timed_call* c) noexcept { return *std::launder(reinterpret_cast<parts*>(c->entry_)); }
};

namespace {

void start_call(timers::timer_entry* e) noexcept {
    timed_call* call = static_cast<call_entry*>(e)->call;
    const std::source_location made_at = call->where();
    const sched::creation_place where = made_at.line() != 0 ? sched::creation_place(made_at) : sched::creation_place();
    if (e->ends_with_run ? sched::start_inside_runtime(run_call, call, where)
                         : sched::start_independent_inside_runtime(run_call, call, where)) {
        return;
    }
    // There is no memory for a goroutine. The call stays due, unless it has been set again meanwhile. Once the entry is
    // armed again, a holder may stop it and let the call go before this thread is out of the lock.
    call->reference();
    releaser keep{call};
    auto& p = timed_call_access::of(call);
    std::unique_lock guard(p.lock);
    if (e->armed.load(std::memory_order_relaxed)) {
        guard.unlock();
        call->release();
        return;
    }
    e->when_ns = platform::now_ns() + try_again_ns;
    try {
        timers::arm(e, sched::current_machine());
    } catch (...) {
        platform::fatal("no memory for the goroutine of an after_func(), nor for trying again later");
    }
}

// True, once: it was pending when run() returned. The caller then owns the pending reference.
bool forgotten(timed_call_access::parts& p) noexcept {
    return p.entry.forgotten.load(std::memory_order_relaxed) &&
        p.entry.forgotten.exchange(false, std::memory_order_relaxed);
}

}  // namespace

timed_call::timed_call(bool ends_with_run) {
    auto* p = ::new (entry_) timed_call_access::parts;
    p->entry.fire = start_call;
    p->entry.call = this;
    p->entry.ends_with_run = ends_with_run;
}

timed_call::~timed_call() = default;

// No other thread knows it yet.
void timed_call::start(std::int64_t due_ns) {
    if (sched::current_machine() == nullptr) sched::start_runtime();
    auto& p = timed_call_access::of(this);
    p.entry.when_ns = due_ns;
    references_.store(2, std::memory_order_relaxed);
    try {
        park::runtime_section inside;
        const sched::machine* m = inside.machine();
        if (m != nullptr && m->current.load(std::memory_order_relaxed)->independent()) p.entry.ends_with_run = false;
        timers::arm(&p.entry, inside.machine());
    } catch (...) {
        references_.store(1, std::memory_order_relaxed);
        throw;
    }
}

bool timed_call::stop() noexcept {
    auto& p = timed_call_access::of(this);
    bool was;
    {
        park::runtime_section inside;
        std::scoped_lock guard(p.lock);
        was = timers::cancel(&p.entry) || forgotten(p);
    }
    if (was) release();
    return was;
}

void timed_call::drop() noexcept {
    const std::uint32_t pending = forgotten(timed_call_access::of(this)) ? 1 : 0;
    release(pending + 1);
}

bool timed_call::reset(std::int64_t due_ns) {
    if (sched::current_machine() == nullptr) sched::start_runtime();
    // Once the entry is armed, its function may run and let the call go before this thread is out of the lock.
    reference();
    releaser keep{this};
    auto& p = timed_call_access::of(this);
    bool was;
    try {
        park::runtime_section inside;
        std::scoped_lock guard(p.lock);
        was = timers::cancel(&p.entry) || forgotten(p);
        if (!was) reference();
        p.entry.when_ns = due_ns;
        timers::arm(&p.entry, inside.machine());
    } catch (...) {
        release();
        throw;
    }
    return was;
}

}  // namespace dunlin::detail
