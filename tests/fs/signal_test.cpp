// Signals as messages: which channels get them, which do not, what is refused, and what is put back.
#include <array>
#include <atomic>
#include <csignal>
#include <exception>
#include <filesystem>
#include <list>
#include <mutex>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <dunlin/fs.hpp>
#include <dunlin/go.hpp>

#include "platform/thread.h"
#include "sched/preempt/preempt.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;
using dunlin::receiver;
using dunlin::signal_channel;

namespace {

class Signals : public support::each_p {};
EACH_P(Signals);
class SignalsAnywhere : public support::runtime_test {};

void send(int signal) { ::kill(getpid(), signal); }

TEST_P(Signals, ArriveInAChannel) {
    run([] {
        receiver<int> c = signal_channel({SIGUSR1, SIGUSR2});
        for (int i = 0; i < support::rounds(200); ++i) {
            const int s = i % 3 != 0 ? SIGUSR1 : SIGUSR2;
            send(s);
            ASSERT_EQ(c.recv(), s);
        }
        send(SIGUSR1);
        EXPECT_EQ(dunlin::select(dunlin::on_recv(c), dunlin::on_timeout(20s)), 0u);
        EXPECT_EQ(dunlin::select(dunlin::on_recv(c), dunlin::on_timeout(1ms)), 1u);
    });
}

TEST_P(Signals, SeveralChannelsEachGetIt) {
    run([] {
        receiver<int> one = signal_channel({SIGUSR1});
        receiver<int> both = signal_channel({SIGUSR1, SIGUSR2, SIGUSR2});
        send(SIGUSR1);
        EXPECT_EQ(one.recv(), SIGUSR1);
        EXPECT_EQ(both.recv(), SIGUSR1);
        send(SIGUSR2);
        EXPECT_EQ(both.recv(), SIGUSR2);
        EXPECT_FALSE(one.try_recv());
        one = {};
        send(SIGUSR1);
        EXPECT_EQ(both.recv(), SIGUSR1);
    });
}

// The kernel merges a signal with one that is pending; whatever is delivered comes out of the channel, up to its
// capacity.
TEST_P(Signals, WhatDoesNotFitIsLost) {
    run([] {
        receiver<int> small = signal_channel({SIGUSR1}, 2);
        receiver<int> large = signal_channel({SIGUSR1}, 100);
        EXPECT_EQ(small.cap(), 2u);
        for (int i = 0; i < 10; ++i) {
            send(SIGUSR1);
            EXPECT_EQ(large.recv(), SIGUSR1);
        }
        EXPECT_EQ(small.len(), 2u);
    });
}

TEST_P(Signals, GoroutinesThatComputeGoOn) {
    run([] {
        receiver<int> c = signal_channel({SIGUSR1});
        std::atomic<bool> over{false};
        dunlin::wait_group done;
        for (int i = 0; i < 3; ++i) {
            done.go([&] {
                while (!over.load()) {
                }
            });
        }
        for (int i = 0; i < 20; ++i) {
            send(SIGUSR1);
            EXPECT_EQ(c.recv(), SIGUSR1);
        }
        over = true;
        done.wait();
    });
}

// One that is on its way when the last channel ends meets the action from before: these two are ignored, from here on.
TEST_P(Signals, ChannelsComeAndGoWhileSignalsArrive) {
    std::signal(SIGIO, SIG_IGN);
    std::signal(SIGPWR, SIG_IGN);
    run([] {
        receiver<int> keep = signal_channel({SIGIO, SIGPWR});
        std::atomic<bool> over{false};
        std::thread sender([&] {
            while (!over.load()) {
                send(SIGIO);
                send(SIGPWR);
                std::this_thread::sleep_for(20us);
            }
        });
        dunlin::wait_group done;
        for (int i = 0; i < 4; ++i) {
            done.go([] {
                for (int round = 0; round < support::rounds(100); ++round) {
                    receiver<int> c = signal_channel({SIGIO, SIGPWR}, 1);
                    if (round % 2 == 0) continue;
                    EXPECT_TRUE(c.recv());
                }
            });
        }
        done.wait();
        over = true;
        sender.join();
        EXPECT_TRUE(keep.recv());
    });
}

std::string refusal(int signal) {
    try {
        signal_channel({SIGUSR1, signal});
    } catch (const std::invalid_argument& e) {
        return e.what();
    }
    return "accepted";
}

TEST_F(SignalsAnywhere, SomeAreRefused) {
    for (const int s : {SIGKILL, SIGSTOP}) EXPECT_NE(refusal(s).find(": no program can catch it"), std::string::npos);
    EXPECT_EQ(refusal(SIGKILL), "signal_channel: signal 9 (SIGKILL): no program can catch it");
    for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP})
        EXPECT_NE(refusal(s).find("a fault belongs to"), std::string::npos) << s;
    EXPECT_NE(refusal(SIGABRT).find("abort()"), std::string::npos);
    EXPECT_NE(refusal(dunlin::sched::preemption_signal).find("preempts goroutines"), std::string::npos);
    for (const int s : {0, -1, 65, 1000}) EXPECT_NE(refusal(s).find("there is no such signal"), std::string::npos) << s;
    EXPECT_NE(refusal(32).find("the C library keeps it"), std::string::npos) << refusal(32);
    struct sigaction now;
    sigaction(SIGUSR1, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_DFL);
    try {
        const dunlin::signal_context ctx(SIGUSR1, SIGKILL);
        ADD_FAILURE() << "accepted";
    } catch (const std::invalid_argument& e) {
        EXPECT_STREQ(e.what(), "signal_context: signal 9 (SIGKILL): no program can catch it");
    }
}

TEST_F(SignalsAnywhere, AListOfSignalsHasAnyForm) {
    const std::vector<int> list{SIGUSR1, SIGUSR2};
    std::error_code ec;
    const std::array channels{dunlin::signal_channel(SIGUSR1, SIGUSR2), dunlin::signal_channel({SIGUSR1, SIGUSR2}),
        dunlin::signal_channel(list), dunlin::signal_channel(list, ec),
        dunlin::signal_channel({SIGUSR1, SIGUSR2}, 2, ec)};
    dunlin::signal_context ctx(list);
    EXPECT_FALSE(ec);
    raise(SIGUSR2);
    for (const auto& c : channels) EXPECT_EQ(c.recv(), SIGUSR2);
    EXPECT_THROW(dunlin::sleep_for(1h, ctx), dunlin::context_cancelled);
}

std::atomic<int> handled{0};
void count(int) { ++handled; }

TEST_F(SignalsAnywhere, TheOldActionComesBack) {
    std::signal(SIGUSR1, count);
    handled = 0;
    receiver<int> first = signal_channel({SIGUSR1});
    {
        receiver<int> second = signal_channel({SIGUSR1}), copy = second;
        send(SIGUSR1);
        EXPECT_EQ(copy.recv(), SIGUSR1);
    }
    EXPECT_EQ(first.recv(), SIGUSR1);
    send(SIGUSR1);
    EXPECT_EQ(first.recv(), SIGUSR1);
    EXPECT_EQ(handled.load(), 0);
    first = {};
    raise(SIGUSR1);
    EXPECT_EQ(handled.load(), 1);
    {
        receiver<int> c = signal_channel({SIGUSR1});
        std::signal(SIGUSR1, SIG_IGN);  // the program's own, which stays
    }
    struct sigaction now;
    sigaction(SIGUSR1, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_IGN);
    std::signal(SIGUSR1, SIG_DFL);
}

TEST_F(SignalsAnywhere, WorkOnThreadsOnly) {
    receiver<int> c = signal_channel({SIGUSR1});
    std::thread other([&] { EXPECT_EQ(c.recv(), SIGUSR1); });
    send(SIGUSR1);
    other.join();
}

TEST_F(SignalsAnywhere, OutlivesARun) {
    receiver<int> c;
    dunlin::run([&] {
        c = signal_channel({SIGUSR1});
        dunlin::go([c] { c.recv(); });  // frozen at the end, it takes nothing away
        dunlin::sleep_for(1ms);
    });
    for (int i = 0; i < 3; ++i) {
        dunlin::run([&] {
            send(SIGUSR1);
            EXPECT_EQ(c.recv(), SIGUSR1);
        });
    }
    send(SIGUSR1);
    EXPECT_EQ(c.recv(), SIGUSR1);
}

TEST_F(SignalsAnywhere, ErrnoIsLeftAlone) {
    receiver<int> c = signal_channel({SIGUSR1});
    errno = 1234;
    raise(SIGUSR1);
    EXPECT_EQ(errno, 1234);
    EXPECT_EQ(c.recv(), SIGUSR1);
}

// No channel, no thread: deadlocks are found again.
TEST_F(SignalsAnywhere, TheThreadEndsWithTheLastChannel) {
    support::eventually_on_thread([] { return dunlin::platform::count_threads() > 0; });
    const unsigned before = [] {
        unsigned last = dunlin::platform::count_threads();
        std::this_thread::sleep_for(5ms);
        while (dunlin::platform::count_threads() < last) last = dunlin::platform::count_threads();
        return last;
    }();
    {
        receiver<int> c = signal_channel({SIGUSR1});
        send(SIGUSR1);
        EXPECT_EQ(c.recv(), SIGUSR1);
    }
    support::eventually_on_thread([&] { return dunlin::platform::count_threads() <= before; });
}

// ---- signal_context -------------------------------------------------------------------------------------------------

// Signals that no other test here uses: they install handlers of their own.

int signal_of(const std::exception_ptr& cause) {
    try {
        std::rethrow_exception(cause);
    } catch (const dunlin::signal_received& e) {
        return e.signal();
    } catch (...) {
        return 0;
    }
}

TEST_P(Signals, EndAContext) {
    std::atomic<int> before{0};
    static std::atomic<int>* counter;
    counter = &before;
    std::signal(SIGALRM, [](int) { ++*counter; });
    run([&] {
        for (int i = 0; i < support::rounds(100); ++i) {
            dunlin::signal_context ctx({SIGHUP, SIGALRM});
            EXPECT_FALSE(ctx.is_done());
            auto child = dunlin::with_cancel(ctx);
            std::atomic<bool> called{false};
            const std::stop_callback callback(ctx.stop_token(), [&] { called = true; });
            const int s = i % 2 ? SIGHUP : SIGALRM;
            auto waiter = dunlin::spawn([&] { EXPECT_THROW(dunlin::sleep_for(1h, child), dunlin::context_cancelled); });
            send(s);
            waiter.get();
            EXPECT_EQ(ctx.err(), dunlin::errc::cancelled);
            EXPECT_EQ(signal_of(ctx.cause()), s);
            EXPECT_EQ(signal_of(child.cause()), s);
            support::eventually([&] { return called.load(); });
            raise(s);  // it is the context's still
            if (i % 3 == 0) ctx.stop();
            if (i % 5 == 0) ctx.stop();
        }
    });
    EXPECT_EQ(before, 0);
    raise(SIGALRM);
    EXPECT_EQ(before, 1) << "it is given back: as it was before";
    std::signal(SIGALRM, SIG_DFL);
}

TEST_P(Signals, ASlowStopCallbackHoldsUpNoOtherSignalAndNoChild) {
    run([] {
        receiver<int> others = signal_channel({SIGUSR1});
        dunlin::signal_context ctx({SIGHUP});
        std::atomic<bool> begun{false}, may_end{false}, over{false};
        const std::stop_callback slow(ctx.stop_token(), [&] {
            begun = true;
            while (!may_end) std::this_thread::sleep_for(100us);
            over = true;
        });
        send(SIGHUP);
        support::eventually([&] { return begun.load(); });
        send(SIGUSR1);
        EXPECT_EQ(dunlin::select(dunlin::on_recv(others), dunlin::on_timeout(20s)), 0u);
        EXPECT_TRUE(dunlin::process({"true"}).wait(dunlin::with_timeout({}, 20s)).success());
        may_end = true;
        support::eventually([&] { return over.load(); });
    });
}

TEST_P(Signals, RunStopCallbacksOnOneThreadOfTheProgram) {
    run([] {
        dunlin::signal_context ctx({SIGHUP});
        std::vector<dunlin::cancellable> below;
        for (int i = 0; i < 20; ++i) below.push_back(dunlin::with_cancel(ctx));
        std::mutex lock;
        std::set<std::thread::id> threads;
        std::atomic<int> called{0}, blocked{0};
        const auto callback = [&] {
            sigset_t mask;
            pthread_sigmask(SIG_SETMASK, nullptr, &mask);
            blocked += sigismember(&mask, SIGTERM);
            {
                const std::scoped_lock guard(lock);
                threads.insert(std::this_thread::get_id());
            }
            ++called;
        };
        std::list<std::stop_callback<decltype(callback)>> callbacks;
        for (const dunlin::cancellable& c : below) callbacks.emplace_back(c.stop_token(), callback);
        send(SIGHUP);
        support::eventually([&] { return called == 20; });
        EXPECT_EQ(threads.size(), 1u);
        EXPECT_EQ(blocked, 0);
    });
}

TEST_F(SignalsAnywhere, AContextOfSignalsOnAPlainThread) {
    std::signal(SIGHUP, SIG_IGN);
    dunlin::context copy;
    {
        auto parent = dunlin::with_cancel({});
        dunlin::signal_context ctx(parent, {SIGHUP});
        dunlin::signal_context other({SIGHUP});
        receiver<int> c = signal_channel({SIGHUP});
        dunlin::signal_context moved = std::move(ctx);
        EXPECT_FALSE(ctx.is_done());  // NOLINT: what was moved from is a context that never ends
        send(SIGHUP);
        EXPECT_EQ(c.recv(), SIGHUP);
        EXPECT_THROW(dunlin::sleep_for(1h, moved), dunlin::context_cancelled);
        EXPECT_THROW(dunlin::sleep_for(1h, other), dunlin::context_cancelled);
        EXPECT_EQ(signal_of(moved.cause()), SIGHUP);
        try {
            std::rethrow_exception(other.cause());
        } catch (const dunlin::signal_received& e) {
            EXPECT_STREQ(e.what(), "signal 1 (SIGHUP)");
        }
        dunlin::signal_context third(parent, {SIGHUP});
        parent.cancel();
        EXPECT_TRUE(third.is_done());
        EXPECT_EQ(signal_of(third.cause()), 0);
        third = dunlin::signal_context({SIGHUP});
        EXPECT_FALSE(third.is_done());
        copy = third;
    }
    EXPECT_EQ(copy.err(), dunlin::errc::cancelled) << "its end is the context's";
    EXPECT_THROW(dunlin::signal_context({SIGKILL}), std::invalid_argument);
    struct sigaction now;
    sigaction(SIGHUP, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_IGN);
    std::signal(SIGHUP, SIG_DFL);
}

// In a process of its own, which has no threads but dunlin's: a deadlock would be reported.
TEST(SignalsAlone, DISABLED_WaitForOne) {
    const pid_t self = getpid();
    receiver<int> c = signal_channel({SIGUSR1});
    if (fork() == 0) {
        usleep(100'000);
        ::kill(self, SIGUSR1);
        _exit(0);
    }
    _exit(dunlin::run([&] { return c.recv() == SIGUSR1 ? 77 : 1; }));
}

TEST_F(SignalsAnywhere, WaitingForASignalIsNoDeadlock) {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const auto r = dunlin::process::run(
        {self, "--gtest_also_run_disabled_tests", "--gtest_filter=SignalsAlone.DISABLED_WaitForOne"});
    EXPECT_EQ(r.status.code, 77) << r.output << r.error;
}

}  // namespace
