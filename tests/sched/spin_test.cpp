// Goroutines that wait in a loop for a lock have short turns: what they wait for is mostly done by one that is not
// running (preempt.h, Spin locks).
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include "platform/memory_map.h"
#include "sched/goroutines/goroutine.h"
#include "sched/machines/machine.h"
#include "sched/preempt/preempt.h"
#include "sched/preempt/safe_point.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

double cpu_seconds_of_this_thread() {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

void hint() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    asm volatile("yield");
#endif
}

class Spin : public support::each_p {
protected:
    std::atomic<bool> over_{false};

    // As many of each kind as there are processors: which part of the CPU time those have that compute. With turns of
    // the same length it is half. The kernel sometimes lets the thread that is woken run before the monitor sleeps,
    // which then comes a few milliseconds late: so it is the best of ten times.
    double part_of_those_that_compute(const std::function<void()>& wait_in_a_loop) {
        double best = 0;
        for (int i = 0; i < 10 && best < most_of_it; ++i) best = std::max(best, part_once(wait_in_a_loop));
        return best;
    }

    static constexpr double most_of_it = 0.65;

private:
    double part_once(const std::function<void()>& wait_in_a_loop) {
        std::atomic<double> computed{0}, waited{0};
        over_ = false;
        run([&] {
            dunlin::wait_group all;
            for (unsigned i = 0; i < procs(); ++i) {
                all.go([&] {
                    const double before = cpu_seconds_of_this_thread();
                    wait_in_a_loop();
                    waited += cpu_seconds_of_this_thread() - before;
                });
                all.go([&] {
                    const double before = cpu_seconds_of_this_thread();
                    for (std::uint64_t n = 0; !over_.load(std::memory_order_relaxed); ++n) {
                        for (int i = 0; i < 1000; ++i) asm volatile("" : "+r"(n));
                    }
                    computed += cpu_seconds_of_this_thread() - before;
                });
            }
            dunlin::sleep_for(500ms);
            over_ = true;
            all.wait();
        });
        return computed / (computed + waited);
    }
};
INSTANTIATE_TEST_SUITE_P(, Spin, testing::Values(1, 2));

TEST_P(Spin, ALoopWithTheHintLeavesItsTimeToThoseThatCompute) {
    if (support::sanitized) GTEST_SKIP() << "the loop is full of the sanitizer's code";
    EXPECT_GT(part_of_those_that_compute([&] {
        while (!over_.load(std::memory_order_relaxed)) hint();
    }), most_of_it);
}

TEST_P(Spin, ALoopWithSchedYieldToo) {
    if (support::sanitized) GTEST_SKIP() << "the loop is full of the sanitizer's code";
    EXPECT_GT(part_of_those_that_compute([&] {
        while (!over_.load(std::memory_order_relaxed)) sched_yield();
    }), most_of_it);
}

TEST_P(Spin, ASpinLockOfLibcToo) {
    if (support::sanitized) GTEST_SKIP() << "the loop is full of the sanitizer's code";
    pthread_spinlock_t lock;
    pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
    std::atomic<unsigned> waiters{0};
    EXPECT_GT(part_of_those_that_compute([&] {
        // the first one has it until the end: the others wait for it in libc
        if (waiters.fetch_add(1) % procs() == 0) {
            pthread_spin_lock(&lock);
            while (!over_.load(std::memory_order_relaxed)) hint();
            pthread_spin_unlock(&lock);
            return;
        }
        pthread_spin_lock(&lock);
        pthread_spin_unlock(&lock);
    }), most_of_it);
    pthread_spin_destroy(&lock);
}

// Each takes the lock in the order of its ticket, so that none goes on until the one before it has had its turn.
TEST_P(Spin, AQueueForAFifoLockMovesOn) {
    if (support::sanitized) GTEST_SKIP() << "the loop is full of the sanitizer's code";
    constexpr int goroutines = 8;
    std::atomic<unsigned> next{0}, served{0};
    std::atomic<bool> over{false};
    unsigned counter = 0;
    run([&] {
        dunlin::wait_group all;
        for (int i = 0; i < goroutines; ++i) {
            all.go([&] {
                while (!over.load(std::memory_order_relaxed)) {
                    const unsigned ticket = next.fetch_add(1, std::memory_order_relaxed);
                    while (served.load(std::memory_order_acquire) != ticket) hint();
                    ++counter;
                    served.store(ticket + 1, std::memory_order_release);
                }
            });
        }
        dunlin::sleep_for(500ms);
        over = true;
        all.wait();
    });
    EXPECT_EQ(counter, next.load());
}

// A mark is of the goroutine that was stopped while it waited in a loop, and not of the next one on its thread.
TEST(SpinMark, BelongsToAGoroutineAndLastsForAFewTurns) {
    using namespace dunlin::sched;
    const auto m = std::make_unique<machine>();
    goroutine spins, computes;
    spins.id = 1;
    computes.id = 2;
    note_spinning(m.get(), &computes, false);
    EXPECT_EQ(m->spins, 0u);
    note_spinning(m.get(), &spins, true);
    const std::uint32_t turns = m->spins;
    EXPECT_GT(turns, 1u);
    note_spinning(m.get(), &spins, false);
    EXPECT_EQ(m->spins, turns - 1) << "the holder of the lock is met elsewhere too";
    note_spinning(m.get(), &computes, false);
    EXPECT_EQ(m->spins, 0u) << "another goroutine";
    note_spinning(m.get(), &spins, true);
    for (std::uint32_t i = 0; i < turns; ++i) note_spinning(m.get(), &spins, false);
    EXPECT_EQ(m->spins, 0u);
    note_spinning(m.get(), &spins, false);
    EXPECT_EQ(m->spins, 0u);
}

// Code in memory that can be executed only, on CPUs with protection keys: looking at it must not end the process.
TEST(SpinHint, IsNotLookedForWhereNothingCanBeRead) {
    void* const page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    char byte;
    if (dunlin::platform::read_own_memory(reinterpret_cast<std::uintptr_t>(page), &byte, 1) != -EFAULT) {
        GTEST_SKIP() << "the kernel does not say what can be read";
    }
    for (const std::uintptr_t at : {0, 100, 4095}) {
        EXPECT_FALSE(dunlin::sched::spins_at(reinterpret_cast<std::uintptr_t>(page) + at));
    }
    munmap(page, 4096);
}

}  // namespace
