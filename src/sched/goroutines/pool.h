// pool.h - goroutine structs and numbers from a processor's own store, inlined into spawn and end; the rest is in
// pool.cpp.
#pragma once

#include "platform/memory.h"
#include "sched/data/types.h"
#include "sched/machines/handshake.h"

namespace dunlin::inline v0_1::sched {

inline constexpr std::uint32_t magazine_size = 64;  // structs that move between a processor and the store in one step

// Called when the processor's magazine is empty, or p is null (plain threads). Null: no memory.
goroutine* take_goroutine_from_store(processor* p) noexcept;
// Called when the processor's magazine is full.
void change_magazine(processor* p) noexcept;
void put_goroutine_into_store(goroutine* g) noexcept;
// Puts back all of a list, linked by `link`, and empties it.
void put_goroutines_into_store(goroutine_list& list) noexcept;
std::uint64_t take_id_batch(processor* p) noexcept;
// Calls f(goroutine, with) for each free struct. For reports, while nothing at all changes. Takes no lock: if a
// thread was about to change a list, some of its structs may be left out.
void for_each_free_goroutine(void (*f)(const goroutine& g, void* with) noexcept, void* with) noexcept;

// Takes g, the first of the list that is p's magazine or becomes it here.
[[gnu::always_inline]] inline goroutine* pop_goroutine(processor* p, goroutine* g) noexcept {
    assert_owner(p);
    goroutine* next = g->link;
    if (next != nullptr) {
        platform::prefetch(next);
        platform::prefetch(&next->id);
        platform::prefetch(next->inline_frame);
    }
    p->free_goroutines = next;
    p->free_goroutine_count = p->free_goroutine_count - 1;
    return g;
}

// p may be null (plain threads). Null: no memory.
[[gnu::always_inline]] inline goroutine* take_goroutine(processor* p) noexcept {
    goroutine* g = p != nullptr ? p->free_goroutines : nullptr;
    return DUNLIN_LIKELY(g != nullptr) ? pop_goroutine(p, g) : take_goroutine_from_store(p);
}

[[gnu::always_inline]] inline void put_goroutine(processor* p, goroutine* g) noexcept {
    g->join.store(join_word::alive, std::memory_order_relaxed);
    g->group.store(nullptr, std::memory_order_relaxed);
    if (DUNLIN_UNLIKELY(p == nullptr)) {
        put_goroutine_into_store(g);
        return;
    }
    assert_owner(p);
    if (DUNLIN_UNLIKELY(p->free_goroutine_count == magazine_size)) change_magazine(p);
    g->link = p->free_goroutines;
    p->free_goroutines = g;
    p->free_goroutine_count = p->free_goroutine_count + 1;
}

[[gnu::always_inline]] inline std::uint64_t next_goroutine_id(processor* p) noexcept {
    return DUNLIN_LIKELY(p != nullptr && p->next_id != p->last_id) ? p->next_id++ : take_id_batch(p);
}

// ---- stacks ---------------------------------------------------------------------------------------------------------

stack::slot* take_stack(processor* p) noexcept;  // null: no memory
void put_stack(processor* p, stack::slot* s) noexcept;
// Stacks that are bound from now on are of this class. Stops the world to do so.
void set_default_stack_class(unsigned size_class) noexcept;

}  // namespace dunlin::sched
