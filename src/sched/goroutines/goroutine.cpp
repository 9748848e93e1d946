// goroutine.cpp - the life of a goroutine, top to bottom.
//
//   start ---> runnable ---> running ---> dead --(pool)--> make
//                ^   ^______/   |  |
//                |    yield     |  | (the function returned, or exit_goroutine)
//                |              v
//              ready <------ waiting
//                      park
//
//  function          from       to         runs on                called by
//  make_goroutine    -          dead       the caller's stack     any thread (common case: make() in api/spawn.cpp)
//  start_goroutine   dead       runnable   the caller's stack     any thread
//  the loop (2.)     runnable   running    the stack it binds     execute() (machine_main.cpp); switch_away()
//  prepare_to_park   running    waiting    its own stack          the goroutine itself (goroutine.h); park() then gives
//                                                                 the thread to another
//  ready             waiting    runnable   any stack              the thread that took its waiter off a queue
//  yield             running    runnable   its own stack          the goroutine itself
//  run_in_place      runnable   dead       the waiter's stack     the waiter, in a join
//  end_goroutine     running    dead       the stack it ran on    the loop; run_in_place() (on the waiter's stack)
//  enter_slow        running    runnable   its own stack          the goroutine itself: its processor is gone
//                                                                 (reenter.cpp)
//  stop_if_asked     running    preempted  a signal handler       the monitor, by a signal (preempt.cpp); back to
//                                                                 running in the same handler
//
// The file follows one life: go, queued, run, park, yield, ready, end. Beside it: goroutine.h (start_goroutine() and
// what else is inlined), work/submit.h (where a runnable goroutine is put), machine_main.cpp (the thread that runs it),
// switch.h (how a departure is committed), extra.h (name, labels, local values).
//
// Two moments are difficult.
//
// 1. Leaving. Between "others can find g" (on a wait queue, on a run queue) and "g's registers are saved", another
//    thread may take g and want to run it. So the leaver clears `saved` first, then makes itself known, then switches;
//    and the context that it switches to sets `saved` (`commit_departure()`, switch.h): that commits the departure. The
//    executor, the machine that is about to run g, looks at `saved`. If it is not set yet, the executor does NOT wait
//    where it is: it may be leaving a goroutine itself, and the other machine may be waiting for that goroutine. It
//    switches to the scheduler's stack first (that commits its own departure) and waits there. The wait is as long as
//    a switch takes, unless the kernel preempts the leaving thread during the switch. (Go instead switches to the
//    scheduler's stack first and runs an "unlock function" there; we switch from goroutine to goroutine directly, and
//    locks are released before the switch: docs/decisions/002-leaving.md.)
//
// 2. Stacks. A goroutine has no stack until it first runs. dunlin_goroutine_loop() is at the base of every stack and
//    runs one new goroutine after the other, so a million short goroutines use one stack per machine. A goroutine that
//    parks keeps the stack, with the loop at its base; its machine continues elsewhere: on the next goroutine's stack,
//    or with a new loop on another stack. When the parked goroutine has ended, the loop at its base goes on, or gives
//    its stack back and leaves without saving anything, since there is nothing to come back to.
#include "sched/goroutines/goroutine.h"

#include <dunlin/detail/atomic.hpp>

#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "platform/check.h"
#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/membarrier.h"
#include "platform/thread.h"
#include "platform/usable.h"
#include "sched/data/bells.h"
#include "sched/data/hooks.h"
#include "sched/data/steering.h"
#include "sched/goroutines/switch.h"
#include "sched/goroutines/yield.h"
#include "sched/machines/processor.h"
#include "sched/machines/trace.h"
#include "sched/machines/waits.h"
#include "sched/machines/wake.h"
#include "sched/queues/global_queue.h"
#include "sched/queues/run_queue_prefetch.h"
#include "stack/trace.h"

namespace dunlin::inline v0_1::sched {

// ---- go: it is made -------------------------------------------------------------------------------------------------

namespace {

// The public headers refuse, at compile time, callables that need more.
constexpr std::align_val_t heap_frame_align{64};

// Binds a stack of the size that the program asked for, now, so that go() can report that there is no memory for it.
void bind_own_stack(goroutine* g, std::size_t bytes) {
    const unsigned size_class = stack::class_for(bytes);
    if (size_class == stack::no_class) {
        throw std::invalid_argument("dunlin::go: stack_size " + std::to_string(bytes) + " is above the maximum of " +
                                    std::to_string(stack::usable_bytes(stack::class_count - 1)) + " bytes");
    }
    stack::slot* s = nullptr;
    {
        const unstoppable_section section;
        stack::stacks.allocate(size_class, &s, 1);
    }
    if (s == nullptr) throw std::bad_alloc();
    stack::prepare_for_tools(*s);
    g->stack = s;
    g->flags |= goroutine::own_stack;
    g->context = stack::make_context(s->top);
    g->saved.store(1, std::memory_order_relaxed);
}

void inherit(goroutine* g) {
    const goroutine* parent = current_goroutine();
    if (!parent || !parent->extra) return;
    if (parent->extra->independent) set_independent(extra_of(g), true);
    if (!parent->extra->labels.empty()) extra_of(g).labels = parent->extra->labels;
    if (parent->extra->task != 0) extra_of(g).task = parent->extra->task;
}

// The rarer half of make_goroutine(). If it throws, the caller gives g back.
void make_parts(goroutine* g, std::size_t bytes, std::size_t align, std::size_t stack_bytes) {
    if (bytes > inline_frame_bytes || align > 16) {
        *reinterpret_cast<void**>(g->inline_frame) = ::operator new(bytes, heap_frame_align);
        g->flags |= goroutine::heap_frame;
    }
    if (stack_bytes != 0) bind_own_stack(g, stack_bytes);
    inherit(g);
}

void free_parts(goroutine* g) noexcept {
    if (g->flags & goroutine::heap_frame) {
        ::operator delete(*reinterpret_cast<void**>(g->inline_frame), heap_frame_align);
    }
    dispose_of(std::exchange(g->extra, nullptr));
}

// Enters the runtime if this thread runs a goroutine, and returns its machine; else null.
[[gnu::always_inline]] inline machine* enter_if_machine() noexcept {
    machine* m = current_machine();
    return m != nullptr ? enter(m) : nullptr;
}

}  // namespace

goroutine* make_goroutine(std::size_t bytes, std::size_t align, std::size_t stack_bytes, creation_place where) {
    machine* m = enter_if_machine();
    processor* p = m ? processor_of(m) : nullptr;
    goroutine* g = take_goroutine(p);
    if (g) g->id = next_goroutine_id(p);
    const bool parent_has_extra = m && m->current.load(std::memory_order_relaxed)->extra != nullptr;
    if (m) leave(m);
    if (!g) throw std::bad_alloc();
    g->created_at = where;
    g->flags = 0;
    if (DUNLIN_UNLIKELY(bytes > inline_frame_bytes || align > 16 || stack_bytes != 0 || parent_has_extra)) {
        try {
            make_parts(g, bytes, align, stack_bytes);
        } catch (...) {
            discard_goroutine(g);
            throw;
        }
    }
    return g;
}

void discard_goroutine(goroutine* g) noexcept {
    if (g->flags & goroutine::own_stack) {
        const unstoppable_section section;
        stack::stacks.recycle(g->stack, g->stack, 1, g->stack->size_class);
        g->stack = nullptr;
    }
    free_parts(g);
    machine* m = enter_if_machine();
    put_goroutine(m ? processor_of(m) : nullptr, g);
    if (m) leave(m);
}

void discard_unbegun(goroutine_list& list) noexcept {
    for (goroutine* g = list.head; g != nullptr; g = g->link) {
        free_parts(g);
        g->marks.set_stamped(0);
        g->marks.set_measured(false);
        g->join.store(join_word::alive, std::memory_order_relaxed);
        g->group.store(nullptr, std::memory_order_relaxed);
    }
    put_goroutines_into_store(list);
}

// ---- queued ---------------------------------------------------------------------------------------------------------

void start_goroutine_outside(goroutine* g) noexcept {
    // Runnable, counted and queued in one step: the deadlock check must not find a goroutine that exists and cannot
    // run; nor must the end of run() find one that is runnable and in no queue, and freeze it.
    the_scheduler.lock.lock();
    stamp(g, 1);
    if (DUNLIN_UNLIKELY(tracing::looks())) tracing::note_runnable_outside(g, tracing::cause::outside);
    if (steering* s = steered()) s->from_outside();
    transition<goroutine_state::dead, goroutine_state::runnable>(g->state);
    the_scheduler.created_outside.fetch_add(1, std::memory_order_relaxed);
    the_scheduler.global.push_back(g);
    if (g->flags & goroutine::main) the_scheduler.main_returned = false;
    the_scheduler.lock.unlock();
    wake_if_idle();
    call_monitor_if_all_stuck();
}

goroutine* make_detached_inside_runtime(void (*entry)(void*), void* argument, creation_place where) noexcept {
    processor* p = processor_of(current_machine());
    goroutine* g = take_goroutine(p);
    if (g == nullptr) return nullptr;
    g->id = next_goroutine_id(p);
    g->created_at = where.is_known() ? where : creation_place(reinterpret_cast<const void*>(entry));
    g->flags = 0;
    g->entry = entry;
    g->group.store(nullptr, std::memory_order_relaxed);
    *reinterpret_cast<void**>(g->inline_frame) = argument;
    return g;
}

bool start_inside_runtime(void (*entry)(void*), void* argument, creation_place where) noexcept {
    goroutine* g = make_detached_inside_runtime(entry, argument, where);
    if (g == nullptr) return false;
    start_made_inside_runtime(g);
    return true;
}

void start_made_inside_runtime(goroutine* g) noexcept {
    processor* p = processor_of(current_machine());
    transition<goroutine_state::dead, goroutine_state::runnable>(g->state);
    p->counts.created.add();
    push_run_next(p, g);
}

// ---- run ------------------------------------------------------------------------------------------------------------

namespace {

// Below, in the order of a life.
[[gnu::always_inline]] inline goroutine* choose_next(machine* m, processor* p) noexcept;
[[gnu::always_inline]] inline machine* switch_away(machine* m, goroutine* self, goroutine* next) noexcept;
[[gnu::always_inline]] inline void end_goroutine(machine* m, goroutine* g) noexcept;

// Leaves a stack that is no longer needed. `next` has a context or is null.
[[noreturn, gnu::always_inline]] inline void leave_for_good(machine* m, goroutine* next, stack::slot* mine,
    bool own) noexcept {
    const stack::context* to = &m->scheduler_context;
    stack::sanitizer_stack view = m->own_stack;
    m->current.store(nullptr, std::memory_order_relaxed);
    if (own) {
        m->next = next;
        m->next_stack = mine;  // given back on the scheduler's stack, when this one is no longer in use
    } else {
        // This processor's list is private to it until after the jump; the stacks that put_stack() gives away are
        // others.
        put_stack(processor_of(m), mine);
        if (next != nullptr && next->stack != nullptr && can_switch_to(next)) {
            view = tool_view(next->stack);
            to = take_over(m, next);
        } else {
            m->next = next;
        }
    }
    stack::before_last_switch(view);
    stack::jump_context(to);
}

}  // namespace

// At the base of every goroutine stack: runs new goroutines as long as there are any.
extern "C" [[noreturn, gnu::visibility("hidden")]] void dunlin_goroutine_loop() noexcept {
    machine* m = current_machine();
    stack::after_first_switch();
    commit_departure(m);
    goroutine* g = m->next;
    stack::slot* mine = m->next_stack;
    const bool own = g == nullptr;  // true: entered through the goroutine's own context, since its stack was bound at
                                    // go()
    if (own) {
        g = m->current.load(std::memory_order_relaxed);
        mine = g->stack;
    }
    m->next = nullptr;
    m->next_stack = nullptr;
    for (;;) {
        if (!own) {
            g->stack = mine;
            take_over(m, g);
        }
        g->group.store(nullptr, std::memory_order_relaxed);  // it begins: from now on no waiter may run it in place
        if (DUNLIN_UNLIKELY(g->marks.any())) note_marks(processor_of(m), g);
        *m->error_number = 0;
        leave(m);
        stack::dunlin_invoke(g->entry, g->frame());
        if (DUNLIN_UNLIKELY(g->extra != nullptr)) end_extra(*g->extra);
        m = enter(current_machine());
        const bool wired = g->flags & goroutine::wired;
        end_goroutine(m, g);
        if (DUNLIN_UNLIKELY(wired)) {
            m->must_end = true;
            leave_for_good(m, nullptr, mine, true);
        }
        goroutine* next = choose_next(m, processor_of(m));
        if (own || next == nullptr || next->stack != nullptr) {
            // A stack whose size is no longer the default is treated as a stack of the goroutine's own size.
            const bool odd = mine->size_class != the_scheduler.default_stack_class.load(std::memory_order_relaxed);
            leave_for_good(m, next, mine, own || odd);
        }
        g = next;
    }
}

// ---- park -----------------------------------------------------------------------------------------------------------

[[gnu::noinline]] void park(machine* m) noexcept {
    processor* p = processor_of(m);
    goroutine* self = m->current.load(std::memory_order_relaxed);
    p->counts.parks.add();
    goroutine* next = choose_next(m, p);
    if (next == self) {
        // Readied before it was gone: it never left.
        transition<goroutine_state::runnable, goroutine_state::running>(self->state);
        if (DUNLIN_UNLIKELY(self->marks.any())) note_marks(p, self);
    } else {
        m = switch_away(m, self, next);
    }
    leave(m);
}

namespace {

// The goroutine to which the caller, which is about to leave, should switch. Null: there is none here.
[[gnu::always_inline]] inline goroutine* choose_next(machine* m, processor* p) noexcept {
    goroutine* next = find_local(m, p);
    if (next != nullptr || the_scheduler.global_size() == 0) return next;
    if (DUNLIN_UNLIKELY(find_work_is_due(p))) return nullptr;
    return the_scheduler.stopping.load(std::memory_order_relaxed) ? nullptr : take_global(p);
}

// The switch from goroutine `self` to `next` (null: to the scheduler's stack). Returns when self runs again, inside the
// runtime with a processor; returns the machine that it is on then, perhaps another one.
[[gnu::always_inline]] inline machine* switch_away(machine* m, goroutine* self, goroutine* next) noexcept {
    platform::assert_no_locks();
    DUNLIN_DCHECK(stack::canary_intact(*self->stack),
        "stack overflow: the words below a goroutine's stack were overwritten");
    self->saved_errno = *m->error_number;
    if (DUNLIN_UNLIKELY(!m->exceptions->empty())) {
        self->exceptions = *m->exceptions;
        *m->exceptions = {};
    }
    m->leaving = self;
    const stack::context* to;
    stack::context fresh;
    stack::slot* s;
    const bool wired = self->flags & goroutine::wired;
    if (DUNLIN_LIKELY(next != nullptr && next->stack != nullptr && can_switch_to(next) && !wired)) {
        // before the take-over: after it, the stack is in use
        const stack::sanitizer_stack view = tool_view(next->stack);
        to = take_over(m, next);
        stack::before_switch(self->fake, view);
    } else if (next != nullptr && next->stack == nullptr && !wired && (s = take_stack(processor_of(m))) != nullptr) {
        m->next = next;
        m->next_stack = s;
        fresh = stack::make_context(s->top);
        to = &fresh;
        stack::before_switch(self->fake, tool_view(s));
    } else {
        m->next = next;
        m->current.store(nullptr, std::memory_order_relaxed);
        to = &m->scheduler_context;
        stack::before_switch(self->fake, m->own_stack);
    }
    stack::switch_context(&self->context, to);
    m = current_machine();
    stack::after_switch(self->fake);
    commit_departure(m);
    *m->error_number = self->saved_errno;
    if (DUNLIN_UNLIKELY(!self->comes_back_plain())) {
        if (!self->exceptions.empty()) *m->exceptions = self->exceptions;
        self->exceptions = {};
        if (self->marks.any()) note_marks(processor_of(m), self);
    }
    return m;
}

}  // namespace

[[gnu::noinline]] machine* requeue(machine* m, goroutine* self) noexcept {
    if (DUNLIN_UNLIKELY(tracing::on())) tracing::note(m, tracing::kind::queued, self);
    self->saved.store(0, std::memory_order_relaxed);
    transition<goroutine_state::running, goroutine_state::runnable>(self->state);
    push_global(self);
    return switch_away(m, self, nullptr);
}

[[gnu::noinline]] machine* leave_queued(machine* m, goroutine* self) noexcept { return switch_away(m, self, nullptr); }

// ---- yield: it lets others run, and stays runnable ------------------------------------------------------------------

namespace {

// A goroutine that yields goes to the tail of the local queue, and every eighth time, if the global queue is not empty,
// to the tail of that one. Go always uses the global queue. A processor would then take the scheduler lock for each
// yield, and several would contend for it. The local queue is as fair among the goroutines in it, and every eighth
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
        platform::give_cpu_away();
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

// ---- ready ----------------------------------------------------------------------------------------------------------

void ready(goroutine* g) noexcept {
    machine* m = current_machine();
    if (m == nullptr) {
        platform::check_alone();
        if (steering* s = steered()) s->from_outside();
        goroutine_list one;
        one.push_back(g);
        ready_all(one);
        call_monitor_if_all_stuck();
        return;
    }
    // Callers on the scheduler's stack, or already inside the runtime, stay inside.
    const bool outside = m->in_runtime.load(std::memory_order_relaxed) == 0;
    if (outside) m = enter(m);
    // its run() has returned: g stays where it is
    if (DUNLIN_UNLIKELY(g->state.load(std::memory_order_acquire) == goroutine_state::frozen)) {
        if (outside) leave(m);
        return;
    }
    transition<goroutine_state::waiting, goroutine_state::runnable>(g->state);
    push_run_next(processor_of(m), g);
    if (outside) leave(m);
}

// Callers may have no processor. Then only the lock keeps out the end of run(), which freezes goroutines under it
// (end_of_run.cpp): a caller finds a goroutine frozen, or pushes it before.
void ready_all(goroutine_list& list, tracing::cause why) noexcept {
    scheduler& s = the_scheduler;
    bool any = false;
    s.lock.lock();
    while (goroutine* g = list.pop_front()) {
        if (g->state.load(std::memory_order_acquire) == goroutine_state::frozen) continue;
        stamp(g, 1);
        if (DUNLIN_UNLIKELY(tracing::looks())) tracing::note_runnable_outside(g, why);
        transition<goroutine_state::waiting, goroutine_state::runnable>(g->state);
        s.global.push_back(g);
        any = true;
    }
    s.lock.unlock();
    if (any) wake_if_idle();
}

// Would more goroutines pass by those that wait in the global queue? A queue that is filled anew with each poll never
// runs empty, and of the global queue only one in 61 has a turn: with a thousand connections some would be served many
// times before others.
static bool is_crowded(const processor* p, std::size_t more) noexcept {
    const std::size_t here = p->queue.size();
    if (here < run_queue::capacity / 16) return false;
    return here + more > run_queue::capacity / 2 || the_scheduler.global_size() != 0;
}

void ready_polled(goroutine_list& list) noexcept {
    machine* m = current_machine();
    processor* p = m != nullptr ? processor_of(m) : nullptr;
    if (p == nullptr || is_crowded(p, list.size)) return ready_all(list, tracing::cause::poller);
    const bool looks = tracing::looks();
    const tracing::because descriptors(looks ? m : nullptr, tracing::cause::poller);
    while (goroutine* g = list.pop_front()) {
        if (g->state.load(std::memory_order_acquire) == goroutine_state::frozen) continue;
        stamp(g, 1);
        if (DUNLIN_UNLIKELY(looks)) tracing::note_runnable(m, g);
        transition<goroutine_state::waiting, goroutine_state::runnable>(g->state);
        push_local(p, g);
    }
    submit_barrier();
    // If it is one goroutine, this machine runs it next (wake.h, Left out).
    if (p->queue.size() + (p->run_next.load(std::memory_order_relaxed) != nullptr) > 1) wake_if_idle();
}

// ---- end ------------------------------------------------------------------------------------------------------------

namespace {

[[gnu::noinline, gnu::cold]] void note_end(machine* m, goroutine* g) noexcept {
    if ((g->flags & goroutine::traced) && tracing::on()) tracing::note(m, tracing::kind::end, g);
    if (g->flags & goroutine::main) hooks.main_ended(g);
}

// Puts the struct of a goroutine that has ended back into the pool. Called by p's owner, inside the runtime.
[[gnu::always_inline]] inline void put_back(processor* p, goroutine* g) noexcept {
    if (DUNLIN_UNLIKELY(g->extra != nullptr || (g->flags & goroutine::heap_frame))) free_parts(g);
    put_goroutine(p, g);
}

// The function has returned, or was unwound. The exchange of `join` is the last use of g, which belongs to the joiner
// from then on; unless its holder has let it go: then wake_joiner() puts it back.
[[gnu::always_inline]] inline void end_goroutine(machine* m, goroutine* g) noexcept {
    processor* p = processor_of(m);
    p->counts.ended.add();
    g->stack = nullptr;
    transition<goroutine_state::running, goroutine_state::dead>(g->state);
    if (DUNLIN_UNLIKELY(g->flags & (goroutine::main | goroutine::traced))) note_end(m, g);
    if (g->flags & goroutine::joinable) {
        if (g->flags & goroutine::in_place) {
            // The joiner is the goroutine on whose stack g ran.
            g->join.store(join_word::ended, std::memory_order_relaxed);
            return;
        }
        // Release publishes the result; acquire sees the waiter's contents. Pairs with the acquire in
        // park_until_end_of(). Sequentially consistent for a joiner in the parking lot: this exchange comes before
        // wake_joiner() looks for a joiner there, and the joiner's announcement before its load of `join`. With a
        // weaker order each could miss the other.
        const std::uintptr_t waiter = g->join.exchange(join_word::ended, std::memory_order_seq_cst);
        if (waiter != join_word::alive) hooks.wake_joiner(g, waiter);
        return;
    }
    put_back(p, g);
}

}  // namespace

void exit_goroutine() {
    goroutine* self = current_goroutine();
    if (!self)
        throw std::logic_error(
            "dunlin::exit_goroutine: called outside a goroutine (return from the thread's function instead)");
    make_extra_of_current();
    machine* m = enter(current_machine());
    self->extra->exiting = true;
    leave(m);
    stack::unwind_to_invoke(self->extra->exit);
}

void release_goroutine(goroutine* g) noexcept {
    if (DUNLIN_UNLIKELY(g->extra != nullptr || (g->flags & goroutine::heap_frame))) free_parts(g);
    machine* m = enter_if_machine();
    put_goroutine(m ? processor_of(m) : nullptr, g);
    if (m) leave(m);
}

void put_back_inside_runtime(goroutine* g) noexcept {
    put_back(processor_of(current_machine()), g);
}

// ---- another way to run: on the stack of the goroutine that waits for it --------------------------------------------

[[gnu::noinline, gnu::cold]] static void note_run_in_place(machine* m, goroutine* child,
    const goroutine* self) noexcept {
    note_marks(processor_of(m), child);
    if (tracing::on()) tracing::note(m, tracing::kind::in_place, child, self->id);
}

machine* run_in_place(machine* m, goroutine* child, const std::source_location& where) noexcept {
    goroutine* self = m->current.load(std::memory_order_relaxed);
    self->reason.store(wait_reason::in_place_join, std::memory_order_relaxed);
    self->waits_at = where;
    transition<goroutine_state::running, goroutine_state::waiting>(self->state);
    // Scope guards in the child call std::uncaught_exceptions(), which must not count the waiter's exceptions.
    stack::exception_state ours;
    if (DUNLIN_UNLIKELY(!m->exceptions->empty())) ours = std::exchange(*m->exceptions, {});
    const int our_errno = *m->error_number;
    child->stack = self->stack;
    child->flags |= goroutine::in_place;
    child->group.store(nullptr, std::memory_order_relaxed);  // begun
    take_over(m, child);
    if (DUNLIN_UNLIKELY(child->marks.any())) note_run_in_place(m, child, self);
    processor_of(m)->counts.in_place_joins.add();
    *m->error_number = 0;
    leave(m);
    stack::dunlin_invoke(child->entry, child->frame());
    if (DUNLIN_UNLIKELY(child->extra != nullptr)) end_extra(*child->extra);
    m = enter(current_machine());
    if (DUNLIN_UNLIKELY(!ours.empty() || !m->exceptions->empty())) *m->exceptions = ours;
    *m->error_number = our_errno;
    m->current.store(self, std::memory_order_relaxed);
    transition<goroutine_state::waiting, goroutine_state::running>(self->state);
    const bool wired = child->flags & goroutine::wired;
    end_goroutine(m, child);
    if (DUNLIN_LIKELY(!wired)) return m;
    m->must_end = true;  // os_thread.cpp, rule 6: self goes on elsewhere
    return requeue(m, self);
}

}  // namespace dunlin::sched
