// dunlin::sim's exhaustive search: each order once, those with few detours first, and it says whether these were all.
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <dunlin/sim.hpp>

#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;
namespace sim = dunlin::sim;
using kind = sim::failure_kind;

class sim_search : public support::runtime_test {};

TEST_F(sim_search, EachOrderOfThoseThatNeverWaitIsRunOnce) {
    std::map<std::string, int> seen;
    const sim::result r = sim::check({.seeds = 100'000, .strategy = sim::exhaustive(0)}, [&] {
        std::string order;
        dunlin::task_group four;
        for (const char c : {'a', 'b', 'c', 'd'}) four.go([&order, c] { order += c; });
        four.wait();
        ++seen[order];
    });
    EXPECT_EQ(seen.size(), 24u);
    for (const auto& [order, times] : seen) EXPECT_EQ(times, 1) << order;
    EXPECT_EQ(r.executions, 24u);
    EXPECT_TRUE(r.complete);
    EXPECT_EQ(r.covered, 0);
    EXPECT_NE(r.report.find("24 orders, which are all"), std::string::npos) << r.report;
}

// Two goroutines, `points` places each where they may be switched away: what they did, in order.
std::string interleaving(int points) {
    std::string order;
    const auto work = [&](char c) {
        for (int i = 0; i < points; ++i) {
            order += c;
            sim::point();
        }
        order += c;
    };
    dunlin::chan<int> gate(2);
    const auto enter = [&](char c) {
        gate.recv();
        work(c);
    };
    dunlin::task_group two;
    two.go([&] { enter('a'); });
    two.go([&] { enter('b'); });
    gate.send(0);
    gate.send(0);
    two.wait();
    return order;
}

TEST_F(sim_search, EachInterleavingIsSeenWithAsManyDetoursAsItNeeds) {
    // Of "aaa" and "bbb" there are 20 interleavings; with n switches where one could go on fewer.
    const auto seen_with = [](const sim::search_strategy& s) {
        std::set<std::string> seen;
        const sim::result r = sim::check({.seeds = 2'000'000, .strategy = s}, [&] { seen.insert(interleaving(2)); });
        EXPECT_TRUE(r.complete) << r.report;
        return seen.size();
    };
    EXPECT_EQ(seen_with(sim::exhaustive(0)), 2u);
    EXPECT_EQ(seen_with(sim::exhaustive(1)), 6u);
    EXPECT_EQ(seen_with(sim::exhaustive(4)), 20u);
}

TEST_F(sim_search, WithoutALimitItEndsWhenAllWereRun) {
    std::set<std::string> seen;
    const sim::result r = sim::check({.seeds = 100'000, .strategy = sim::exhaustive}, [&] {
        std::string order;
        const auto twice = [&order](char c) {
            order += c;
            sim::point();
            order += c;
        };
        auto other = dunlin::spawn([&] { twice('b'); });
        sim::point();
        twice('a');
        other.get();
        seen.insert(order);
    });
    EXPECT_EQ(seen.size(), 6u);
    EXPECT_TRUE(r.complete) << r.report;
    EXPECT_LT(r.executions, 10'000u);
}

TEST_F(sim_search, ItSaysThatItHasNotRunAll) {
    const sim::result r = sim::check({.seeds = 50, .strategy = sim::exhaustive(3)}, [] { interleaving(2); });
    EXPECT_EQ(r.executions, 50u);
    EXPECT_FALSE(r.complete);
    EXPECT_EQ(r.covered, 1);
    EXPECT_NE(r.report.find("50 orders, among them all with at most 1 detour; none fails"), std::string::npos)
        << r.report;
    const sim::result few = sim::check({.seeds = 5, .strategy = sim::exhaustive(0)}, [] {
        dunlin::task_group four;
        for (int i = 0; i < 4; ++i) four.go([] {});
    });
    EXPECT_FALSE(few.complete);
    EXPECT_EQ(few.covered, -1);
}

// Lost if one adds between the other's two sections: one switch, at the right place among many.
void lost_update() {
    dunlin::mutex lock;
    int n = 0;
    const auto add = [&] {
        for (int i = 0; i < 5; ++i) std::lock_guard held(lock);
        lock.lock();
        const int read = n;
        lock.unlock();
        std::lock_guard held(lock);
        n = read + 1;
    };
    auto other = dunlin::spawn(add);
    add();
    other.get();
    sim::require(n == 2, "both count");
}

TEST_F(sim_search, AFaultIsFoundWithTheFewestDetoursAndReplayedByItsChoices) {
    EXPECT_TRUE(sim::check({.strategy = sim::exhaustive(0)}, lost_update).complete);
    const sim::result r = sim::explore({.seeds = 10'000, .strategy = sim::exhaustive}, lost_update);
    EXPECT_EQ(r.kind, kind::requirement) << r.report;
    EXPECT_TRUE(r.replayed) << r.report;
    EXPECT_NE(r.report.find("with 1 detour: no order with fewer fails"), std::string::npos) << r.report;
    EXPECT_NE(r.report.find("DUNLIN_SIM_STRATEGY=exhaustive DUNLIN_SIM_CHOICES=" + r.choices), std::string::npos)
        << r.report;
    const sim::result again = sim::explore({.strategy = sim::exhaustive, .choices = r.choices}, lost_update);
    EXPECT_EQ(again.kind, kind::requirement);
    EXPECT_EQ(again.executions, 1u);
    EXPECT_EQ(again.hash, r.hash);
    // The same from outside.
    setenv("DUNLIN_SIM_STRATEGY", "exhaustive", 1);
    setenv("DUNLIN_SIM_CHOICES", r.choices.c_str(), 1);
    EXPECT_EQ(sim::explore({.seeds = 10}, lost_update).hash, r.hash);
    unsetenv("DUNLIN_SIM_STRATEGY");
    unsetenv("DUNLIN_SIM_CHOICES");
}

TEST_F(sim_search, ItIsTheSameEachTime) {
    const auto look = [] {
        return sim::check({.seeds = 500, .strategy = sim::exhaustive(2)}, [] { interleaving(2); });
    };
    const sim::result first = look(), second = look();
    EXPECT_EQ(first.hash, second.hash);
    EXPECT_EQ(first.steps, second.steps);
}

TEST_F(sim_search, EachReadyCaseOfASelectIsTaken) {
    std::map<int, int> taken;
    const sim::result r = sim::check({.strategy = sim::exhaustive(0)}, [&] {
        dunlin::chan<int> a(1), b(1), c(1);
        a.send(0);
        b.send(1);
        c.send(2);
        dunlin::select(dunlin::on_recv(a, [&](std::optional<int> v) { ++taken[*v]; }),
            dunlin::on_recv(b, [&](std::optional<int> v) { ++taken[*v]; }),
            dunlin::on_recv(c, [&](std::optional<int> v) { ++taken[*v]; }));
    });
    EXPECT_EQ(taken, (std::map<int, int>{{0, 1}, {1, 1}, {2, 1}}));
    EXPECT_TRUE(r.complete);
}

TEST_F(sim_search, EachSmallNumberIsDrawnOnceAndLargeOnesAreSaidToBeLeftOut) {
    std::set<std::uint64_t> drawn;
    const sim::result small =
        sim::check({.strategy = sim::exhaustive}, [&] { drawn.insert(sim::draw(4) * 10 + sim::draw(3)); });
    EXPECT_EQ(drawn.size(), 12u);
    EXPECT_EQ(small.executions, 12u);
    EXPECT_TRUE(small.complete);
    const sim::result large = sim::check({.strategy = sim::exhaustive}, [] { sim::draw(65); });
    EXPECT_FALSE(large.complete);
    EXPECT_EQ(large.covered, -1);
    EXPECT_NE(large.report.find("drawn, not tried"), std::string::npos) << large.report;
}

// A deadline that comes although the one that answers could run: a detour; and only if it is near.
TEST_F(sim_search, ADeadlineMayComeFirst) {
    const auto answered = [](std::chrono::nanoseconds limit, unsigned detours) {
        std::set<bool> seen;
        const sim::result r = sim::check({.seeds = 100'000, .strategy = sim::exhaustive(detours)}, [&] {
            dunlin::chan<int> answer(1);
            dunlin::go([answer]() mutable { answer.send(1); });
            bool in_time = false;
            dunlin::select(
                dunlin::on_recv(answer, [&](std::optional<int>) { in_time = true; }), dunlin::on_timeout(limit, [] {}));
            seen.insert(in_time);
        });
        EXPECT_TRUE(r.complete) << r.report;
        return seen;
    };
    EXPECT_EQ(answered(500us, 0), std::set<bool>{true});
    EXPECT_EQ(answered(500us, 1), (std::set<bool>{false, true}));
    EXPECT_EQ(answered(1h, 2), std::set<bool>{true});
}

TEST_F(sim_search, AGoroutineThatWaitsByYieldingIsNotRunForEver) {
    const sim::result r = sim::check({.seeds = 100'000, .strategy = sim::exhaustive(1)}, [] {
        bool done = false;
        dunlin::task_group two;
        for (int i = 0; i < 2; ++i) {
            two.go([&] {
                while (!done) dunlin::yield();
            });
        }
        dunlin::sleep_for(10us);
        done = true;
        two.wait();
    });
    EXPECT_TRUE(r.complete) << r.report;
}

TEST_F(sim_search, AProgramThatDependsOnWhatWasBeforeIsSaidTo) {
    int executions = 0;
    const sim::result r = sim::explore({.strategy = sim::exhaustive}, [&] {
        dunlin::task_group some;
        for (int i = 0; i <= executions % 3; ++i) some.go([] {});
        ++executions;
    });
    EXPECT_EQ(r.kind, kind::differs) << r.report;
    EXPECT_NE(r.message.find("led elsewhere"), std::string::npos) << r.message;
}

// As many choices as before, but not the same ones.
TEST_F(sim_search, AProgramThatComesToOtherChoicesIsSaidTo) {
    int executions = 0;
    const sim::result r = sim::explore({.strategy = sim::exhaustive(0)}, [&] {
        if (executions++ % 2 == 1) dunlin::sleep_for(1us);
        dunlin::task_group three;
        for (int i = 0; i < 3; ++i) three.go([] {});
    });
    EXPECT_EQ(r.kind, kind::differs) << r.report;
}

TEST_F(sim_search, ALostAnswerIsOneFaultAway) {
    const auto program = [] {
        sim::network({.slow = 0, .loss = 0.1, .duplicates = 0, .partitions = 0});
        sim::host peer("peer", [] {
            auto s = dunlin::net::listen_packet("udp", ":9");
            dunlin::net::address from;
            for (char byte;;) {
                s.read_from(&byte, 1, from);
                s.write_to(&byte, 1, from);
            }
        });
        dunlin::sleep_for(1s);
        auto s = dunlin::net::dial_packet("udp", "peer:9");
        s.write_some("x", 1);
        s.set_read_deadline(dunlin::clock::now() + 1min);
        char byte = 0;
        std::error_code ec;
        s.read_some(&byte, 1, ec);
        sim::require(!ec, "an answer");
    };
    const sim::result calm = sim::check({.strategy = sim::exhaustive(0)}, program);
    EXPECT_FALSE(calm.complete);  // latencies are drawn
    const sim::result r = sim::explore({.strategy = sim::exhaustive(1)}, program);
    EXPECT_EQ(r.kind, kind::requirement) << r.report;
    EXPECT_TRUE(r.replayed) << r.report;
}

template <class F>
std::string refusal(F f) {
    try {
        f();
    } catch (const std::invalid_argument& e) {
        return e.what();
    }
    return "nothing was thrown";
}

TEST_F(sim_search, BadInputIsRefusedInWords) {
    const auto nothing = [] {};
    for (const char* text :
        {"1", "1:", ":1", "1:0", "1:1,", "2:1,1:1", "1:1,1:2", "1:1;2:1", "99999999999:1", "a:b", " "}) {
        const std::string said = refusal([&] { sim::check({.strategy = sim::exhaustive, .choices = text}, nothing); });
        EXPECT_NE(said.find("is not a list of choices"), std::string::npos) << text << ": " << said;
    }
    EXPECT_NE(refusal([&] { sim::check({.choices = "plain"}, nothing); }).find("the strategy is not exhaustive"),
        std::string::npos);
    EXPECT_NE(refusal([&] { sim::check({.strategy = sim::exhaustive(1001)}, nothing); }).find("more than 1000"),
        std::string::npos);
    for (const char* name :
        {"exhaustive:", "exhaustive:x", "exhaustive:-1", "exhaustive:1001", "exhaustively", "random:3", ":3"}) {
        EXPECT_NE(refusal([&] { sim::search_strategy strategy(name); }).find("unknown strategy"), std::string::npos)
            << name;
    }
    EXPECT_TRUE(sim::search_strategy("exhaustive").is_exhaustive());
    EXPECT_EQ(sim::search_strategy("exhaustive:2").detours(), 2u);
    EXPECT_TRUE(sim::check({.strategy = sim::exhaustive, .choices = "plain"}, nothing).ok());
    // Choices that the program does not come to.
    const sim::result r = sim::explore({.strategy = sim::exhaustive, .choices = "5:1"}, nothing);
    EXPECT_EQ(r.kind, kind::differs) << r.report;
}

}  // namespace
