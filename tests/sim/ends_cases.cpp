// The end of run() (sched/preempt/end_of_run.cpp): goroutines are left in every state, and another run() follows.
#include "sim/whole.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

void run_again() {
    int sum = 0;
    dunlin::run({.max_procs = 2}, [&sum] {
        chan<int> c;
        go([c] { c.send(1); });
        sum = *c.recv();
    });
    explorer::require(sum == 1, "a later run() does not work");
}

const add waiting{"ends/some_wait", drawn(400), whole({.prepares_itself = true, .main = [] {
    explorer::prepared();
    chan<int> c;
    go([c] { c.send(1); });
    go([] { sleep_for(std::chrono::microseconds(30)); });
    go([] { sleep_for(std::chrono::hours(1)); });
}, .afterwards = run_again})};

const add computing{"ends/some_compute", drawn(400), whole({.prepares_itself = true, .main = [] {
    explorer::prepared();
    go([] {
        for (;;) {
            explorer::compute(100 * us);
            yield();
        }
    });
    explorer::compute(10 * us);
}, .afterwards = run_again})};

const add blocked{"ends/some_block", drawn(400), whole({.prepares_itself = true, .main = [] {
    explorer::prepared();
    go([] { blocking([] { explorer::sleep_in_kernel(ms); }); });
    yield();
}, .afterwards = run_again})};

// One comes back from a call as main returns, finds no processor, and queues: the machine that it leaves serves on.
const add queued{"ends/some_queue", drawn(1500), whole({.max_procs = 1, .prepares_itself = true, .main = [] {
    explorer::prepared();
    for (int i = 0; i < 2; ++i) go([] { blocking([] { explorer::sleep_in_kernel(20 * us); }); });
    yield();
    explorer::compute(20 * us);
}, .afterwards = [] {
    dunlin::run({.max_procs = 2}, [] { sleep_for(std::chrono::milliseconds(1)); });
    sched::scheduler& s = sched::the_scheduler;
    s.lock.lock();
    const std::uint32_t condemned = s.condemned_machines;
    s.lock.unlock();
    explorer::require(condemned == 0, "a machine is to lose a goroutine that it has not got");
    run_again();
}})};

// One that is left waiting, and then gets what it has waited for: it is gone.
const add woken_later{"ends/woken_later", drawn(200), [](explorer::scenario& s) {
    auto& c = s.make<chan<int>>("channel");
    auto& got = s.make<platform::atomic<int>>("what it has got", 0);
    whole({.prepares_itself = true, .main = [&] {
        explorer::prepared();
        go([&] { got.store(c.recv().value_or(0)); });
        sleep_for(std::chrono::microseconds(50));
    }, .afterwards = [&] {
        dunlin::run({.max_procs = 2}, [&] {
            c.try_send(1);
            sleep_for(std::chrono::microseconds(50));
        });
        explorer::require(got.load() == 0, "a goroutine of an earlier run() goes on");
    }})(s);
}};

// What a timer was to start, of a run() that has returned: it never begins.
const add timer_later{"ends/timer_later", drawn(200), [](explorer::scenario& s) {
    auto& began = s.make<platform::atomic<int>>("what the timer starts", 0);
    auto& kept = s.make<timer>("timer");
    whole({.prepares_itself = true, .main = [&] {
        explorer::prepared();
        kept = after_func(std::chrono::microseconds(50), [&] { began.store(1); });
    }, .afterwards = [&] {
        const int before = began.load();
        dunlin::run({.max_procs = 2}, [] { sleep_for(std::chrono::microseconds(300)); });
        explorer::require(began.load() == before, "what a timer of an earlier run() starts begins in this one");
    }})(s);
}};

const add waited_for{"ends/waited_for", drawn(300),
    whole({.prepares_itself = true,
        .at_end = leftovers::wait,
        .main =
            [] {
                explorer::prepared();
                go([] { sleep_for(std::chrono::microseconds(300)); });
                go([] { explorer::compute(20 * us); });
            },
        .afterwards = run_again})};

// A plain thread starts goroutines while main returns, and while there is no run().
const add from_outside{"ends/started_from_outside", drawn(400), whole({.prepares_itself = true, .main = [] {
    explorer::prepared();
    let_plain_threads_begin();
    explorer::compute(20 * us);
}, .plain_threads = {[] {
    for (int i = 0; i < 4; ++i) {
        go([] {});
        explorer::compute(5 * us);
    }
}}, .afterwards = run_again})};

}  // namespace
