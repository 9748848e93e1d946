#include "sched/goroutines/start_many.h"

#include "platform/membarrier.h"
#include "sched/goroutines/goroutine.h"
#include "sched/machines/machine.h"
#include "sched/machines/wake.h"
#include "sched/queues/global_queue.h"

namespace dunlin::inline v0_1::sched {

namespace {

// Pushes all goroutines of the list but the last, behind those in run_next and in the queue.
void push_all_but_last(processor* p, goroutine_list& list) noexcept {
    constexpr std::uint32_t at_once = 64;
    if (goroutine* before = p->run_next.load(std::memory_order_relaxed)) {
        p->run_next.store(nullptr, std::memory_order_relaxed);
        push_local(p, before);
    }
    while (list.size > 1) {
        goroutine* some[at_once];
        std::uint32_t count = 0;
        while (count < at_once && list.size > 1) {
            some[count] = list.pop_front();
            transition<goroutine_state::dead, goroutine_state::runnable>(some[count]->state);
            ++count;
        }
        if (run_queue::capacity - p->queue.size() >= count) {
            p->queue.push_all(some, count);
        } else {
            for (std::uint32_t i = 0; i < count; ++i) push_local(p, some[i]);
        }
    }
}

}  // namespace

void start_goroutines(goroutine_list& list) noexcept {
    machine* m = current_machine();
    if (m == nullptr || list.size < 2) {
        while (goroutine* g = list.pop_front()) start_goroutine(g);
        return;
    }
    m = enter(m);
    processor* p = processor_of(m);
    p->counts.created.add(list.size);
    if (!p->looks_at_push) push_all_but_last(p, list);
    while (goroutine* g = list.pop_front()) {
        transition<goroutine_state::dead, goroutine_state::runnable>(g->state);
        push_run_next(p, g);
    }
    submit_barrier();
    wake_if_idle();  // new goroutines are work for every processor
    leave(m);
}

}  // namespace dunlin::sched
