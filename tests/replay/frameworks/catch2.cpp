// dunlin::sim under Catch2, as users write it. frameworks_test.cmake says which of these must fail, and how.
#define CATCH_CONFIG_MAIN
#include <dunlin/sim_catch2.hpp>

#include "replay/frameworks/account.h"

namespace sim = dunlin::sim;

TEST_CASE("holds") {
    sim::check({.seeds = 200, .failed = sim::catch2_failed}, [] { CHECK(paid_by_two(true) == 2); });
}

TEST_CASE("check") {
    sim::check({.failed = sim::catch2_failed}, [] {
        CHECK(paid_by_two(false) == 2);
        CHECK(true);
    });
}

TEST_CASE("require") {
    sim::check([] { REQUIRE(paid_by_two(false) == 2); });
}
