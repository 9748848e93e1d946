// machine_main.cpp - a thread's life: it finds work, executes it on a goroutine's stack, and comes back here. The first
// entry into dunlin_goroutine_loop() is in execute(), later ones are in switch_away() (goroutine.cpp).
#include "sched/goroutines/machine_main.h"

#include "platform/cpu.h"
#include "platform/thread.h"
#include "sched/goroutines/os_thread.h"
#include "sched/goroutines/switch.h"
#include "sched/goroutines/thread_stack.h"
#include "sched/machines/starved.h"
#include "sched/work/find_work.h"

namespace dunlin::inline v0_1::sched {

namespace {

// g may still be leaving another machine. To finish, that machine needs nothing from this thread, except the CPU if
// there are more threads than CPUs.
void wait_until_saved(const goroutine* g) noexcept {
    for (int i = 0; g->saved.load(std::memory_order_acquire) == 0; ++i) {
        if (i < 100) {
            platform::pause();
        } else {
            platform::give_cpu_away();
        }
    }
}

// Switches to another stack, whose `view` was looked up while that stack was still ours. Returns when the thread comes
// back to the scheduler's stack.
void switch_from_scheduler(machine* m, const stack::context* to, const stack::sanitizer_stack& view) noexcept {
    stack::before_switch(m->fake, view);
    stack::switch_context(&m->scheduler_context, to);
    stack::after_switch(m->fake);
    commit_departure(m);
    if (stack::slot* dead = m->next_stack) {
        m->next_stack = nullptr;
        stack::stacks.recycle(dead, dead, 1, dead->size_class);
    }
}

// Gives the thread to g; returns as switch_from_scheduler() does.
void execute(machine* m, goroutine* g) noexcept {
    stack::context fresh;
    const stack::context* to;
    stack::slot* s = g->stack;
    if (s == nullptr) {
        s = take_stack(processor_of(m));
        if (s == nullptr) {
            starve(g);
            return;
        }
        m->next = g;
        m->next_stack = s;
        fresh = stack::make_context(s->top);
        to = &fresh;
    } else {
        wait_until_saved(g);
        to = &g->context;
    }
    const stack::sanitizer_stack view = tool_view(s);
    if (to != &fresh) take_over(m, g);
    switch_from_scheduler(m, to, view);
}

}  // namespace

void switch_to_goroutine(machine* m, goroutine* g) noexcept {
    switch_from_scheduler(m, &g->context, tool_view(g->stack));
}

[[gnu::noinline]] void machine_main(machine* m) noexcept {
    // The thread was made because there was work, and perhaps a processor, but no thread for it; or ahead of any work
    // (make_first_machines()).
    look_for_a_processor(m);
    for (;;) {
        if (DUNLIN_UNLIKELY(m->call.entry != nullptr)) {
            make_thread_call(m);
            continue;
        }
        goroutine* g = m->next;
        m->next = nullptr;
        if (DUNLIN_UNLIKELY(m->must_end)) {
            end_machine(m);
            return;
        }
        if (DUNLIN_UNLIKELY(m->wired_g != nullptr)) {
            m->next = g;
            g = wait_for_wired(m);
            if (g == nullptr) {
                end_machine(m);
                return;
            }
        } else if (g == nullptr) {
            g = find_work(m);
            if (g == nullptr) continue;  // must_end
        }
        if (DUNLIN_UNLIKELY((g->flags & goroutine::wired) && g->extra->wired_to != m)) {
            hand_to_its_machine(m, g);
            watch_events(m);
        } else {
            execute(m, g);
        }
    }
}

}  // namespace dunlin::sched
