// A plug-in with a copy of the library of its own: it says so and refuses, or, where the linker has made one of the
// two, works.
#include <csignal>
#include <string>

#include <gtest/gtest.h>

#include "support/child.h"

namespace {

constexpr const char* actions[] = {"serve", "send", "fill", "close", "lock", "release", "run"};

std::string plugin(const std::string& name) { return std::string(DUNLIN_CRASH_DIR) + "/libcopies_" + name + ".so"; }

support::child_result load(const std::string& host, const std::string& plug_in, const std::string& how, const std::string& action) {
    return support::run_child(host, {plugin(plug_in), how, action});
}

void expect_refused(const support::child_result& r, const std::string& who, const std::string& beside) {
    EXPECT_EQ(r.signal, SIGABRT) << r;
    const auto begin = r.err.find("fatal: two copies of dunlin in one process: that in ");
    ASSERT_EQ(begin, 0u) << r;
    const std::string line = r.err.substr(0, r.err.find('\n'));
    const auto first = line.find(who), second = line.find(beside);
    EXPECT_NE(second, line.npos) << r;
    EXPECT_LT(first, second) << r;
    EXPECT_NE(line.find("(0."), line.npos) << r;
    EXPECT_NE(line.find("link both with the shared library"), line.npos) << r;
}

void expect_all_refused(const std::string& host, const std::string& plug_in, const std::string& how) {
    for (const char* action : actions) {
        SCOPED_TRACE(action);
        expect_refused(load(host, plug_in, how, action), "libcopies_" + plug_in + ".so", "crash_" + host);
    }
}

void expect_said(const support::child_result& r, const std::string& words) {
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, words) << r;
    EXPECT_EQ(r.err, "") << r;
}

TEST(Copies, ThatIsLoadedLocallyRefusesWhateverIsAskedOfItFirst) { expect_all_refused("copies_host", "plain", "local"); }
TEST(Copies, ThatIsLoadedGloballyRefusesToo) { expect_all_refused("copies_host", "plain", "global"); }
TEST(Copies, ThatIsBoundDeeplyRefusesThoughTheProgramExportsEverything) { expect_all_refused("copies_host_exports", "plain", "deep"); }
TEST(Copies, WhoseSymbolsAreHiddenRefusesThoughTheProgramExportsEverything) { expect_all_refused("copies_host_exports", "hidden", "local"); }
TEST(Copies, WhoseSymbolsAreHiddenRefuses) { expect_all_refused("copies_host", "hidden", "local"); }

TEST(Copies, WorksWhereTheProgramExportsItsOwn) {
    for (const char* how : {"local", "global"}) {
        expect_said(load("copies_host_exports", "plain", how, "serve"), "served\n");
        for (const char* action : {"send", "fill", "close", "lock", "release", "nothing"}) {
            SCOPED_TRACE(action);
            expect_said(load("copies_host_exports", "plain", how, action), "done\n");
        }
    }
}

TEST(Copies, WorksWhereTheProgramIsLinkedWithThePlugIn) {
    expect_said(support::run_child("copies_host_linked", {"serve"}), "served\n");
    expect_said(support::run_child("copies_host_linked", {"send"}), "done\n");
}

TEST(Copies, ThatIsMerelyThereIsLeftAlone) {
    for (const char* how : {"local", "global", "deep"}) {
        expect_said(load("copies_host", "plain", how, "nothing"), "done\n");
        expect_said(load("copies_host", "hidden", how, "nothing"), "done\n");
    }
}

TEST(Copies, OfThePlugInMayBeTheOneThatWorksAndThenTheProgramsRefuses) {
    const auto r = load("copies_host", "plain", "local", "first_run");
    EXPECT_EQ(r.out, "the plug-in first\n") << r;
    expect_refused(r, "crash_copies_host", "libcopies_plain.so");
}

}  // namespace
