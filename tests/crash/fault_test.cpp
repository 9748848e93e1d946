// What is said when a signal ends a program, and that it still ends by that signal; that handlers of the program's own
// get what is theirs; and that the child of a fork() is told what it cannot have.
#include <csignal>
#include <string>

#include <gtest/gtest.h>

#include "support/build.h"
#include "support/expect_child.h"

namespace {

using support::expect_in;

support::child_result fault(const std::string& scenario) { return support::run_child("fault", {scenario}); }

std::size_t reports_in(const support::child_result& r) {
    std::size_t n = 0;
    for (std::size_t at = r.err.find("fatal: "); at != r.err.npos; at = r.err.find("fatal: ", at + 1)) ++n;
    return n;
}

// It died by `signal`, after one report of a goroutine named "broken".
support::child_result reported(const std::string& scenario, int signal, const std::string& headline) {
    const auto r = fault(scenario);
    EXPECT_EQ(r.signal, signal) << r;
    EXPECT_EQ(reports_in(r), 1u) << r;
    EXPECT_EQ(r.out, "") << r;
    expect_in("fatal: " + headline + " in goroutine ", r);
    expect_in("\"broken\"", r);
    expect_in("created at fault.cpp:", r);
    return r;
}

void unreported(const std::string& scenario, int signal) {
    const auto r = fault(scenario);
    EXPECT_EQ(r.signal, signal) << r;
    EXPECT_EQ(r.err, "") << r;
    EXPECT_EQ(r.out, "") << r;
}

TEST(FatalSignal, ASegmentationFaultNamesTheAddressAndTheGoroutineAndBeginsItsTraceWhereItHappened) {
    const auto r = reported("write_to_null", SIGSEGV, "SIGSEGV");
    expect_in("it touched 0x0, where there is no memory", r);
    const auto first = r.err.find("#0 ");
    ASSERT_NE(first, r.err.npos) << r;
    EXPECT_LT(r.err.find("write_to_null()", first), r.err.find("#1 ")) << r;
}

TEST(FatalSignal, AWriteToAConstantSaysThatItIsProtected) {
    expect_in("which is protected", reported("write_to_constant", SIGSEGV, "SIGSEGV"));
}

TEST(FatalSignal, ADivisionByZeroIsReported) {
    const auto r = reported("divide_by_zero", SIGFPE, "SIGFPE");
    expect_in("divide_by_zero", r);
}

TEST(FatalSignal, AnInstructionThatIsNoneIsReported) {
    expect_in("no_instruction", reported("no_instruction", SIGILL, "SIGILL"));
}

TEST(FatalSignal, AReadBehindTheEndOfAMappedFile) {
    expect_in("beyond the end of a mapped file", reported("read_behind_the_end", SIGBUS, "SIGBUS"));
}

TEST(FatalSignal, ACallOfANullFunctionHasTheTraceOfItsCaller) {
    const auto r = reported("call_null", SIGSEGV, "SIGSEGV");
    expect_in("it called 0x0", r);
    expect_in("call_null() at fault.cpp", r);
}

TEST(FatalSignal, AnAbortIsReported) {
    expect_in("::call_abort() at fault.cpp", reported("abort", SIGABRT, "SIGABRT"));
}

TEST(FatalSignal, AnExceptionThatLeavesANoexceptFunctionShowsWhereItWasThrown) {
    const auto r = reported("throw_through_noexcept", SIGABRT, "SIGABRT");
    expect_in("throw_a_number", r);
    expect_in("throw_through_noexcept", r);
}

TEST(FatalSignal, ACallOfTerminateIsReported) { reported("terminate", SIGABRT, "SIGABRT"); }

TEST(FatalSignal, ACallOfAPureVirtualFunction) { expect_in("call_pure", reported("call_pure", SIGABRT, "SIGABRT")); }

TEST(FatalSignal, NamesTheMainGoroutine) {
    const auto r = fault("write_to_null_in_main_goroutine");
    EXPECT_EQ(r.signal, SIGSEGV) << r;
    expect_in("fatal: SIGSEGV in goroutine 1: ", r);
}

TEST(FatalSignal, AStackThatWasOverwrittenCostsTheRestOfTheTraceOnly) {
    expect_in("write_to_null", reported("ruined_stack", SIGSEGV, "SIGSEGV"));
}

TEST(FatalSignal, OfSeveralGoroutinesAtOnceIsReportedOnce) {
    for (int i = 0; i < support::rounds(50); ++i) {
        const auto r = fault("four_at_once");
        ASSERT_TRUE(r.signal == SIGSEGV || r.signal == SIGFPE || r.status == 2) << r;
        ASSERT_EQ(reports_in(r), 1u) << r;
    }
}

TEST(FatalSignal, OfAPlainThreadIsItsOwnAffair) {
    unreported("write_to_null_in_thread", SIGSEGV);
    unreported("abort_in_thread", SIGABRT);
    unreported("raise_in_thread", SIGSEGV);
}

TEST(FatalSignal, OnTheStackOfItsThreadIsTheGoroutines) {
    expect_in("write_to_null()", reported("write_to_null_on_thread_stack", SIGSEGV, "SIGSEGV"));
    expect_in("call_abort() at fault.cpp", reported("abort_on_thread_stack", SIGABRT, "SIGABRT"));
}

TEST(SentSignal, ThatAGoroutineRaisesEndsTheProcess) {
    expect_in("it was raised", reported("raise", SIGSEGV, "SIGSEGV"));
}
TEST(SentSignal, ByKillEndsTheProcess) { EXPECT_EQ(fault("kill_self").signal, SIGBUS); }
TEST(SentSignal, FromAnotherProcessEndsItWithoutAWord) { unreported("killed_from_outside", SIGSEGV); }

TEST(SentSignal, ThatTheProgramIgnoresIsIgnored) {
    EXPECT_EQ(fault("ignored_when_raised").out, "survived\n");
    const auto r = fault("ignored_when_killed");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.err, "") << r;
}

TEST(SentSignal, ThatTheProgramIgnoresDoesNotHideAFault) { reported("ignored_fault", SIGSEGV, "SIGSEGV"); }

void calls_handler(const std::string& scenario, const std::string& words) {
    const auto r = fault(scenario);
    EXPECT_EQ(r.status, 7) << r;
    EXPECT_EQ(r.out, words) << r;
    EXPECT_EQ(r.err, "") << r;
}

TEST(OwnHandler, InstalledBeforeTheRuntimeHasItsArgumentsMaskAndStack) {
    calls_handler(
        "handler_before", "signal 11, sensible, address (nil), SIGUSR1 blocked, itself blocked, its own stack\n");
    calls_handler("handler_before_on_signal_stack",
        "signal 11, sensible, address (nil), SIGUSR1 blocked, itself free, alternate stack\n");
}

TEST(OwnHandler, ThatIsAtWorkWhenRunEndsFinishes) {
    calls_handler("handler_that_outlasts_the_run_1", "reported\n");
    calls_handler("handler_that_outlasts_the_run_2", "reported\n");
}

TEST(OwnHandler, ForAbortInstalledBeforeTheRuntimeIsCalled) {
    const auto r = fault("handler_before_for_abort");
    EXPECT_EQ(r.status, 7) << r;
    EXPECT_EQ(r.out.find("signal 6, sensible"), 0u) << r;
    EXPECT_EQ(r.err, "") << r;
}

TEST(OwnHandler, OfTheOldKindIsCalled) { calls_handler("plain_handler_before", "called\n"); }

TEST(OwnHandler, InstalledAfterwardsReplacesOurs) {
    calls_handler(
        "handler_after", "signal 11, sensible, address (nil), SIGUSR1 blocked, itself blocked, its own stack\n");
}

TEST(OwnHandler, InstalledAfterwardsMayPassOnToOurs) {
    const auto r = fault("handler_after_that_passes_on");
    EXPECT_EQ(r.signal, SIGSEGV) << r;
    EXPECT_EQ(r.out, "mine\n") << r;
    expect_in("\"broken\"", r);
}

TEST(OwnHandler, ThatMendsAFaultLetsTheGoroutineGoOn) {
    const auto r = fault("handler_that_mends");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "1 call\n") << r;
}

TEST(OwnHandler, ThatWantsToBeCalledOnceIsCalledOnce) {
    const auto r = fault("reset_handler");
    EXPECT_EQ(r.signal, SIGSEGV) << r;
    EXPECT_EQ(r.out, "once\n") << r;
}

TEST(Fork, ItsChildIsToldWhenItStartsOrWaits) {
    for (const char* what : {"go", "spawn", "run", "sleep", "chan", "timer", "max_procs", "net", "mutex"}) {
        for (const char* caller : {"thread", "goroutine"}) {
            const auto r = fault(std::string(what) + "_in_child_of_" + caller);
            EXPECT_EQ(r.status, 0) << what << ' ' << caller << ": " << r;
            EXPECT_EQ(r.out, "signal 6\n") << what << ' ' << caller << ": " << r;
            expect_in("fatal: dunlin is used in the child of a fork()", r);
            EXPECT_EQ(reports_in(r), 1u) << r;
        }
    }
}

TEST(Fork, ItsChildDoesNotHangWhenTheRuntimeWasJustStarting) {
    if (support::sanitized) GTEST_SKIP() << "what a sanitizer does at a fork beside another thread is not ours";
    for (int i = 0; i < support::rounds(30); ++i) {
        const auto r = fault("forks_while_the_runtime_starts");
        ASSERT_EQ(r.out, "0 hung\n") << "run " << i << r;
    }
}

TEST(Fork, ItsChildThatComesBackFromOnThreadStackIsTold) {
    for (const char* what : {"go", "sleep"}) {
        const auto r = fault(std::string(what) + "_in_child_of_thread_stack");
        EXPECT_EQ(r.out, "signal 6\n") << r;
        expect_in("fatal: dunlin is used in the child of a fork()", r);
    }
}

TEST(Fork, AGoroutineThatReturnsInTheChildIsTold) {
    const auto r = fault("goroutine_returns_in_child");
    EXPECT_EQ(r.out, "signal 11\n") << r;
    expect_in("\"forker\", in the child of a fork()", r);
    expect_in("must exec or _exit() in the child", r);
}

TEST(Fork, ItsChildMayExecExitAndDoWhatDoesNotWait) {
    const auto r = fault("child_that_execs");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "0\n0\n0\n0 piped\n0\n0\n") << r;
    EXPECT_EQ(r.err, "") << r;
}

TEST(Fork, ItsChildMayExitBesideATrace) {
    const auto r = fault("child_that_exits_beside_a_trace");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "0\n") << r;
}

}  // namespace
