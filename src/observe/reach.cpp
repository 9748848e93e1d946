#include "observe/reach.h"

#include <algorithm>
#include <functional>

#include "park/join.h"
#include "park/parking_lot.h"
#include "platform/clock.h"
#include "sched/data/all_goroutines.h"
#include "sched/goroutines/goroutine.h"
#include "sched/goroutines/pool.h"
#include "stack/sanitizer.h"

namespace dunlin::inline v0_1::observe {

namespace {

using sched::goroutine;
using sched::goroutine_state;
using sched::wait_reason;

constexpr std::int64_t patience_ns = 3'000'000'000;
constexpr std::uintptr_t red_zone = 128;  // below the stack pointer, but still the function's own

template <class T>
std::uintptr_t address_of(const T* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }

// Its wait is one that only another goroutine or thread of the program ends. If such a wait has a limit, the search
// finds that: the timer refers to the waiter.
bool is_kept_apart(const goroutine& g) noexcept {
    return g.state.load(std::memory_order_acquire) == goroutine_state::waiting &&
           sched::ended_by(g.reason.load(std::memory_order_relaxed)) == sched::wait_ends_by::program;
}

}  // namespace

reach::reach(std::size_t count) noexcept
    : waiting_(count),
      by_id_(count),
      by_stack_(count),
      by_struct_(count),
      chunk_room_(sched::the_goroutines.count.load(std::memory_order_acquire) + 1),  // plain threads may make more
      chunks_(chunk_room_),
      ended_room_(chunk_room_ * sched::goroutines_in_a_chunk),
      ended_(ended_room_),
      regions_(max_regions),
      holes_(max_regions),
      stack_pointers_(max_stack_pointers),
      to_do_(4 * count + (1 << 16)),
      reader_room_(sizeof(platform::memory_reader) + alignof(platform::memory_reader)) {
    if (!waiting_.usable() || !by_id_.usable() || !by_stack_.usable() || !by_struct_.usable() ||
        !chunks_.usable() || !ended_.usable() || !regions_.usable() || !holes_.usable() || !stack_pointers_.usable() ||
        !to_do_.usable() || !reader_room_.usable()) {
        give_up("there is no memory for it");
        return;
    }
    sched::for_each_goroutine([&](const goroutine& g) {
        if (is_kept_apart(g)) add(g);
    });
    note_objects();
}

void reach::add(const goroutine& g) noexcept {
    const bool runs_another = g.reason.load(std::memory_order_relaxed) == wait_reason::in_place_join;
    const auto n = static_cast<std::uint32_t>(waiting_.size());
    const bool on_top = !runs_another && g.stack != nullptr && g.saved.load(std::memory_order_acquire) != 0;
    const std::uintptr_t sp = on_top ? address_of(static_cast<const std::byte*>(g.context.sp)) : 0;
    const std::uintptr_t slot = address_of(static_cast<stack::slot*>(g.stack));
    const std::uint32_t first = by_stack_.find(slot);
    const bool becomes_first = first == none || sp != 0;
    if (!waiting_.add(
            {&g, g.id, g.waits_since_ns, nullptr, sp, becomes_first ? first : waiting_[first].next_on_stack, false}))
        return;
    by_id_.set(g.id, n);
    by_struct_.set(address_of(&g), n);
    if (!becomes_first) waiting_[first].next_on_stack = n;
    if (becomes_first && slot != 0) by_stack_.set(slot, n);
}

// Takes the locks of the parking lot. A thread that stands still may hold them, so this comes before the standstill.
void reach::note_objects() noexcept {
    park::for_each_in_lot([&](const park::lot_node& node) noexcept {
        const goroutine* g = node.owner->goroutine();
        if (g == nullptr) return;
        if (const std::uint32_t n = by_id_.find(g->id); n != none) waiting_[n].object = node.address;
    });
}

const char* reach::search(std::uintptr_t from) noexcept {
    if (refused_ != nullptr) return refused_;
    if (stack::thread_sanitizing) return "ThreadSanitizer's own memory refers to all channels";
    const platform::standstill still;
    if (still.refused() != nullptr) return still.refused();
    return search_standing(from, still);
}

const char* reach::search_standing(std::uintptr_t from, const platform::standstill& still) noexcept {
    until_ns_ = platform::now_ns() + patience_ns;
    const std::size_t found = platform::read_memory_map({regions_.begin(), max_regions});
    if (found == 0 || found > max_regions) return "the memory of the process cannot be listed";
    for (std::size_t i = 0; i < found; ++i) regions_.add(regions_.begin()[i]);
    // Memory that is mapped from here on is not in that list, so it is not taken for the program's.
    heap_.emplace(std::span<const platform::mapped_region>(regions_.begin(), regions_.size()), until_ns_);
    if (!in_time()) return refused_;
    if (!heap_->usable()) return "there is no memory for it";
    blocks_to_do_.emplace(heap_->blocks() + 1);
    if (!blocks_to_do_->usable()) return "there is no memory for it";
    if (!list_holes()) return refused_;
    // A goroutine that a plain thread has woken since then goes on.
    for (const waiting& w : waiting_) {
        if (!is_kept_apart(*w.g)) reach_stack(w.g->stack);
    }
    // A free struct still contains what its last goroutine had, and the runtime refers to the struct: it is
    // noted here, so that the search does not follow it.
    sched::for_each_free_goroutine(
        [](const goroutine& g, void* self) noexcept { static_cast<reach*>(self)->note_ended(g); }, this);
    reader_ = ::new (reader_room_.begin()) platform::memory_reader;  // mapped memory begins at a page
    scan_threads(from, still);
    scan_goroutines();
    scan_memory();
    drain();
    follow_objects();
    if (!reader_->works()) give_up("the kernel does not let the process read its memory");
    reader_->~memory_reader();
    return refused_;
}

// ---- what is not a root ---------------------------------------------------------------------------------------------

void reach::hole(std::uintptr_t begin, std::size_t bytes) noexcept {
    if (!holes_.add({begin, begin + bytes})) give_up("its memory is in too many pieces");
}

bool reach::list_holes() noexcept {
    const auto own = [&](const auto& array) { hole(address_of(array.range().begin), array.range().bytes); };
    own(waiting_), own(by_id_), own(by_stack_), own(by_struct_), own(chunks_), own(ended_);
    own(regions_), own(holes_), own(stack_pointers_), own(to_do_), own(reader_room_);
    hole(address_of(park::the_lot), sizeof park::the_lot);
    stack::stacks.for_each_range([&](platform::memory_range r) {
        hole(address_of(r.begin), r.bytes);
        stacks_ = {std::min(stacks_.begin, address_of(r.begin)), std::max(stacks_.end, address_of(r.end()))};
    });
    const sched::goroutine_chunks& chunks = sched::the_goroutines;
    const std::size_t count = chunks.count.load(std::memory_order_acquire);
    if (count > chunk_room_) return give_up("goroutines are made too fast"), false;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uintptr_t chunk = address_of(chunks.at[i].load(std::memory_order_relaxed));
        hole(chunk, sched::goroutine_chunks::chunk_bytes);
        chunks_.set(chunk / sched::goroutine_chunks::chunk_bytes, static_cast<std::uint32_t>(i));
        structs_ = {std::min(structs_.begin, chunk),
            std::max(structs_.end, chunk + sched::goroutine_chunks::chunk_bytes)};
    }
    heap_->for_each_heap([&](address_range r) { hole(r.begin, r.end - r.begin); });
    std::sort(
        holes_.begin(), holes_.end(), [](const address_range& a, const address_range& b) { return a.begin < b.begin; });
    return refused_ == nullptr;
}

// ---- roots ----------------------------------------------------------------------------------------------------------

void reach::scan_threads(std::uintptr_t from, const platform::standstill& still) noexcept {
    stack_pointers_.add({from, stack::thread_pointer_here()});
    for (const platform::standing_thread& t : still.threads()) {
        if (t.gone) continue;
        look_at_all(t.general, std::size(t.general));
        for (const std::uint64_t word : t.vectors) look(word);
        if (!stack_pointers_.add({t.stack_pointer - red_zone, t.thread_pointer})) give_up("there are too many threads");
    }
    std::sort(stack_pointers_.begin(), stack_pointers_.end(),
        [](const thread_place& a, const thread_place& b) { return a.sp < b.sp; });
    for (const thread_place& t : stack_pointers_) {
        if (const stack::slot* s = slot_of(t.sp)) push({t.sp & ~std::uintptr_t{7}, address_of(s->top)});
    }
    drain();
}

const reach::thread_place* reach::first_at(std::uintptr_t address) const noexcept {
    return std::lower_bound(stack_pointers_.begin(), stack_pointers_.end(), address,
        [](const thread_place& t, std::uintptr_t a) { return t.sp < a; });
}

bool reach::thread_stands_in(const stack::slot& s) const noexcept {
    const thread_place* const t = first_at(address_of(s.base()));
    return t != stack_pointers_.end() && t->sp < address_of(s.end());
}

void reach::scan_closure(const goroutine& g) noexcept {
    look_at_all(
        reinterpret_cast<const std::uintptr_t*>(g.inline_frame), sched::inline_frame_bytes / sizeof(std::uintptr_t));
    look(address_of(g.extra));
    look(address_of(static_cast<const std::byte*>(g.exceptions.caught)));
    look(address_of(static_cast<const std::byte*>(g.context.fp)));
}

// The goroutines that are not in `waiting_`.
void reach::scan_goroutines() noexcept {
    sched::for_each_goroutine([&](const goroutine& g) {
        const goroutine_state state = g.state.load(std::memory_order_acquire);
        if (state == goroutine_state::dead) return;
        if (by_struct_.find(address_of(&g)) != none) return;
        scan_closure(g);
        reach_joiner(g);
        const stack::slot* s = g.stack;
        if (s == nullptr) return;
        reach_stack(s);  // the goroutines that run it in place
        if (thread_stands_in(*s)) return;
        const bool parked = g.saved.load(std::memory_order_acquire) != 0 &&
                            (state == goroutine_state::waiting || state == goroutine_state::runnable);
        scan_root(parked ? address_of(static_cast<const std::byte*>(g.context.sp)) : address_of(s->low()),
            address_of(s->top));
    });
    drain();
}

// Where the unused part of this region ends. If the region is a thread's stack, made by the kernel or by libc (which
// keeps its data of the thread at the top and a guard before the stack), that is all below the lowest stack pointer in
// it. Of any other region nothing is known: no part counts as unused.
std::uintptr_t reach::unused_to(const platform::mapped_region& r) const noexcept {
    const thread_place* const t = first_at(r.begin);
    if (t == stack_pointers_.end() || t->sp >= r.end) return r.begin;
    const bool of_libc = r.guarded && t->thread_pointer > t->sp && t->thread_pointer < r.end;
    return r.main_stack || of_libc ? t->sp & ~std::uintptr_t{7} : r.begin;
}

void reach::scan_memory() noexcept {
    for (const platform::mapped_region& r : regions_) {
        if (!r.writable && !r.anonymous) continue;
        if (stack::address_sanitizing && r.end - r.begin > std::uintptr_t{32} << 30) continue;  // its shadow
        std::uintptr_t at = unused_to(r);
        const address_range* h = std::upper_bound(
            holes_.begin(), holes_.end(), at, [](std::uintptr_t a, const address_range& b) { return a < b.end; });
        for (; at < r.end && refused_ == nullptr; ++h) {
            const std::uintptr_t end = h != holes_.end() ? std::clamp(h->begin, at, r.end) : r.end;
            scan_root(at, end);
            if (h == holes_.end()) break;
            at = std::max(at, h->end);
        }
    }
}

void reach::scan_root(std::uintptr_t begin, std::uintptr_t end) noexcept {
    if (begin >= end || !in_time()) return;
    reader_->for_each_piece(begin, end, [&](std::uintptr_t from, const std::uintptr_t* words, std::size_t count) {
        scan_piece(from, words, count, end);
        drain();
    });
}

void reach::scan_piece(
    std::uintptr_t from, const std::uintptr_t* words, std::size_t count, std::uintptr_t end) noexcept {
    if (!in_time()) return;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uintptr_t place = from + i * sizeof(std::uintptr_t);
        if (const std::size_t bytes = heap_->bytes_of_record_at(place, words[i], end)) {
            i += bytes / sizeof(std::uintptr_t) - 1;
        } else {
            look(words[i]);
        }
    }
}

bool reach::in_time() noexcept {
    if (refused_ == nullptr && platform::now_ns() > until_ns_) give_up("it takes longer than three seconds");
    return refused_ == nullptr;
}

// ---- what refers to what --------------------------------------------------------------------------------------------

void reach::look(std::uintptr_t word) noexcept {
    if (const stack::slot* s = slot_of(word)) return look_at_slot(*s, word);
    if (const goroutine* g = struct_of(word)) return look_at_struct(*g, word);
    if (const std::optional<address_range> block = heap_->reach(word)) {
        if (!blocks_to_do_->add(*block)) give_up("there is no memory for it");
    }
}

DUNLIN_NOT_INSTRUMENTED __attribute__((no_sanitize_address)) void reach::look_at_all(
    const std::uintptr_t* words, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) look(words[i]);
}

const stack::slot* reach::slot_of(std::uintptr_t word) const noexcept {
    return stacks_.contains(word) ? stack::stacks.lookup(reinterpret_cast<const void*>(word)).owner : nullptr;
}

const goroutine* reach::struct_of(std::uintptr_t word) const noexcept {
    if (!structs_.contains(word)) return nullptr;
    // chunks are aligned to their size
    const std::uint32_t chunk = chunks_.find(word / sched::goroutine_chunks::chunk_bytes);
    if (chunk == none) return nullptr;
    const goroutine* const first = sched::the_goroutines.at[chunk].load(std::memory_order_relaxed);
    const std::uintptr_t offset = word - address_of(first);
    return offset < sched::goroutines_in_a_chunk * sizeof(goroutine) ? first + offset / sizeof(goroutine) : nullptr;
}

// A word counts if it points into the frames of the goroutines that wait on this stack. `top` itself belongs to none.
void reach::look_at_slot(const stack::slot& s, std::uintptr_t word) noexcept {
    if (word >= address_of(s.top)) return;
    const std::uint32_t first = by_stack_.find(address_of(&s));
    if (first != none && waiting_[first].sp != 0 && word >= waiting_[first].sp) reach_stack(&s);
}

// A task, a queue and the runtime refer to the goroutine's struct itself; none of them gets from there to what a
// goroutine has that has not ended. Code that has an address within the closure does. The task of a goroutine that has
// ended gets the result from the closure.
void reach::look_at_struct(const goroutine& g, std::uintptr_t word) noexcept {
    const address_range closure{address_of(g.inline_frame), address_of(g.inline_frame) + sched::inline_frame_bytes};
    if (by_struct_.find(address_of(&g)) != none) {
        if (closure.contains(word)) reach_stack(g.stack);
        return;
    }
    if (g.state.load(std::memory_order_relaxed) == goroutine_state::dead && note_ended(g)) push(closure);
}

// False: it was noted before.
bool reach::note_ended(const goroutine& g) noexcept {
    if (ended_.find(address_of(&g)) != none) return false;
    if (ended_count_ == ended_room_) return give_up("there are too many goroutines that have ended"), false;
    ++ended_count_;
    ended_.set(address_of(&g), 0);
    return true;
}

// Reaches all goroutines on this stack, and only once: a recursion may have put ten thousand of them there.
void reach::reach_stack(const stack::slot* s) noexcept {
    const std::uint32_t first = by_stack_.find(address_of(s));
    if (first == none || waiting_[first].reached) return;
    for (std::uint32_t on = first; on != none; on = waiting_[on].next_on_stack) waiting_[on].reached = true;
    for (std::uint32_t on = first; on != none; on = waiting_[on].next_on_stack) look_from(waiting_[on]);
}

void reach::look_from(const waiting& w) noexcept {
    push({address_of(w.g->inline_frame), address_of(w.g->inline_frame) + sched::inline_frame_bytes});
    if (w.sp != 0) push({w.sp, address_of(w.g->stack->top)});
    look(address_of(w.g->extra));
    look(address_of(static_cast<const std::byte*>(w.g->exceptions.caught)));
    // a register like any other, if frames have no frame pointer
    look(address_of(static_cast<const std::byte*>(w.g->context.fp)));
    reach_joiner(*w.g);
}

void reach::reach_joiner(const goroutine& child) noexcept {
    const goroutine* const joiner = park::joiner_of(&child);
    if (joiner == nullptr) return;
    if (const std::uint32_t n = by_struct_.find(address_of(joiner)); n != none) reach_stack(joiner->stack);
}

void reach::push(address_range range) noexcept {
    if (!to_do_.add(range)) give_up("there is no memory for it");
}

void reach::drain() noexcept {
    while (refused_ == nullptr) {
        mapped_array<address_range>& from = to_do_.size() != 0 ? to_do_ : *blocks_to_do_;
        if (from.size() == 0) return;
        const address_range r = from[from.size() - 1];
        from.shrink(from.size() - 1);
        look_at_all(reinterpret_cast<const std::uintptr_t*>(r.begin), (r.end - r.begin) / sizeof(std::uintptr_t));
        if (++looks_ % 1024 == 0) in_time();
    }
}

bool reach::object_reached(const void* object) const noexcept {
    const std::uintptr_t a = address_of(static_cast<const std::byte*>(object));
    const goroutine* const g = struct_of(a);
    const stack::slot* const s = slot_of(a);
    if (g != nullptr || s != nullptr) {
        const std::uint32_t n = g != nullptr ? by_struct_.find(address_of(g)) : by_stack_.find(address_of(s));
        return n == none || waiting_[n].reached;
    }
    return !heap_->in_heap(a) || heap_->reached(a);
}

// An object of the parking lot may be reached only after the waiter of another object has been.
void reach::follow_objects() noexcept {
    for (bool changed = true; changed && in_time();) {
        changed = false;
        for (std::uint32_t n = 0; n < waiting_.size(); ++n) {
            const waiting& w = waiting_[n];
            if (w.reached || w.object == nullptr || !object_reached(w.object)) continue;
            reach_stack(w.g->stack);
            drain();
            changed = true;
        }
    }
}

}  // namespace dunlin::observe
