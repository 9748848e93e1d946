// How programs end that use locks and the like as they must not be used, or in which all wait for one of them.
#include <csignal>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/build.h"
#include "support/expect_child.h"

using namespace std::chrono_literals;

namespace {

using support::expect_in;

constexpr const char* asleep = "fatal: all goroutines are asleep - deadlock!";

support::child_result sync_program(const std::vector<std::string>& arguments) {
    return support::run_child("sync", arguments);
}

// ---- misuse ---------------------------------------------------------------------------------------------------------

struct misuse {
    const char* name;
    const char* report;
    bool told_on_threads = true;  // not what might be a static object at the end of the process
};

void PrintTo(const misuse& m, std::ostream* out) { *out << m.name; }

class Misuse : public testing::TestWithParam<misuse> {
protected:
    static void expect_report(const std::string& place, const std::string& who) {
        const auto r = sync_program({GetParam().name, place});
        EXPECT_EQ(r.signal, SIGABRT) << r;
        EXPECT_EQ(r.out, "") << r;
        const std::string head = "fatal: " + std::string(GetParam().report);
        EXPECT_EQ(r.err.rfind(head, 0), 0u) << head << '\n' << r;
        const std::string first_line = r.err.substr(0, r.err.find('\n'));
        EXPECT_NE(first_line.find(who), std::string::npos) << who << '\n' << r;
        EXPECT_NE(r.err.find('\n'), r.err.size() - 1) << "no stack follows\n" << r;
    }
};

TEST_P(Misuse, EndsTheProcessOnTheMainGoroutine) { expect_report("main", "(goroutine 1, created at sync.cpp:"); }
TEST_P(Misuse, EndsTheProcessOnAnotherGoroutine) { expect_report("goroutine", "\"culprit\", created at sync.cpp:"); }
TEST_P(Misuse, IsNotAnException) { expect_report("catch", "(goroutine 1, created at sync.cpp:"); }
TEST_P(Misuse, EndsTheProcessOnAThread) {
    if (GetParam().told_on_threads) return expect_report("thread", "(a thread that is no goroutine)");
    const auto r = sync_program({GetParam().name, "thread"});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "survived\n") << r;
}

std::string name_of(const testing::TestParamInfo<misuse>& info) { return info.param.name; }

// SYN-05, go1.24 src/sync/mutex_test.go TestMutexMisuse: every form of Go's. The texts say "unlocked".
INSTANTIATE_TEST_SUITE_P(TestMutexMisuse, Misuse, testing::Values(
    misuse{"mutex_unlock", "unlock of unlocked mutex ("},
    misuse{"mutex_unlock_2", "unlock of unlocked mutex ("},
    misuse{"shared_mutex_unlock", "unlock of unlocked shared_mutex ("},
    misuse{"shared_mutex_unlock_2", "unlock of unlocked shared_mutex ("},
    misuse{"shared_mutex_unlock_3", "unlock of unlocked shared_mutex ("},
    misuse{"shared_mutex_unlock_shared", "unlock_shared of unlocked shared_mutex ("},
    misuse{"shared_mutex_unlock_shared_2", "unlock_shared of unlocked shared_mutex ("},
    misuse{"shared_mutex_unlock_shared_3", "unlock_shared of unlocked shared_mutex ("},
    misuse{"recursive_mutex_unlock", "unlock of unlocked mutex (recursive_mutex) ("},
    misuse{"recursive_mutex_unlock_2", "unlock of unlocked mutex (recursive_mutex) ("},
    misuse{"mutex_unlock_by_guard", "unlock of unlocked mutex ("},
    misuse{"mutex_unlock_by_wait", "unlock of unlocked mutex ("}), name_of);

INSTANTIATE_TEST_SUITE_P(Holder, Misuse,
    testing::Values(misuse{"mutex_lock_twice", "recursive lock of a mutex by its own holder: "},
        misuse{
            "recursive_mutex_unlock_by_another", "unlock of a recursive_mutex that another goroutine or thread holds"}),
    name_of);

INSTANTIATE_TEST_SUITE_P(Destruction, Misuse, testing::Values(
    misuse{"destroy_locked_mutex", "a mutex is destroyed while it is locked"},
    misuse{"destroy_locked_recursive_mutex", "a mutex is destroyed while it is locked"},
    misuse{"destroy_read_shared_mutex", "a shared_mutex is destroyed while it is locked", false},
    misuse{"destroy_written_shared_mutex", "a shared_mutex is destroyed while it is locked", false},
    misuse{"destroy_waited_mutex", "a mutex is destroyed while it is locked"},
    misuse{"destroy_waited_shared_mutex", "a shared_mutex is destroyed while goroutines wait for it"},
    misuse{"destroy_waited_condition_variable", "a condition variable is destroyed while goroutines wait for it"},
    misuse{"destroy_waited_condition_variable_any", "a condition variable is destroyed while goroutines wait for it"},
    misuse{"destroy_waited_semaphore", "a semaphore is destroyed while goroutines wait for it"},
    misuse{"destroy_waited_latch", "a wait_group, task_group or latch is destroyed while goroutines wait for it"},
    misuse{"destroy_waited_barrier", "a barrier is destroyed while goroutines wait for it"},
    misuse{"destroy_waited_once_flag", "a once_flag is destroyed while goroutines wait for it"}), name_of);

// ---- exceptions that are not caught ---------------------------------------------------------------------------------

class UncaughtOf : public testing::Test {
protected:
    static void expect_report(const char* scenario, const std::vector<std::string>& texts) {
        const auto r = sync_program({scenario});
        EXPECT_EQ(r.status, 2) << r;
        EXPECT_EQ(r.out, "") << r;
        EXPECT_EQ(r.err.rfind("fatal: uncaught exception in goroutine ", 0), 0u) << r;
        for (const std::string& text : texts) expect_in(text, r);
    }
};

// SYN-11, go1.24 src/sync/waitgroup_test.go TestWaitGroupMisuse
TEST_F(UncaughtOf, ANegativeWaitGroup) {
    expect_report("negative_wait_group", {"negative wait_group counter", "created at sync.cpp:"});
}
TEST_F(UncaughtOf, ANegativeLatch) { expect_report("negative_latch", {"dunlin::latch: negative count"}); }
TEST_F(UncaughtOf, ASemaphoreOverItsMost) {
    expect_report("semaphore_overflow", {"dunlin::counting_semaphore::release: "});
}
TEST_F(UncaughtOf, ACloseOfAClosedChannel) {
    expect_report("close_of_closed_channel", {"\"closer\"", "close of closed channel"});
}
TEST_F(UncaughtOf, ASendOnAClosedChannel) { expect_report("send_on_closed_channel", {"send on closed channel"}); }

TEST_F(UncaughtOf, AMemberDoneTwice) {
    const auto r = sync_program({"member_done_twice"});
    EXPECT_NE(r.status, 0) << r;
    EXPECT_NE(r.err.find("dunlin::wait_group: negative wait_group counter (-1)"), std::string::npos) << r;
    EXPECT_EQ(r.out, "") << r;
}

TEST_F(UncaughtOf, NoneWhenTheNegativeWaitGroupIsCaught) {
    const auto r = sync_program({"negative_wait_group_caught"});
    EXPECT_EQ(r.status, 0) << r;
    const std::string line = "dunlin::wait_group: negative wait_group counter (-1): counted down more often than up\n";
    EXPECT_EQ(r.out, line + line + line + "survived\n") << r;
    EXPECT_EQ(r.err, "") << r;
}

// ---- deadlocks ------------------------------------------------------------------------------------------------------

struct deadlock {
    const char* name;
    std::vector<std::string> texts;
    std::size_t goroutines = 1;
};

void PrintTo(const deadlock& d, std::ostream* out) { *out << d.name; }

std::size_t count(const std::string& text, const std::string& what) {
    std::size_t n = 0;
    for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
    return n;
}

void expect_deadlock(const support::child_result& r, const std::vector<std::string>& texts, std::size_t goroutines) {
    EXPECT_FALSE(r.timed_out) << r;
    EXPECT_EQ(r.status, 2) << r;
    EXPECT_EQ(r.out, "") << r;
    EXPECT_EQ(r.err.rfind(asleep, 0), 0u) << "the report begins with the conclusion\n" << r;
    for (const std::string& text : texts) expect_in(text, r);
    EXPECT_EQ(count(r.err, "\ngoroutine "), goroutines) << r;
    // TSan sleeps for a second at exit.
    EXPECT_LT(r.milliseconds(), support::sanitized ? 6000 : 2000) << r;
}

class SyncDeadlock : public testing::TestWithParam<deadlock> {};

TEST_P(SyncDeadlock, IsReportedWithWhatIsWaitedFor) {
    expect_deadlock(sync_program({GetParam().name}), GetParam().texts, GetParam().goroutines);
}

std::string name_of_deadlock(const testing::TestParamInfo<deadlock>& info) { return info.param.name; }

// DLK-02, go1.24 src/runtime/crash_test.go TestSimpleDeadlock
INSTANTIATE_TEST_SUITE_P(TestSimpleDeadlock, SyncDeadlock, testing::Values(
    deadlock{"no_cases", {"goroutine 1 [select (no cases)"}},
    deadlock{"no_cases_in_a_list", {"goroutine 1 [select (no cases)"}},
    deadlock{"nil_receive", {"goroutine 1 [chan receive (nil chan)", "waits at sync.cpp:"}},
    deadlock{"nil_send", {"goroutine 1 [chan send (nil chan)", "waits at sync.cpp:"}},
    deadlock{"nil_select", {"goroutine 1 [select"}},
    deadlock{"channel_send", {"goroutine 1 [chan send", "waits at sync.cpp:"}},
    deadlock{"wait_group_never_done", {"goroutine 1 [sync.WaitGroup.Wait", "waits at sync.cpp:"}},
    deadlock{"two_mutexes", {"goroutine 1 [sync.Mutex.Lock", "\"other\" [sync.Mutex.Lock", "waits at sync.cpp:"}, 2},
    deadlock{"recursive_mutex_held_by_another", {"[sync.Mutex.Lock", "waits at sync.cpp:"}, 2},
    deadlock{"read_recursively", {"goroutine 1 [sync.RWMutex.RLock", "[sync.RWMutex.Lock", "waits at sync.cpp:"}, 2},
    deadlock{"condition_never_true", {"goroutine 1 [sync.Cond.Wait", "waits at sync.cpp:"}},
    deadlock{"semaphore_empty", {"goroutine 1 [semacquire", "waits at sync.cpp:"}},
    deadlock{"latch_never_zero", {"goroutine 1 [latch wait", "waits at sync.cpp:"}},
    deadlock{"barrier_incomplete", {"goroutine 1 [barrier wait", "waits at sync.cpp:"}},
    deadlock{"once_inside_itself", {"goroutine 1 [call_once"}},
    deadlock{"promise_never_kept", {"goroutine 1 [future wait", "waits at sync.cpp:"}}), name_of_deadlock);

// DLK-03, go1.24 src/runtime/crash_test.go TestLockedDeadlock, TestLockedDeadlock2
INSTANTIATE_TEST_SUITE_P(TestLockedDeadlock, SyncDeadlock, testing::Values(
    deadlock{"locked_deadlock", {"goroutine 1 [select (no cases)", "locked to thread"}},
    deadlock{"locked_deadlock_2", {"goroutine 1 [select (no cases)", "locked to thread"}, 2},
    deadlock{"locked_for_a_mutex", {"[semacquire", "[sync.Mutex.Lock", "locked to thread"}, 2}), name_of_deadlock);

// DLK-06
INSTANTIATE_TEST_SUITE_P(Timers, SyncDeadlock, testing::Values(
    deadlock{"stopped_function_would_unlock", {"[sync.Mutex.Lock"}, 2},
    deadlock{"limit_before", {"goroutine 1 [semacquire"}}), name_of_deadlock);

// DLK-02, go1.24 src/runtime/crash_test.go TestInitDeadlock
TEST(SyncDeadlock, TestInitDeadlock) {
    const auto r = support::run_child("sync", {"no_cases"}, {.environment = {{"SYNC_DEADLOCK_BEFORE_MAIN", "1"}}});
    expect_deadlock(r, {"goroutine 1 [select (no cases)"}, 1);
}

void expect_end(const char* scenario, const std::string& output) {
    const auto r = sync_program({scenario});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, output + '\n') << r;
    EXPECT_EQ(r.err, "") << r;
}

TEST(NoSyncDeadlock, WhileAPendingFunctionWillUnlock) { expect_end("function_unlocks", "unlocked"); }
TEST(NoSyncDeadlock, WhileLimitsAreToCome) { expect_end("limits_end", "ended"); }
TEST(NoSyncDeadlock, WhileAThreadMayUnlock) { expect_end("thread_unlocks", "unlocked"); }

// ---- signals --------------------------------------------------------------------------------------------------------

// SYN-19, go1.24 src/runtime/semasleep_test.go TestSpuriousWakeupsNeverHangSemasleep: a signal does not start a limit
// anew.
TEST(Semasleep, TestSpuriousWakeupsNeverHangSemasleep) {
    for (const char* scenario : {"timer_under_signals", "sleep_under_frequent_signals", "limit_under_signals",
             "thread_under_signals", "thread_under_frequent_signals"}) {
        const auto r = support::run_child("signals", {scenario});
        ASSERT_EQ(r.status, 0) << scenario << '\n' << r;
        const long took_ms = std::stol(r.out);
        EXPECT_GE(took_ms, 1000) << scenario;
        EXPECT_LT(took_ms, 3000) << scenario;
    }
}

}  // namespace
