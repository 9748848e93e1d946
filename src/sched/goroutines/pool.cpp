// pool.cpp - goroutine structs and stacks: from the processor's own lists first, then from the shared store.
//
// Data       Both are last-in first-out, so that what is handed out is still in the cache. Only its machine touches a
//            processor's lists. Structs: one magazine in use and a full one in reserve; whole magazines go to the
//            shared store and come from it (Bonwick, Adams: "Magazines and Vmem", 2001). Stacks: a list that has grown
//            too long gives its older half away: the stacks that have been idle longest, and never the one that its
//            owner is just leaving.
// Structs are type-stable: cut from chunks that are never freed, because other threads may read through stale
// pointers to them (a thief that loses its CAS, a run queue's tail). Chunks are 2 MiB, all but the first on huge pages
// if the system provides them.
#include <dunlin/detail/atomic.hpp>

#include <mutex>
#include <new>

#include "platform/memory.h"
#include "sched/data/all_goroutines.h"
#include "sched/goroutines/debug_layout.h"
#include "sched/goroutines/pool.h"
#include "sched/machines/processor.h"
#include "sched/machines/starved.h"
#include "sched/machines/wake.h"
#include "sched/queues/global_queue.h"

namespace dunlin::inline v0_1::sched {

namespace {

// A member of an archive is linked only if something refers to it. Every program has goroutines, so it gets this table
// of where they are, too.
[[gnu::used]] const debug_table* const linked_with_goroutines = &dunlin_debug_layout;

constexpr std::size_t chunk_bytes = goroutine_chunks::chunk_bytes;
constexpr std::size_t stacks_moved = 16;
constexpr std::uint32_t stacks_kept = 64;

platform::ranked_lock<platform::lock_rank::store> store_lock;                   // guards the next four
goroutine* store = nullptr;                        // full magazines
goroutine* loose = nullptr;                        // single structs, from plain threads
std::size_t cut_from_last_chunk = goroutines_in_a_chunk;
goroutine_chunks& chunks = the_goroutines;

// Under store_lock. Makes one more struct; null: no memory.
goroutine* cut_goroutine() noexcept {
    store_lock.assert_held();
    if (cut_from_last_chunk == goroutines_in_a_chunk) {
        const std::size_t n = chunks.count.load(std::memory_order_relaxed);
        if (n == goroutine_chunks::max) return nullptr;
        std::byte* memory = platform::reserve(chunk_bytes, chunk_bytes);
        if (!memory) return nullptr;
        // Not for the first: a program with ten goroutines should not pay two megabytes for them.
        if (n > 0) platform::want_huge_pages({memory, chunk_bytes});
        chunks.at[n].store(reinterpret_cast<goroutine*>(memory), std::memory_order_relaxed);
        chunks.last_used.store(0, std::memory_order_relaxed);
        chunks.count.store(n + 1, std::memory_order_release);
        cut_from_last_chunk = 0;
    }
    goroutine* chunk = chunks.at[chunks.count.load(std::memory_order_relaxed) - 1].load(std::memory_order_relaxed);
    goroutine* g = new (chunk + cut_from_last_chunk) goroutine;
    // Release: a walker that sees the number sees the constructed struct.
    chunks.last_used.store(++cut_from_last_chunk, std::memory_order_release);
    return g;
}

// Whole magazines go back and forth, so no list of cold structs is walked: `extra` of a magazine's first struct points
// to the next magazine.
goroutine* next_magazine(goroutine* first) noexcept { return reinterpret_cast<goroutine*>(first->extra); }
void set_next_magazine(goroutine* first, goroutine* next) noexcept {
    first->extra = reinterpret_cast<goroutine_extra*>(next);
}

// Under store_lock; the store is not empty.
goroutine* take_magazine() noexcept {
    store_lock.assert_held();
    goroutine* magazine = store;
    store = next_magazine(magazine);
    set_next_magazine(magazine, nullptr);
    return magazine;
}

// Returns a list of at least one and at most `want` structs, linked by `link`; `got`: how many. Null: no memory.
goroutine* take_from_store(std::uint32_t want, std::uint32_t& got) noexcept {
    std::scoped_lock guard(store_lock);
    if (store != nullptr && want == magazine_size) {
        got = magazine_size;
        return take_magazine();
    }
    goroutine* list = nullptr;
    for (got = 0; got < want; ++got) {
        // Goroutines that plain threads start end on processors; their structs come back in magazines.
        if (loose == nullptr && store != nullptr) loose = take_magazine();
        goroutine* g = loose;
        if (g != nullptr) {
            loose = g->link;
        } else if ((g = cut_goroutine()) == nullptr) {
            break;
        }
        g->link = list;
        list = g;
    }
    return list;
}

void put_magazine_into_store(goroutine* magazine) noexcept {
    std::scoped_lock guard(store_lock);
    set_next_magazine(magazine, store);
    store = magazine;
}

}  // namespace

void put_goroutine_into_store(goroutine* g) noexcept {
    std::scoped_lock guard(store_lock);
    g->link = loose;
    loose = g;
}

void put_goroutines_into_store(goroutine_list& list) noexcept {
    if (list.head == nullptr) return;
    std::scoped_lock guard(store_lock);
    list.tail->link = loose;
    loose = list.head;
    list = {};
}

DUNLIN_NOT_ANALYSED void for_each_free_goroutine(
    void (*f)(const goroutine& g, void* with) noexcept, void* with) noexcept {
    const auto each = [&](const goroutine* g) {
        for (; g != nullptr; g = g->link) f(*g, with);
    };
    for (std::uint32_t i = 0; i < the_scheduler.procs_made.load(std::memory_order_acquire); ++i) {
        each(the_scheduler.processor_at(i)->free_goroutines);
        each(the_scheduler.processor_at(i)->full_magazine);
    }
    for (goroutine* first = store; first != nullptr; first = next_magazine(first)) each(first);
    each(loose);
}

goroutine* take_goroutine_from_store(processor* p) noexcept {
    std::uint32_t got;
    if (p == nullptr) {
        goroutine* g = take_from_store(1, got);
        if (g != nullptr) g->link = nullptr;
        return g;
    }
    goroutine* g = p->full_magazine;
    got = magazine_size;
    p->full_magazine = nullptr;
    if (g == nullptr) g = take_from_store(magazine_size, got);
    if (g == nullptr) return nullptr;
    p->free_goroutine_count = got;
    return pop_goroutine(p, g);
}

void change_magazine(processor* p) noexcept {
    if (p->full_magazine != nullptr) put_magazine_into_store(p->full_magazine);
    p->full_magazine = p->free_goroutines;
    p->free_goroutines = nullptr;
    p->free_goroutine_count = 0;
}

stack::slot* take_stack(processor* p) noexcept {
    stack::slot* s = p->free_stacks.load(std::memory_order_acquire);
    if (DUNLIN_UNLIKELY(s == nullptr)) {
        p->free_stack_count = static_cast<std::uint32_t>(
            stack::stacks.allocate(the_scheduler.default_stack_class.load(std::memory_order_relaxed), &s,
                stacks_moved));
        if (p->free_stack_count == 0) return nullptr;
    }
    p->free_stacks.store(s->next, std::memory_order_relaxed);
    --p->free_stack_count;
    p->counts.stack_binds.add();
    stack::prepare_for_tools(*s);
    return s;
}

// The calling goroutine may be on s until it has switched away: s stays with p, and only the stacks below it may go.
void put_stack(processor* p, stack::slot* s) noexcept {
    s->next = p->free_stacks.load(std::memory_order_acquire);
    p->free_stacks.store(s, std::memory_order_release);
    ++p->free_stack_count;
    const bool starved = some_starve(), fed = DUNLIN_UNLIKELY(starved) && feed_starved();
    if (DUNLIN_LIKELY(p->free_stack_count <= stacks_kept && !starved)) return;
    const bool for_others = p->free_stack_count > 1;
    give_stacks_to_arena(p, starved ? 1 : stacks_kept / 2);
    if (fed && for_others) wake_if_idle();
}

void set_default_stack_class(unsigned size_class) noexcept {
    scheduler& s = the_scheduler;
    if (size_class == s.default_stack_class.load(std::memory_order_relaxed)) return;
    stop_world();
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) give_stacks_to_arena(s.processor_at(i), 0);
    s.default_stack_class.store(size_class, std::memory_order_relaxed);
    s.least_in_place.store(static_cast<std::ptrdiff_t>(stack::least_in_place(size_class)), std::memory_order_relaxed);
    start_world();
}

std::uint64_t take_id_batch(processor* p) noexcept {
    if (p == nullptr) return the_scheduler.next_id.fetch_add(1, std::memory_order_relaxed);
    p->next_id = the_scheduler.next_id.fetch_add(id_batch, std::memory_order_relaxed);
    p->last_id = p->next_id + id_batch;
    return p->next_id++;
}

}  // namespace dunlin::sched
