// switch.h - the two ends of every switch: the departure of the one that leaves, the take-over of the next ("Leaving"
// at the head of goroutine.cpp). Only for the files of this room.
#pragma once

#include "sched/goroutines/goroutine.h"

namespace dunlin::inline v0_1::sched {

inline stack::sanitizer_stack tool_view(stack::slot* s) noexcept {
    if constexpr (!stack::sanitizing) return {};
    return {s->low(), static_cast<std::size_t>(s->end() - s->low()), stack::fiber_of(s->end())};
}

// The first step after every switch: commits the departure of the goroutine that was here before, if there was one.
[[gnu::always_inline]] inline void commit_departure(machine* m) noexcept {
    if (goroutine* left = m->leaving) {
        m->leaving = nullptr;
        // Release publishes left->context and everything on its stack; pairs with the acquire in can_switch_to() and
        // wait_until_saved().
        left->saved.store(1, std::memory_order_release);
    }
}

// May this machine switch to g directly? Not if g is still leaving (see the head of goroutine.cpp), and not if it is
// wired to a thread of its own.
[[gnu::always_inline]] inline bool can_switch_to(const goroutine* g) noexcept {
    return g->saved.load(std::memory_order_acquire) != 0 && !(g->flags & goroutine::wired);
}

// Runnable -> running. Returns the address of g's context, for a switch to it.
[[gnu::always_inline]] inline const stack::context* take_over(machine* m, goroutine* g) noexcept {
    transition<goroutine_state::runnable, goroutine_state::running>(g->state);
    m->current.store(g, std::memory_order_release);
    return &g->context;
}

}  // namespace dunlin::sched
