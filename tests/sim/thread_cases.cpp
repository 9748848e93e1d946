// Threads and their maker (sched/machines/machine.cpp, sched/monitor/thread_maker.cpp): a processor is put aside since
// no thread is idle, and a new one has to find it.
#include "platform/clock.h"
#include "sched/data/bells.h"
#include "sched/machines/machine.h"
#include "sim/whole.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

// What is started is for others at once, the monitor is not attentive, and there is no other thread than this one's.
// The maker has served what was asked for and sleeps.
void be_the_only_thread() {
    linger();
    sched::end_idle_machines(100);
    sim::compute(5 * ms);
}

sim::case_function only_one_thread(std::function<void()> meanwhile = {}) {
    return [=](sim::scenario& s) {
        program p{.prepares_itself = true, .main = [] {
            be_the_only_thread();
            platform::atomic<int> began{0};
            wait_group g;
            sim::prepared();
            let_plain_threads_begin();
            g.go([&] { began.fetch_add(1); });
            sim::compute(60 * ms);
            sim::require(began.load() == 1, "nobody has come for a goroutine while a processor was idle");
            g.wait();
        }};
        if (meanwhile) p.plain_threads = {meanwhile};
        whole(p)(s);
    };
}
const add asked_for{"thread/asked_for", drawn(200), only_one_thread()};

// The maker is asked for something else as well, and serves that while it is asked for a thread.
const add asked_for_more{"thread/asked_for_more", drawn(400), only_one_thread([] {
    sched::want_printed([] { platform::pause(); });
})};

}  // namespace
