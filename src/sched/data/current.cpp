#include "sched/data/current.h"

extern "C" {
thread_local constinit dunlin::sched::machine* dunlin_current_machine = nullptr;
}

namespace dunlin::inline v0_1::sched {

[[gnu::noinline]] void set_current_machine(machine* m) noexcept { dunlin_current_machine = m; }

}  // namespace dunlin::sched
