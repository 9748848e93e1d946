#include "sched/data/states.h"

#include <cstddef>

#include "sched/data/hooks.h"
#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

void illegal_transition(const platform::atomic<goroutine_state>& where, goroutine_state from,
    goroutine_state to) noexcept {
    const auto* g = reinterpret_cast<const goroutine*>(reinterpret_cast<const char*>(&where) - offsetof(goroutine,
        state));
    hooks.illegal_transition(g, from, to);
    __builtin_unreachable();
}

}  // namespace dunlin::sched
