#include "sched/goroutines/independent.h"

#include <new>

namespace dunlin::inline v0_1::sched {

void start_detached(void (*entry)(void*), void* argument, bool independent, creation_place where) {
    goroutine* g = make_goroutine(sizeof argument, alignof(void*), 0, where);
    try {
        if (g->independent() != independent) set_independent(extra_of(g), independent);
    } catch (...) {
        discard_goroutine(g);
        throw;
    }
    g->entry = entry;
    g->group.store(nullptr, std::memory_order_relaxed);
    *static_cast<void**>(g->frame()) = argument;
    start_goroutine(g);
}

bool start_independent_inside_runtime(void (*entry)(void*), void* argument) noexcept {
    auto* extra = new (std::nothrow) goroutine_extra;
    if (extra == nullptr) return false;
    goroutine* g = make_detached_inside_runtime(entry, argument);
    if (g == nullptr) {
        delete extra;
        return false;
    }
    g->extra = extra;
    set_independent(*extra, true);
    start_made_inside_runtime(g);
    return true;
}

}  // namespace dunlin::sched
