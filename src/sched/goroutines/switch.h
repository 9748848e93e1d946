// switch.h - from one goroutine to the next: the departure of the one, the take-over of the other ("Leaving" at the
// head of goroutine.cpp). Only for the files of this room.
#pragma once

#include <utility>

#include "platform/check.h"
#include "sched/goroutines/goroutine.h"
#include "sched/queues/run_queue_prefetch.h"
#include "stack/trace.h"

namespace dunlin::inline v0_1::sched {

inline stack::sanitizer_stack tool_view(stack::slot* s) noexcept {
    if constexpr (!stack::sanitizing) return {};
    return {s->low(), static_cast<std::size_t>(s->end() - s->low()), stack::fiber_of(s->end())};
}

// The first step after every switch: commits the departure of the goroutine that was here before, if there was one.
[[gnu::always_inline]] inline void commit_departure(machine* m) noexcept {
    if (goroutine* left = m->leaving) {
        m->leaving = nullptr;
        // Release publishes left->context and everything on its stack; pairs with the acquire in ready_to_run().
        left->saved.store(1, std::memory_order_release);
    }
}

// May this machine switch to g directly? Not if g is still leaving (see the head of goroutine.cpp), and not if it is
// wired to a thread of its own.
[[gnu::always_inline]] inline bool ready_to_run(const goroutine* g) noexcept {
    return g->saved.load(std::memory_order_acquire) != 0 && !(g->flags & goroutine::locked);
}

// Runnable -> running. Returns the address of g's context, for a switch to it.
[[gnu::always_inline]] inline const stack::context* take_over(machine* m, goroutine* g) noexcept {
    transition<goroutine_state::runnable, goroutine_state::running>(g->state);
    m->current.store(g, std::memory_order_release);
    return &g->context;
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
    const bool wired = self->flags & goroutine::locked;
    if (DUNLIN_LIKELY(next != nullptr && next->stack != nullptr && ready_to_run(next) && !wired)) {
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

// The goroutine to which the caller, which is about to leave, should switch. Null: there is none here.
[[gnu::always_inline]] inline goroutine* choose_next(machine* m, processor* p) noexcept {
    goroutine* next = find_local(m, p);
    if (next != nullptr || the_scheduler.global_size() == 0) return next;
    if (DUNLIN_UNLIKELY(find_work_is_due(p))) return nullptr;
    return the_scheduler.stopping.load(std::memory_order_relaxed) ? nullptr : take_global(p);
}

}  // namespace dunlin::sched
