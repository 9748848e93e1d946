// The wake protocol (sched/machines/wake.h), the sleep for timers (sched/work/find_work.cpp) and the making of threads,
// in whole programs.
#include "platform/clock.h"
#include "platform/cpu.h"
#include "sched/machines/processor.h"
#include "sched/machines/wake.h"
#include "sim/whole.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

// What `count` goroutines have done.
struct tally {
    platform::atomic<int> done{0};
    void note() { done.fetch_add(1); }
};

// What was started comes to run although the one that has started it goes on.
explorer::case_function spread(bool monitor_sleeps, bool has_threads) {
    return whole({.has_threads = has_threads, .monitor_sleeps = monitor_sleeps, .main = [] {
        platform::atomic<int> began{0};
        wait_group g;
        g.go([&] { began.fetch_add(1); });
        explorer::compute(60 * ms);
        explorer::require(began.load() == 1, "nobody has come for a goroutine while a processor was idle");
        g.wait();
    }});
}
const add spreads_with_monitor{"wake/spread_monitor_sleeps", drawn(300), spread(true, true)};
const add spreads_without_threads{"wake/spread_no_threads", drawn(300), spread(false, false)};

// The same where no monitor comes to help, while the other machine retires after each of them.
const add submits{"wake/submit_and_retire", drawn(1'000), whole({.prepares_itself = true, .main = [] {
    linger();
    platform::atomic<int> began{0};
    wait_group g;
    explorer::prepared();
    for (int i = 0; i < 4; ++i) {
        g.go([&] { began.fetch_add(1); });
        explorer::compute(i * us);
    }
    explorer::compute(60 * ms);
    explorer::require(began.load() == 4, "nobody has come for a goroutine while a processor was idle");
    g.wait();
}})};

// Two that start others and yield, and machines that retire between them.
const add retirers{"wake/retire_and_start", drawn(600), whole({.prepares_itself = true, .main = [] {
    wait_group g;
    explorer::prepared();
    for (int k = 0; k < 2; ++k) {
        g.go([&g] {
            own_value own;
            for (int i = 0; i < 3; ++i) {
                own.touch();
                g.go([] { explorer::compute(us); });
                explorer::compute(2 * us);
                own.touch();
                yield();
            }
        });
    }
    own_value own;
    own.touch();
    g.wait();
    own.touch();
}})};

// Three processors: two machines retire at once.
const add three{"wake/three_processors", drawn(500), whole({.max_procs = 3, .prepares_itself = true, .main = [] {
    linger();
    platform::atomic<int> began{0};
    wait_group g;
    explorer::prepared();
    for (int i = 0; i < 5; ++i) {
        g.go([&] { began.fetch_add(1); });
    }
    explorer::compute(60 * ms);
    explorer::require(began.load() == 5, "nobody has come for a goroutine while a processor was idle");
    g.wait();
}})};

// Of three processors two are busy for long: the one that was woken first wakes the next.
const add busy{"wake/three_busy", drawn(500), whole({.max_procs = 3, .prepares_itself = true, .main = [] {
    linger();
    platform::atomic<int> began{0};
    wait_group g;
    explorer::prepared();
    for (int i = 0; i < 2; ++i) {
        g.go([&] {
            began.fetch_add(1);
            explorer::compute(60 * ms);
        });
    }
    explorer::compute(60 * ms);
    explorer::require(began.load() == 2, "nobody has come for a goroutine while a processor was idle");
    g.wait();
}})};

// One starts another where the other machine has just stopped running something.
template <int computes_us>
void starts_beside_a_retirer() {
    linger();
    platform::atomic<int> began{0};
    wait_group g;
    explorer::prepared();
    g.go([&] {
        began.fetch_add(1);
        if (computes_us != 0) explorer::compute(computes_us * us);
    });
    while (began.load() == 0) platform::pause();
    g.go([&] { began.fetch_add(1); });
    explorer::compute(60 * ms);
    explorer::require(began.load() == 2, "nobody has come for a goroutine while a processor was idle");
    g.wait();
}
const add last_moment{"wake/last_moment", drawn(1'000),
    whole({.prepares_itself = true, .main = starts_beside_a_retirer<0>})};
// The same, and it retires while that one has seen that no processor is idle and has yet to put the other where it can
// be found.
const add meanwhile{"wake/retires_meanwhile", drawn(600),
    whole({.prepares_itself = true, .main = starts_beside_a_retirer<5>})};

// Two retire, the second one leaves its looks to the first, and one that starts another relies on the second.
const add joins{"wake/joins_another", punctually(800), whole({.max_procs = 3, .prepares_itself = true, .main = [] {
    linger();
    platform::atomic<int> began{0};
    wait_group g;
    const auto start = [&] {
        g.go([&] { began.fetch_add(1); });
    };
    explorer::prepared();
    start();
    start();
    while (began.load() != 2) platform::pause();
    const sched::scheduler& all = sched::the_scheduler;
    for (int i = 0; i < 3'000; ++i) {
        if (all.retirers.load() == 1 && sched::spinning_count(all.idle_and_spinning.load()) == 1) break;
        platform::pause();
    }
    start();
    explorer::compute(60 * ms);
    explorer::require(began.load() == 3, "nobody has come for a goroutine while a processor was idle");
    g.wait();
}})};

// Two goroutines are started while a machine is about to retire, which counts as searching: it comes back for one, and
// has another machine come for the other.
const add two_for_one{"wake/two_as_one_retires", punctually(400),
    whole({.max_procs = 3, .prepares_itself = true, .main = [] {
    linger();
    platform::atomic<int> began{0};
    wait_group g;
    explorer::prepared();
    g.go([&] { began.fetch_add(1); });
    while (began.load() == 0) platform::pause();
    for (int i = 0; i < 2; ++i) {
        g.go([&] {
            began.fetch_add(1);
            explorer::compute(60 * ms);
        });
    }
    explorer::compute(50 * ms);
    explorer::require(began.load() == 3, "nobody has come for a goroutine while a processor was idle");
    g.wait();
}})};

// A waker finds that the processor is gone, just before that is given back by a thread that cannot search itself, as
// the monitor does it (hand_on() in sched/monitor/retake.cpp), and that relies on the waker if it counts as
// searching.
const add none_left{"wake/none_is_left", drawn(800), [](explorer::scenario& s) {
    auto& t = s.make<tally>("tally");
    whole({.prepares_itself = true, .main = [&t] {
        linger();
        explorer::prepared();
        let_plain_threads_begin();
        explorer::compute(60 * ms);
        explorer::require(t.done.load() == 1, "nobody has come for a goroutine while a processor was idle");
    }, .plain_threads = {[&t] {
        go([&t] { t.note(); });
    }, [] {
        sched::scheduler& all = sched::the_scheduler;
        for (int i = 0; i < 500 && sched::spinning_count(all.idle_and_spinning.load()) == 0; ++i) platform::pause();
        all.lock.lock();
        sched::processor* const p = sched::take_idle_processor();
        all.lock.unlock();
        if (p == nullptr) return;
        explorer::compute(us);
        all.lock.lock();
        sched::put_idle_processor(p, false);
        all.lock.unlock();
        sched::retire_barrier();
        if (sched::work_anywhere()) sched::wake_if_idle();
    }}})(s);
}};

// A plain thread starts goroutines, and wakes one, while the machines come and go.
const add outside{"wake/from_outside", drawn(600), [](explorer::scenario& s) {
    auto& c = s.make<chan<int>>("channel", 1);
    auto& t = s.make<tally>("tally");
    whole({.prepares_itself = true, .main = [&c, &t] {
        explorer::prepared();
        let_plain_threads_begin();
        int sum = 0;
        for (int i = 0; i < 4; ++i) sum += c.recv().value_or(100);
        explorer::require(sum == 4 && t.done.load() == 2, "a value is lost or doubled");
    }, .plain_threads = {[&c, &t] {
        for (int i = 0; i < 2; ++i) {
            go([&c, &t] {
                t.note();
                c.send(1);
            });
            c.send(1);
        }
    }}})(s);
}};

// Sleepers of different lengths: each is woken about when it wants to be.
explorer::case_function sleepers(bool monitor_sleeps) {
    return whole({.monitor_sleeps = monitor_sleeps, .main = [] {
        wait_group g;
        const auto sleep = [](std::int64_t ns) {
            own_value own;
            own.touch();
            const std::int64_t until = platform::now_ns() + ns;
            sleep_for(std::chrono::nanoseconds(ns));
            own.touch();
            explorer::require(platform::now_ns() >= until, "a sleep ends early");
            explorer::require(platform::now_ns() < until + 200 * ms, "a sleep ends late");
        };
        g.go([&] { sleep(3'000 * ms); });
        g.go([&] {
            explorer::compute(us);
            sleep(20 * us);
            sleep(500 * ms);
        });
        sleep(10 * us);
        g.wait();
    }});
}
const add timers{"wake/timers", drawn(300), sleepers(false)};
const add timers_without_monitor{"wake/timers_monitor_sleeps", drawn(300), sleepers(true)};

// A plain thread arms a timer, earlier than the one that a machine sleeps for, or is about to.
explorer::case_function timer_from_outside(bool all_asleep) {
    return [=](explorer::scenario& s) {
        auto& done = s.make<chan<int>>("channel", 1);
        whole({.prepares_itself = true, .main = [&done, all_asleep] {
            go([] { sleep_for(std::chrono::hours(1)); });
            sleep_for(std::chrono::microseconds(10));
            if (!all_asleep) explorer::prepared();
            let_plain_threads_begin();
            const std::int64_t begin = platform::now_ns();
            explorer::require(done.recv() == 1, "the wrong value");
            explorer::require(platform::now_ns() < begin + 900 * ms, "what a plain thread has asked for comes late");
        }, .plain_threads = {[&done, all_asleep] {
            if (all_asleep) {
                explorer::sleep_in_kernel(400 * ms);
                explorer::prepared();
            }
            after_func(std::chrono::microseconds(50), [&done] { done.send(1); });
        }}})(s);
    };
}
const add timer_outside{"wake/timer_from_outside", drawn(800), timer_from_outside(false)};
const add timer_outside_asleep{"wake/timer_from_outside_asleep", drawn(300), timer_from_outside(true)};

// A goroutine arms one on its way to sleep, while another machine is on its own.
const add timer_earlier{"wake/timer_earlier", drawn(700), whole({.prepares_itself = true, .main = [] {
    linger();
    wait_group g;
    g.go([] { sleep_for(std::chrono::milliseconds(1500)); });
    explorer::prepared();
    yield();
    const std::int64_t begin = platform::now_ns();
    sleep_for(std::chrono::microseconds(40));
    explorer::require(platform::now_ns() < begin + 200 * ms, "a sleep ends late");
    g.wait();
}})};

}  // namespace
