#include "platform/clock.h"

namespace dunlin::inline v0_1::platform {

constinit platform::atomic<clock_source> monotonic_clock{clock_gettime};

}  // namespace dunlin::platform
