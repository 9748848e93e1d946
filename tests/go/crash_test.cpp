// Ports of Go's tests of how programs die, under Go's names: each runs a program of tests/crash and looks at its end.
#include <csignal>
#include <functional>
#include <string>

#include "support/expect_child.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

using support::expect_in;

class GoCrash : public testing::Test {
protected:
    static support::child_result deadlock(const std::string& scenario) {
        return support::run_child("deadlock", {scenario});
    }
    static support::child_result exception(const std::string& scenario) {
        return support::run_child("exception", {scenario});
    }
};

// go1.24 src/runtime/crash_test.go, TestSimpleDeadlock.
TEST_F(GoCrash, TestSimpleDeadlock) {
    const auto r = deadlock("wait_group_never_done");
    EXPECT_EQ(r.status, 2) << r;
    EXPECT_EQ(r.err.rfind("fatal: all goroutines are asleep - deadlock!\n", 0), 0u) << r;
    expect_in("[sync.WaitGroup.Wait", r);
}

// go1.24 src/runtime/crash_test.go, TestLockedDeadlock and TestLockedDeadlock2.
TEST_F(GoCrash, TestLockedDeadlock) {
    for (const char* scenario : {"locked_waits", "another_is_locked"}) {
        const auto r = deadlock(scenario);
        EXPECT_EQ(r.status, 2) << r;
        expect_in("all goroutines are asleep - deadlock!", r);
        expect_in("locked to thread", r);
    }
}

// go1.24 src/runtime/crash_test.go, TestGoexitDeadlock.
TEST_F(GoCrash, TestGoexitDeadlock) {
    for (const char* scenario : {"main_exits_others_end", "main_exits_alone"}) {
        const auto r = deadlock(scenario);
        EXPECT_EQ(r.status, 2) << r;
        expect_in("no goroutines (main called exit_goroutine) - deadlock!", r);
    }
    const auto r = deadlock("main_exits_others_stay");
    EXPECT_EQ(r.status, 2) << r;
    expect_in("all goroutines are asleep - deadlock!", r);
}

// go1.24 src/runtime/crash_test.go, TestGoexitCrash: main has gone, and another ends the process.
TEST_F(GoCrash, TestGoexitExit) {
    const auto r = deadlock("main_exits_another_calls_exit");
    EXPECT_EQ(r.status, 0) << r;
}

// DLK-05: never a report while something is on its way.
TEST_F(GoCrash, NoFalseDeadlock) {
    for (int i = 0; i < 3; ++i) {
        const auto r = support::run_child("deadlock", {"pending_a_thousand_times"}, {.timeout = 60s});
        ASSERT_EQ(r.status, 0) << r;
        EXPECT_EQ(r.out, "a thousand\n");
        EXPECT_EQ(r.err, "") << r;
    }
}

// DLK-06: a pending timer is not a deadlock.
TEST_F(GoCrash, PendingTimerIsNotADeadlock) {
    const auto r = deadlock("timer_is_pending");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "fired\n") << r;
}

// go1.24 src/runtime/crash_test.go, TestPanicDeadlockGosched, TestPanicDeadlockSyscall, TestPanicLoop.
TEST_F(GoCrash, TestPanicDeadlockGosched) {
    const auto r = exception("yields_in_what");
    EXPECT_EQ(r.status, 2) << r;
    expect_in("it yielded", r);
}
TEST_F(GoCrash, TestPanicDeadlockSyscall) {
    const auto r = exception("prints_in_what");
    EXPECT_EQ(r.status, 2) << r;
    expect_in("it printed", r);
}
TEST_F(GoCrash, TestPanicDeadlockSleep) {
    const auto r = exception("sleeps_in_what");
    EXPECT_EQ(r.status, 2) << r;
    expect_in("it slept", r);
}
TEST_F(GoCrash, TestPanicLoop) {
    const auto r = exception("throws_in_what");
    EXPECT_FALSE(r.timed_out) << r;
    EXPECT_TRUE(r.status == 2 || r.signal == SIGABRT) << r;
    expect_in("uncaught exception in goroutine", r);
}

// go1.24 src/runtime/crash_test.go, TestPanicRace. Go may miss the message and tries ten times; here the report has
// begun.
TEST_F(GoCrash, TestPanicRace) {
    for (int i = 0; i < 10; ++i) {
        const auto r = exception("main_returns_meanwhile");
        EXPECT_NE(r.status, 0) << r;
        expect_in("uncaught exception in goroutine", r);
        expect_in("crash", r);
    }
}

// go1.24 src/runtime/crash_test.go, TestGoNil. An exception in C++, so it needs no child; uncaught it has Go's words.
TEST_F(GoCrash, TestGoNil) {
    const auto r = exception("null_function");
    EXPECT_NE(r.status, 0) << r;
    expect_in("go of nil func value", r);
}

// go1.24 src/runtime/crash_test.go, TestMainGoroutineID.
TEST_F(GoCrash, TestMainGoroutineID) {
    const auto r = exception("overflow_of_main");
    if (support::sanitized) GTEST_SKIP() << "the sanitizer reports overflows in its own way";
    expect_in("goroutine 1:", r);
}

// go1.24 src/runtime/crash_test.go, TestNoHelperGoroutines: what the runtime does by itself is not among the
// goroutines.
TEST_F(GoCrash, TestNoHelperGoroutines) {
    const auto r = deadlock("main_exits_others_stay");
    std::size_t headers = 0;
    for (std::size_t at = r.err.find("\ngoroutine "); at != r.err.npos; at = r.err.find("\ngoroutine ", at + 1))
        ++headers;
    EXPECT_EQ(headers, 1u) << r;
}

// go1.24 src/runtime/crash_test.go, TestStackOverflow.
TEST_F(GoCrash, TestStackOverflow) {
    if (support::sanitized) GTEST_SKIP() << "the sanitizer reports overflows in its own way";
    const auto r = exception("overflow");
    EXPECT_EQ(r.status, 2) << r;
    expect_in("stack overflow", r);
    expect_in("goroutine ", r);
}

// ---- DLK-09: Goexit. In this process; each case for P = 1, 2, 8. ----------------------------------------------------

class GoGoexit : public support::each_p {
protected:
    // What happened, in order.
    std::string log;

    struct cleanup {
        std::string& log;
        const char* text;
        ~cleanup() { log += text; }
    };

    void in_goroutine(const std::function<void()>& f) {
        run([&] {
            dunlin::wait_group wg;
            wg.go(f);
            wg.wait();
            // And as a child that does not run in place.
            dunlin::task<void> t = dunlin::spawn(f);
            dunlin::yield();
            t.get();
        });
    }
};
EACH_P(GoGoexit);

// go1.24 src/runtime/crash_test.go, TestGoexitDefer.
TEST_P(GoGoexit, TestGoexitDefer) {
    in_goroutine([this] {
        cleanup a{log, "a"};
        cleanup b{log, "b"};
        dunlin::exit_goroutine();
    });
    EXPECT_EQ(log, "baba");
}

// go1.24 src/runtime/crash_test.go, TestGoexitInPanic: exit out of a destructor's callee while an exception unwinds is
// std::terminate in C++; out of a catch block it ends the goroutine.
TEST_P(GoGoexit, TestGoexitInPanic) {
    in_goroutine([this] {
        cleanup a{log, "a"};
        try {
            throw 1;
        } catch (int) {
            cleanup b{log, "b"};
            dunlin::exit_goroutine();
        }
    });
    EXPECT_EQ(log, "baba");
}

// go1.24 src/runtime/crash_test.go, TestRecoveredPanicAfterGoexit.
TEST_P(GoGoexit, TestRecoveredPanicAfterGoexit) {
    struct throws_inside {
        std::string& log;
        ~throws_inside() {
            try {
                throw std::runtime_error("in a destructor");
            } catch (const std::runtime_error&) {
                log += "recovered ";
            }
        }
    };
    in_goroutine([this] {
        cleanup a{log, "a "};
        throws_inside object{log};
        dunlin::exit_goroutine();
    });
    EXPECT_EQ(log, "recovered a recovered a ");
}

// go1.24 src/runtime/crash_test.go, TestRecoverBeforePanicAfterGoexit (and ...2): catch (...) runs, and cannot stop it.
TEST_P(GoGoexit, TestRecoverBeforePanicAfterGoexit) {
    in_goroutine([this] {
        cleanup a{log, "a "};
        try {
            cleanup b{log, "b "};
            try {
                dunlin::exit_goroutine();
            } catch (...) {
                log += "inner ";
                EXPECT_EQ(std::current_exception(), nullptr);
            }
            log += "went on after the inner block ";
        } catch (...) {
            log += "outer ";
        }
        log += "went on after the outer block ";
    });
    EXPECT_EQ(log, "inner b outer a inner b outer a ");
}

TEST_P(GoGoexit, CatchesOfOtherTypesDoNotSeeIt) {
    in_goroutine([this] {
        try {
            dunlin::exit_goroutine();
        } catch (const std::exception&) {
            log += "exception ";
        } catch (int) {
            log += "int ";
        }
        log += "after ";
    });
    EXPECT_EQ(log, "");
}

TEST_P(GoGoexit, CatchAllThatRethrowsLetsItGoOn) {
    in_goroutine([this] {
        cleanup a{log, "a "};
        try {
            dunlin::exit_goroutine();
        } catch (...) {
            log += "caught ";
            throw;
        }
    });
    EXPECT_EQ(log, "caught a caught a ");
}

TEST_P(GoGoexit, DestructorsMayParkAndSpawnWhileItUnwinds) {
    struct busy {
        std::string& log;
        ~busy() {
            dunlin::yield();
            dunlin::sleep_for(50us);
            log += std::to_string(dunlin::spawn([] { return 4; }).get());
        }
    };
    in_goroutine([this] {
        busy object{log};
        dunlin::exit_goroutine();
    });
    EXPECT_EQ(log, "44");
}

TEST_P(GoGoexit, TheCallableIsDestroyed) {
    auto held = std::make_shared<int>(1);
    run([&] {
        for (int i = 0; i < 1000; ++i) {
            dunlin::wait_group wg;
            wg.go([held] { dunlin::exit_goroutine(); });
            wg.go([held, i] {
                if (i % 2 == 0) dunlin::yield();
                dunlin::exit_goroutine();
            });
            wg.wait();
        }
    });
    EXPECT_EQ(held.use_count(), 1);
}

TEST_P(GoGoexit, OfAChildInPlaceDoesNotEndItsWaiter) {
    run([this] {
        for (int i = 0; i < 1000; ++i) {
            cleanup a{log, ""};
            dunlin::task<void> t = dunlin::spawn([] { dunlin::exit_goroutine(); });
            t.get();
        }
        log += "here";
    });
    EXPECT_EQ(log, "here");
}

TEST_P(GoGoexit, ExitsAfterMigration) {
    std::atomic<int> ended{0};
    run([&] {
        dunlin::wait_group wg;
        for (int i = 0; i < support::rounds(2000); ++i) {
            wg.go([&ended] {
                struct counts {
                    std::atomic<int>& n;
                    ~counts() { n.fetch_add(1); }
                } guard{ended};
                for (int k = 0; k < 5; ++k) dunlin::yield();
                dunlin::exit_goroutine();
            });
        }
        wg.wait();
    });
    EXPECT_EQ(ended.load(), support::rounds(2000));
}

}  // namespace
