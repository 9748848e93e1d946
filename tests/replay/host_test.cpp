// Hosts of a simulation: names, crashes, links that are cut.
#include <string>

#include <dunlin/dunlin.hpp>
#include <dunlin/sim.hpp>

#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;
namespace sim = dunlin::sim;
namespace net = dunlin::net;
using kind = sim::failure_kind;
using sim::require;

// A crash keeps the stacks of its goroutines, and a sanitizer is told of the first two thousand.
constexpr std::uint64_t seeds = support::sanitized ? 40 : 400;

class sim_host : public support::runtime_test {
protected:
    void SetUp() override {
        runtime_test::SetUp();
        allow(240s);
    }
};

constexpr sim::network_options calm{.slow = 0, .loss = 0, .duplicates = 0, .resets = 0, .partitions = 0};

// Answers each byte with the next.
void serve(const char* at = ":7") {
    auto l = net::listen("tcp", at);
    for (;;) {
        dunlin::go([c = l.accept()]() mutable {
            std::error_code ec;
            char byte;
            while (c.read_some(&byte, 1, ec) == 1) {
                ++byte;
                c.write_all(&byte, 1, ec);
            }
        });
    }
}

// What comes back for 'a', within a minute; 0: nothing, and `ec`.
char ask(net::stream& c, std::error_code& ec) {
    char byte = 'a';
    c.set_read_deadline(dunlin::clock::now() + 1min);
    c.write_all(&byte, 1, ec);
    if (ec) return 0;
    return c.read_some(&byte, 1, ec) == 1 ? byte : '\0';
}

net::stream connect(const char* to) {
    for (;;) {
        std::error_code ec;
        auto c = net::dial("tcp", to, 10s, ec);
        if (!ec) return c;
        dunlin::sleep_for(10ms);
    }
}

TEST_F(sim_host, HostsHaveNamesAddressesAndPortsOfTheirOwn) {
    sim::check({.seeds = seeds}, [] {
        const sim::host db("db", [] { serve(); });
        const sim::host app("app", [] { serve(); });  // at the same port
        require(db.address() == "10.0.0.2" && app.address() == "10.0.0.3");
        std::error_code ec;
        auto c = connect("db:7");
        require(c.remote_address().to_string() == "10.0.0.2:7" && c.local_address().host() == "10.0.0.1");
        require(ask(c, ec) == 'b', "answer");
        net::dial("tcp", "localhost:7", ec);
        require(ec == std::errc::connection_refused, "its own port 7 is another");
        require(net::resolve("app:7").front().to_string() == "10.0.0.3:7");
    });
}

TEST_F(sim_host, WhatListensAtLocalhostIsNotReachedFromOthers) {
    sim::check({.seeds = 20}, [] {
        const sim::host db("db", [] { serve("127.0.0.1:7"); });
        dunlin::sleep_for(1s);
        std::error_code ec;
        net::dial("tcp", "db:7", ec);
        require(ec == std::errc::connection_refused);
    });
}

TEST_F(sim_host, ACrashIsAResetOrSilence) {
    int resets = 0, silences = 0;
    const sim::result first = sim::check({.seeds = seeds}, [&] {
        const sim::host db("db", [] { serve(); });
        auto c = connect("db:7");
        std::error_code ec;
        require(ask(c, ec) == 'b');
        db.crash();
        require(!db.is_up());
        require(ask(c, ec) == 0, "no answer of a host that is off");
        ++(ec == std::errc::timed_out ? silences : resets);
        net::dial("tcp", "db:7", 5s, ec);
        require(ec == std::errc::timed_out, "nor does it refuse");
        db.restart();
        c = connect("db:7");
        require(ask(c, ec) == 'b', "up again");
    });
    EXPECT_GT(resets, 5);
    EXPECT_GT(silences, 5);
    const sim::result again = sim::check({.seeds = 1}, [&] { sim::host("db", [] { serve(); }); });
    EXPECT_TRUE(again.ok());
    EXPECT_TRUE(first.ok());
}

TEST_F(sim_host, AReaderOfASilentPeerIsToldByKeepAlive) {
    sim::check({.seeds = seeds / 4}, [] {
        const sim::host db("db", [] { serve(); });
        auto c = connect("db:7");
        db.crash();
        const auto begin = dunlin::clock::now();
        char byte;
        std::error_code ec;
        c.read_some(&byte, 1, ec);
        require(ec == std::errc::connection_reset || ec == dunlin::errc::peer_silent);
        require(dunlin::clock::now() - begin < 151s);
    });
}

TEST_F(sim_host, AWriterToASilentPeerLearnsItWhenThatIsUpAgain) {
    sim::check({.seeds = seeds / 4}, [] {
        const sim::host db("db", [] { serve(); });
        auto c = connect("db:7");
        c.set_keep_alive(0s);
        db.restart();
        std::error_code ec;
        require(ask(c, ec) == 0 && ec == std::errc::connection_reset);
    });
}

TEST_F(sim_host, ItsGoroutinesNeverRunAgain) {
    sim::check({.seeds = seeds / 4}, [] {
        int alive = 0, ran_after = 0;
        bool off = false;
        const sim::host db("db", [&] {
            ++alive;
            for (int i = 0; i < 3; ++i) {
                dunlin::go([&] {
                    for (;;) {
                        dunlin::sleep_for(1ms);
                        if (off) ++ran_after;
                    }
                });
            }
            for (;;) {
                dunlin::yield();
                if (off) ++ran_after;
                dunlin::sleep_for(1us);
            }
        });
        dunlin::sleep_for(5ms);
        db.crash();
        off = true;
        dunlin::sleep_for(1s);
        require(ran_after == 0 && alive == 1);
        off = false;
        db.restart();
        dunlin::sleep_for(5ms);
        require(alive == 2, "main runs again");
        db.restart();
        dunlin::sleep_for(5ms);
        require(alive == 3);
    });
}

TEST_F(sim_host, TwoThatRestartItStartItOnce) {
    sim::check({.seeds = seeds / 4}, [] {
        const sim::host db("db", [] {
            auto l = net::listen("tcp", ":7");  // a second main would find the port taken, and end in an exception
            dunlin::sleep_for(1h);
        });
        dunlin::sleep_for(1s);
        dunlin::task_group both;
        for (int i = 0; i < 2; ++i) both.go([&] { db.restart(); });
        both.wait();
        dunlin::sleep_for(1s);
        require(db.is_up());
    });
}

TEST_F(sim_host, AHostMayCrashItself) {
    sim::check({.seeds = seeds / 4}, [] {
        int begun = 0;
        std::unique_ptr<sim::host> db;
        db = std::make_unique<sim::host>("db", [&] {
            ++begun;
            dunlin::sleep_for(1s);
            db->crash();
            require(false, "runs on");
        });
        dunlin::sleep_for(2s);
        require(!db->is_up() && begun == 1);
    });
}

TEST_F(sim_host, APartitionHoldsStreamsUpAndHeals) {
    sim::check({.seeds = seeds / 4}, [] {
        const auto links = sim::network(calm);
        const sim::host db("db", [] { serve(); });
        auto c = connect("db:7");
        std::error_code ec;
        require(ask(c, ec) == 'b');
        links.partition("test", "db");
        require(ask(c, ec) == 0 && ec == std::errc::timed_out, "cut");
        net::dial("tcp", "db:7", 5s, ec);
        require(ec == std::errc::timed_out, "no dial either");
        links.heal();
        char byte = 0;
        c.set_read_deadline(dunlin::clock::now() + 1min);
        require(c.read_some(&byte, 1) == 1 && byte == 'b', "the answer of before");
        require(ask(c, ec) == 'b');
    });
}

TEST_F(sim_host, AStreamThatIsCutOffForLongGivesUp) {
    sim::check({.seeds = seeds / 4}, [] {
        const auto links = sim::network(calm);
        const sim::host db("db", [] { serve(); });
        auto quiet = connect("db:7"), busy = connect("db:7");
        busy.set_keep_alive(0s);
        links.partition("db", "test");
        const auto begin = dunlin::clock::now();
        std::error_code ec;
        char byte = 'a';
        busy.write_all(&byte, 1);
        quiet.read_some(&byte, 1, ec);
        require(ec == dunlin::errc::peer_silent && dunlin::clock::now() - begin < 3min, "keep-alive");
        busy.read_some(&byte, 1, ec);
        require(ec == dunlin::errc::peer_silent && dunlin::clock::now() - begin < 20min, "sent again in vain");
    });
}

TEST_F(sim_host, DrawnPartitionsHealByThemselves) {
    int late = 0;
    sim::check({.seeds = seeds}, [&] {
        sim::network({.slow = 0, .resets = 0, .partitions = 0.1});
        const sim::host db("db", [] { serve(); });
        auto c = connect("db:7");
        for (int i = 0; i < 5; ++i) {
            std::error_code ec;
            const auto begin = dunlin::clock::now();
            require(ask(c, ec) == 'b');
            if (dunlin::clock::now() - begin > 100ms) ++late;
        }
    });
    EXPECT_GT(late, 5);
}

TEST_F(sim_host, WhatAHostLeavesIsNoLeakButTheTestsOwnIs) {
    sim::check({.seeds = 20}, [] { sim::host("db", [] { serve(); }); });
    const sim::result r = sim::explore({.seeds = 1}, [] {
        sim::host("db", [] { serve(); });
        dunlin::chan<int> never;
        dunlin::go([never]() mutable { never.recv(); });
    });
    EXPECT_EQ(r.kind, kind::leak) << r.report;
}

// A ticker of a host that is switched off at the end does not tick in the next execution.
TEST_F(sim_host, WhatAHostLeavesDoesNotReachTheNextExecution) {
    const auto program = [] {
        const sim::host clock("clock", [] {
            for (const dunlin::ticker t(1ms * (1 + sim::draw(2000)));;) t.channel().recv();
        });
        dunlin::sleep_for(1s * sim::draw(20));
    };
    std::uint64_t alone = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        alone += sim::check({.seeds = 1, .first_seed = seed}, program).steps;
    }
    EXPECT_EQ(sim::check({.seeds = 20}, program).steps, alone);
}

TEST_F(sim_host, AnExceptionOfAHostIsAFailureAndReplayed) {
    const sim::result r = sim::explore({.seeds = 100}, [] {
        sim::network();
        const sim::host db("db", [] {
            net::listen("tcp", ":7");
            net::listen("tcp", "192.0.2.1:7");
        });
        dunlin::sleep_for(1s);
    });
    EXPECT_EQ(r.kind, kind::exception) << r.report;
    EXPECT_NE(r.report.find("listen tcp 192.0.2.1:7"), std::string::npos) << r.report;
    EXPECT_TRUE(r.replayed) << r.report;
}

TEST_F(sim_host, TheSameSeedsMakeTheSameChoices) {
    const auto program = [] {
        sim::network({.resets = 0.05, .partitions = 0.05, .longest_skew = 50ms});
        const sim::host db("db", [] { serve(); });
        dunlin::go([&db] {
            dunlin::sleep_for(std::chrono::milliseconds(sim::draw(200)));
            db.restart();
        });
        for (int i = 0; i < 5; ++i) {
            auto c = connect("db:7");
            std::error_code ec;
            ask(c, ec);
        }
        dunlin::sleep_for(1s + sim::clock_skew());
    };
    for (const sim::search_strategy strategy : {sim::random, sim::search_strategy(sim::pct(3))}) {
        const sim::result first = sim::check({.seeds = seeds, .strategy = strategy}, program);
        const sim::result second = sim::check({.seeds = seeds, .strategy = strategy}, program);
        EXPECT_EQ(first.hash, second.hash);
        EXPECT_EQ(first.steps, second.steps);
    }
}

// The number is that of each build: g++, clang, with sanitizers or without. Where a change of the runtime makes other
// choices it is another one, and the same in each of them again.
TEST_F(sim_host, TheHashIsTheSameInEachBuild) {
    const sim::result r = sim::check({.seeds = 300}, [] {
        sim::host("db", [] {
            auto l = net::listen("tcp", ":7");
            for (;;) {
                dunlin::go([c = l.accept()]() mutable {
                    char b;
                    std::error_code ec;
                    while (c.read_some(&b, 1, ec) == 1) c.write_all(&b, 1, ec);
                });
            }
        });
        dunlin::sleep_for(10ms);
        auto c = net::dial("tcp", "db:7");
        char b = 1;
        c.write_all(&b, 1);
        c.read_some(&b, 1);
    });
    EXPECT_EQ(r.hash, 0x4787f3006668240eu);
}

TEST_F(sim_host, TheSkewOfClocksIsDrawnForEachHost) {
    bool early = false, late = false;
    sim::check({.seeds = 50}, [&] {
        sim::network({.longest_skew = 50ms});
        dunlin::chan<std::chrono::nanoseconds> said(1);
        sim::host("db", [said]() mutable { said.send(sim::clock_skew()); });
        const auto skew = *said.recv();
        require(skew >= -50ms && skew <= 50ms);
        require(sim::clock_skew() == 0ns, "the test's own");
        (skew < 0ns ? late : early) = true;
    });
    EXPECT_TRUE(early && late);
}

TEST_F(sim_host, BadInputIsRefusedInWords) {
    EXPECT_THROW(sim::host("db", [] {}), std::logic_error);
    EXPECT_THROW(sim::clock_skew(), std::logic_error);
    const auto said = [](auto f) {
        std::string text = "nothing";
        sim::check({.seeds = 1}, [&] {
            const sim::host db("db", [] { dunlin::sleep_for(1h); });
            try {
                f();
            } catch (const std::invalid_argument& e) {
                text = e.what();
            }
        });
        return text;
    };
    EXPECT_NE(said([] { sim::host("db", [] {}); }).find("there is a host \"db\" already"), std::string::npos);
    EXPECT_NE(said([] { sim::host("test", [] {}); }).find("already"), std::string::npos);
    EXPECT_NE(said([] { sim::host("a:1", [] {}); }).find("is no name of a host"), std::string::npos);
    EXPECT_NE(said([] { sim::host("10.0.0.1", [] {}); }).find("is no name of a host"), std::string::npos);
    EXPECT_NE(said([] { sim::host("x", nullptr); }).find("nothing to run"), std::string::npos);
    EXPECT_NE(said([] { sim::network().partition("db", "web"); }).find("there is no host \"web\""), std::string::npos);
    EXPECT_NE(said([] { sim::network().partition("db", "db"); }).find("not cut off from itself"), std::string::npos);
    std::optional<sim::host> old;
    sim::check({.seeds = 1}, [&] { old.emplace("db", [] {}); });
    std::string text;
    sim::check({.seeds = 1}, [&] {
        try {
            old->crash();
        } catch (const std::logic_error& e) {
            text = e.what();
        }
    });
    EXPECT_NE(text.find("execution that is over"), std::string::npos) << text;
}

}  // namespace
