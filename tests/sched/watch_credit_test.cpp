// When a machine watches for work beside waits for descriptors: as long as watches find some, and now and then.
#include "sched/data/watch_credit.h"

#include <gtest/gtest.h>

namespace {

using dunlin::sched::watch_credit;

// Of `times` machines that find no work, how many watch; each watch finds work, or none does.
int watches_among(int times, watch_credit& credit, bool found) {
    int watched = 0;
    for (int i = 0; i < times; ++i) {
        if (!credit.worth_it()) continue;
        ++watched;
        credit.note(found);
    }
    return watched;
}

TEST(WatchCredit, AllWatchWhereWatchesFindWork) {
    watch_credit credit;
    EXPECT_EQ(watches_among(1000, credit, true), 1000);
}

TEST(WatchCredit, FewWatchWhereWatchesFindNothing) {
    watch_credit credit;
    watches_among(1000, credit, false);
    EXPECT_EQ(watches_among(1600, credit, false), 100);
}

TEST(WatchCredit, OneFindIsWorthSomeMoreWatches) {
    watch_credit credit;
    watches_among(1000, credit, false);
    while (!credit.worth_it()) {
    }
    credit.note(true);
    EXPECT_EQ(watches_among(4, credit, false), 4);
    EXPECT_LE(watches_among(15, credit, false), 1);
}

// One of five pays for the other four.
TEST(WatchCredit, AllWatchWhereOneInFiveFindsWork) {
    watch_credit credit;
    for (int i = 0; i < 1000; ++i) {
        ASSERT_TRUE(credit.worth_it()) << i;
        credit.note(i % 5 == 0);
    }
}

}  // namespace
