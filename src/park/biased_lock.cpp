#include "park/biased_lock.h"

#include <dunlin/detail/atomic.hpp>

#include "platform/cpu.h"
#include "platform/simulated.h"
#include "platform/thread.h"
#include "platform/usable.h"

namespace dunlin::inline v0_1::park {

namespace {

constexpr std::uint32_t growth = 16;
constexpr std::uint32_t most_wanted = std::uint32_t{1} << 30;

// How many biases given at birth had to be taken away in this process. Relaxed: a heuristic.
constinit platform::atomic<std::uint32_t> births_taken_away{0};

void wait_until_left(const sched::processor* p, const biased_lock* lock) noexcept {
    for (const auto& section : p->sections) {
        for (int i = 0; section.load(std::memory_order_acquire) == lock; ++i) {
            if (i < platform::looks(1000)) {
                platform::pause();
            } else {
                platform::check_usable();
                platform::give_cpu_away();  // the kernel has stopped that thread inside the section
            }
        }
    }
}

}  // namespace

[[gnu::noinline]] void biased_lock::lock_slow(sched::machine* m, bool patiently) noexcept {
    if (m != nullptr) {
        if (sched::processor* p = sched::processor_of(m)) ++p->operations;
    }
    if (m == nullptr) platform::check_alone();
    if (patiently) {                                                     // R1
        lock_.lock_patiently();
    } else {
        lock_.lock();
    }
    sched::processor* p = m != nullptr ? sched::processor_of(m) : nullptr;
    sched::processor* biased = bias_.load(std::memory_order_relaxed);
    if (biased == nullptr) {
        consider_bias(p);
    } else if (biased != p) {
        revoke(biased);
    }
}

void biased_lock::consider_bias(sched::processor* p) noexcept {
    if (p != last_) {
        last_ = p;
        on_end_ = 0;
    } else if (p != nullptr && ++on_end_ >= wanted_) {
        on_end_ = 0;
        bias_.store(p, std::memory_order_relaxed);
    }
}

[[gnu::cold]] void biased_lock::revoke(sched::processor* from) noexcept {
    bias_.store(nullptr, std::memory_order_relaxed);                     // R2
    platform::heavy_barrier();                                           // R3
    wait_until_left(from, this);                                         // R4
    if (on_end_ == born) births_taken_away.fetch_add(1, std::memory_order_relaxed);
    last_ = nullptr;
    on_end_ = 0;
    wanted_ = wanted_ < most_wanted / growth ? wanted_ * growth : most_wanted;
}

// Called outside the runtime: the maker may have lost the processor already. Any processor will do.
sched::processor* biased_lock::processor_of_maker() noexcept {
    if (births_taken_away.load(std::memory_order_relaxed) >= births_taken_away_max) return nullptr;
    const sched::machine* m = sched::current_machine();
    return m != nullptr ? m->p.load(std::memory_order_acquire) : nullptr;
}

}  // namespace dunlin::park
