// When a machine watches for work beside waits for descriptors: as long as watches find some, and now and then.
#include "sched/data/watch_credit.h"

#include <atomic>
#include <span>

#include <dunlin/fs.hpp>

#include "sched/data/types.h"
#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;
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

// A copy: the processor's own is its owner's.
bool is_used_up(watch_credit credit) { return watches_among(15, credit, false) <= 1; }

class Watches : public support::runtime_test {};

// The one processor that has work computes, the other one comes to a goroutine that a timer readies and finds no more.
TEST_F(Watches, EndBesideAWaitForADescriptorWhereTheyFindNothing) {
    dunlin::run({.max_procs = 2}, [] {
        auto [from, to] = dunlin::fs::pipe();
        std::atomic<bool> over{false};
        dunlin::wait_group others;
        others.go([&] {
            char c;
            static_cast<void>(from.read_some(std::span(&c, 1)));
        });
        others.go([&] {
            while (!over) {
            }
        });
        const auto& s = dunlin::sched::the_scheduler;
        while (!is_used_up(s.processor_at(0)->watches) && !is_used_up(s.processor_at(1)->watches))
            dunlin::sleep_for(200us);
        over = true;
        to.close();
        others.wait();
    });
}

}  // namespace
