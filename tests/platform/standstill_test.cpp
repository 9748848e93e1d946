// All other threads stand still, wherever they are, and go on as if nothing had been.
#include "platform/standstill.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <gtest/gtest.h>
#include <poll.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "platform/thread.h"
#include "support/build.h"
#include "support/may_trace.h"

using namespace dunlin;
using namespace std::chrono_literals;

namespace {

template <class Condition>
void eventually(Condition condition) {
    while (!condition()) std::this_thread::sleep_for(100us);
}

// ThreadSanitizer's runtime has no word for it.
bool possible() { return !support::under_thread && support::may_trace(); }

class spinner {
public:
    spinner() : thread_([this] {
        tid_ = platform::thread_id();
        while (!enough_.load(std::memory_order_relaxed)) turns_.fetch_add(1, std::memory_order_relaxed);
    }) {
        eventually([this] { return turns_ > 1000; });
    }
    ~spinner() {
        enough_ = true;
        thread_.join();
    }
    std::uint64_t turns() const { return turns_; }
    pid_t tid() const { return tid_; }

private:
    std::atomic<std::uint64_t> turns_{0};
    std::atomic<pid_t> tid_{0};
    std::atomic<bool> enough_{false};
    std::thread thread_;
};

bool has(const platform::standstill& still, pid_t tid) {
    const auto threads = still.threads();
    return std::any_of(threads.begin(), threads.end(), [&](const auto& t) { return t.tid == tid && !t.gone; });
}

TEST(Standstill, ThreadsThatComputeStandStillAndGoOn) {
    if (!possible()) GTEST_SKIP();
    const spinner a, b;
    for (int round = 0; round < 20; ++round) {
        std::uint64_t before_a, before_b, after_a, after_b;
        {
            const platform::standstill still;
            ASSERT_EQ(still.refused(), nullptr);
            EXPECT_TRUE(has(still, a.tid()) && has(still, b.tid()));
            EXPECT_FALSE(has(still, platform::thread_id()));
            before_a = a.turns(), before_b = b.turns();
            const timespec pause{0, 2'000'000};
            nanosleep(&pause, nullptr);
            after_a = a.turns(), after_b = b.turns();
        }
        EXPECT_EQ(before_a, after_a);
        EXPECT_EQ(before_b, after_b);
        eventually([&] { return a.turns() > after_a && b.turns() > after_b; });
    }
}

TEST(Standstill, CallsThatSleepGoOn) {
    if (!possible()) GTEST_SKIP();
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    std::atomic<pid_t> tid{0};
    ssize_t got = 0;
    int error = 0;
    std::thread reader([&] {
        char byte;
        tid = platform::thread_id();
        got = read(fds[0], &byte, 1);
        error = errno;
    });
    eventually([&] { return tid != 0 && !platform::thread_is_running(tid); });
    {
        const platform::standstill still;
        ASSERT_EQ(still.refused(), nullptr);
        EXPECT_TRUE(has(still, tid));
    }
    EXPECT_EQ(write(fds[1], "x", 1), 1);
    reader.join();
    EXPECT_EQ(got, 1) << error;
    close(fds[0]), close(fds[1]);
}

// And with what is left of their time.
TEST(Standstill, CallsWithALimitGoOnUntilIt) {
    if (!possible()) GTEST_SKIP();
    std::atomic<pid_t> sleeper{0}, poller{0};
    int slept = -1, polled = -1;
    std::thread sleeps([&] {
        sleeper = platform::thread_id();
        const timespec pause{0, 300'000'000};
        slept = nanosleep(&pause, nullptr);
    });
    std::thread polls([&] {
        poller = platform::thread_id();
        polled = poll(nullptr, 0, 300);
    });
    for (const auto* tid : {&sleeper, &poller})
        eventually([&] { return *tid != 0 && !platform::thread_is_running(*tid); });
    for (int round = 0; round < 5; ++round) {
        const platform::standstill still;
        ASSERT_EQ(still.refused(), nullptr);
    }
    sleeps.join();
    polls.join();
    EXPECT_EQ(slept, 0);
    EXPECT_EQ(polled, 0);
}

// The one that is only in a register of a thread is found there.
TEST(Standstill, RegistersAreRead) {
    if (!possible()) GTEST_SKIP();
    std::atomic<bool> enough{false};
    std::atomic<bool> there{false};
    const std::uintptr_t value = 0x5ca1ab1e0ddba11;
    std::thread holder([&] {
        register std::uintptr_t kept
#if defined(__x86_64__)
            asm("r12")
#else
            asm("x20")
#endif
            = value;
        there = true;
        while (!enough.load(std::memory_order_relaxed)) asm volatile("" : "+r"(kept));
    });
    eventually([&] { return there.load(); });
    bool found = false;
    {
        const platform::standstill still;
        ASSERT_EQ(still.refused(), nullptr);
        for (const auto& t : still.threads()) {
            for (const std::uintptr_t word : t.general) found = found || word == value;
        }
    }
    EXPECT_TRUE(found);
    enough = true;
    holder.join();
}

std::atomic<int> signals{0};

// A signal that comes meanwhile is not lost, and its handler runs in the thread that it was for.
TEST(Standstill, ASignalThatComesMeanwhileIsDelivered) {
    if (!possible()) GTEST_SKIP();
    signals = 0;
    struct sigaction action {}, before {};
    action.sa_handler = [](int) { signals.fetch_add(1); };
    ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
    const spinner a;
    {
        const platform::standstill still;
        ASSERT_EQ(still.refused(), nullptr);
        ASSERT_TRUE(platform::send_signal(a.tid(), SIGUSR1));
        EXPECT_EQ(signals, 0);
    }
    eventually([] { return signals == 1; });
    sigaction(SIGUSR1, &before, nullptr);
}

TEST(Standstill, ThreadsThatComeAndGoAllTheWhile) {
    if (!possible()) GTEST_SKIP();
    std::atomic<bool> enough{false};
    std::thread maker([&] {
        while (!enough) std::thread([] {}).join();
    });
    for (int round = 0; round < support::rounds(50); ++round) {
        const platform::standstill still;
        EXPECT_EQ(still.refused(), nullptr) << still.refused();
    }
    enough = true;
    maker.join();
}

}  // namespace
