// dunlin::sim under doctest, as users write it. frameworks_test.cmake says which of these must fail, and how.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <dunlin/sim_doctest.hpp>

#include "replay/frameworks/account.h"

namespace sim = dunlin::sim;

TEST_CASE("holds") {
    sim::check({.seeds = 200, .failed = sim::doctest_failed}, [] {
        CHECK(paid_by_two(true) == 2);
        WARN(paid_by_two(true) == 3);
    });
}

TEST_CASE("check") {
    sim::check({.failed = sim::doctest_failed}, [] {
        CHECK(paid_by_two(false) == 2);
        CHECK(true);
    });
}

TEST_CASE("require") {
    sim::check([] { REQUIRE(paid_by_two(false) == 2); });
}
