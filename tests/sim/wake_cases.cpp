// The wake protocol (sched/wake.h), the sleep for timers (sched/find_work.cpp) and the making of threads, in whole programs.
#include "platform/clock.h"
#include "sim/whole.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

// What `count` goroutines have done.
struct tally {
    platform::atomic<int> done{0};
    void note() { done.fetch_add(1); }
};

// Goroutines that were started compute while the one that has started them does: somebody else must come for them.
sim::case_function spread(bool monitor_sleeps, bool has_threads) {
    return whole({.has_threads = has_threads, .monitor_sleeps = monitor_sleeps, .main = [] {
        platform::atomic<int> began{0};
        wait_group g;
        g.go([&] { began.fetch_add(1); });
        sim::compute(60 * ms);
        sim::require(began.load() == 1, "nobody has come for a goroutine while a processor was idle");
        g.wait();
    }});
}
const add spreads{"wake/spread", drawn(500), spread(false, true)};
const add spreads_with_monitor{"wake/spread_monitor_sleeps", drawn(500), spread(true, true)};
const add spreads_without_threads{"wake/spread_no_threads", drawn(500), spread(false, false)};

// Machines retire while others start goroutines, again and again.
const add retirers{"wake/retire_and_start", drawn(1'000), whole({.main = [] {
    wait_group g;
    for (int k = 0; k < 2; ++k) {
        g.go([&g] {
            own_value own;
            for (int i = 0; i < 3; ++i) {
                own.touch();
                g.go([] { sim::compute(us); });
                sim::compute(2 * us);
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

// A plain thread starts goroutines, and wakes one, while the machines come and go.
const add outside{"wake/from_outside", drawn(1'000), [](sim::scenario& s) {
    auto& c = s.make<chan<int>>("channel", 1);
    auto& t = s.make<tally>("tally");
    whole({.main = [&c, &t] {
        int sum = 0;
        for (int i = 0; i < 4; ++i) sum += c.recv().value_or(100);
        sim::require(sum == 4 && t.done.load() == 2, "a value is lost or doubled");
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
sim::case_function sleepers(bool monitor_sleeps) {
    return whole({.monitor_sleeps = monitor_sleeps, .main = [] {
        wait_group g;
        const auto sleep = [](std::int64_t ns) {
            own_value own;
            own.touch();
            const std::int64_t until = platform::now_ns() + ns;
            sleep_for(std::chrono::nanoseconds(ns));
            own.touch();
            sim::require(platform::now_ns() >= until, "a sleep ends early");
            sim::require(platform::now_ns() < until + 200 * ms, "a sleep ends late");
        };
        g.go([&] { sleep(3'000 * ms); });
        g.go([&] {
            sim::compute(us);
            sleep(20 * us);
            sleep(500 * ms);
        });
        sleep(10 * us);
        g.wait();
    }});
}
const add timers{"wake/timers", drawn(1'000), sleepers(false)};
const add timers_without_monitor{"wake/timers_monitor_sleeps", drawn(500), sleepers(true)};

// A plain thread arms a timer, earlier than the one that a machine sleeps for.
const add timer_outside{"wake/timer_from_outside", drawn(500), [](sim::scenario& s) {
    auto& done = s.make<chan<int>>("channel", 1);
    whole({.main = [&done] {
        go([] { sleep_for(std::chrono::hours(1)); });
        const std::int64_t begin = platform::now_ns();
        sim::require(done.recv() == 1, "the wrong value");
        sim::require(platform::now_ns() < begin + 200 * ms, "what a plain thread has asked for comes late");
    }, .plain_threads = {[&done] {
        after_func(std::chrono::microseconds(50), [&done] { done.send(1); });
    }}})(s);
}};

}  // namespace
