#include "sched/data/steering.h"

namespace dunlin::inline v0_1::sched {

constinit platform::atomic<steering*> the_steering{nullptr};

}  // namespace dunlin::sched
