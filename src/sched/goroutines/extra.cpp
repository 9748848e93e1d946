#include "sched/goroutines/extra.h"

#include <memory>
#include <string>
#include <utility>

#include "sched/machines/handshake.h"

namespace dunlin::inline v0_1::sched {

static void count(goroutine_extra& extra, bool yes) noexcept {
    if (std::exchange(extra.counted, yes) == yes) return;
    yes ? the_scheduler.independent.fetch_add(1, std::memory_order_relaxed)
        : the_scheduler.independent.fetch_sub(1, std::memory_order_relaxed);
}

void set_independent(goroutine_extra& extra, bool yes) noexcept {
    extra.independent = yes;
    count(extra, yes);
}

void end_extra(goroutine_extra& extra) noexcept {
    if (extra.exiting) {
        // Each catch (...) that has thrown exit_goroutine()'s unwinding again has counted one more uncaught exception,
        // and none of them was caught: the next goroutine on this thread would begin with them.
        machine* m = enter(current_machine());
        *m->exceptions = {};
        leave(m);
    }
    destroy_local_values(extra.locals);
    count(extra, false);
}

void dispose_of(goroutine_extra* extra) noexcept {
    if (extra != nullptr) count(*extra, false);
    delete extra;
}

goroutine_extra& extra_of(goroutine* g) {
    if (!g->extra) g->extra = new goroutine_extra;
    return *g->extra;
}

void make_extra_of_current() {
    auto spare = std::make_unique<goroutine_extra>();
    machine* m = enter(current_machine());
    goroutine* self = m->current.load(std::memory_order_relaxed);
    if (!self->extra) self->extra = spare.release();
    leave(m);
}

void name_current_goroutine(std::string_view name) {
    if (current_machine() == nullptr) return;
    std::string copy(name);
    make_extra_of_current();
    machine* m = enter(current_machine());
    m->current.load(std::memory_order_relaxed)->extra->name.swap(copy);
    leave(m);
}

void destroy_local_values(local_values& list) noexcept {
    while (!list.empty()) {
        const local_value last = list.back();
        list.pop_back();
        last.destroy(last.object);
    }
}

}  // namespace dunlin::sched
