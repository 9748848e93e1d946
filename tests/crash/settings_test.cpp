// Settings in the environment: what they do, and the one clear line when they cannot be read.
#include <algorithm>
#include <regex>
#include <sched.h>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/build.h"
#include "support/child.h"

namespace {

using settings = std::vector<std::pair<std::string, std::string>>;

support::child_result start(const settings& s, const std::string& scenario = "show") {
    return support::run_child("settings", {scenario}, {.environment = s});
}

std::size_t lines(const std::string& text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::string by_default() {
    static const std::string out = start({}).out;
    return out;
}

class Settings : public testing::Test {};

TEST_F(Settings, WithoutAnyTheProcessorsAreThoseOfTheAffinityMaskAtMost) {
    const auto r = start({});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.err, "") << r;
    cpu_set_t mask;
    sched_getaffinity(0, sizeof mask, &mask);
    const int procs = std::stoi(r.out.substr(r.out.find(' ')));
    EXPECT_GE(procs, 1);
    EXPECT_LE(procs, std::max(CPU_COUNT(&mask), 2));
}

TEST_F(Settings, DunlinMaxprocsGoesBeforeGomaxprocs) {
    EXPECT_EQ(start({{"DUNLIN_MAXPROCS", "3"}}).out.rfind("max_procs 3\n", 0), 0u);
    EXPECT_EQ(start({{"GOMAXPROCS", "5"}}).out.rfind("max_procs 5\n", 0), 0u);
    EXPECT_EQ(start({{"GOMAXPROCS", "5"}, {"DUNLIN_MAXPROCS", "3"}}).out.rfind("max_procs 3\n", 0), 0u);
    EXPECT_EQ(start({{"GOMAXPROCS", "5"}, {"DUNLIN_MAXPROCS", ""}}).out.rfind("max_procs 5\n", 0), 0u);
    EXPECT_EQ(start({{"DUNLIN_MAXPROCS", "1024"}}).out.rfind("max_procs 1024\n", 0), 0u);
}

struct unreadable {
    const char* name;
    const char* value;
};

class UnreadableSettings : public testing::TestWithParam<unreadable> {};

TEST_P(UnreadableSettings, AreOneClearLineAndTheDefault) {
    const auto [name, value] = GetParam();
    const auto r = start({{name, value}});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, by_default()) << r;
    EXPECT_EQ(lines(r.err), 1u) << r;
    EXPECT_EQ(r.err.rfind("dunlin: ", 0), 0u) << r;
    EXPECT_NE(r.err.find(std::string(name) + "="), std::string::npos) << "names the setting\n" << r;
    EXPECT_NE(r.err.find(std::string(value).substr(0, 100)), std::string::npos) << "shows the value\n" << r;
    EXPECT_NE(r.err.find("default"), std::string::npos) << r;
}

INSTANTIATE_TEST_SUITE_P(All, UnreadableSettings,
    testing::Values(unreadable{"DUNLIN_MAXPROCS", "0"}, unreadable{"DUNLIN_MAXPROCS", "-1"},
        unreadable{"DUNLIN_MAXPROCS", "1025"}, unreadable{"DUNLIN_MAXPROCS", "four"},
        unreadable{"DUNLIN_MAXPROCS", "4x"}, unreadable{"DUNLIN_MAXPROCS", " 4"},
        unreadable{"DUNLIN_MAXPROCS", "99999999999999999999999999"}, unreadable{"DUNLIN_MAXPROCS", "4.5"},
        unreadable{"GOMAXPROCS", "many"}, unreadable{"GOMAXPROCS", "0"}, unreadable{"DUNLIN_STACK_SIZE", "1"},
        unreadable{"DUNLIN_STACK_SIZE", "lots"}, unreadable{"DUNLIN_STACK_SIZE", "2T"},
        unreadable{"DUNLIN_STACK_SIZE", "64KX"}, unreadable{"DUNLIN_STACK_SIZE", "2G"},
        unreadable{"DUNLIN_STACK_SIZE", "-64K"}, unreadable{"DUNLIN_STACK_SIZE", "18446744073709551615G"},
        unreadable{"DUNLIN_STACK_GUARD", "wall"}, unreadable{"DUNLIN_DEBUG", "schedtrace"},
        unreadable{"DUNLIN_DEBUG", "schedtrace=soon"}, unreadable{"DUNLIN_DEBUG", "leaks=often"},
        unreadable{"DUNLIN_DEBUG", "nonsense=1"}, unreadable{"DUNLIN_DEBUG", "scheddetail=2"},
        unreadable{"DUNLIN_BARRIERS", "wooden"}, unreadable{"DUNLIN_PREEMPTION", "never"},
        unreadable{"DUNLIN_PREEMPTION", "SIGNAL"}, unreadable{"DUNLIN_PREEMPTION_SIGNAL", "0"},
        unreadable{"DUNLIN_PREEMPTION_SIGNAL", "9"}, unreadable{"DUNLIN_PREEMPTION_SIGNAL", "11"},
        unreadable{"DUNLIN_PREEMPTION_SIGNAL", "33"}, unreadable{"DUNLIN_PREEMPTION_SIGNAL", "65"},
        unreadable{"DUNLIN_PREEMPTION_SIGNAL", "urg"}));

TEST_F(Settings, StackGuardsCanBeChosen) {
    EXPECT_NE(start({{"DUNLIN_STACK_GUARD", "mprotect"}}).out.find("guards mprotect"), std::string::npos);
    EXPECT_NE(start({{"DUNLIN_STACK_GUARD", "canary"}}).out.find("guards canary"), std::string::npos);
    EXPECT_NE(start({{"DUNLIN_STACK_GUARD", "none"}}).out.find("guards none"), std::string::npos);
}

TEST_F(Settings, TheSignalThatPreemptsIsKnownBeforeTheRuntimeRuns) {
    EXPECT_EQ(start({}, "signals_before_the_start").out, "not 23\n10\n");
    EXPECT_EQ(start({{"DUNLIN_PREEMPTION_SIGNAL", "10"}}, "signals_before_the_start").out, "23\nnot 10\n");
}

TEST_F(Settings, StackSizesAreReadWithUnits) {
    for (const char* size : {"65536", "64K", "64k", "64KiB", "1M", "1MB", "240K"}) {
        const auto r = start({{"DUNLIN_STACK_SIZE", size}}, "many_goroutines");
        EXPECT_EQ(r.status, 0) << r;
        EXPECT_EQ(r.err, "") << size << '\n' << r;
    }
}

// ---- DUNLIN_DEBUG=schedtrace ----------------------------------------------------------------------------------------

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> result;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        result.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return result;
}

// A program of a second with a trace each tenth: has it one for nearly each? A machine that stands still for a while
// loses some, so it may try again.
support::child_result start_traced(const settings& s, const std::string& scenario) {
    auto r = start(s, scenario);
    const auto traces = [&r] {
        const auto all = split(r.err);
        return std::count_if(
            all.begin(), all.end(), [](const std::string& line) { return line.rfind("SCHED ", 0) == 0; });
    };
    for (int i = 0; i < 9 && r.status == 0 && traces() < 8; ++i) r = start(s, scenario);
    return r;
}

// OBS-06.
TEST_F(Settings, SchedtracePrintsALineEveryPeriod) {
    const auto r = start_traced({{"DUNLIN_DEBUG", "schedtrace=100"}, {"DUNLIN_MAXPROCS", "4"}}, "busy_for_a_second");
    EXPECT_EQ(r.status, 0) << r;
    const std::regex form(
        R"(SCHED (\d+)ms: gomaxprocs=(\d+) idleprocs=(\d+) threads=(\d+) spinningthreads=(\d+) needspinning=(\d+))"
        R"( idlethreads=(\d+) runqueue=(\d+) \[([\d ]+)\])");
    int matched = 0;
    long last = -1;
    for (const std::string& line : split(r.err)) {
        std::smatch m;
        ASSERT_TRUE(std::regex_match(line, m, form)) << line;
        ++matched;
        const std::string lengths = m[9];
        EXPECT_EQ(m[2], "4") << line;
        EXPECT_LE(std::stoi(m[3]), 4) << line;
        EXPECT_EQ(std::count(lengths.begin(), lengths.end(), ' '), 3) << line;
        EXPECT_GT(std::stol(m[1]), last) << line;
        EXPECT_LE(std::stoi(m[7]), std::stoi(m[4])) << line;
        last = std::stol(m[1]);
    }
    EXPECT_GE(matched, 8) << r;
    EXPECT_LE(matched, last / 100 + 2) << r;  // as many as there were periods; the child may be slow to end
}

TEST_F(Settings, SchedtraceGoesOnWhileAllGoroutinesSleep) {
    const auto r = start_traced({{"DUNLIN_DEBUG", "schedtrace=100"}}, "idle_for_a_second");
    EXPECT_GE(split(r.err).size(), 8u) << r;
}

TEST_F(Settings, ScheddetailListsEveryPMAndG) {
    const auto r =
        start_traced({{"DUNLIN_DEBUG", "schedtrace=100,scheddetail=1"}, {"DUNLIN_MAXPROCS", "4"}}, "busy_for_a_second");
    EXPECT_EQ(r.status, 0) << r;
    const std::regex first(
        R"(SCHED \d+ms: gomaxprocs=4 .* runqueue=\d+ gcwaiting=\w+ nmidlelocked=\d+ stopwait=\d+ sysmonwait=\w+)");
    const std::regex p(R"(  P(\d+): status=\w+ schedtick=\d+ .*m=(nil|\d+) runqsize=\d+ .*gfreecnt=\d+.*)");
    const std::regex m(R"(  M\d+: p=(nil|\d+) curg=(nil|\d+) .*spinning=(true|false) blocked=(true|false).*)");
    const std::regex g(R"(  G\d+: status=\w+(\(.*\))?.*)");
    int headers = 0, ps = 0, ms = 0, gs = 0;
    for (const std::string& line : split(r.err)) {
        if (std::regex_match(line, first)) ++headers;
        else if (std::regex_match(line, p)) ++ps;
        else if (std::regex_match(line, m)) ++ms;
        else if (std::regex_match(line, g)) ++gs;
        else ADD_FAILURE() << "not of any form: " << line;
    }
    EXPECT_GE(headers, 8);
    EXPECT_EQ(ps, 4 * headers);
    EXPECT_GE(ms, headers);
    EXPECT_GE(gs, 4 * headers);
}

// ---- CPU time -------------------------------------------------------------------------------------------------------

TEST_F(Settings, AnIdleProcessWithTenThousandParkedGoroutinesUsesNoCpu) {
    if (support::sanitized) GTEST_SKIP() << "the sanitizer's own thread uses some";
    const auto r = start({}, "idle_with_ten_thousand");
    EXPECT_EQ(r.status, 0) << r;
    std::istringstream figures(r.out);
    double percent = 100, reading = 0;
    figures >> percent >> reading;
    EXPECT_LT(percent, 0.1 + 2 * reading) << "two looks at each struct: " << r;
}

}  // namespace
