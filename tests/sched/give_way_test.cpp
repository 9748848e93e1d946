// A goroutine that computes and now and then calls the runtime gives way in a call that may wait, when its slice is
// over, and in no other (sched/monitor/retake.cpp, Asking).
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <unistd.h>

#include "platform/clock.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

using dunlin::runtime::stats;

class GiveWay : public support::each_p {
protected:
    void SetUp() override { allow(support::sanitized ? 300s : 60s); }

    static void compute(std::chrono::nanoseconds time) {
        for (const std::int64_t until = dunlin::platform::now_ns() + time.count();
             dunlin::platform::now_ns() < until;) {
        }
    }

    static std::uint64_t yields() {
        std::uint64_t n = 0;
        for (const auto& p : stats().procs) n += p.yields;
        return n;
    }

    // Two goroutines more than there are processors compute, and call `call` after each 0.3 ms, until `enough` says so.
    template <class Call, class Enough>
    void compute_and_call(Call call, Enough enough) {
        run([&] {
            std::atomic<bool> stop{false};
            dunlin::wait_group all;
            for (unsigned i = 0; i < procs() + 2; ++i) {
                all.go([&] {
                    dunlin::chan<int> own(1);
                    while (!stop.load(std::memory_order_relaxed)) {
                        compute(300us);
                        call(own);
                    }
                });
            }
            // No goroutine of this wakes meanwhile: for one that was just woken, processors are lent.
            dunlin::blocking([&] {
                while (!enough()) std::this_thread::sleep_for(1ms);
            });
            stop = true;
            all.wait();
        });
    }
};

EACH_P(GiveWay);

TEST_P(GiveWay, InACallThatMayWaitThoughItNeedNot) {
    const std::uint64_t asked = stats().hand_offs.asked, yielded = yields();
    compute_and_call(
        [](dunlin::chan<int>& own) {
            own.send(1);
            own.recv();
        },
        [&] { return stats().hand_offs.asked >= asked + 6 && yields() >= yielded + 4; });
}

TEST_P(GiveWay, InASelect) {
    const std::uint64_t yielded = yields();
    compute_and_call(
        [](dunlin::chan<int>& own) {
            dunlin::select(dunlin::on_send(own, 1, [] {}));
            dunlin::select(dunlin::on_recv(own, [](int) {}), dunlin::on_timeout(1h, [] {}));
        },
        [&] { return yields() >= yielded + 4; });
}

// Such a call may be made under a lock that belongs to the thread.
TEST_P(GiveWay, NotInACallThatNeverWaits) {
    const std::uint64_t asked = stats().hand_offs.asked, yielded = yields();
    std::atomic<unsigned> moved{0};
    dunlin::mutex held;
    dunlin::weighted_semaphore none(0);
    held.lock();
    compute_and_call(
        [&](dunlin::chan<int>& own) {
            const pid_t before = gettid();
            held.try_lock_for(0s);
            none.try_acquire_for(0s);
            dunlin::select(dunlin::on_recv(own, [](int) {}), dunlin::on_timeout(0s, [] {}));
            own.try_send(1);
            own.send_until(2, std::chrono::steady_clock::time_point{});
            dunlin::select(dunlin::on_send(own, 3, [] {}), dunlin::otherwise([] {}));
            own.try_recv();
            if (gettid() != before) moved.fetch_add(1);
        },
        [&] { return stats().hand_offs.asked >= asked + 8; });
    held.unlock();
    EXPECT_EQ(moved.load(), 0u);
    EXPECT_EQ(yields(), yielded);
}

// One that gives way where only preempted goroutines wait does so for one of them.
TEST_P(GiveWay, OneThatComputesAndOneThatCallsHaveEqualShares) {
    if (procs() != 1) GTEST_SKIP() << "with one processor they share it";
    run([&] {
        std::atomic<bool> stop{false};
        unsigned calls = 0, computes = 0;
        dunlin::wait_group both;
        both.go([&] {
            for (dunlin::chan<int> own(1); !stop.load(std::memory_order_relaxed); ++calls) {
                compute(300us);
                own.send(1);
                own.recv();
            }
        });
        both.go([&] {
            for (; !stop.load(std::memory_order_relaxed); ++computes) compute(300us);
        });
        dunlin::sleep_for(800ms);
        stop = true;
        both.wait();
        EXPECT_LT(calls, computes * 2);
        EXPECT_LT(computes, calls * 2);
    });
}

TEST_P(GiveWay, NotInAScopeThatForbidsIt) {
    if (procs() != 1) GTEST_SKIP() << "with one processor it is seen by what runs meanwhile";
    run([&] {
        std::atomic<unsigned> ran{0};
        std::atomic<bool> stop{false};
        dunlin::wait_group other;
        other.go([&] {
            while (!stop.load()) {
                ran.fetch_add(1);
                dunlin::yield();
            }
        });
        for (int k = 0; k < 5; ++k) {
            dunlin::chan<int> own(1);
            dunlin::no_preempt here;
            const unsigned before = ran.load();
            for (int i = 0; i < 100; ++i) {
                compute(300us);
                own.send(1);
                own.recv();
            }
            EXPECT_EQ(ran.load(), before);
        }
        stop = true;
        other.wait();
        EXPECT_GT(ran.load(), 0u);
    });
}

}  // namespace
