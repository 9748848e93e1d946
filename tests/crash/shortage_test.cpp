// No more threads, no more memory: a clear word, and all others go on.
#include <algorithm>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "support/build.h"
#include "support/child.h"

namespace {

std::size_t lines(const std::string& text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::size_t occurrences(const std::string& text, std::string_view what) {
    std::size_t n = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
    return n;
}

class Shortage : public testing::Test {
protected:
    static support::child_result shortage(const std::string& scenario) {
        return support::run_child("shortage", {scenario});
    }
};

TEST_F(Shortage, OfTheFirstThreadIsASystemErrorAndTheProgramDecides) {
    if (support::sanitized) GTEST_SKIP() << "the sanitizer makes threads of its own";
    const auto r = shortage("no_first_thread");
    if (r.status == 77) GTEST_SKIP() << "seccomp is not available";
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_NE(r.out.find("no thread"), std::string::npos) << r;
    EXPECT_EQ(r.out.find("ran"), std::string::npos) << r;
}

TEST_F(Shortage, OfAThreadInTheMidstOfAStartLeavesTheNextStartAsGood) {
    if (support::sanitized) GTEST_SKIP() << "the sanitizer has a pthread_create() of its own";
    const auto r = shortage("no_second_thread_at_first");
    EXPECT_EQ(r.signal, SIGSEGV) << r;
    EXPECT_NE(r.out.find("no thread"), std::string::npos) << r;
    EXPECT_NE(r.out.find("\npassed on\n"), std::string::npos) << r;
    EXPECT_EQ(occurrences(r.err, "fatal: SIGSEGV in goroutine 1"), 1u) << r;
}

TEST_F(Shortage, OfMemoryForTheFirstStartIsABadAllocAndTheNextStartIsAsGood) {
    if (support::sanitized) GTEST_SKIP() << "the sanitizer has an operator new of its own";
    const auto r = shortage("no_memory_for_the_start");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "more than two: yes\n") << r;
}

TEST_F(Shortage, OfThreadsBesideWiredGoroutinesKeepsThemGoing) {
    const auto r = shortage("no_more_threads_but_wired_ones");
    if (r.status == 77) GTEST_SKIP() << "seccomp is not available";
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "over\n") << r;
}

TEST_F(Shortage, OfMemoryForAllOtherThreadsLeavesTheFirstOne) {
    if (support::sanitized) GTEST_SKIP() << "the sanitizer has an operator new of its own";
    const auto r = shortage("no_memory_for_the_other_threads");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "10 ran\n") << r;
}

TEST_F(Shortage, OfThreadsGoesOnWithThoseThereAreAndSaysSoOnce) {
    const auto r = shortage("no_more_threads");
    if (r.status == 77) GTEST_SKIP() << "seccomp is not available";
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out.rfind("count 10000 max_procs 8 threads ", 0), 0u) << r;
    EXPECT_EQ(lines(r.err), 1u) << r;
    EXPECT_NE(r.err.find("no more threads"), std::string::npos) << r;
}

TEST_F(Shortage, OfMemoryForStacksLetsGoroutinesWaitAndSaysSoOnce) {
    if (support::sanitized) GTEST_SKIP() << "sanitizers need address space without limits";
    const auto r = shortage("no_memory_for_stacks");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "count 3000\n") << r;
    // The stack of a thread comes from the same memory: where the runtime wanted one too, that shortage has a line of
    // its own.
    EXPECT_EQ(occurrences(r.err, "no memory for the stack of goroutine"), 1u) << r;
    const std::size_t of_threads = occurrences(r.err, "no more threads");
    EXPECT_LE(of_threads, 1u) << r;
    EXPECT_EQ(lines(r.err), 1u + of_threads) << r;
}

TEST_F(Shortage, OfMemoryForAStackOfItsOwnSizeIsABadAlloc) {
    if (support::sanitized) GTEST_SKIP() << "sanitizers need address space without limits";
    const auto r = shortage("no_memory_for_a_big_stack");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "bad_alloc\nbad_alloc\nbad_alloc\n5\n") << r;
}

TEST_F(Shortage, OfMemoryForGoroutinesIsABadAllocAndNoGoroutineIsLost) {
    if (support::sanitized) GTEST_SKIP() << "sanitizers need address space without limits";
    const auto r = shortage("no_memory_for_goroutines");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "bad_alloc after more than 100000: yes\nall ended: yes\n") << r;
}

}  // namespace
