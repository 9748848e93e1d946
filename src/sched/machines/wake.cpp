#include "sched/machines/wake.h"

#include "platform/clock.h"
#include "sched/data/bells.h"
#include "sched/machines/event_notice.h"
#include "sched/machines/machine.h"
#include "sched/machines/processor.h"
#include "sched/machines/waits.h"

namespace dunlin::inline v0_1::sched {

void wake_one() noexcept {
    scheduler& s = the_scheduler;
    std::uint32_t word = s.idle_and_spinning.load(std::memory_order_seq_cst);
    do {  // W1
        if (idle_count(word) == 0 || spinning_count(word) != 0) return;
    } while (!s.idle_and_spinning.compare_exchange_weak(
        word, word + one_spinning, std::memory_order_seq_cst, std::memory_order_seq_cst));
    s.lock.lock();  // W2
    processor* p = s.stopping.load(std::memory_order_relaxed) ? nullptr : take_idle_processor();
    // Under the lock: the count still says that a machine searches, though none will. If a processor became idle before
    // the count is taken back, a submitter would see the count and wake no machine.
    if (p == nullptr) s.idle_and_spinning.fetch_sub(one_spinning, std::memory_order_seq_cst);
    s.lock.unlock();
    if (p == nullptr) settle_free_clock();
    if (p == nullptr) return;
    start_machine(p, true, wake_place::elsewhere);  // W3
    wake_monitor_if_asleep();
}

void wake_one_for_run_next(const processor* p) noexcept {
    const machine* m = current_machine();
    if (m != nullptr && m->chooses && p->queue.size() == 0) return;
    wake_one();
}

void defer_wake_slow(processor* p) noexcept {
    // Only reads, mostly: while everything goes well both flags stay as they are.
    if (!the_scheduler.monitor_attentive.load(std::memory_order_relaxed)) {
        the_scheduler.wakes_deferred.store(true, std::memory_order_relaxed);
        wake_one_for_run_next(p);
    } else if (!the_scheduler.wakes_deferred.load(std::memory_order_relaxed)) {
        the_scheduler.wakes_deferred.store(true, std::memory_order_relaxed);
    }
}

bool wake_is_deferred(const processor* p) noexcept {
    if (!has_short_turns(p)) return false;
    if (!the_scheduler.wakes_deferred.load(std::memory_order_relaxed)) {
        the_scheduler.wakes_deferred.store(true, std::memory_order_relaxed);
    }
    return the_scheduler.monitor_attentive.load(std::memory_order_relaxed);  // if it is not attentive, it will be from
                                                                             // its next round on
}

bool queue_wake_is_deferred(const processor* p) noexcept {
    const std::uint32_t size = p->queue.size();
    if (size >= short_queue || size * p->turn_ns > deferred_wait_ns) return false;
    const goroutine* oldest = p->queue.peek();
    return oldest != nullptr && oldest->stack != nullptr && wake_is_deferred(p);
}

bool work_anywhere() noexcept {
    const scheduler& s = the_scheduler;
    if (s.stopping.load(std::memory_order_relaxed)) return false;
    if (s.global_size_after_announcing() != 0 || s.preempted_size.load(std::memory_order_seq_cst) != 0) return true;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) {
        const processor* p = s.processor_at(i);
        if (p->queue.size() != 0 && !queue_wake_is_deferred(p)) return true;
        if (p->run_next.load(std::memory_order_seq_cst) != nullptr && !wake_is_deferred(p)) return true;
    }
    const std::int64_t deadline = earliest_deadline();
    return deadline != 0 && platform::now_ns() >= deadline;
}

}  // namespace dunlin::sched
