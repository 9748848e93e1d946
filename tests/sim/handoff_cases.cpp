// Processors that change hands: blocking calls, announced and not, goroutines that compute (sched/monitor/retake.cpp,
// reenter.cpp, blocking.cpp), and the number of processors.
#include "platform/clock.h"
#include "sim/whole.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

// `call` keeps its thread for `lasts` while another goroutine waits for the processor.
explorer::case_function keeps(
    void (*call)(std::int64_t), std::int64_t lasts, unsigned max_procs, bool has_threads = true) {
    return whole({.max_procs = max_procs, .has_threads = has_threads, .prepares_itself = has_threads, .main = [=] {
        own_value own;
        own.touch();
        if (has_threads) explorer::prepared();
        platform::atomic<int> others{0};
        wait_group g;
        for (unsigned i = 0; i < max_procs; ++i) {
            g.go([&others] { others.fetch_add(1); });
        }
        wait_group keepers;
        for (unsigned i = 1; i < max_procs; ++i) {
            keepers.go([=] { call(lasts); });
        }
        call(lasts);
        explorer::require(others.load() == static_cast<int>(max_procs),
            "goroutines wait for a processor that is of no use where it is");
        own.touch();
        g.wait();
        keepers.wait();
        own.touch();
    }});
}

void announced(std::int64_t ns) {
    blocking([=] { explorer::sleep_in_kernel(ns); });
}
void announced_twice(std::int64_t ns) {
    announced(ns);
    announced(10 * us);
    announced(ns);
}

const add blocks{"handoff/blocking", drawn(300), keeps(announced, 100 * ms, 1)};
const add blocks_two{"handoff/blocking_both", drawn(300), keeps(announced_twice, 100 * ms, 2)};
const add blocks_no_threads{"handoff/blocking_no_threads", drawn(300), keeps(announced, 200 * ms, 1, false)};
const add sleeps{"handoff/asleep_unannounced", drawn(300), keeps(explorer::sleep_in_kernel, 200 * ms, 1)};
const add computes{"handoff/computing", drawn(300), keeps(explorer::compute, 200 * ms, 1)};
const add computes_two{"handoff/computing_both", drawn(150), keeps(explorer::compute, 200 * ms, 2)};

// Calls that end while another goroutine has the only processor, which takes up the next one from the queue.
const add ends_beside{"handoff/blocking_ends_beside_others", drawn(300), whole({.max_procs = 1, .prepares_itself = true,
    .main = [] {
        explorer::prepared();
        wait_group g;
        for (int k = 0; k < 3; ++k) {
            g.go([] {
                own_value own;
                for (int i = 0; i < 4; ++i) {
                    blocking([] { explorer::sleep_in_kernel(10 * us); });
                    own.touch();
                    explorer::compute(15 * us);
                }
                explorer::require(own.touched() == 4, "what a goroutine had on its stack is lost");
            });
        }
        g.wait();
    }})};

// All have been idle for long, and the monitor sleeps until somebody is busy: it is needed as soon as main goes on.
explorer::case_function after_a_pause(void (*call)(std::int64_t)) {
    return [=](explorer::scenario& s) {
        auto& c = s.make<chan<int>>("channel", 1);
        whole({.max_procs = 1, .prepares_itself = true, .main = [&c, call] {
            platform::atomic<int> others{0};
            let_plain_threads_begin();
            c.recv();
            wait_group g;
            g.go([&others] { others.fetch_add(1); });
            call(100 * ms);
            explorer::require(others.load() == 1, "goroutines wait for a processor that is of no use where it is");
            g.wait();
        }, .plain_threads = {[&c] {
            explorer::sleep_in_kernel(400 * ms);
            explorer::prepared();
            c.send(1);
        }}})(s);
    };
}
const add pause_blocking{"handoff/after_a_pause_blocking", drawn(300), after_a_pause(announced)};
const add pause_computing{"handoff/after_a_pause_computing", drawn(200), after_a_pause(explorer::compute)};

// Calls that end while the monitor takes the processor.
const add short_calls{"handoff/calls_that_end", drawn(600), whole({.max_procs = 1, .prepares_itself = true, .main = [] {
    explorer::prepared();
    wait_group g;
    chan<int> c;
    for (int k = 0; k < 2; ++k) {
        g.go([&] {
            own_value own;
            for (int i = 0; i < 2; ++i) {
                own.touch();
                announced(150 * us);
                own.touch();
                c.send(1);
            }
        });
    }
    int sum = 0;
    for (int i = 0; i < 4; ++i) sum += c.recv().value_or(100);
    explorer::require(sum == 4, "a value is lost or doubled");
    g.wait();
}})};

// A goroutine that computes lends its processor to those whose timers come due.
const add lends{"handoff/lending", drawn(500), whole({.max_procs = 1, .prepares_itself = true, .main = [] {
    explorer::prepared();
    wait_group g;
    int woken = 0;
    g.go([&woken] {
        for (int i = 0; i < 3; ++i) {
            sleep_for(std::chrono::microseconds(700));
            ++woken;
        }
    });
    g.go([] { explorer::compute(12 * ms); });
    explorer::compute(5 * ms);
    g.wait();
    explorer::require(woken == 3, "a sleeper was not woken");
}})};

// Fewer processors and more while goroutines work.
const add procs{"handoff/set_max_procs", drawn(500), whole({.prepares_itself = true, .main = [] {
    explorer::prepared();
    wait_group g;
    chan<int> c;
    for (int k = 0; k < 2; ++k) {
        g.go([c] {
            for (int i = 0; i < 2; ++i) {
                explorer::compute(20 * us);
                c.send(1);
            }
        });
    }
    int sum = *c.recv();
    runtime::set_max_procs(1);
    sum += *c.recv();
    runtime::set_max_procs(3);
    sum += *c.recv() + *c.recv();
    explorer::require(sum == 4, "a value is lost or doubled");
    g.wait();
}})};

}  // namespace
