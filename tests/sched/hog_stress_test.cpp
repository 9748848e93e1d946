// Goroutines that compute for long without calling the runtime, many of each kind (support/hogs.h), while the main
// goroutine sleeps a millisecond at a time (a goroutine just woken has hogs stopped early) and another one yields all
// the time. Whatever is done to their threads, every hog gets the result it gets without preemption, and none waits for
// ever for what another one that stands still holds.
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "support/hogs.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;
namespace hogs = support::hogs;

namespace {

class HogStress : public support::each_p {
protected:
    void SetUp() override {
        allow(support::sanitized ? 300s : 60s);
        hogs::prepare();
    }

    // So many goroutines of each of these kinds do so many rounds.
    void hog(std::vector<hogs::kind> kinds, int goroutines = support::sanitized ? 4 : 6, int rounds = 2) {
        const dunlin::runtime::hand_off_stats before = dunlin::runtime::stats().hand_offs;
        std::mutex lock;
        std::vector<std::string> faults;
        int sleeps = 0;
        std::atomic<std::uint64_t> yields{0};
        run([&] {
            std::atomic<int> running = goroutines * static_cast<int>(kinds.size());
            std::atomic<bool> stop{false};
            dunlin::wait_group all;
            for (int i = 0; i < goroutines; ++i) {
                for (const hogs::kind& kind : kinds) {
                    all.go({.name = kind.name}, [&, kind, i] {
                        for (int round = 0; round < rounds; ++round) {
                            const std::string fault = kind.round(static_cast<unsigned>(i * rounds + round));
                            if (fault.empty()) continue;
                            const std::lock_guard guard(lock);
                            faults.push_back(std::string(kind.name) + ": " + fault);
                        }
                        running.fetch_sub(1);
                    });
                }
            }
            all.go({.name = "yields"}, [&] {
                for (; !stop; dunlin::yield()) yields.fetch_add(1, std::memory_order_relaxed);
            });
            // Hogs of few rounds may end before the yielder's first turn; it has one however long they take.
            for (; running != 0 || yields == 0; ++sleeps) dunlin::sleep_for(1ms);
            stop = true;
            all.wait();
        });
        for (std::size_t i = 0; i < faults.size() && i < 20; ++i) ADD_FAILURE() << faults[i];
        EXPECT_GT(sleeps, 0);

        const dunlin::runtime::hand_off_stats after = dunlin::runtime::stats().hand_offs;
        stopped_ = after.preemptions - before.preemptions;
        taken_ = after.from_hogs - before.from_hogs;
        RecordProperty("preemptions", std::to_string(stopped_));
        RecordProperty("from_hogs", std::to_string(taken_));
        RecordProperty("from_blocked", std::to_string(after.from_blocked - before.from_blocked));
        RecordProperty("thaws", std::to_string(after.thaws - before.thaws));
        RecordProperty("sleeps", std::to_string(sleeps));
    }

    std::uint64_t stopped_ = 0, taken_ = 0;
};

EACH_P(HogStress);

TEST_P(HogStress, ArithmeticGivesWhatItGivesWithoutPreemption) {
    hog({{"arithmetic", hogs::arithmetic}}, 4, 20);  // two rounds are over in 4 ms on a fast machine
    // Else this file tests nothing. With more processors than CPUs the hogs may be done before any of them has to wait
    // for ten milliseconds.
    if (procs() == 1) {
        EXPECT_GT(taken_, 0u);
        if (!support::sanitized) {
            EXPECT_GT(stopped_, 0u);
        }
    }
}

TEST_P(HogStress, VectorRegistersAreExactToTheLastBit) { hog({{"vectors", hogs::vectors}}); }

TEST_P(HogStress, TheRoundingModeIsTheThreads) {
    hog({{"rounding", hogs::rounding}, {"arithmetic", hogs::arithmetic}}, 4);
}

TEST_P(HogStress, ErrnoSurvivesALongComputation) { hog({{"errno", hogs::error_number}}); }

TEST_P(HogStress, AThreadInASectionRunsNoOtherGoroutine) { hog({{"thread_local", hogs::thread_local_state}}); }

TEST_P(HogStress, AMutexSharedByAllExcludes) { hog({{"mutex", hogs::mutex}}); }

TEST_P(HogStress, ASpinLockSharedByAllExcludes) { hog({{"spin-lock", hogs::spin_lock}}, 4, 2); }

TEST_P(HogStress, MallocAndFreeLoseNothing) { hog({{"malloc", hogs::allocation}}); }

TEST_P(HogStress, SortingLosesNothing) { hog({{"sort", hogs::sorting}}); }

TEST_P(HogStress, StdioLocksOfOneFileAreKept) { hog({{"stdio", hogs::printing}}); }

TEST_P(HogStress, ThrownExceptionsAreCaught) { hog({{"exceptions", hogs::exceptions}}); }

TEST_P(HogStress, LibrariesAreOpenedAndClosed) { hog({{"loader", hogs::loader}}); }

TEST_P(HogStress, LocalesAndStringStreamsStayWhole) { hog({{"locale", hogs::locales}}); }

TEST_P(HogStress, NumbersBecomeTextAndComeBack) { hog({{"strtod", hogs::numbers_as_text}}); }

TEST_P(HogStress, ProcessesAreMadeAndWaitedFor) {
    hog({{"fork", hogs::processes}, {"arithmetic", hogs::arithmetic}}, 4);
}

TEST_P(HogStress, NamesAreLookedUp) { hog({{"getaddrinfo", hogs::names}}); }

TEST_P(HogStress, AllKindsRunAtOnce) {
    hog({std::begin(hogs::all), std::end(hogs::all)}, support::sanitized ? 1 : 2, 2);
}

}  // namespace
