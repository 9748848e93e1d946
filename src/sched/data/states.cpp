#include "sched/data/states.h"

#include <cstddef>
#include <cstdlib>

#include "platform/text.h"
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

void illegal_transition(processor_state from, processor_state to) noexcept {
    {
        platform::text_writer out(2);
        out << "dunlin: internal error: a processor that is " << name(from) << " becomes " << name(to)
            << " (sched/data/states.h)\n";
    }
    std::abort();
}

}  // namespace dunlin::sched
