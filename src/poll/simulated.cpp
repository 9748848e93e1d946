#include "poll/simulated.h"

#include "sched/data/current.h"

namespace dunlin::inline v0_1::netpoll {

constinit platform::atomic<simulated_sockets*> the_simulated_sockets{nullptr};

simulated_sockets* simulated_here() noexcept {
    if constexpr (platform::may_be_simulated) return nullptr;
    simulated_sockets* s = the_simulated_sockets.load(std::memory_order_acquire);
    return s != nullptr && sched::current_machine() != nullptr ? s : nullptr;
}

}  // namespace dunlin::netpoll
