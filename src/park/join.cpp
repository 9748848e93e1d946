// join.cpp - see join.h.
//
// goroutine::join is a join_word (`alive`, `ended`), or the address of the joiner's waiter. The end exchanges `ended`
// into it (sched/goroutines/goroutine.cpp, end_goroutine); the joiner exchanges `alive` for its waiter by CAS. The
// second of the two acts: the end wakes the waiter, or the joiner sees `ended` and does not park. One joiner at a time:
// a task handle is not shared.
//
// A joiner that may give up must not be found by an end that is under way when the joiner goes: it waits in the parking
// lot instead, and leaves `in_the_lot` here, for good.
//
// A holder that lets the goroutine go exchanges `let_go` into it. The second of end and holder puts the struct
// back: the end if it finds `let_go`, the holder if it finds `ended`.
// A task that is detached leaves an heir: the address of a goroutine that is made but not started, with `heir_bit`. The
// end starts the heir, which drops what the task would have dropped, outside the runtime.
#include "park/join.h"

#include "park/parking_lot.h"
#include "park/wait_queue.h"
#include "park/waiter.h"
#include "platform/text.h"
#include "platform/thread.h"
#include "sched/machines/wake.h"
#include "sched/preempt/crash.h"

namespace dunlin::inline v0_1::park {

namespace {

using sched::join_word;
static_assert(alignof(waiter) >= 8 && alignof(sched::goroutine) >= 8);

constexpr bool names_joiner(std::uintptr_t join) noexcept {
    return join > join_word::let_go && (join & join_word::heir_bit) == 0;
}

// The youngest goroutine of this processor, taken off its queue, if it is one of `group`.
sched::goroutine* take_youngest_of(sched::processor* p, const void* group) noexcept {
    // A goroutine that needs a stack of its own has no group (detail::start).
    const auto wanted = [group](
                            const sched::goroutine* g) { return g->group.load(std::memory_order_relaxed) == group; };
    if (sched::goroutine* g = p->run_next.load(std::memory_order_relaxed)) {
        if (!wanted(g)) return nullptr;
        p->run_next.store(nullptr, std::memory_order_relaxed);
        return g;
    }
    return p->queue.pop_youngest_if(wanted);
}

[[gnu::always_inline]] inline bool run_youngest_in_place(const void* group,
    const std::source_location& where) noexcept {
    sched::machine* m = sched::current_machine();
    if (m == nullptr || !sched::room_for_child(m->current.load(std::memory_order_relaxed))) return false;
    m = sched::enter(m);
    sched::processor* p = sched::processor_of(m);
    sched::goroutine* g = sched::must_look_around(p) ? nullptr : take_youngest_of(p, group);
    if (g != nullptr) m = sched::run_in_place(m, g, where);
    sched::leave(m);
    return g != nullptr;
}

bool was_stopped(const sched::goroutine* g) noexcept {
    if (g->state.load(std::memory_order_acquire) == sched::goroutine_state::frozen) return true;
    // In a call of the system it is lost when it comes back (end_of_run.cpp).
    const sched::machine* m = sched::the_scheduler.machines.load(std::memory_order_acquire);
    for (; m != nullptr; m = m->all_next) {
        const bool condemned = m->condemned.load(std::memory_order_acquire);
        if (condemned && m->current.load(std::memory_order_relaxed) == g) return true;
    }
    return false;
}

// The thread that ends the process joins a goroutine that was stopped: it would never go on.
void check_may_end(const sched::goroutine* child) noexcept {
    if (sched::the_scheduler.exiting.load(std::memory_order_relaxed) != platform::thread_id()) return;
    if (!was_stopped(child)) return;
    platform::text_writer text(-1);
    text << "a static object waits for goroutine " << child->id
         << ", which the end of its run() has stopped: join it before, or start it from a plain thread";
    sched::report_misuse(text.view());
}

[[gnu::noinline]] void park_until_end_of(sched::goroutine* child, const std::source_location& where) noexcept {
    waiter w;
    w.enter();
    if (w.goroutine() != nullptr) {
        w.goroutine()->set_waits_for(&child->join);
    } else {
        check_may_end(child);
    }
    w.prepare(sched::wait_reason::task_join, where);
    std::uintptr_t expected = join_word::alive;
    while (expected != join_word::ended) {
        // Release publishes the waiter; acquire, when the child was quicker, sees its result.
        const auto mine = reinterpret_cast<std::uintptr_t>(&w);
        if (!child->join.compare_exchange_strong(expected, mine, std::memory_order_acq_rel,
            std::memory_order_acquire)) {
            continue;
        }
        w.wait();
        return;
    }
    w.withdraw();
    w.leave();
}

}  // namespace

bool has_ended(const sched::goroutine* child) noexcept {
    return child->join.load(std::memory_order_acquire) == join_word::ended;
}

// seq_cst: pairs with the end's exchange of `join` (A1), which comes before its look at `waiting` in wake_joiner().
bool has_ended_for_lot(const sched::goroutine* child) noexcept {
    return child->join.load(std::memory_order_seq_cst) == join_word::ended;
}

const sched::goroutine* joiner_of(const sched::goroutine* child) noexcept {
    const std::uintptr_t raw = child->join.load(std::memory_order_acquire);
    return names_joiner(raw) ? reinterpret_cast<const waiter*>(raw)->goroutine() : nullptr;
}

namespace detail {

bool run_youngest_of(const void* group, const std::source_location& where) noexcept {
    return run_youngest_in_place(group, where);
}

}  // namespace detail

bool announce_join_in_lot(sched::goroutine* child) noexcept {
    std::uintptr_t expected = join_word::alive;
    return child->join.compare_exchange_strong(expected, join_word::in_the_lot, std::memory_order_seq_cst) ||
        expected == join_word::in_the_lot;
}

void detach(sched::goroutine* child) noexcept {
    // Acquire: the end has made its last use of the goroutine. Release: so has this holder.
    const std::uintptr_t before = child->join.exchange(join_word::let_go, std::memory_order_acq_rel);
    if (before == join_word::ended) sched::release_goroutine(child);
}

bool leave_to_heir(sched::goroutine* child, sched::goroutine* g) noexcept {
    const std::uintptr_t mine = reinterpret_cast<std::uintptr_t>(g) | join_word::heir_bit;
    std::uintptr_t expected = join_word::alive;
    // Release publishes the heir to the end; acquire, when the child was quicker, sees its result.
    while (!child->join.compare_exchange_strong(expected, mine, std::memory_order_acq_rel, std::memory_order_acquire)) {
        if (expected != join_word::in_the_lot) return false;
    }
    return true;
}

void wake_joiner(sched::goroutine* child, std::uintptr_t raw) noexcept {
    if (DUNLIN_LIKELY(names_joiner(raw))) {
        reinterpret_cast<waiter*>(raw)->wake();
        return;
    }
    if (raw == join_word::let_go) {
        sched::put_back_inside_runtime(child);
        return;
    }
    if (raw != join_word::in_the_lot) {
        sched::start_made_inside_runtime(reinterpret_cast<sched::goroutine*>(raw & ~join_word::heir_bit));
        return;
    }
    lot_bucket& b = bucket_of(join_address(child));
    // Pairs with announce() (parking_lot.h, A2 and B2), after the exchange of `join` by the end.
    // the joiner has given up, or will find the goroutine ended
    if (b.waiting.load(std::memory_order_seq_cst) == 0) return;
    b.lock.lock();
    // By now the struct may be another goroutine's, whose joiner is not ours to wake.
    wait_node* const chain = has_ended(child) ? b.take_all(join_address(child)) : nullptr;
    b.lock.unlock();
    wake_all(chain);
}

void join(sched::goroutine* child, const std::source_location& where) noexcept {
    if (has_ended(child)) return;
    if (!run_youngest_in_place(child, where)) park_until_end_of(child, where);
}

}  // namespace dunlin::park
