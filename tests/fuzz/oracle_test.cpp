// The oracle finds what it is there to find: each planted fault, within so many random programs, by the words for it.
// And a program is the same whenever it is drawn from its seed, in all its parts.
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "fuzz/story.h"
#include "support/build.h"
#include "support/child.h"

namespace {

struct planted {
    const char* name;   // of fuzz::plant
    const char* words;  // one of the alternatives, divided by '|', must be in what it says
};

std::ostream& operator<<(std::ostream& out, const planted& p) { return out << p.name; }

support::child_result fuzz(std::vector<std::string> arguments) {
    return support::run_program(DUNLIN_CRASH_DIR "/../fuzz/fuzz", arguments, {.timeout = std::chrono::seconds(120)});
}

bool says(const support::child_result& r, std::string words) {
    const std::string all = r.out + r.err;
    for (std::size_t begin = 0; begin <= words.size();) {
        const std::size_t end = std::min(words.find('|', begin), words.size());
        if (all.find(words.substr(begin, end - begin)) != std::string::npos) return true;
        begin = end + 1;
    }
    return false;
}

class Oracle : public testing::TestWithParam<planted> {};

TEST_P(Oracle, FindsAPlantedFault) {
    const support::child_result r = fuzz({"--seeds", "300", "--patience", "2", "--plant", GetParam().name});
    EXPECT_TRUE(r.status != 0) << r;
    EXPECT_TRUE(says(r, GetParam().words)) << "it must say " << GetParam().words << '\n' << r;
    EXPECT_NE(r.out.find("seed "), std::string::npos) << "to play it again";
}

INSTANTIATE_TEST_SUITE_P(Each, Oracle,
    testing::Values(planted{"duplicate", "was received twice"}, planted{"lose", "was lost"},
        planted{"lose_on_time_out", "was lost"}, planted{"send_after_time_out", "although its send had failed"},
        planted{"reorder", "was received out of order"}, planted{"overfull", "more values were sent than fit"},
        planted{"swallow_wake_up", "has not ended after"}, planted{"no_exclusion", "more holders than it allows"},
        planted{"reader_beside_writer", "beside a "},
        planted{"permit_lost_on_time_out", "something is lost or left over|has not ended after"},
        planted{"permit_invented", "something is lost or left over|more holders than it allows"},
        planted{"lock_kept_on_cancel", "something is lost or left over|has not ended after"},
        planted{"early_time_out", "timed out early"}, planted{"early_sleep", "a sleep ended early"},
        planted{"cancelled_for_nothing", "is not done|was cancelled by nobody"},
        planted{"once_twice", "called more than once"}, planted{"timer_twice", "a second tick"},
        planted{"barrier_open", "opened before all had arrived"},
        planted{"child_forgotten", "before a child had ended"},
        planted{"exception_forgotten", "the exception of a member"},
        planted{"last_value_lost", "the last value of a watch was lost"},
        planted{"broadcast_lost", "a value of a broadcast was lost"}, planted{"news_lost", "has not ended after"},
        planted{"flight_twice", "two calls with one key"}, planted{"retried_after_all", "after it had succeeded"},
        planted{"result_lost", "results of a set are lost"}, planted{"round_lost", "was lost"}),
    [](const auto& i) { return std::string(i.param.name); });

TEST(Fuzz, WithoutAFaultThereIsNone) {
    const support::child_result r = fuzz({"--seeds", "30"});
    EXPECT_EQ(r.status, 0) << r;
}

TEST(Fuzz, ASeedIsAProgram) {
    EXPECT_EQ(to_string(fuzz::story_of(7)), to_string(fuzz::story_of(7)));
    EXPECT_NE(to_string(fuzz::story_of(7)), to_string(fuzz::story_of(8)));
}

void collect(std::set<fuzz::verb>& seen, const std::vector<fuzz::step>& steps) {
    for (const fuzz::step& s : steps) {
        seen.insert(s.what);
        collect(seen, s.body);
        for (const auto& child : s.children) collect(seen, child);
    }
}

TEST(Fuzz, ProgramsUseEveryVerb) {
    std::set<fuzz::verb> seen;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        for (const fuzz::actor_of& a : fuzz::story_of(seed).actors) collect(seen, a.steps);
    }
    for (unsigned v = 0; v < fuzz::verbs; ++v) {
        EXPECT_TRUE(seen.contains(static_cast<fuzz::verb>(v))) << word(static_cast<fuzz::verb>(v));
    }
}

TEST(Fuzz, WhatIsNamedCanBeTakenOut) {
    fuzz::story story = fuzz::story_of(7);
    fuzz::cuts without;
    for (const std::string& name : fuzz::names(story)) {
        if (name[0] != 'a') without.steps.insert(static_cast<unsigned>(std::stoul(name)));
    }
    EXPECT_FALSE(without.steps.empty());
    fuzz::cut(story, without);
    EXPECT_TRUE(fuzz::names(story).empty());
    const support::child_result r = fuzz({"--seed", "7", "--without", "a0,a1,3"});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(fuzz({"--seed", "x"}).status, 64);
}

}  // namespace
