// Several copies of the library in one process: where the linker has made one of them, it works; else the process says
// so when the second one is loaded, and ends. Never does it crash without a word.
#include <csignal>
#include <string>

#include <gtest/gtest.h>

#include "support/child.h"

namespace {

constexpr const char* ways[] = {"local", "global", "deep"};

std::string plugin(const std::string& name) { return std::string(DUNLIN_CRASH_DIR) + "/libcopies_" + name + ".so"; }

support::child_result load(
    const std::string& host, const std::string& plug_in, const std::string& how, const std::string& action) {
    return support::run_child(host, {plugin(plug_in), how, action});
}

support::child_result load_two(
    const std::string& first, const std::string& second, const std::string& how, const std::string& action) {
    return support::run_child("copies_bare", {plugin(first), plugin(second), how, action});
}

void expect_refused(
    const support::child_result& r, const std::string& who, const std::string& what, const std::string& beside) {
    EXPECT_EQ(r.signal, SIGABRT) << r;
    ASSERT_EQ(r.err.find("fatal: two copies of dunlin in one process: that in "), 0u) << r;
    const std::string line = r.err.substr(0, r.err.find('\n'));
    const auto first = line.find(who), second = line.find(beside);
    EXPECT_NE(second, line.npos) << r;
    EXPECT_LT(first, second) << r;
    EXPECT_NE(line.find(" (0.1.0) is " + what + " beside that in "), line.npos) << r;
    EXPECT_NE(line.find("link both with the shared library"), line.npos) << r;
}

// Before anything was asked of it.
void expect_refused_when_loaded(const std::string& host, const std::string& plug_in, const std::string& how) {
    SCOPED_TRACE(host + ", " + plug_in + ", " + how);
    const auto r = load(host, plug_in, how, "nothing");
    EXPECT_EQ(r.out, "") << r;
    expect_refused(r, plug_in == "sharing" ? "libcopies_shared.so" : "libcopies_" + plug_in + ".so", "loaded",
                   host == "copies_host_shared" ? "libcopies_shared.so" : "crash_" + host);
}

void expect_said(const support::child_result& r, const std::string& words) {
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, words) << r;
    EXPECT_EQ(r.err, "") << r;
}

void expect_works(const std::string& host, const std::string& plug_in, const std::string& how) {
    SCOPED_TRACE(host + ", " + plug_in + ", " + how);
    expect_said(load(host, plug_in, how, "serve"), "served\n");
    for (const char* action : {"send", "fill", "close", "lock", "release", "nothing"}) {
        SCOPED_TRACE(action);
        expect_said(load(host, plug_in, how, action), "done\n");
    }
}

TEST(Copies, OfAStaticProgramAndAStaticPlugInAreRefused) {
    for (const char* plug_in : {"plain", "hidden", "quiet", "symbolic"}) {
        for (const char* how : ways) expect_refused_when_loaded("copies_host", plug_in, how);
    }
}

TEST(Copies, OfAStaticProgramThatExportsItsOwnWorkWhereThePlugInIsBoundToThat) {
    for (const char* plug_in : {"plain", "quiet"}) {
        for (const char* how : {"local", "global"}) expect_works("copies_host_exports", plug_in, how);
    }
}

TEST(Copies, OfAStaticProgramThatExportsItsOwnAreRefusedWhereThePlugInIsBoundToItself) {
    for (const char* plug_in : {"hidden", "symbolic"}) {
        for (const char* how : ways) expect_refused_when_loaded("copies_host_exports", plug_in, how);
    }
    for (const char* plug_in : {"plain", "quiet"}) expect_refused_when_loaded("copies_host_exports", plug_in, "deep");
}

TEST(Copies, OfTheSharedLibraryAndAStaticPlugInWorkWhereThePlugInIsBoundToTheLibrary) {
    for (const char* plug_in : {"plain", "quiet"}) {
        for (const char* how : {"local", "global"}) expect_works("copies_host_shared", plug_in, how);
    }
}

TEST(Copies, OfTheSharedLibraryAndAStaticPlugInAreRefusedWhereThePlugInIsBoundToItself) {
    for (const char* plug_in : {"hidden", "symbolic"}) {
        for (const char* how : ways) expect_refused_when_loaded("copies_host_shared", plug_in, how);
    }
    for (const char* plug_in : {"plain", "quiet"}) expect_refused_when_loaded("copies_host_shared", plug_in, "deep");
}

TEST(Copies, OfAStaticProgramAndTheSharedLibraryAreRefused) {
    for (const char* how : ways) expect_refused_when_loaded("copies_host", "sharing", how);
}

TEST(Copies, OneSharedLibraryWorks) {
    for (const char* how : ways) expect_works("copies_host_shared", "sharing", how);
}

TEST(Copies, WorksWhereTheProgramIsLinkedWithThePlugIn) {
    expect_said(support::run_child("copies_host_linked", {"serve"}), "served\n");
    expect_said(support::run_child("copies_host_linked", {"send"}), "done\n");
}

TEST(Copies, PartsThatAProgramDoesNotHaveThoughItExportsItsOwnAreRefusedWhenTheyAreUsed) {
    for (const char* how : {"local", "global"}) {
        expect_refused(load("copies_host_exports", "plain", how, "other_parts"), "libcopies_plain.so", "used",
            "crash_copies_host_exports");
        expect_said(load("copies_host_shared", "plain", how, "other_parts"), "done\n");
    }
}

TEST(Copies, OfTwoPlugInsOfAProgramWithoutDunlinTheSecondIsRefusedWhenItIsLoaded) {
    for (const char* how : {"local", "deep"}) {
        for (const char* second : {"hidden", "symbolic", "sharing"}) {
            for (const char* action : {"load", "use"}) {
                SCOPED_TRACE(std::string(second) + ", " + how + ", " + action);
                const auto r = load_two("plain", second, how, action);
                EXPECT_EQ(r.out, "the first\n") << r;
                expect_refused(r,
                    std::string(second) == "sharing" ? "libcopies_shared.so"
                                                     : "libcopies_" + std::string(second) + ".so",
                    "loaded", "libcopies_plain.so");
            }
        }
    }
    // Bound to the first one, whose symbols are everybody's.
    expect_said(load_two("plain", "quiet", "global", "load"), "the first\nthe second\n");
}

TEST(Copies, ThatWorksIsNotUnloaded) {
    for (const char* how : ways) {
        for (const char* kind : {"plain", "hidden", "sharing"}) {
            SCOPED_TRACE(std::string(kind) + ", " + how);
            expect_said(load_two(kind, kind, how, "close"), "the first\nstays\n");
        }
    }
}

TEST(Copies, OfAnotherVersionAreNamedWithIt) {
    const auto r = load("copies_host", "other_version", "local", "nothing");
    EXPECT_EQ(r.out, "") << r;
    expect_refused(r, "crash_copies_host", "used", "libcopies_other_version.so (0.9.7)");
}

}  // namespace
