// What is due on time, although the monitor's next round is up to 10 ms away: timers and their sleepers
// (sched/work/find_work.cpp, sched/machines/event_notice.cpp), what else is left to a wake (sched/machines/wake.h).
#include "platform/clock.h"
#include "sched/data/types.h"
#include "sim/whole.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

// Without the monitor's help; with it, it can be 10 ms.
constexpr std::int64_t late = 3 * ms;

// The monitor's rounds are 10 ms apart from then on.
void let_monitor_look_rarely() {
    for (int i = 0; i < 450; ++i) {
        explorer::compute(2 * ms);
        yield();
    }
}

void sleep_until_ns(std::int64_t when) { sleep_for(std::chrono::nanoseconds(when - platform::now_ns())); }

// How far the monitor's next round is away hangs on all that was done before: each of these cases is made four times, a
// quarter of its rounds apart, and one of them at least is far from it.
constexpr std::int64_t quarter = 2'500 * us;

// A goroutine arms a timer and computes on; no machine sleeps for timers, and one is idle.
explorer::case_function timer_is_added(std::int64_t after) {
    return whole({.prepares_itself = true, .main = [after] {
        let_monitor_look_rarely();
        explorer::compute(after);
        explorer::prepared();
        platform::atomic<std::int64_t> fired{0};
        const std::int64_t due = platform::now_ns() + 300 * us;
        timer t = after_func(std::chrono::microseconds(300), [&] { fired.store(platform::now_ns()); });
        explorer::compute(20 * ms);
        explorer::require(fired.load() != 0 && fired.load() < due + late, "a timer is late while a processor is idle");
    }});
}
const add added[] = {
    {"late/timer_is_added_1", punctually(40), timer_is_added(0)},
    {"late/timer_is_added_2", punctually(40), timer_is_added(quarter)},
    {"late/timer_is_added_3", punctually(40), timer_is_added(2 * quarter)},
    {"late/timer_is_added_4", punctually(40), timer_is_added(3 * quarter)},
};

// A plain thread arms a timer while the only machine lies down for one that is far away. It has slept for a nearer one
// just before.
const add lies_down{"late/timer_as_one_lies_down", punctually(400), [](explorer::scenario& s) {
    auto& done = s.make<chan<int>>("channel", 1);
    whole({.max_procs = 1, .prepares_itself = true, .main = [&done] {
        go([] { sleep_for(std::chrono::hours(1)); });
        sleep_for(std::chrono::microseconds(10));
        explorer::prepared();
        let_plain_threads_begin();
        done.recv();
    }, .plain_threads = {[&done] {
        const sched::scheduler& all = sched::the_scheduler;
        for (int i = 0; i < 2'000 && all.poller_claimed.load() == 0; ++i) platform::pause();
        const std::int64_t due = platform::now_ns() + 50 * us;
        timer t = after_func(std::chrono::microseconds(50), [due, &done] {
            explorer::require(platform::now_ns() < due + late, "a timer is late while a processor is idle");
            done.send(1);
        });
        explorer::sleep_in_kernel(20 * ms);
    }}})(s);
}};

// Two sleep; the machine that wakes for the first one computes on with it.
explorer::case_function next_sleeper(std::int64_t after) {
    return whole({.max_procs = 3, .prepares_itself = true, .main = [after] {
        wait_group g;
        const std::int64_t first = platform::now_ns() + 45 * ms + after, second = first + 500 * us;
        g.go([=] {
            sleep_until_ns(first);
            explorer::compute(20 * ms);
        });
        g.go([=] {
            sleep_until_ns(second);
            explorer::require(platform::now_ns() < second + late, "a sleeper is late while a processor is idle");
        });
        explorer::compute(40 * ms);  // the monitor's rounds become rare again
        explorer::prepared();
        explorer::compute(40 * ms);
        g.wait();
    }});
}
const add next[] = {
    {"late/next_sleeper_1", punctually(40), next_sleeper(0)},
    {"late/next_sleeper_2", punctually(40), next_sleeper(quarter)},
    {"late/next_sleeper_3", punctually(40), next_sleeper(2 * quarter)},
    {"late/next_sleeper_4", punctually(40), next_sleeper(3 * quarter)},
};

// All that run on the only processor are short of a slice: it comes to its timers by itself in each 16th turn only.
const add busy{"late/busy_processor", punctually(100), whole({.max_procs = 1, .prepares_itself = true, .main = [] {
    explorer::prepared();
    wait_group g;
    for (int k = 0; k < 2; ++k) {
        g.go([] {
            for (int i = 0; i < 30; ++i) {
                explorer::compute(800 * us);
                yield();
            }
        });
    }
    const std::int64_t due = platform::now_ns() + 5 * ms;
    sleep_until_ns(due);
    explorer::require(platform::now_ns() < due + 2 * late, "a sleeper is late while goroutines take turns");
    g.wait();
}})};

// A goroutine yields to what a timer of its processor starts, which then computes. No machine sleeps for that timer:
// the one that did has left with another, long before.
const add yields{"late/yield_to_a_timer", punctually(300), whole({.max_procs = 3, .prepares_itself = true, .main = [] {
    linger();
    wait_group g;
    const std::int64_t first = platform::now_ns() + 5 * ms, second = first + 12 * ms;
    g.go([=] {
        sleep_until_ns(first);
        explorer::compute(90 * ms);
    });
    timer t = after_func(std::chrono::nanoseconds(second - platform::now_ns()), [] { explorer::compute(60 * ms); });
    explorer::compute(ms);
    explorer::prepared();
    explorer::compute(second - platform::now_ns());
    yield();
    explorer::require(platform::now_ns() < second + 30 * ms, "who yields is late while a processor is idle");
    g.wait();
}})};

// A plain thread starts goroutines beside two that ready each other, which do not advance the processor's tick, and a
// sleeper, which does (docs/decisions/063-what-waits-in-the-global-queue.md).
const add chain{"late/chain_and_global_queue", punctually(40), [](explorer::scenario& s) {
    constexpr int started = 5;
    auto& ran = s.make<platform::atomic<int>>("goroutines that have run", 0);
    whole({.max_procs = 1, .prepares_itself = true, .main = [&ran] {
        chan<int> there, back;
        platform::atomic<bool> over{false};
        wait_group g;
        g.go([&] {
            while (!over.load()) sleep_for(std::chrono::milliseconds(1));
        });
        g.go([&] {
            while (there.recv()) {
                explorer::compute(200 * us);
                back.send(1);
            }
        });
        explorer::prepared();
        let_plain_threads_begin();
        const std::int64_t begin = platform::now_ns();
        while (ran.load() < started && platform::now_ns() < begin + 60 * ms) {
            there.send(1);
            back.recv();
            explorer::compute(200 * us);
        }
        explorer::require(platform::now_ns() < begin + 40 * ms,
            "each of those in the global queue waits for a slice of a chain");
        over.store(true);
        there.close();
        g.wait();
    }, .plain_threads = {[&ran] {
        for (int i = 0; i < started; ++i) go([&ran] { ran.fetch_add(1); });
    }}})(s);
}};

}  // namespace
