// A goroutine that computes and now and then makes a call that may wait gives way there at the end of its slice: its
// processor is not taken, and no thread is stopped for it (sched/monitor/retake.cpp, Asking).
#include <vector>

#include "sched/data/types.h"
#include "sim/whole.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

const add gives_way{"give_way/in_a_send", seen_in_time(200), whole({.max_procs = 1, .prepares_itself = true, .main = [] {
    explorer::prepared();
    const auto taken = [] { return as_it_stands([] { return sched::the_scheduler.hand_offs.from_hogs.get(); }); };
    const std::uint64_t taken_before = taken();
    platform::atomic<int> others{0};
    wait_group g;
    g.go([&] { others.fetch_add(1); });
    chan<int> own(1);
    for (int i = 0; i < 20; ++i) {
        explorer::compute(1 * ms);
        own.send(i);
        own.recv();
    }
    explorer::require(in_memory(others) == 1, "a goroutine that calls the runtime has not given way there");
    explorer::require(taken() == taken_before, "a processor was taken from a goroutine that would have given way");
    g.wait();
}})};

}  // namespace
