#include "sched/data/steering.h"

namespace dunlin::inline v0_1::sched {

constinit platform::atomic<steering*> the_steering{nullptr};
constinit platform::atomic<std::uint32_t> free_mutex_word{0};

}  // namespace dunlin::sched
