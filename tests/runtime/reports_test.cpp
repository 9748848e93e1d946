// What the runtime writes to stderr by itself: a dump when a signal asks for it, and goroutines that wait for each
// other's mutexes.
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include <unistd.h>

#include "support/build.h"
#include "support/caught_stderr.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

using support::caught_stderr;

// Read when the runtime starts, which no test has done yet.
const bool settings_made = [] {
    setenv("DUNLIN_DEBUG", "dumpsignal=QUIT", 1);
    return true;
}();

// ThreadSanitizer keeps a signal until the thread that has it calls one of its functions, and ours sleep by system
// calls of their own: there it goes to the calling thread.
void ask_for_a_dump() {
    if (support::under_thread) {
        raise(SIGQUIT);
    } else {
        kill(getpid(), SIGQUIT);
    }
}

class Reports : public support::each_p {};
EACH_P(Reports);

TEST_P(Reports, ASignalAsksForADump) {
    run([] {
        dunlin::wait_group gate;
        gate.add(1);
        dunlin::wait_group all;
        for (int i = 0; i < 20; ++i) all.go({.name = "waiter"}, [gate] { gate.wait(); });
        support::eventually([] { return dunlin::runtime::stats().waiting == 20; });
        for (int i = 0; i < 3; ++i) {
            caught_stderr err;
            dunlin::sleep_for(i * 30ms);  // the monitor is awake, and asleep
            ask_for_a_dump();
            const std::string& text =
                dunlin::blocking([&]() -> const std::string& { return err.until("reports_test.cpp"); });
            EXPECT_NE(text.find("goroutine "), std::string::npos) << text;
            EXPECT_NE(dunlin::blocking([&]() -> const std::string& {
                return err.until("19 like it: ");
            }).find("\"waiter\" [sync.WaitGroup.Wait"),
                std::string::npos);
            dunlin::blocking([&] { err.during(20ms); });  // the rest of it
        }
        gate.done();
        all.wait();
    });
}

TEST_P(Reports, ASignalAsksForADumpWhileEveryProcessorIsBusy) {
    run([this] {
        std::atomic<bool> stop{false};
        dunlin::wait_group hogs;
        for (unsigned i = 0; i < procs() + 1; ++i) {
            hogs.go({.name = "hog"}, [&stop] {
                while (!stop.load(std::memory_order_relaxed)) {}
            });
        }
        caught_stderr err;
        ask_for_a_dump();
        dunlin::blocking([&] { err.until("\"hog\""); });
        stop = true;
        hogs.wait();
        dunlin::blocking([&] { err.during(20ms); });
    });
}

TEST_P(Reports, ThoseThatWaitForEachOthersMutexesAreNamedAfterASecond) {
    run([] {
        caught_stderr err;
        auto [ctx, cancel] = dunlin::with_cancel(dunlin::context::background());
        dunlin::mutex a, b, c;
        dunlin::latch all_hold(3);
        dunlin::wait_group group;
        // When the first of them began to wait, or a moment before. The last one may come to the circle much later, on
        // a machine that stands for a while: then the others have waited for long enough.
        std::atomic<dunlin::clock::time_point> begin{};
        const auto hold_and_want = [&, ctx = ctx](dunlin::mutex& held, dunlin::mutex& wanted) {
            const std::lock_guard guard(held);
            all_hold.arrive_and_wait();
            dunlin::clock::time_point none{};
            begin.compare_exchange_strong(none, dunlin::clock::now());
            EXPECT_THROW(wanted.lock(ctx), dunlin::context_cancelled);
        };
        group.go({.name = "a to b"}, [&] { hold_and_want(a, b); });
        group.go({.name = "b to c"}, [&] { hold_and_want(b, c); });
        group.go({.name = "c to a"}, [&] { hold_and_want(c, a); });
        // One that waits for a member of the circle is none.
        all_hold.wait();
        group.go({.name = "outside"}, [&, ctx = ctx] { EXPECT_THROW(a.lock(ctx), dunlin::context_cancelled); });
        const std::string& text = dunlin::blocking([&]() -> const std::string& {
            err.until("in a circle");
            return err.during(100ms);
        });
        EXPECT_GE(dunlin::clock::now() - begin.load(), 900ms);
        for (const char* name : {"\"a to b\"", "\"b to c\"", "\"c to a\"", "sync.Mutex.Lock", ", which goroutine "}) {
            EXPECT_NE(text.find(name), std::string::npos) << name << '\n' << text;
        }
        EXPECT_EQ(text.find("outside"), text.npos) << text;
        // Once.
        const std::size_t said = text.size();
        EXPECT_EQ(dunlin::blocking([&] { return err.during(2500ms).size(); }), said);
        cancel();
        group.wait();
    });
}

// A holder that is long at work, and a chain behind it.
TEST_P(Reports, AChainOfHoldersIsNoCircle) {
    run([] {
        caught_stderr err;
        dunlin::mutex a, b;
        dunlin::latch begun(2);
        dunlin::wait_group group;
        group.go([&] {
            const std::lock_guard guard(a);
            begun.arrive_and_wait();
            dunlin::sleep_for(2500ms);
        });
        group.go([&] {
            const std::lock_guard guard(b);
            begun.arrive_and_wait();
            const std::lock_guard behind(a);
        });
        begun.wait();
        group.go([&] { const std::lock_guard behind(b); });
        group.wait();
        EXPECT_EQ(dunlin::blocking([&] { return err.during(10ms); }), "");
    });
}

}  // namespace
