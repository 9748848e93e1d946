#include <dunlin/detail/helper.hpp>

#include "api/exit.h"
#include "park/waiter.h"
#include "sched/goroutines/independent.h"
#include "sched/preempt/end_of_run.h"
#include "sched/preempt/lifetime.h"

namespace dunlin::inline v0_1::detail {

stored_call::~stored_call() = default;

caller this_caller() noexcept { return sched::ends_with_run() ? caller::of_a_run : caller::of_none; }

// Inside the runtime: a goroutine whose run has ended meanwhile gets no further, and does not take the next one for its
// own.
std::uint32_t this_run() noexcept {
    const park::runtime_section inside;
    return sched::ends_with_run() ? sched::runs_ended() + 1 : 0;
}
bool run_is_over(std::uint32_t run) noexcept { return run != 0 && run != sched::runs_ended() + 1; }

static void run_stored(void* frame) { std::unique_ptr<stored_call>(*static_cast<stored_call**>(frame))->run(); }

void start_for(caller whose, std::unique_ptr<stored_call>& c, std::source_location where) {
    if (sched::current_machine() == nullptr) {
        sched::start_runtime();
        api::arm_stopper();
    }
    sched::start_detached(run_stored, c.get(), whose == caller::of_none, sched::creation_place(where));
    static_cast<void>(c.release());
}

}  // namespace dunlin::detail
