// Threads and their maker (sched/machines/machine.cpp, sched/monitor/thread_maker.cpp): a processor is put aside since
// no thread is idle, and a new one has to find it.
#include "platform/clock.h"
#include "sched/data/bells.h"
#include "sched/machines/machine.h"
#include "sched/monitor/thread_maker.h"
#include "sim/whole.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

// What is started is for others at once, the monitor is not attentive, and there is no other thread than this one's.
// The maker has served what was asked for and sleeps.
void be_the_only_thread() {
    linger();
    sched::end_idle_machines(100);
    explorer::compute(5 * ms);
}

explorer::case_function only_one_thread(std::function<void()> meanwhile = {}) {
    return [=](explorer::scenario& s) {
        program p{.prepares_itself = true, .main = [] {
            be_the_only_thread();
            platform::atomic<int> began{0};
            wait_group g;
            explorer::prepared();
            let_plain_threads_begin();
            g.go([&] { began.fetch_add(1); });
            explorer::compute(60 * ms);
            explorer::require(began.load() == 1, "nobody has come for a goroutine while a processor was idle");
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

platform::atomic<int> began_outside{0};

std::vector<explorer::options> without_more_threads(std::vector<explorer::options> runs) {
    for (explorer::options& o : runs) o.more_threads = false;
    return runs;
}

// The kernel gives no more threads. Processors of threads that sleep in it go to those that there are, or wait for one:
// a thread that goes to sleep looks whether one waits.
explorer::case_function few_threads(std::int64_t lasts) {
    return whole({.lacks_threads = true, .prepares_itself = true, .main = [=] {
        be_the_only_thread();
        explorer::prepared();
        let_plain_threads_begin();
        wait_group g;
        for (int i = 0; i < 3; ++i) {
            g.go([=] {
                blocking([=] { explorer::sleep_in_kernel(lasts); });
                explorer::compute(30 * us);
                blocking([=] { explorer::sleep_in_kernel(lasts); });
            });
        }
        explorer::compute(50 * us);
        g.wait();
    }, .plain_threads = {[] {
        for (int i = 0; i < 3; ++i) {
            go([] { explorer::compute(10 * us); });
            explorer::compute(100 * us);
        }
    }}});
}
const add no_more{"thread/no_more", without_more_threads(drawn(200)), few_threads(200 * us)};
const add no_more_long{"thread/no_more_long", without_more_threads(drawn(200)), few_threads(12 * ms)};

// The same, and the goroutines that come back from the kernel have kept their threads for a while: all threads that do
// not sleep there wait for a processor, each for its own goroutine.
const add no_more_wired{"thread/no_more_wired", without_more_threads(drawn(200)), whole({.max_procs = 1,
    .lacks_threads = true, .prepares_itself = true, .main = [] {
        explorer::prepared();
        chan<int> c(100);
        wait_group g;
        g.go([] { explorer::sleep_in_kernel(100 * ms); });
        for (int i = 0; i < 6; ++i) {
            g.go([c] {
                for (int k = 0; k < 3; ++k) {
                    explorer::sleep_in_kernel(300 * us);
                    c.try_send(1);
                }
            });
        }
        g.wait();
    }})};

// A thread that starts the runtime makes machines as well. The maker may leave a request to one that is on its way, and
// for which there is no thread then: the maker must hear of it, since only it asks the monitor to try again.
const add no_more_ahead{"thread/no_more_ahead", without_more_threads(punctually(400)), whole({.max_procs = 2,
    .lacks_threads = true, .prepares_itself = true, .main = [] {
        be_the_only_thread();
        explorer::prepared();
        let_plain_threads_begin();
        wait_group g;
        g.go([] {});
        for (int i = 0; i < 40 && !sched::in_pause_after_failure(); ++i) explorer::compute(ms);
        explorer::require(sched::in_pause_after_failure(), "no thread could be had, and none is tried again");
        g.wait();
    }, .plain_threads = {[] { sched::make_machines_ahead(8); }}})};

// The same, and on time: the other thread is on its way to sleep when a plain one starts a goroutine, and its processor
// is put aside because there is no other.
const add on_time{"thread/no_more_on_time", without_more_threads(punctually(400)),
    whole({.lacks_threads = true, .prepares_itself = true, .main = [] {
    linger();
    sched::end_idle_machines(static_cast<unsigned>(sched::the_scheduler.idle_machine_count) - 1);
    explorer::compute(5 * ms);
    platform::atomic<int> began{0};
    began_outside.store(0);
    wait_group g;
    explorer::prepared();
    let_plain_threads_begin();
    g.go([&] { began.fetch_add(1); });
    explorer::compute(300 * us);
    explorer::require(began_outside.load() == 8,
        "a goroutine waits for the monitor while a thread and a processor are idle");
    g.wait();
}, .plain_threads = {[] {
    for (int i = 0; i < 8; ++i) {
        explorer::compute(us + 300 * i);
        go([] { began_outside.fetch_add(1); });
    }
}}})};

}  // namespace
