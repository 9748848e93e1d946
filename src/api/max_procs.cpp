// max_procs.cpp - the numbers of processors and of goroutines.
#include <stdexcept>
#include <string>

#include <dunlin/jthread.hpp>
#include <dunlin/runtime.hpp>

#include "sched/data/steering.h"
#include "sched/goroutines/goroutine.h"
#include "sched/machines/processor.h"
#include "sched/preempt/lifetime.h"

namespace dunlin::inline v0_1 {

namespace detail {

unsigned hardware_concurrency() noexcept {
    try {
        return runtime::max_procs();
    } catch (...) {
        return 0;  // the runtime cannot start
    }
}

}  // namespace detail

namespace runtime {

unsigned max_procs() {
    sched::start_runtime();
    return sched::the_scheduler.max_procs.load(std::memory_order_relaxed);
}

unsigned set_max_procs(unsigned n) {
    if (n < 1 || n > sched::max_procs_limit) {
        throw std::invalid_argument("dunlin::runtime::set_max_procs: " + std::to_string(n) + " is not between 1 and " +
                                    std::to_string(sched::max_procs_limit));
    }
    if (sched::steered() != nullptr)
        throw std::logic_error(
            "dunlin::runtime::set_max_procs: called during dunlin::sim::check(), which has one processor");
    const unsigned before = max_procs();
    if (n != before) sched::set_max_procs(n);
    return before;
}

std::size_t num_goroutines() { return sched::live_goroutines(); }

}  // namespace runtime

}  // namespace dunlin
