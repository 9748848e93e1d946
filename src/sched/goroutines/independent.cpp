#include "sched/goroutines/independent.h"

#include <memory>
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

bool start_independent_inside_runtime(void (*entry)(void*), void* argument, creation_place where) noexcept {
    // Not `new (std::nothrow)`: a program that replaces operator new may have left that form alone, and
    // AddressSanitizer's does not call the replaced one.
    std::unique_ptr<goroutine_extra> extra;
    try {
        extra = std::make_unique<goroutine_extra>();
    } catch (const std::bad_alloc&) {
        return false;
    }
    goroutine* g = make_detached_inside_runtime(entry, argument, where);
    if (g == nullptr) return false;
    g->extra = extra.release();
    set_independent(*g->extra, true);
    start_made_inside_runtime(g);
    return true;
}

}  // namespace dunlin::sched
