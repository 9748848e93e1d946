// spawn.cpp - the functions behind go() and spawn(): make, start, join.
#include <stdexcept>
#include <string>
#include <system_error>

#include <dunlin/detail/spawn.hpp>
#include <dunlin/go.hpp>
#include <dunlin/jthread.hpp>
#include <dunlin/task.hpp>

#include "api/exit.h"
#include "api/settings.h"
#include "park/join.h"
#include "sched/goroutines/goroutine.h"
#include "sched/goroutines/start_many.h"
#include "sched/preempt/lifetime.h"
#include "sched/queues/global_queue.h"

namespace dunlin::inline v0_1 {

namespace {

sched::goroutine* of(detail::goroutine_handle* g) noexcept { return reinterpret_cast<sched::goroutine*>(g); }
const sched::goroutine* of(const detail::goroutine_handle* g) noexcept {
    return reinterpret_cast<const sched::goroutine*>(g);
}

}  // namespace

namespace detail {

void throw_null_function(const char* operation) {
    throw std::invalid_argument(std::string(operation) + ": go of nil func value (the function is null or empty)");
}

[[gnu::noinline]] static void apply(const go_options& options, sched::goroutine* g) {
    if (!options.name.empty()) sched::extra_of(g).name = options.name;
    if (!options.labels.empty()) sched::extra_of(g).labels = options.labels;
}

// The cases that the quick path of make() leaves out.
[[gnu::noinline]] static new_goroutine make_any(
    std::size_t bytes, std::size_t align, const go_options* options, sched::creation_place place) {
    if (DUNLIN_UNLIKELY(sched::current_machine() == nullptr)) {
        sched::start_runtime();
        api::arm_stopper();
    }
    std::size_t stack_size = 0;
    if (options != nullptr && options->stack_size != 0) {
        stack_size = options->stack_size;
        api::check_stack_size("dunlin::go", stack_size);
    }
    sched::goroutine* g = sched::make_goroutine(bytes, align, stack_size, place);
    if (DUNLIN_UNLIKELY(options != nullptr)) {
        try {
            apply(*options, g);
        } catch (...) {
            sched::discard_goroutine(g);
            throw;
        }
    }
    return {reinterpret_cast<goroutine_handle*>(g), g->frame()};
}

// In the common case (a machine, no options, a parent without an extra part, a callable that fits into the struct) all
// of it is here: the struct is the first of the processor's free ones. Else make_any().
new_goroutine make(std::size_t bytes, std::size_t align, const go_options* options, std::source_location where) {
    const sched::creation_place place =
        where.line() != 0 ? sched::creation_place(where) : sched::creation_place(__builtin_return_address(0));
    sched::machine* m = sched::current_machine();
    if (DUNLIN_UNLIKELY(m == nullptr || options != nullptr || bytes > sched::inline_frame_bytes || align > 16)) {
        return make_any(bytes, align, options, place);
    }
    m = sched::enter(m);
    sched::processor* p = sched::processor_of(m);
    sched::goroutine* g = p->free_goroutines;
    const bool parent_has_extra = m->current.load(std::memory_order_relaxed)->extra != nullptr;
    if (DUNLIN_UNLIKELY(g == nullptr || p->next_id == p->last_id || parent_has_extra)) {
        sched::leave(m);
        return make_any(bytes, align, options, place);
    }
    sched::pop_goroutine(p, g);
    g->id = p->next_id++;
    sched::leave(m);
    g->created_at = place;
    g->flags = 0;
    return {reinterpret_cast<goroutine_handle*>(g), g->inline_frame};
}

void give_to_owner(new_goroutine n) {
    if (sched::current_goroutine() == nullptr) sched::set_independent(sched::extra_of(of(n.g)), true);
}

// No goroutine runs it in place: it has a stack of its own size, or outlives the run() of one that joins it.
static bool needs_own_stack(const sched::goroutine* g) noexcept {
    return (g->flags & sched::goroutine::own_stack) != 0 || g->independent();
}

void start(new_goroutine n, void (*entry)(void*), end_kind kind, const void* group) noexcept {
    sched::goroutine* g = of(n.g);
    g->entry = entry;
    if (kind == end_kind::joinable) {
        g->flags |= sched::goroutine::joinable;
        group = g;
    }
    g->group.store(needs_own_stack(g) ? nullptr : group, std::memory_order_relaxed);
    sched::start_goroutine(g);
}

static sched::goroutine_list list_of(const new_goroutines& l) noexcept {
    sched::goroutine_list list;
    list.head = l.first != nullptr ? of(l.first) : nullptr;
    list.tail = l.last != nullptr ? of(l.last) : nullptr;
    list.size = l.count;
    return list;
}

static void note(new_goroutines& l, const sched::goroutine_list& list) noexcept {
    l = {reinterpret_cast<goroutine_handle*>(list.head), reinterpret_cast<goroutine_handle*>(list.tail), list.size};
}

void add_to(new_goroutines& l, new_goroutine n, void (*entry)(void*), const void* group) noexcept {
    sched::goroutine* g = of(n.g);
    g->entry = entry;
    g->group.store(needs_own_stack(g) ? nullptr : group, std::memory_order_relaxed);
    sched::goroutine_list list = list_of(l);
    list.push_back(g);
    note(l, list);
}

new_goroutine take_off(new_goroutines& l) noexcept {
    sched::goroutine_list list = list_of(l);
    sched::goroutine* g = list.pop_front();
    note(l, list);
    return {reinterpret_cast<goroutine_handle*>(g), g->frame()};
}

void start_all(const new_goroutines& l) noexcept {
    sched::goroutine_list list = list_of(l);
    sched::start_goroutines(list);
}

void discard(new_goroutine n) noexcept { sched::discard_goroutine(of(n.g)); }
void join(goroutine_handle* g, std::source_location where) noexcept { park::join(of(g), where); }
bool has_ended(const goroutine_handle* g) noexcept { return park::has_ended(of(g)); }
void release(goroutine_handle* g) noexcept { sched::release_goroutine(of(g)); }
void detach(goroutine_handle* g) noexcept { park::detach(of(g)); }
unsigned long long id_of(const goroutine_handle* g) noexcept { return of(g)->id; }

void throw_cannot_join(const char* operation, join_refusal why) {
    if (why == join_refusal::itself) {
        throw std::system_error(std::make_error_code(std::errc::resource_deadlock_would_occur),
            std::string(operation) + ": called by the goroutine itself");
    }
    throw std::system_error(std::make_error_code(std::errc::invalid_argument),
        std::string(operation) + ": it holds no goroutine (default constructed, moved from, joined or detached)");
}

}  // namespace detail

}  // namespace dunlin
