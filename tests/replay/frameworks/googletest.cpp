// dunlin::sim under GoogleTest, as users write it. frameworks_test.cmake says which of these must fail, and how.
#include <gtest/gtest.h>

#include <dunlin/sim.hpp>

#include "replay/frameworks/account.h"

namespace sim = dunlin::sim;

TEST(account, holds) {
    sim::check({.seeds = 200, .failed = testing::Test::HasFailure}, [] { EXPECT_EQ(paid_by_two(true), 2); });
}

TEST(account, check) {
    sim::check({.failed = testing::Test::HasFailure}, [] { EXPECT_EQ(paid_by_two(false), 2); });
}

TEST(account, require) {
    sim::check([] { sim::require(paid_by_two(false) == 2); });
}
