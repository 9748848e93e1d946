// The world stands and goes on, and the number of processors changes (sched/machines/processor.cpp): what is on its way
// meanwhile.
#include <algorithm>

#include "platform/clock.h"
#include "sched/data/current.h"
#include "sched/machines/processor.h"
#include "sched/machines/wake.h"
#include "sim/whole.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;
using sched::the_scheduler;

void let_the_world_stand(std::int64_t ns) {
    sched::stop_world();
    if (ns != 0) explorer::sleep_in_kernel(ns);
    sched::start_world();
}

// Goroutines that yield while it stops: each is queued before it has left, and another machine may have looked at
// `stopping` just before.
const add yields{"world/yields_while_it_stops", drawn(600), whole({.prepares_itself = true, .main = [] {
    explorer::prepared();
    let_plain_threads_begin();
    wait_group g;
    for (int k = 0; k < 4; ++k) {
        g.go([] {
            own_value own;
            for (int i = 0; i < 5; ++i) {
                own.touch();
                yield();
            }
            explorer::require(own.touched() == 5, "what a goroutine had on its stack is lost");
        });
    }
    g.wait();
}, .plain_threads = {[] { let_the_world_stand(0); }}})};

// Goroutines that come to the runtime while it stands, and wait for it to go on.
const add comes{"world/comes_while_it_stands", drawn(300), whole({.prepares_itself = true, .main = [] {
    explorer::prepared();
    let_plain_threads_begin();
    wait_group g;
    for (int k = 0; k < 2; ++k) {
        g.go([] {
            own_value own;
            for (int i = 0; i < 3; ++i) {
                own.touch();
                explorer::compute(30 * us);
                yield();
            }
        });
    }
    g.wait();
}, .plain_threads = {[] {
    for (int i = 0; i < 2; ++i) let_the_world_stand(40 * us);
}}})};

// A goroutine that calls the runtime again and again does not keep it from stopping: at its next call it waits where
// its processor can be taken.
std::vector<explorer::options> fairly(std::vector<explorer::options> runs) {
    std::erase_if(runs, [](const explorer::options& o) { return o.order == explorer::order::pct; });
    return runs;
}
const add calls{"world/calls_while_it_stops", fairly(punctually(60)), [](explorer::scenario& s) {
    auto& stopped = s.make<platform::atomic<bool>>("stopped", false);
    whole({.prepares_itself = true, .main = [&stopped] {
        explorer::prepared();
        let_plain_threads_begin();
        chan<int> c(1'000);
        for (int i = 0; i < 400 && !stopped.load(); ++i) c.try_send(1);
    }, .plain_threads = {[&stopped] {
        const std::int64_t begin = platform::now_ns();
        sched::stop_world();
        const std::int64_t took = platform::now_ns() - begin;
        sched::start_world();
        stopped.store(true);
        explorer::require(took < 2 * ms, "the world does not stop while a goroutine calls the runtime");
    }}})(s);
}};

// A timer becomes due while it stands: the machine that has slept for it finds no processor, and sleeps elsewhere.
const add timers{"world/timer_while_it_stands", punctually(200), [](explorer::scenario& s) {
    auto& began = s.make<platform::atomic<std::int64_t>>("when the world has gone on", 0);
    whole({.prepares_itself = true, .main = [&began] {
        explorer::prepared();
        let_plain_threads_begin();
        const clock::time_point due = clock::now() + std::chrono::microseconds(500);
        sleep_until(due);  // it may stand already when this is called
        const std::int64_t since = in_memory(began), now = platform::now_ns();
        const std::int64_t could_run = std::max<std::int64_t>(since, due.time_since_epoch().count());
        explorer::require(since == 0 || now < could_run + 400 * us, "a sleeper is late although the world goes on");
    }, .plain_threads = {[&began] {
        sched::stop_world();
        explorer::sleep_in_kernel(1'200 * us);
        began.store(platform::now_ns());
        sched::start_world();
    }}})(s);
}};

// One processor is left, while others are idle: no two goroutines run at once from then on.
const add idle_ones{"world/idle_processors_go", punctually(200),
    whole({.max_procs = 3, .prepares_itself = true, .main = [] {
    explorer::prepared();
    runtime::set_max_procs(1);
    platform::atomic<int> at_once{1};  // this one
    wait_group g;
    for (int k = 0; k < 2; ++k) {
        g.go([&] {
            explorer::require(at_once.fetch_add(1) == 0, "two goroutines run at once on one processor");
            explorer::compute(30 * us);
            at_once.fetch_sub(1);
        });
    }
    explorer::compute(150 * us);
    explorer::require(at_once.fetch_sub(1) == 1, "two goroutines run at once on one processor");
    g.wait();
}})};

// One less, and a goroutine computes on it while another is idle: it goes on with that.
const add busy_one{"world/busy_processor_goes", punctually(200), [](explorer::scenario& s) {
    auto& done = s.make<chan<int>>("channel", 1);
    whole({.prepares_itself = true, .main = [&done] {
        linger();
        platform::atomic<bool> began{false};
        wait_group g;
        g.go([&began] {
            began.store(true);
            explorer::compute(60 * ms);
        });
        while (!began.load()) explorer::compute(10 * us);
        let_plain_threads_begin();
        done.recv();
        g.wait();
    }, .plain_threads = {[&done] {
        explorer::prepared();
        runtime::set_max_procs(1);
        explorer::require(sched::idle_count(in_memory(the_scheduler.idle_and_spinning)) == 0,
            "a goroutine computes without a processor, and one is idle");
        done.send(1);
    }}})(s);
}};

// One less, with a timer: the one that is left comes to it, though it never has nothing to do.
const add timer_of_one{"world/timer_of_one_that_goes", punctually(200), whole({.prepares_itself = true, .main = [] {
    linger();
    platform::atomic<bool> asleep{false}, woken{false};
    wait_group g;
    g.go([&] {
        asleep.store(true);
        sleep_for(std::chrono::milliseconds(5));
        woken.store(true);
    });
    const std::int64_t begin = platform::now_ns();
    while (!asleep.load()) explorer::compute(10 * us);
    explorer::prepared();
    runtime::set_max_procs(1);
    g.go([&] {
        while (!woken.load() && platform::now_ns() < begin + 100 * ms) {
            explorer::compute(100 * us);
            yield();
        }
    });
    while (!woken.load() && platform::now_ns() < begin + 100 * ms) {
        explorer::compute(100 * us);
        yield();
    }
    explorer::require(woken.load(), "a sleeper of a processor that is gone is forgotten");
    g.wait();
}})};

}  // namespace
