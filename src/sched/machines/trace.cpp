#include "sched/machines/trace.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "platform/clock.h"
#include "platform/cycles.h"
#include "platform/lock.h"
#include "platform/memory.h"
#include "platform/thread.h"
#include "sched/data/current.h"
#include "sched/data/all_goroutines.h"
#include "sched/machines/machine.h"
#include "sched/machines/processor.h"
#include "sched/machines/waits.h"

namespace dunlin::inline v0_1::sched::tracing {

constinit platform::atomic<std::uint8_t> wanted{0};

// ---- the clock ------------------------------------------------------------------------------------------------------

namespace {

constinit bool use_cycles = false;  // constant while a trace runs

}  // namespace

bool ticks_are_cycles() noexcept { return use_cycles; }

std::uint64_t ticks() noexcept {
    return use_cycles ? platform::cycles() : static_cast<std::uint64_t>(platform::now_ns());
}

// ---- chunks ---------------------------------------------------------------------------------------------------------

namespace {

// All but `generation` under the lock.
struct store {
    platform::ranked_lock<platform::lock_rank::trace> lock;
    platform::atomic<std::uint32_t> generation{0};  // also read by writers of events
    bool recycle = false;
    chunk* free = nullptr;
    std::size_t chunks = 0, in_trace = 0;      // how many there are; how many this trace may use
    std::size_t taken = 0;                     // of these, in use
    chunk** full = nullptr;                    // full[i % room]: number i, from `first` to `end`
    std::size_t room = 0;
    std::uint64_t first = 0, end = 0;
    std::uint64_t overwritten_until = 0;
};

constinit store the_store;
constinit platform::atomic<bool> no_locks{false};
constinit ring outside, monitor, control;  // trace.h, Rings

// Holds the trace's lock, except when the process dies.
class holds_store {
public:
    holds_store() noexcept : locked_(!no_locks.load(std::memory_order_relaxed)) {
        if (locked_) the_store.lock.lock();
    }
    ~holds_store() {
        if (locked_) the_store.lock.unlock();
    }
    holds_store(const holds_store&) = delete;
    holds_store& operator=(const holds_store&) = delete;

private:
    bool locked_;
};

void put_free(chunk* c) noexcept {
    c->next = the_store.free;
    the_store.free = c;
}

// Under the lock. A machine's open chunk of an earlier trace comes back here; it is not counted as taken by this trace.
void close_chunk(ring& r) noexcept {
    store& s = the_store;
    chunk* c = std::exchange(r.now, nullptr);
    if (c == nullptr) return;
    if (r.generation == s.generation.load(std::memory_order_relaxed)) {
        s.full[s.end++ % s.room] = c;
    } else {
        put_free(c);
    }
}

chunk* take_chunk() noexcept {
    store& s = the_store;
    if (s.free != nullptr && s.taken < s.in_trace) {
        ++s.taken;
        return std::exchange(s.free, s.free->next);
    }
    if (!s.recycle || s.first == s.end) return nullptr;
    chunk* c = s.full[s.first++ % s.room];
    if (const std::uint32_t used = c->used.load(std::memory_order_relaxed)) {
        s.overwritten_until = std::max(s.overwritten_until, c->events[used - 1].time);
    }
    return c;
}

void lose(ring& r, std::uint64_t before, std::uint32_t places) noexcept {
    r.lost.store(before + places, std::memory_order_relaxed);
    r.lost_at.store(ticks(), std::memory_order_relaxed);
}

// Recorder: events of r were lost until lost_at, so nothing before that is complete.
void note_loss(const ring& r) noexcept {
    store& s = the_store;
    if (s.recycle) s.overwritten_until = std::max(s.overwritten_until, r.lost_at.load(std::memory_order_relaxed));
}

constexpr std::uint64_t ask_again_every = 64;  // events lost between two looks whether there is a chunk again

// A chunk for r with room for `places` events. Null: these events are lost.
[[gnu::noinline]] chunk* next_chunk(ring& r, std::uint32_t source, std::uint32_t places) noexcept {
    const std::uint32_t generation = the_store.generation.load(std::memory_order_relaxed);
    const std::uint64_t lost = r.lost.load(std::memory_order_relaxed);
    if (r.now == nullptr && r.generation == generation && lost % ask_again_every != 0) {
        lose(r, lost, places);
        return nullptr;
    }
    const holds_store lock;
    if (!on()) return nullptr;
    close_chunk(r);
    const bool of_this_trace = r.generation == the_store.generation.load(std::memory_order_relaxed);
    const std::uint64_t lost_now = of_this_trace ? lost : 0;
    r.generation = the_store.generation.load(std::memory_order_relaxed);
    chunk* c = take_chunk();
    if (c == nullptr) {
        lose(r, lost_now, places);
        return nullptr;
    }
    if (lost_now != 0) note_loss(r);
    r.lost.store(0, std::memory_order_relaxed);
    c->source = source;
    c->lost = lost_now;
    c->tid = platform::thread_id();
    c->used.store(0, std::memory_order_relaxed);
    r.now = c;
    return c;
}

[[gnu::always_inline]] inline chunk* room_in(ring& r, std::uint32_t source, std::uint32_t places) noexcept {
    chunk* c = r.now;
    // A trace that has begun since then is seen here: after the world was stopped for it, the machine has come into the
    // runtime, or the caller has taken the scheduler lock.
    if (c != nullptr && r.generation == the_store.generation.load(std::memory_order_relaxed) &&
        c->used.load(std::memory_order_relaxed) + places <= chunk::places) [[likely]] {
        return c;
    }
    return next_chunk(r, source, places);
}

[[gnu::always_inline]] inline void put(ring& r, std::uint32_t source, const event& e) noexcept {
    chunk* c = room_in(r, source, 1);
    if (c == nullptr) return;
    const std::uint32_t at = c->used.load(std::memory_order_relaxed);
    c->events[at] = e;
    r.fresh = 0;
    c->used.store(at + 1, std::memory_order_release);
}

void put_text(ring& r, std::uint32_t source, event e, std::string_view text) noexcept {
    text = text.substr(0, longest_text);
    const auto behind = static_cast<std::uint32_t>((text.size() + sizeof(event) - 1) / sizeof(event));
    chunk* c = room_in(r, source, 1 + behind);
    if (c == nullptr) return;
    const std::uint32_t at = c->used.load(std::memory_order_relaxed);
    e.turn = static_cast<std::uint32_t>(text.size());
    c->events[at] = e;
    if (behind != 0) {
        c->events[at + behind] = event{};
        std::memcpy(&c->events[at + 1], text.data(), text.size());
    }
    c->used.store(at + 1 + behind, std::memory_order_release);
}

std::uint16_t number_of(const processor* p) noexcept {
    return p != nullptr ? static_cast<std::uint16_t>(p->id) : no_processor;
}
std::uint16_t processor_number(const machine* m) noexcept { return number_of(m->p.load(std::memory_order_relaxed)); }

std::uint64_t raw(creation_place place) noexcept { return std::bit_cast<std::uint64_t>(place); }

// g is not published yet. Makes no event if the trace knows g.
void note_if_new(ring& r, std::uint32_t source, std::uint16_t p, goroutine* g) noexcept {
    if (g->flags & goroutine::traced) return;
    g->flags |= goroutine::traced;
    put(r, source, {ticks(), g->id, raw(g->created_at), 0, p, kind::created, 0});
    if (g->extra == nullptr) return;
    if (!g->extra->name.empty()) put_text(r, source, {ticks(), g->id, 0, 0, p, kind::name, 0}, g->extra->name);
    if (g->extra->task != 0) put(r, source, {ticks(), g->id, g->extra->task, 0, p, kind::task_of, 0});
}

}  // namespace

namespace {

// g is not published yet. A random generator, not a count: with a count, goroutines that become runnable in a regular
// pattern would all be of one kind.
bool is_drawn(ring& r) noexcept {
    r.draw = r.draw * 1'664'525u + 1'013'904'223u;
    return r.draw >> 29 == 0;
}
static_assert(one_in_measured == 8);

}  // namespace

// ---- notes ----------------------------------------------------------------------------------------------------------

void note_runnable(machine* m, goroutine* g) noexcept {
    if (measures() && is_drawn(m->trace)) {
        begin_latency(g);
        if (processor* p = m->p.load(std::memory_order_relaxed)) note_queue_length(p);
    }
    if (!on()) return;
    const std::uint16_t p = processor_number(m);
    note_if_new(m->trace, m->id, p, g);
    const goroutine* by = m->current.load(std::memory_order_relaxed);
    const bool by_it = m->trace.why == cause::goroutine;
    const cause why = by_it && by == nullptr ? cause::runtime : m->trace.why;
    g->marks.set_traced(true);
    put(m->trace, m->id, {ticks(), g->id, by_it && by != nullptr ? by->id : 0, g->run_count(), p, kind::runnable,
        static_cast<std::uint8_t>(why)});
}

void note_runnable_outside(goroutine* g, cause why) noexcept {
    if (measures() && is_drawn(outside)) begin_latency(g);
    if (!on()) return;
    note_if_new(outside, outside_source, no_processor, g);
    g->marks.set_traced(true);
    put(outside, outside_source,
        {ticks(), g->id, 0, g->run_count(), no_processor, kind::runnable, static_cast<std::uint8_t>(why)});
}

void note_run(processor* p, goroutine* g) noexcept {
    if (!on()) {
        g->marks.set_traced(false);
        g->flags &= static_cast<std::uint8_t>(~goroutine::traced);
        return;
    }
    machine* m = current_machine();
    g->set_run_count(g->run_count() + 1);
    const std::uint64_t now = m->trace.fresh != 0 ? m->trace.fresh : ticks();
    put(m->trace, m->id, {now, g->id, 0, g->run_count(), number_of(p), kind::run,
        static_cast<std::uint8_t>((g->flags & goroutine::in_place) != 0)});
}

void note(machine* m, kind what, const goroutine* g, std::uint64_t arg, std::uint8_t detail) noexcept {
    const std::uint64_t now = ticks();
    put(m->trace, m->id,
        {now, g != nullptr ? g->id : 0, arg, g != nullptr ? g->run_count() : 0, processor_number(m), what,
        detail});
    if (what == kind::park || what == kind::yield || what == kind::end) m->trace.fresh = now;
}

void note_processor(machine* m, kind what, const processor* p, std::uint64_t arg, std::uint32_t count) noexcept {
    put(m->trace, m->id, {ticks(), 0, arg, count, number_of(p), what, 0});
}

void note_text(machine* m, kind what, const goroutine* g, std::uint64_t arg, std::string_view text) noexcept {
    put_text(m->trace, m->id, {ticks(), g != nullptr ? g->id : 0, arg, 0, processor_number(m), what, 0}, text);
}

void note_taken(const processor* p, const machine* from, taking how) noexcept {
    const goroutine* g = from->current.load(std::memory_order_relaxed);
    put(monitor, monitor_source,
        {ticks(), g != nullptr ? g->id : 0, from->id, 0, number_of(p), kind::taken, static_cast<std::uint8_t>(how)});
}

void note_frozen(goroutine& g) noexcept {
    if (!on() || !(g.flags & goroutine::traced)) return;
    // a preempted one is met twice: with its machine, and in the table of all goroutines
    g.flags &= static_cast<std::uint8_t>(~goroutine::traced);
    put(outside, outside_source, {ticks(), g.id, 0, g.run_count(), no_processor, kind::frozen, 0});
}

void note_world(kind what) noexcept { put(outside, outside_source, {ticks(), 0, 0, 0, no_processor, what, 0}); }

because::because(machine* m, cause why) noexcept : m_(m), before_(m != nullptr ? m->trace.why : cause::goroutine) {
    if (m_ != nullptr) m_->trace.why = why;
}
because::~because() {
    if (m_ != nullptr) m_->trace.why = before_;
}

// ---- begin and end --------------------------------------------------------------------------------------------------

namespace {

// Called while no trace runs and there is no reader.
void make_chunks(std::size_t want) {
    store& s = the_store;
    if (s.room < want) {
        auto room = std::make_unique<chunk*[]>(want);
        {
            const unstoppable_section section;
            const holds_store lock;
            // Chunks of an earlier recorder are in the array that is about to be freed.
            while (s.first != s.end) put_free(s.full[s.first++ % s.room]);
            s.first = s.end = 0;
            room.reset(std::exchange(s.full, room.release()));
            s.room = want;
        }
    }
    if (s.chunks >= want) return;
    const std::size_t more = want - s.chunks;
    std::byte* memory = platform::reserve(more * sizeof(chunk));
    if (memory == nullptr) throw std::bad_alloc();
    platform::name_range({memory, more * sizeof(chunk)}, "dunlin trace");
    const unstoppable_section section;
    const holds_store lock;
    for (std::size_t i = more; i-- > 0;) put_free(new (memory + i * sizeof(chunk)) chunk);
    s.chunks = want;
}

void note_existing(goroutine& g) noexcept {
    const goroutine_state state = g.state.load(std::memory_order_acquire);
    if (state == goroutine_state::dead || state == goroutine_state::frozen) return;
    g.flags |= goroutine::traced;
    g.marks.set_traced(true);
    const auto reason = static_cast<std::uint16_t>(g.reason.load(std::memory_order_relaxed));
    put(control, control_source,
        {ticks(), g.id, raw(g.created_at), g.run_count(), reason, kind::existing, static_cast<std::uint8_t>(state)});
    if (g.extra == nullptr) return;
    if (!g.extra->name.empty()) {
        put_text(control, control_source, {ticks(), g.id, 0, 0, no_processor, kind::name, 0}, g.extra->name);
    }
    if (g.extra->task != 0) {
        put(control, control_source, {ticks(), g.id, g.extra->task, 0, no_processor, kind::task_of, 0});
    }
}

}  // namespace

// The world is stopped, and the scheduler lock is held.
static void want(std::uint8_t what, bool yes) noexcept {
    const std::uint8_t before = wanted.load(std::memory_order_relaxed);
    wanted.store(static_cast<std::uint8_t>(yes ? before | what : before & ~what), std::memory_order_relaxed);
    const std::uint32_t made = the_scheduler.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) {
        processor* p = the_scheduler.processor_at(i);
        p->look_at_push(p->looks_at_turns);
    }
}

void begin(std::size_t bytes, bool recycle, void (*switch_waits)(bool)) {
    scheduler& s = the_scheduler;
    constexpr std::size_t fewest = 16;
    make_chunks(std::max(bytes / sizeof(chunk), fewest));
    use_cycles = platform::cycles_are_even();
    stop_world();
    s.lock.lock();  // plain threads start goroutines under it
    {
        const holds_store lock;
        store& t = the_store;
        while (t.first != t.end) put_free(t.full[t.first++ % t.room]);
        t.first = t.end = 0;
        t.in_trace = std::max(bytes / sizeof(chunk), fewest);
        t.taken = 0;
        t.recycle = recycle;
        t.overwritten_until = 0;
        t.generation.store(t.generation.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    want(events_wanted, true);
    for_each_goroutine(note_existing);
    switch_waits(true);
    s.lock.unlock();
    start_world();
}

void finish(void (*switch_waits)(bool)) noexcept {
    scheduler& s = the_scheduler;
    stop_world();
    s.lock.lock();
    switch_waits(false);
    want(events_wanted, false);
    s.lock.unlock();
    start_world();
}

void measure(bool yes) noexcept {
    scheduler& s = the_scheduler;
    stop_world();
    s.lock.lock();
    want(latency_wanted, yes);
    s.lock.unlock();
    start_world();
}

// ---- reading --------------------------------------------------------------------------------------------------------

namespace {

void copy(const chunk& c, view& into) noexcept {
    into.source = c.source;
    into.tid = c.tid;
    into.lost = c.lost;
    into.used = c.used.load(std::memory_order_acquire);  // pairs with the release in put()
    std::copy_n(c.events, into.used, into.events);
}

bool copy_open(const ring& r, std::uint32_t source, view& into) noexcept {
    const unstoppable_section section;
    const holds_store lock;
    if (r.generation != the_store.generation.load(std::memory_order_relaxed)) return false;
    if (r.now != nullptr) {
        copy(*r.now, into);
        return true;
    }
    into.source = source;
    into.tid = 0;
    into.used = 0;
    into.lost = r.lost.load(std::memory_order_relaxed);
    if (into.lost == 0) return false;
    note_loss(r);
    return true;
}

}  // namespace

bool take_full(view& into) noexcept {
    store& s = the_store;
    const unstoppable_section section;
    const holds_store lock;
    if (s.first == s.end) return false;
    chunk* c = s.full[s.first++ % s.room];
    copy(*c, into);
    --s.taken;
    put_free(c);
    return true;
}

bool look_at_full(std::uint64_t& at, view& into) noexcept {
    store& s = the_store;
    const unstoppable_section section;
    const holds_store lock;
    at = std::max(at, s.first);
    if (at >= s.end) return false;
    copy(*s.full[at % s.room], into);
    return true;
}

void look_at_open(view& room, void (*f)(void*, const view&), void* with) noexcept {
    if (copy_open(control, control_source, room)) f(with, room);
    if (copy_open(outside, outside_source, room)) f(with, room);
    if (copy_open(monitor, monitor_source, room)) f(with, room);
    for (const machine* m = the_scheduler.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
        if (copy_open(m->trace, m->id, room)) f(with, room);
    }
}

unsigned filled() noexcept {
    const store& s = the_store;
    const unstoppable_section section;
    const holds_store lock;
    return s.in_trace == 0 ? 0 : static_cast<unsigned>((s.end - s.first) * 256 / s.in_trace);
}

std::uint64_t complete_from() noexcept {
    const unstoppable_section section;
    const holds_store lock;
    return the_store.overwritten_until;
}

void ignore_locks() noexcept { no_locks.store(true, std::memory_order_relaxed); }

}  // namespace dunlin::sched::tracing
