#include "sched/goroutines/thread_stack.h"

#include <utility>

#include "sched/goroutines/goroutine.h"
#include "sched/goroutines/machine_main.h"
#include "stack/context.h"

namespace dunlin::inline v0_1::sched {

namespace {

// read by the handlers of fatal signals
[[gnu::tls_model("initial-exec")]] thread_local constinit machine* behind = nullptr;

[[gnu::noinline]] void set_machine_behind(machine* m) noexcept { behind = m; }

}  // namespace

// Not inlined: the goroutine may have moved to another thread since the last call.
[[gnu::noinline]] machine* machine_behind() noexcept { return behind; }

machine* own_machine() noexcept {
    machine* m = current_machine();
    return m != nullptr ? m : machine_behind();
}

void forget_machine_behind() noexcept { set_machine_behind(nullptr); }

void call_on_thread_stack(void (*entry)(void*), void* argument) {
    machine* m = current_machine();
    if (m == nullptr) return entry(argument);
    goroutine* self = m->current.load(std::memory_order_relaxed);
    m->call = {entry, argument};
    stack::before_switch(self->fake, m->own_stack);
    stack::switch_context(&self->context, &m->scheduler_context);
    // Still the same thread: nothing has run that could move the goroutine.
    stack::after_switch(self->fake);
}

void make_thread_call(machine* m) noexcept {
    const thread_call call = std::exchange(m->call, {});
    goroutine* g = m->current.load(std::memory_order_relaxed);
    m->in_thread_call.store(true, std::memory_order_relaxed);
    set_machine_behind(m);
    set_current_machine(nullptr);
    call.entry(call.argument);
    set_current_machine(machine_behind());  // null in the child of a fork() that the function has made
    set_machine_behind(nullptr);
    m->in_thread_call.store(false, std::memory_order_relaxed);
    switch_to_goroutine(m, g);
}

}  // namespace dunlin::sched
