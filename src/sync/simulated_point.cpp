#include <dunlin/detail/simulated_point.hpp>

#include "sched/data/steering.h"
#include "sched/machines/handshake.h"

namespace dunlin::inline v0_1::detail {

fast_path_bounds fast_paths;

void simulated_point() noexcept {
    if (sched::steered() != nullptr) sched::pass_point();
}

}  // namespace dunlin::detail
