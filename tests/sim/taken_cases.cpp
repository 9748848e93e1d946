// Processors that are taken from their threads, at the moments when only one step keeps what was there from being lost
// (sched/monitor/retake.cpp, sched/goroutines/reenter.cpp).
#include "platform/clock.h"
#include "sched/data/current.h"
#include "sched/data/types.h"
#include "sim/whole.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;
using sched::processor;
using sched::the_scheduler;

void in_a_call(std::int64_t ns) {
    blocking([=] { explorer::sleep_in_kernel(ns); });
}

processor* mine() { return sched::current_machine()->p.load(std::memory_order_relaxed); }

// The only processor is taken from a call, and with it a timer for which no machine sleeps. The monitor sleeps when
// that is due.
const add timers{"taken/with_a_timer", drawn(200), whole({.max_procs = 1, .prepares_itself = true, .main = [] {
    explorer::prepared();
    platform::atomic<std::int64_t> fired{0};
    const std::int64_t due = platform::now_ns() + 250 * ms;
    timer t = after_func(std::chrono::milliseconds(250), [&] { fired.store(platform::now_ns()); });
    in_a_call(600 * ms);
    explorer::require(fired.load() != 0 && fired.load() < due + 100 * ms, "a timer is late while a processor is idle");
}})};

// A goroutine starts another at the moment when the monitor takes the other processor from a call, for none.
explorer::case_function while_one_starts(bool lingers) {
    return whole({.prepares_itself = true, .main = [=] {
        if (lingers) linger();
        wait_group g;
        platform::atomic<processor*> others{nullptr};
        platform::atomic<int> began{0};
        g.go([&] {
            others.store(mine());
            in_a_call(200 * ms);
        });
        while (others.load() == nullptr) explorer::compute(100 * us);
        explorer::prepared();
        const processor* const p = others.load();
        for (const std::int64_t until = platform::now_ns() + 40 * ms;
             p->owner.load(std::memory_order_relaxed) != nullptr && platform::now_ns() < until;) {
            platform::pause();
        }
        g.go([&] { began.fetch_add(1); });
        explorer::compute(60 * ms);
        explorer::require(began.load() == 1, "nobody has come for a goroutine while a processor was idle");
        g.wait();
    }});
}
const add start_into_queue{"taken/while_one_is_queued", drawn(300), while_one_starts(true)};
const add start_into_run_next{"taken/while_one_is_readied", drawn(300), while_one_starts(false)};

// It computes on when the others are done: the processor that is idle then is its own again.
const add computes_on{"taken/computes_on", drawn(150), whole({.max_procs = 1, .prepares_itself = true, .main = [] {
    explorer::prepared();
    platform::atomic<int> others{0};
    wait_group g;
    g.go([&] { others.fetch_add(1); });
    explorer::compute(200 * ms);
    explorer::require(others.load() == 1, "goroutines wait for a processor that is of no use where it is");
    explorer::require(in_memory(sched::current_machine()->p) != nullptr,
        "a goroutine computes without a processor while one is idle");
    g.wait();
}})};

// While it was in the call all was idle, and the monitor has gone to sleep: it is needed again.
const add busy_again{"taken/busy_again", drawn(150), whole({.max_procs = 1, .prepares_itself = true, .main = [] {
    explorer::prepared();
    in_a_call(400 * ms);
    platform::atomic<int> others{0};
    wait_group g;
    g.go([&] { others.fetch_add(1); });
    explorer::compute(100 * ms);
    explorer::require(others.load() == 1, "goroutines wait for a processor that is of no use where it is");
    g.wait();
}})};

// Calls that end just when the processor is taken from them; then it computes.
const add comes_back{"taken/comes_back_at_once", drawn(300),
    whole({.max_procs = 1, .prepares_itself = true, .main = [] {
    explorer::prepared();
    own_value own;
    for (int i = 0; i < 2; ++i) {
        own.touch();
        in_a_call(12 * ms);
        own.touch();
        explorer::compute(30 * ms);
    }
}})};

// A processor changes hands just when the monitor is about to take it: from a call for which it is handed on at once.
const add changes_hands{"taken/as_it_changes_hands", drawn(300),
    whole({.max_procs = 1, .prepares_itself = true, .main = [] {
    const auto short_calls = [] {
        for (int i = 0; i < 6; ++i) in_a_call(100 * us);
    };
    wait_group before;
    for (int k = 0; k < 2; ++k) before.go(short_calls);  // these calls last, it is known from then on
    before.wait();
    explorer::prepared();
    wait_group g;
    for (int k = 0; k < 2; ++k) {
        g.go([] {
            own_value own;
            for (int i = 0; i < 3; ++i) {
                own.touch();
                explorer::compute(10'020 * us);  // just longer than a slice
                in_a_call(2 * ms);
                own.touch();
            }
        });
    }
    g.wait();
}})};

// A thread that runs no goroutine but its own comes back from a call, and all is idle.
const add wired{"taken/wired", drawn(150), whole({.max_procs = 1, .prepares_itself = true, .main = [] {
    explorer::prepared();
    own_value own;
    lock_os_thread();
    own.touch();
    in_a_call(100 * ms);
    own.touch();
    unlock_os_thread();
    yield();
    own.touch();
}})};

// The monitor falls asleep, since all has been idle for ten rounds, just when the first processor is taken again: it is
// needed at once.
const add falls_asleep{"taken/monitor_falls_asleep", drawn(500), [](explorer::scenario& s) {
    auto& c = s.make<chan<int>>("channel", 1);
    whole({.max_procs = 1, .prepares_itself = true, .main = [&c] {
        platform::atomic<int> others{0};
        let_plain_threads_begin();
        c.recv();
        wait_group g;
        g.go([&others] { others.fetch_add(1); });
        explorer::compute(100 * ms);
        explorer::require(others.load() == 1, "goroutines wait for a processor that is of no use where it is");
        g.wait();
    }, .plain_threads = {[&c] {
        explorer::sleep_in_kernel(7 * ms);
        explorer::prepared();
        explorer::sleep_in_kernel(4 * ms);
        c.send(1);
    }}})(s);
}};

}  // namespace
