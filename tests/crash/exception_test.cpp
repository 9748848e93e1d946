// How a program ends that an exception, a misuse or an overflow ends: with a report that names the goroutine, and
// status 2.
#include <algorithm>
#include <csignal>
#include <regex>
#include <string>

#include <gtest/gtest.h>

#include "support/build.h"
#include "support/expect_child.h"

namespace {

using support::expect_in;

support::child_result crash(const std::string& scenario) { return support::run_child("exception", {scenario}); }

class Uncaught : public testing::Test {};

TEST_F(Uncaught, ExceptionNamesTheGoroutineItsOriginAndWhatItSays) {
    const auto r = crash("detached");
    EXPECT_EQ(r.status, 2) << r;
    expect_in("fatal: uncaught exception in goroutine ", r);
    expect_in("\"thrower\"", r);
    expect_in("std::runtime_error: nobody catches this", r);
    expect_in("created at exception.cpp:", r);
    expect_in("#0 ", r);
}

TEST_F(Uncaught, ExceptionOfAGoroutineThatAThreadStarted) {
    const auto r = crash("detached_from_a_thread");
    EXPECT_EQ(r.status, 2) << r;
    expect_in("nobody catches this", r);
}

TEST_F(Uncaught, ExceptionOfAMemberOfAWaitGroup) {
    const auto r = crash("in_a_wait_group");
    EXPECT_EQ(r.status, 2) << r;
    expect_in("nobody catches this", r);
}

TEST_F(Uncaught, ExceptionOfAFunctionThatATemplateOfTheLibraryCalls) {
    for (const std::string scenario : {"in_after_func", "in_a_context", "in_a_jthread"}) {
        const auto r = crash(scenario);
        EXPECT_EQ(r.status, 2) << r;
        const auto thrown_at = std::min(r.err.find("thrown at"), r.err.size());
        EXPECT_NE(r.err.find(scenario + "()", thrown_at), std::string::npos) << r;
        EXPECT_EQ(r.err.find("dunlin::detail::", thrown_at), std::string::npos) << r;
    }
}

TEST_F(Uncaught, ExceptionOfAnyTypeIsReported) {
    const auto r = crash("of_another_type");
    EXPECT_EQ(r.status, 2) << r;
    expect_in("uncaught exception in goroutine", r);
    expect_in("int", r);
}

TEST_F(Uncaught, ExceptionGoesThroughATerminateHandlerAfterTheReport) {
    const auto r = crash("with_a_handler");
    EXPECT_EQ(r.status, 7) << r;
    EXPECT_EQ(r.out, "my handler: nobody catches this\n") << r;
    expect_in("uncaught exception in goroutine", r);
}

// What exit() does waits for no report then: it is the reporter that calls it.
TEST_F(Uncaught, ExceptionWhoseTerminateHandlerCallsExitEndsWithItsStatus) {
    const auto r = crash("exits_in_a_handler");
    EXPECT_EQ(r.status, 7) << r;
    expect_in("uncaught exception in goroutine", r);
}

TEST_F(Uncaught, ExceptionsOfSeveralAtOnceGiveOneReport) {
    for (int i = 0; i < support::rounds(50); ++i) {
        const auto r = crash("two_at_once");
        ASSERT_EQ(r.status, 2) << r;
        const auto first = r.err.find("fatal: uncaught exception");
        ASSERT_NE(first, std::string::npos) << r;
        EXPECT_EQ(r.err.find("fatal: uncaught exception", first + 1), std::string::npos) << r;
    }
}

TEST_F(Uncaught, ExitThroughANoexceptFunctionTerminates) {
    const auto r = crash("exits_through_noexcept");
    EXPECT_FALSE(r.timed_out) << r;
    EXPECT_TRUE(r.signal == SIGABRT || r.status == 2) << r;
    EXPECT_NE(r.err, "") << r;
}

TEST_F(Uncaught, ExceptionThrownWhileExitUnwinds) {
    const auto r = crash("throws_while_exiting");
    EXPECT_EQ(r.status, 2) << r;
    expect_in("after exit", r);
}

class Overflow : public testing::Test {
protected:
    void SetUp() override {
        if (support::sanitized) GTEST_SKIP() << "the sanitizer reports overflows in its own way";
    }
    static support::child_result overflow(const std::string& scenario) {
        const auto r = crash(scenario);
        EXPECT_EQ(r.status, 2) << r;
        expect_in("fatal: stack overflow in goroutine ", r);
        expect_in("created at exception.cpp:", r);
        return r;
    }
};

TEST_F(Overflow, OfADefaultStackIsReported) {
    const auto r = overflow("overflow");
    expect_in("\"digger\"", r);
    std::smatch full, advised;
    ASSERT_TRUE(std::regex_search(r.err, full, std::regex("its stack of ([0-9]+) bytes is full"))) << r;
    ASSERT_TRUE(std::regex_search(r.err, advised, std::regex("stack_size = ([0-9]+) << 20"))) << r;
    // also in the eyes of a reader who takes 8372160 bytes for 8 MiB
    EXPECT_GT(std::stoul(advised[1]) << 20, std::stoul(full[1]) + (1 << 20)) << r;
    expect_in("#0 ", r);
}
TEST_F(Overflow, OfTheMainGoroutineIsReported) {
    const auto r = overflow("overflow_of_main");
    expect_in("goroutine 1", r);
    expect_in("main_stack_size", r);
}
TEST_F(Overflow, OfAChildThatRunsInPlace) { overflow("overflow_in_place"); }
TEST_F(Overflow, InMallocIsReportedWithoutTheHeap) {
    const auto r = crash("overflow_in_malloc");
    EXPECT_EQ(r.status, 2) << r;
    expect_in("fatal: stack overflow in goroutine ", r);
    expect_in("created at ", r);
}
TEST_F(Overflow, OfTheSmallestStackIsReported) { expect_in("\"small\"", overflow("overflow_of_a_small_stack")); }
TEST_F(Overflow, ByFramesWiderThanAPage) { overflow("overflow_by_wide_frames"); }

// "recursion: f(int) x 902", from the report.
unsigned long times_of(const std::string& function, const support::child_result& r) {
    std::smatch found;
    const std::regex line("recursion: .*" + function + "\\(int\\) x ([0-9]+)");
    return std::regex_search(r.err, found, line) ? std::stoul(found[1]) : 0;
}

TEST_F(Overflow, NamesTheFunctionThatRecurses) {
    EXPECT_GT(times_of("recurse", overflow("overflow")), 500u);
    EXPECT_GT(times_of("recurse", overflow("overflow_of_main")), 20'000u);
}

TEST_F(Overflow, NamesTheFunctionsThatRecurseInTurns) {
    const auto r = overflow("overflow_by_two");
    const auto even = times_of("even", r), odd = times_of("odd", r);
    EXPECT_GT(even, 300u) << r;
    EXPECT_LE(even, odd + 1) << r;
    EXPECT_LE(odd, even + 1) << r;
}

TEST_F(Overflow, OfOneFrameIsNoRecursion) {
    const auto r = overflow("overflow_by_one_frame");
    EXPECT_EQ(r.err.find("recursion:"), std::string::npos) << r;
    expect_in("too_wide", r);
}

// A frame that is larger than the guard may touch nothing of it.
TEST_F(Overflow, ByAFrameThatPassesOverTheGuard) {
    for (const char* scenario : {"overflow_past_the_guard", "overflow_past_the_guard_by_a_call"}) {
        const auto r = overflow(scenario);
        std::smatch beyond, advised;
        ASSERT_TRUE(std::regex_search(r.err, beyond, std::regex("a frame reaches ([0-9]+) bytes below that"))) << r;
        EXPECT_GT(std::stoul(beyond[1]), 300u << 20) << r;
        expect_in("a local variable is too large", r);
        ASSERT_TRUE(std::regex_search(r.err, advised, std::regex("main_stack_size = ([0-9]+) << 20"))) << r;
        EXPECT_EQ(std::stoul(advised[1]), 512u) << r;
        expect_in("image", r);
    }
}

TEST_F(Overflow, ByAFrameThatNoStackHolds) {
    const auto r = overflow("overflow_that_no_stack_holds");
    expect_in("put what is large on the heap", r);
    expect_in("no stack can be larger", r);
}

TEST_F(Overflow, ByAFrameThatEndsInAnotherStack) {
    const auto r = overflow("overflow_into_another_stack");
    expect_in("a local variable is too large", r);
    expect_in("into_neighbour", r);
}

TEST_F(Overflow, IsNotAFaultOnAStackOfTheProgram) {
    const auto r = crash("fault_on_another_stack");
    EXPECT_EQ(r.signal, SIGSEGV) << r;
    EXPECT_EQ(r.err.find("stack overflow"), std::string::npos) << r;
    expect_in("it touched 0x40, where there is no memory", r);
}

TEST_F(Overflow, ShowsTheOutermostFramesToo) {
    expect_in("overflow()::{lambda", overflow("overflow"));
    expect_in("overflow_of_main()::{lambda", overflow("overflow_of_main"));
}

TEST_F(Overflow, IsNotWhatANullPointerIs) {
    const auto r = crash("null_pointer");
    EXPECT_EQ(r.signal, SIGSEGV) << r;
    EXPECT_EQ(r.err.find("stack overflow"), std::string::npos) << r;
}

}  // namespace
