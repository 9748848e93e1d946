// sim_doctest.hpp - dunlin::sim::check() in tests with doctest: an execution in which a CHECK fails is a failure.
// Include it instead of doctest's own header.
#pragma once

#include <dunlin/config.hpp>

#include <doctest/doctest.h>

#include <atomic>

#include <dunlin/sim.hpp>

namespace dunlin::inline v0_1::sim {

namespace detail {

inline std::atomic<bool> doctest_has_failed{false};

struct doctest_listener final : doctest::IReporter {
    explicit doctest_listener(const doctest::ContextOptions&) {}
    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats&) override {}
    void test_case_start(const doctest::TestCaseData&) override { doctest_has_failed = false; }
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats&) override {}
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData& a) override {
        if (a.m_failed && (a.m_at & doctest::assertType::is_warn) == 0) doctest_has_failed = true;
    }
    void log_message(const doctest::MessageData& m) override {
        if ((m.m_severity & doctest::assertType::is_warn) == 0) doctest_has_failed = true;
    }
    void test_case_skipped(const doctest::TestCaseData&) override {}
};

inline const int doctest_listens = doctest::registerReporter<doctest_listener>("dunlin_sim", 1, false);

}  // namespace detail

/// Has an assertion of the current test case failed? For options::failed.
inline bool doctest_failed() { return detail::doctest_has_failed; }

}  // namespace dunlin::sim
