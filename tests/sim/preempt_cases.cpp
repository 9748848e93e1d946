// Signals arrive (explorer/world.h): goroutines that compute are stopped in the handler and go on later
// (sched/preempt).
#include "sched/data/all_goroutines.h"
#include "sched/data/hooks.h"
#include "sim/heap.h"
#include "sim/whole.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;
using sched::the_scheduler;

std::vector<explorer::options> interrupted(std::size_t executions) {
    std::vector<explorer::options> runs = drawn(executions);
    for (explorer::options& o : runs) o.signals = true;
    return runs;
}

// More goroutines that compute than processors, and one that only counts: each gets its turn.
explorer::case_function hogs(unsigned max_procs, int count) {
    return whole({.max_procs = max_procs, .prepares_itself = true, .main = [=] {
        explorer::prepared();
        platform::atomic<int> others{0};
        wait_group g;
        for (int i = 0; i < count; ++i) {
            g.go([] {
                own_value own;
                own.touch();
                for (int k = 0; k < 4; ++k) explorer::compute(15 * ms);
                own.touch();
                explorer::require(own.touched() == 2, "a goroutine that was stopped has lost what is on its stack");
            });
        }
        g.go([&] { others.fetch_add(1); });
        g.wait();
        explorer::require(others.load() == 1, "a goroutine has not run");
        explorer::require(the_scheduler.hand_offs.preemptions.get() != 0, "no goroutine was stopped by a signal");
    }});
}
const add two_hogs{"preempt/two_on_one", interrupted(200), hogs(1, 2)};
const add three_hogs{"preempt/three_on_two", interrupted(200), hogs(2, 3)};

// Goroutines that compute inside the allocator, mostly, are stopped there after some refusals, and the lock stays with
// them; what starts goroutines meanwhile waits for it. The monitor must not: they go on by its hand alone. The thread
// maker may: a machine is memory, and until there is one its processor waits (lacks_threads).
explorer::case_function allocators(unsigned max_procs, int count) {
    return whole({.max_procs = max_procs, .lacks_threads = true, .prepares_itself = true, .main = [=] {
        explorer::prepared();
        let_plain_threads_begin();
        lock_the_heap();
        platform::atomic<int> others{0};
        wait_group g;
        for (int i = 0; i < count; ++i) {
            g.go([] {
                for (int k = 0; k < 3; ++k) allocate(15 * ms);
            });
        }
        for (int i = 0; i < 4; ++i) {
            g.go([&] { others.fetch_add(1); });
            yield();
        }
        g.wait();
        explorer::require(others.load() == 4, "a goroutine has not run");
    }, .plain_threads = {[] {
        for (int i = 0; i < 3; ++i) {
            explorer::sleep_in_kernel(8 * ms);
            go([] { allocate(1 * ms); });
        }
    }}});
}
const add allocators_on_one{"preempt/allocators_on_one", interrupted(200), allocators(1, 2)};
const add allocators_on_two{"preempt/allocators_on_two", interrupted(200), allocators(2, 3)};

// A goroutine that asks for a stack of its own goes to the arena outside the runtime, with its lock.
explorer::case_function own_stacks(unsigned max_procs, int count) {
    return whole({.max_procs = max_procs, .prepares_itself = true, .main = [=] {
        explorer::prepared();
        wait_group g;
        for (int i = 0; i < count; ++i) {
            g.go([] {
                for (int k = 0; k < 4; ++k) {
                    explorer::compute(14 * ms);
                    go({.stack_size = 64 << 10}, [] {});
                }
            });
        }
        g.wait();
    }});
}
const add stacks_on_one{"preempt/stacks_on_one", interrupted(300), own_stacks(1, 3)};
const add stacks_on_two{"preempt/stacks_on_two", interrupted(200), own_stacks(2, 4)};

// main returns while goroutines compute and are stopped: they are frozen, or end, and the next run() is as the first.
const add left_computing{"preempt/left_computing", interrupted(200), whole({.prepares_itself = true, .main = [] {
    explorer::prepared();
    for (int i = 0; i < 3; ++i) {
        go([] {
            for (;;) explorer::compute(5 * ms);
        });
    }
    explorer::compute(30 * ms);
}, .afterwards = [] {
    for (int i = 0; i < 2; ++i) {
        int sum = 0;
        dunlin::run({.max_procs = 2}, [&sum] {
            chan<int> c;
            go([c] {
                explorer::compute(12 * ms);
                c.send(1);
            });
            sum = *c.recv();
        });
        explorer::require(sum == 1, "a later run() does not work");
    }
}})};

// Fewer processors than goroutines that compute: the monitor knows of those that are too many, and stops them.
const add fewer{"preempt/fewer_processors", interrupted(200), whole({.prepares_itself = true, .main = [] {
    explorer::prepared();
    wait_group g;
    for (int i = 0; i < 2; ++i) {
        g.go([] {
            for (int k = 0; k < 4; ++k) explorer::compute(10 * ms);
        });
    }
    explorer::compute(200 * us);
    runtime::set_max_procs(1);
    g.wait();
    runtime::set_max_procs(2);
}})};

// In a function of libc's, which may hold a lock, a goroutine is stopped only after some refusals; but it is.
const add in_libc{"preempt/in_libc", interrupted(100), whole({.max_procs = 1, .prepares_itself = true, .main = [] {
    explorer::prepared();
    wait_group g;
    for (int i = 0; i < 2; ++i) {
        g.go([] {
            const explorer::in_libc here;
            explorer::compute(120 * ms);
        });
    }
    sleep_for(std::chrono::milliseconds(100));
    explorer::require(the_scheduler.hand_offs.preemptions.get() != 0, "what computes in libc is never stopped");
    g.wait();
}})};

// Each run() leaves one: it stays frozen on its thread, and the others have what they need.
const add threads_end{"preempt/runs_that_leave_one", interrupted(60), whole({.prepares_itself = true, .main = [] {
    explorer::prepared();
}, .afterwards = [] {
    for (int i = 0; i < 8; ++i) {
        dunlin::run({.max_procs = 2}, [] {
            go([] { explorer::compute(3600 * 1000 * ms); });
            explorer::compute(15 * ms);
        });
        explorer::sleep_in_kernel(60 * ms);
    }
    explorer::require(explorer::here()->count_threads() < 14, "more threads than run() has left goroutines on");
}})};

// A run() that has returned has left a goroutine that computes. The next one, whose main waits for ever, is told so.
const add deadlock_after{"preempt/deadlock_in_the_next_run", interrupted(150),
    whole({.prepares_itself = true, .main = [] {
    explorer::prepared();
    go([] { explorer::compute(3600 * 1000 * ms); });
    explorer::compute(30 * ms);
}, .afterwards = [] {
    sched::hooks.deadlock = []() noexcept { explorer::here()->end_process(); };
    dunlin::run({.max_procs = 2}, [] { chan<int>().recv(); });
    explorer::require(false, "main has got what nobody sends");
}})};

}  // namespace
