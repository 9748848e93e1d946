#include "sched/machines/handshake.h"

#include "platform/simulated.h"
#include "sched/machines/trace.h"

namespace dunlin::inline v0_1::sched {

bool take_locked(processor* p, bool patient) noexcept {
    p->retake.assert_held();
    constexpr platform::looks patience(2000);
    machine* m = p->owner.load(std::memory_order_relaxed);
    if (m == nullptr || m->p.load(std::memory_order_relaxed) != p) return false;
    // First look: while the machine is inside, the barrier would be wasted.
    if (!patient && m->in_runtime.load(std::memory_order_relaxed) != 0) return false;
    m->taken.store(1, std::memory_order_relaxed);               // T1
    platform::heavy_barrier();                                  // T2
    for (int i = 0; m->in_runtime.load(std::memory_order_acquire) != 0; ++i) {  // T3, pairs with the release of L1
        // The machine may be waiting for the lock that we hold, to give up its processor by itself: so we wait no
        // longer than a section takes.
        if (!patient || i == patience) {
            m->taken.store(0, std::memory_order_relaxed);
            return false;
        }
        platform::pause();
    }
    m->p.store(nullptr, std::memory_order_release);             // T4
    p->owner.store(nullptr, std::memory_order_relaxed);
    return true;
}

bool try_take(processor* p) noexcept {
    p->retake.lock();
    const bool taken = take_locked(p);
    p->retake.unlock();
    return taken;
}

void raise_taken(processor* p, machine* m, const goroutine* gives_way) noexcept {
    p->retake.lock();
    if (p->owner.load(std::memory_order_relaxed) == m) {
        m->asked.store(gives_way, std::memory_order_relaxed);
        std::uint32_t lowered = 0;
        m->taken.compare_exchange_strong(lowered, 1, std::memory_order_relaxed);
    }
    p->retake.unlock();
}

void lower_what_asked(machine* m) noexcept {
    std::uint32_t raised = 1;
    m->taken.compare_exchange_strong(raised, 0, std::memory_order_relaxed);
}

void forget_what_asked(machine* m) noexcept {
    processor* p = processor_of(m);
    p->retake.lock();
    m->asked.store(nullptr, std::memory_order_relaxed);
    lower_what_asked(m);
    p->retake.unlock();
}

void give(processor* p, machine* m) noexcept {
    m->last_p = p;
    p->retake.lock();
    give_back_locked(p, m);
    p->retake.unlock();
}

processor* release_processor(machine* m) noexcept {
    processor* p = m->p.load(std::memory_order_relaxed);
    if (DUNLIN_UNLIKELY(tracing::on())) tracing::note_processor(m, tracing::kind::released, p);
    p->retake.lock();
    p->owner.store(nullptr, std::memory_order_relaxed);
    m->p.store(nullptr, std::memory_order_relaxed);
    p->retake.unlock();
    return p;
}

}  // namespace dunlin::sched
