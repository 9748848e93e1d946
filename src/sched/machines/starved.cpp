#include "sched/machines/starved.h"

#include <mutex>

#include "platform/text.h"
#include "sched/queues/global_queue.h"
#include "stack/arena.h"

namespace dunlin::inline v0_1::sched {

namespace {

bool feed_one() noexcept {
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    goroutine* g = s.starved.pop_front();
    if (g == nullptr) return false;
    s.global.push_back(g);
    s.starved_size.store(s.starved.size, std::memory_order_relaxed);
    return true;
}

void report_once(const goroutine* g) noexcept {
    static platform::atomic<bool> reported{false};
    if (reported.exchange(true, std::memory_order_relaxed)) return;
    platform::text_writer out(2, 100);  // ms: the goroutine that empties a full pipe may need this very processor
    out << "dunlin: no memory for the stack of goroutine " << g->id
        << ": it waits until another ends, as others will (fewer goroutines at a time, or a higher memory limit, helps)\n";
}

}  // namespace

void starve(goroutine* g) noexcept {
    scheduler& s = the_scheduler;
    bool found = false;
    {
        const std::scoped_lock guard(s.lock);
        s.lock.assert_held();
        for (processor* p = s.idle_processors; p != nullptr; p = p->idle_next) found |= give_stacks_to_arena(p, 0);
        if (found) {
            s.global.push_back(g);
        } else {
            g->reason.store(wait_reason::stack_shortage, std::memory_order_relaxed);
            s.starved.push_back(g);
            s.starved_size.store(s.starved.size, std::memory_order_relaxed);
        }
    }
    if (!found) report_once(g);
}

bool feed_starved() noexcept {
    if (!some_starve()) return false;
    const std::scoped_lock guard(the_scheduler.lock);
    return feed_one();
}

bool give_stacks_to_arena(processor* p, std::uint32_t keep) noexcept {
    if (p->free_stack_count <= keep) return false;
    stack::slot* first = p->free_stacks.load(std::memory_order_acquire);
    if (keep == 0) {
        p->free_stacks.store(nullptr, std::memory_order_relaxed);
    } else {
        stack::slot* last_kept = first;
        for (std::uint32_t i = 1; i < keep; ++i) last_kept = last_kept->next;
        first = last_kept->next;
        last_kept->next = nullptr;
    }
    stack::slot* last = first;
    std::size_t count = 1;
    for (; last->next != nullptr; last = last->next) ++count;
    p->free_stack_count = keep;
    stack::stacks.recycle(first, last, count, first->size_class);
    return true;
}

void leave_stacks_to_starved(processor* p) noexcept {
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    if (s.starved.size != 0 && give_stacks_to_arena(p, 0)) feed_one();
}

bool memory_for_a_stack() noexcept {
    stack::slot* s = nullptr;
    if (stack::stacks.allocate(the_scheduler.default_stack_class.load(std::memory_order_relaxed), &s, 1) == 0)
        return false;
    stack::stacks.recycle(s, s, 1, s->size_class);
    return true;
}

}  // namespace dunlin::sched
