// A goroutine that computes lends its processor to those whose timers come due, and has it back as soon as they have
// nothing more to do (sched/monitor/retake.cpp, Lending; return_to_lender() in sched/work/find_work.cpp).
#include "platform/clock.h"
#include "sched/data/current.h"
#include "sched/data/types.h"
#include "sim/whole.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

// The monitor's next look at the lender is 0.2 ms after it has taken the processor: what it gives comes later.
constexpr std::int64_t at_once = 100 * us;

// There are threads to lend to afterwards.
void make_threads() {
    wait_group g;
    for (int k = 0; k < 3; ++k) {
        g.go([] { blocking([] { explorer::sleep_in_kernel(2 * ms); }); });
    }
    g.wait();
}

void compute_until(std::int64_t when) {
    while (platform::now_ns() < when) explorer::compute(10 * us);
}

const add lends{"lend/given_back_at_once", punctually(200), whole({.max_procs = 1, .prepares_itself = true, .main = [] {
    make_threads();
    wait_group g;
    platform::atomic<bool> woken{false};
    g.go([&woken] {
        sleep_for(std::chrono::milliseconds(4));
        woken.store(true);
    });
    yield();
    explorer::prepared();
    const sched::machine* const me = sched::current_machine();
    const sched::processor* const mine = in_memory(me->p);
    const auto times_lent = [] { return as_it_stands([] { return sched::the_scheduler.hand_offs.urgent.get(); }); };
    const std::uint64_t lent_before = times_lent();
    std::int64_t woken_at = 0;
    for (const std::int64_t until = platform::now_ns() + 22 * ms; platform::now_ns() < until;) {
        explorer::compute(10 * us);
        const bool has_it = in_memory(me->p) == mine;
        if (woken_at == 0 && in_memory(woken)) woken_at = platform::now_ns();
        if (woken_at == 0 || platform::now_ns() < woken_at + at_once) continue;
        explorer::require(has_it, "what was lent is not given back");
        explorer::require(in_memory(mine->owner) == me, "what is given back is kept as well");
        explorer::require(!in_memory(me->detached), "a thread that has its processor back is counted as one without");
    }
    explorer::require(times_lent() != lent_before, "nothing was lent");
    explorer::require(woken_at != 0, "a sleeper waits for a processor that is of no use where it is");
    g.wait();
}})};

// A borrower that computes is found out at the second look, 0.1 ms after the first, and lends in its turn.
const add computes{"lend/to_one_that_computes", seen_in_time(200), whole({.max_procs = 1, .prepares_itself = true, .main = [] {
    make_threads();
    std::int64_t late = 0;
    wait_group g;
    const std::int64_t begin = platform::now_ns();
    g.go([] {
        sleep_for(std::chrono::milliseconds(4));
        compute_until(platform::now_ns() + 3 * ms);
    });
    g.go([&late, begin] {
        sleep_for(std::chrono::microseconds(4400));
        late = platform::now_ns() - begin - 4400 * us;
    });
    yield();
    explorer::prepared();
    compute_until(platform::now_ns() + 8 * ms);
    g.wait();
    explorer::require(late < 500 * us, "a borrower that computes is not found out");
}})};

}  // namespace
