#include "sched/goroutines/extra.h"

#include <memory>
#include <string>

#include "sched/machines/handshake.h"

namespace dunlin::inline v0_1::sched {

void make_independent(goroutine_extra& extra) noexcept {
    extra.independent = true;
    the_scheduler.independent.fetch_add(1, std::memory_order_relaxed);
}

void dispose_of(goroutine_extra* extra) noexcept {
    if (extra != nullptr && extra->independent) the_scheduler.independent.fetch_sub(1, std::memory_order_relaxed);
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
