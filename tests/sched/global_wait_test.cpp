// What is in the global queue has its turn, whatever goroutines with a local queue do meanwhile.
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "park/waiter.h"
#include "sched/data/current.h"
#include "sched/data/types.h"
#include "sched/machines/handshake.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

std::chrono::nanoseconds cpu_time() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

class GlobalWait : public support::each_p {
protected:
    // On each processor two goroutines that ready each other, and one that comes at each `period` and moves the tick.
    // What a plain thread starts comes as a batch at the end of a slice of 10 ms. CPU time, so that a machine that is
    // busy otherwise does not count.
    void what_a_plain_thread_starts_runs_soon(std::chrono::nanoseconds period) {
        constexpr int started = 300;
        std::chrono::nanoseconds took{};
        run([&] {
            std::atomic<bool> stop{false};
            std::atomic<int> ran{0};
            std::vector<dunlin::chan<int>> values(procs());
            dunlin::wait_group others;
            for (auto& v : values) {
                others.go([&] {
                    while (!stop) v.send(1);
                    v.close();
                });
                others.go([&] {
                    while (v.recv()) {
                    }
                });
                others.go([&] {
                    while (!stop) dunlin::sleep_for(period);
                });
            }
            const auto before = cpu_time();
            std::thread starter([&] {
                for (int i = 0; i < started; ++i) dunlin::go([&] { ++ran; });
            });
            while (ran < started) dunlin::sleep_for(1ms);
            took = cpu_time() - before;
            starter.join();
            stop = true;
            others.wait();
        });
        // At P = 1 three batches; at 60 ms each they took eighteen seconds.
        EXPECT_LT(took, started * 2ms);
    }
};

// The 61st slice is a long time to wait for.
TEST_P(GlobalWait, WhatAPlainThreadStartsDoesNotWaitForSixtyOneSlicesEach) {
    what_a_plain_thread_starts_runs_soon(1ms);
}

// One goroutine comes from the global queue at each 61st tick, in less than a slice.
TEST_P(GlobalWait, WhatAPlainThreadStartsDoesNotWaitForATickEach) { what_a_plain_thread_starts_runs_soon(100us); }

EACH_P(GlobalWait);

using namespace dunlin::sched;

class GlobalWaitSteps : public support::runtime_test {
protected:
    // Not inlined: the goroutine may be on another thread than at the last call. Inside the runtime: a call that has
    // blocked may have lost it the processor.
    [[gnu::noinline]] static processor* this_processor() {
        const dunlin::park::runtime_section inside;
        return processor_of(inside.machine());
    }
};

// The monitor ends a slice in the round in which it tells of a timer that is due. So the goroutine that the timer
// readies comes between two that ready each other, and has the last turn of their slice, or the slice ends in its turn.
// It readies none.
TEST_F(GlobalWaitSteps, AGoroutineThatComesAsTheSliceEndsDoesNotLetOthersWaitForSlicesEach) {
    constexpr int started = 50;
    for (const bool ends_in_its_turn : {false, true}) {
        std::size_t left = started;
        dunlin::run({.max_procs = 1}, [&] {
            std::atomic<int> ran{0};
            dunlin::chan<int> comes;
            dunlin::wait_group others;
            others.go([&] {
                while (comes.recv()) {
                    if (ends_in_its_turn) this_processor()->slice.store(slice_state::over);
                }
            });
            for (bool so = false; !so;) {
                ran = 0;
                dunlin::sleep_for(1ms);  // a new slice
                std::thread starter([&] {
                    for (int i = 0; i < started; ++i) {
                        dunlin::go([&] {
                            if (ran++ == 0) left = the_scheduler.global_size();
                        });
                    }
                });
                starter.join();
                processor* p = this_processor();
                p->global_had_slice = false;
                if (!ends_in_its_turn) p->slice.store(slice_state::over);
                comes.send(1);
                so = ran == 0 && p->run_next.load() != nullptr;
                support::eventually([&] { return ran == started; });
            }
            comes.close();
            others.wait();
        });
        EXPECT_EQ(left, 0u) << ends_in_its_turn;
    }
}

class GlobalWaitTurns : public support::runtime_test {};

// Each turn of a goroutine that computes begins a tick, sooner than the slice of two that ready each other would end.
TEST_F(GlobalWaitTurns, OfManyThatComputeDoNotLetAChainKeepOthersWaiting) {
    dunlin::run({.max_procs = 1}, [] {
        std::atomic<bool> over{false}, ran{false};
        dunlin::wait_group all;
        for (int i = 0; i < 100; ++i) {
            all.go([&] {
                while (!over) {
                }
            });
        }
        dunlin::chan<int> values;
        all.go([&] {
            while (values.recv()) {
            }
        });
        for (const auto until = std::chrono::steady_clock::now() + 600ms; std::chrono::steady_clock::now() < until;)
            values.send(1);
        all.go([&] { ran = true; });
        while (!ran) values.send(1);  // the watchdog ends it
        over = true;
        values.close();
        all.wait();
    });
}

// Each of those in the global queue computes for a slice, and ends the slice when it is preempted.
TEST_F(GlobalWaitTurns, OfTheGlobalQueueDoNotLetTheLocalQueueWaitUntilItIsEmpty) {
    constexpr int started = 300;
    std::atomic<int> begun{0}, begun_before{started};
    dunlin::run({.max_procs = 1}, [&] {
        std::atomic<bool> over{false}, ran{false};
        dunlin::wait_group all;
        all.go([&] {
            begun_before = begun.load();
            ran = true;
        });
        all.go([] {});  // run_next
        std::thread starter([&] {
            for (int i = 0; i < started; ++i) {
                all.go([&] {
                    ++begun;
                    while (!over) {
                    }
                });
            }
        });
        while (!ran) {
        }
        starter.join();
        over = true;
        all.wait();
    });
    EXPECT_LT(begun_before, started / 2);
}

// The turn of a preempted goroutine comes while a new one computes, which is then preempted as well.
TEST_F(GlobalWaitTurns, OfPreemptedGoroutinesComeWhileNewOnesCompute) {
    constexpr int count = 200;
    std::atomic<int> begun{0}, came_back{0};
    dunlin::run({.max_procs = 1}, [&] {
        dunlin::wait_group all;
        for (int i = 0; i < count; ++i) {
            all.go([&] {
                ++begun;
                auto before = cpu_time();
                for (const auto until = before + 15ms; before < until;) {
                    // Others have computed meanwhile.
                    const auto now = cpu_time();
                    if (now - before > 5ms && begun < count) ++came_back;
                    before = now;
                }
            });
        }
        all.wait();
    });
}

}  // namespace
