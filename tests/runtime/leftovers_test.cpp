// What a run() has left, and what comes after it: waiters for a mutex of its goroutines, later runs, deadlines of plain
// threads.
#include <algorithm>
#include <mutex>
#include <sched.h>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

// A std::mutex that a goroutine has locked and holds, computing, after its run() has returned: most likely it stands
// still then.
class Leftovers : public support::each_p {
protected:
    static inline std::mutex mutex;
    static inline std::atomic<bool> may_unlock;
    static inline std::atomic<pid_t> holder;
    static inline std::atomic<unsigned long> steps;

    void leave_a_holder() {
        may_unlock = false;
        holder = 0;
        run([] {
            dunlin::go([] {
                mutex.lock();
                holder = static_cast<pid_t>(syscall(SYS_gettid));
                while (!may_unlock) steps.fetch_add(1, std::memory_order_relaxed);
                mutex.unlock();
                dunlin::yield();
            });
            while (holder == 0) dunlin::sleep_for(1ms);
        });
    }
};
EACH_P(Leftovers);

cpu_set_t cpus_of_this_thread() {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    return set;
}

// While main waits, the holder has main's CPU, and the lowest priority if no other thread wants it. Main has neither
// afterwards, nor what it starts, nor any other goroutine.
TEST_P(Leftovers, AHolderThatGoesOnLeavesNoThreadItsCpuOrItsPriority) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer's own locks stand before libc's";
    const cpu_set_t before = cpus_of_this_thread();
    leave_a_holder();
    may_unlock = true;
    mutex.lock();
    const cpu_set_t after = cpus_of_this_thread();
    cpu_set_t inherited;
    std::thread([&] { inherited = cpus_of_this_thread(); }).join();
    mutex.unlock();
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
    EXPECT_TRUE(CPU_EQUAL(&before, &inherited));
    // Its thread ends with its goroutine: no other runs with these.
    support::eventually_on_thread([&] {
        cpu_set_t of_holder;
        const bool there = sched_getaffinity(holder, sizeof of_holder, &of_holder) == 0;
        return !there || (CPU_EQUAL(&before, &of_holder) && sched_getscheduler(holder) != SCHED_IDLE);
    });
}

// A holder that has the mutex for 30 ms of CPU time and takes it again at once, on a machine whose CPUs are all wanted.
TEST_P(Leftovers, MainGetsItsTurnThoughOthersWantEveryCpu) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer's own locks stand before libc's";
    static std::mutex wanted;
    static std::atomic<bool> locked, enough;
    locked = enough = false;
    run([] {
        dunlin::go([] {
            const auto used = [] {
                timespec t;
                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
                return t.tv_sec * 1s + t.tv_nsec * 1ns;
            };
            while (!enough) {
                const std::lock_guard guard(wanted);
                locked = true;
                for (const auto until = used() + 30ms; used() < until;) {}
            }
        });
        while (!locked) dunlin::sleep_for(1ms);
    });
    std::vector<std::thread> others;
    for (unsigned i = 0; i < 8 * std::thread::hardware_concurrency(); ++i)
        others.emplace_back([] {
            while (!enough) {}
        });
    const auto begin = std::chrono::steady_clock::now();
    wanted.lock();
    const auto elapsed = std::chrono::steady_clock::now() - begin;
    wanted.unlock();
    enough = true;
    for (std::thread& each : others) each.join();
    EXPECT_LT(elapsed, 20s);  // a share of the CPU is about a quarter of a second for 30 ms; what is left over, minutes
}

TEST_P(Leftovers, ThreadsAreMadeWhileAHolderGoesOn) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer's own locks stand before libc's";
    leave_a_holder();
    const unsigned long stood_at = steps;
    std::chrono::nanoseconds elapsed{};
    run([&] {
        dunlin::wait_group all;
        all.go([] { const std::lock_guard guard(mutex); });
        while (steps == stood_at) dunlin::sleep_for(1ms);
        constexpr int calls = 20;
        std::atomic<int> inside{0};
        const auto begin = std::chrono::steady_clock::now();
        dunlin::wait_group others;
        for (int i = 0; i < calls; ++i) {
            others.go([&] {
                for (++inside; inside != calls;) std::this_thread::sleep_for(1ms);  // each needs a thread
            });
        }
        others.wait();
        elapsed = std::chrono::steady_clock::now() - begin;
        may_unlock = true;
        all.wait();
    });
    EXPECT_LT(elapsed, 1s);  // the holder goes on for two seconds
}

// Each look of the monitor's sees some of those that may wait; the thread of this one is the oldest, so that it comes
// last.
TEST_P(Leftovers, TheOneThatWaitsIsFoundAmongMany) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer's own locks stand before libc's";
    leave_a_holder();
    may_unlock = true;
    run([] {
        constexpr int others = 90;
        std::atomic<int> inside{0};
        std::atomic<bool> begun{false}, got{false};
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        dunlin::wait_group all;
        all.go([&] {
            begun = true;
            while (inside != others) std::this_thread::sleep_for(1ms);
            const std::lock_guard guard(mutex);
            got = true;
        });
        while (!begun) dunlin::sleep_for(1ms);
        for (int i = 0; i < others; ++i) {
            all.go([&] {
                ++inside;
                char byte;
                while (read(ends[0], &byte, 1) > 0) {}
            });
        }
        while (!got) dunlin::sleep_for(1ms);
        close(ends[1]);
        all.wait();
        close(ends[0]);
    });
}

// Each of these runs would wait for it a millisecond.
TEST_P(Leftovers, ACallThatIsLeftCostsLaterRunsNothing) {
    if (support::sanitized) GTEST_SKIP() << "a run takes longer";
    static std::atomic<bool> inside;
    inside = false;
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    run([from = ends[0]] {
        dunlin::go([from] {
            inside = true;
            char byte;
            EXPECT_EQ(::read(from, &byte, 1), 0);
        });
        while (!inside) dunlin::sleep_for(1ms);
    });
    auto least = std::chrono::nanoseconds::max();
    for (int i = 0; i < 50; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        run([] {});
        least = std::min(least, std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin));
    }
    EXPECT_LT(least, 1ms);
    close(ends[1]);  // the call ends
}

// What a deadline does it does in a goroutine, which is of no run().
TEST_P(Leftovers, DeadlinesOfPlainThreadsComeWhileRunsEnd) {
    for (int round = 0; round < support::rounds(10); ++round) {
        const auto due = dunlin::clock::now() + 2ms;
        std::vector<dunlin::cancellable> waiting;
        for (int i = 0; i < 300; ++i) waiting.push_back(dunlin::context::background().with_deadline(due));
        dunlin::run({.max_procs = procs()}, [&] {
            const dunlin::no_preempt no_other_yet;
            while (dunlin::clock::now() < due + 200us) {}
        });
        for (const dunlin::cancellable& each : waiting) each.done().recv();
    }
}

}  // namespace
