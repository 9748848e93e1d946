// dunlin::net in a simulation: the same calls, on a network that is drawn from the seed.
#include <dirent.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <dunlin/sim.hpp>

#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;
namespace sim = dunlin::sim;
namespace net = dunlin::net;
using kind = sim::failure_kind;
using sim::require;

constexpr std::uint64_t seeds = 500;

class sim_network : public support::runtime_test {
protected:
    void SetUp() override {
        runtime_test::SetUp();
        allow(240s);
    }
};

std::size_t open_descriptors() {
    DIR* d = opendir("/proc/self/fd");
    std::size_t count = 0;
    while (readdir(d) != nullptr) ++count;
    closedir(d);
    return count;
}

void echo(net::stream c) {
    char buffer[4096];
    std::error_code ec;
    for (std::size_t n; (n = c.read_some(buffer, sizeof buffer, ec)) != 0;) c.write_all(buffer, n);
    c.close_write(ec);
}

void echo_a_lot() {
    auto l = net::listen("tcp", "127.0.0.1:0");
    auto server = dunlin::spawn([&] { echo(l.accept()); });
    auto c = net::dial("tcp", l.local_address());
    require(c.remote_address() == l.local_address());
    require(c.local_address().host() == "127.0.0.1" && c.local_address().port() != 0);
    std::string text(200'000, '\0');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i >> 3);
    auto writer = dunlin::spawn([&] {
        c.write_all(text);
        c.close_write();
    });
    std::string back;
    char buffer[3000];
    for (std::size_t n; (n = c.read_some(buffer, sizeof buffer)) != 0;) back.append(buffer, n);
    writer.get();
    server.get();
    require(back == text, "what was sent comes back, in order and whole");
}

TEST_F(sim_network, AStreamIsWholeAndInOrderAndTheSameSeedsTheSame) {
    const sim::result first = sim::check({.seeds = seeds / 10}, echo_a_lot),
                      second = sim::check({.seeds = seeds / 10}, echo_a_lot);
    EXPECT_EQ(first.hash, second.hash);
    EXPECT_EQ(first.steps, second.steps);
}

TEST_F(sim_network, TheKernelIsNotAsked) {
    sim::check({.seeds = 10}, [] {
        const std::size_t before = open_descriptors();
        auto l = net::listen("tcp", "localhost:80");  // nobody needs to be root there
        auto other = dunlin::spawn([&] { return l.accept(); });
        auto c = net::dial("tcp", "localhost:80");
        auto s = other.get();
        auto p = net::listen_packet("udp", "127.0.0.1:53");
        auto pair = net::stream_pair();
        require(open_descriptors() == before);
    });
}

TEST_F(sim_network, WhatIsWrittenAtOnceMayComeInParts) {
    std::set<std::size_t> sizes;
    sim::check({.seeds = seeds}, [&] {
        auto [a, b] = net::stream_pair();
        a.write_all("abcdef", 6);
        char buffer[10];
        const std::size_t n = b.read_some(buffer, sizeof buffer);
        sizes.insert(n);
        b.read_exactly(buffer, 6 - n);
    });
    EXPECT_EQ(sizes, (std::set<std::size_t>{1, 2, 3, 4, 5, 6}));
}

TEST_F(sim_network, DeadlinesAndContextsEndWaitsInVirtualTime) {
    sim::check({.seeds = seeds}, [] {
        auto [a, b] = net::stream_pair();
        char byte[1];
        std::error_code ec;
        const auto begin = dunlin::clock::now();
        a.set_read_deadline(begin + 1h);
        a.read_some(byte, 1, ec);
        require(
            ec == std::errc::timed_out && dunlin::clock::now() - begin >= 1h && dunlin::clock::now() - begin < 61min);
        a.clear_read_deadline();
        auto [ctx, cancel] = dunlin::with_timeout(dunlin::context::background(), 2h);
        a.read_some(byte, 1, ctx, ec);
        require(static_cast<bool>(ec) && dunlin::clock::now() - begin >= 3h);
        // One that does not read holds its writer up.
        const std::string much(1 << 20, 'x');
        b.set_write_deadline(dunlin::clock::now() + 1h);
        b.write_all(much, ec);
        require(ec == std::errc::timed_out);
    });
}

TEST_F(sim_network, ASelectTakesWhatIsReady) {
    sim::check({.seeds = seeds}, [] {
        auto [a, b] = net::stream_pair();
        const auto begin = dunlin::clock::now();
        require(dunlin::select(dunlin::on_readable(a), dunlin::on_timeout(1s)) == 1, "nothing comes");
        require(dunlin::clock::now() - begin >= 1s && dunlin::clock::now() - begin < 2s);
        require(dunlin::select(dunlin::on_readable(a), dunlin::otherwise()) == 1);
        auto writer = dunlin::spawn([&b = b] {
            dunlin::sleep_for(1s);
            b.write_all("x");
        });
        require(dunlin::select(dunlin::on_readable(a), dunlin::on_timeout(1h)) == 0, "a byte comes");
        char byte;
        require(a.read_some(&byte, 1) == 1);
        require(dunlin::select(dunlin::on_readable(a), dunlin::otherwise()) == 1, "it is taken");
        writer.get();
        b.close();
        require(dunlin::select(dunlin::on_readable(a), dunlin::on_timeout(1h)) == 0, "the end");
        require(a.read_some(&byte, 1) == 0);
    });
}

TEST_F(sim_network, ASelectWaitsForRoom) {
    sim::check({.seeds = seeds}, [] {
        auto [a, b] = net::stream_pair();
        const std::string block(16 << 10, 'b');
        int blocks = 0;
        while (dunlin::select(dunlin::on_writable(a), dunlin::otherwise()) == 0 && ++blocks < 100) a.write_some(block);
        require(blocks == 4, "one that does not read holds its writer up");
        require(dunlin::select(dunlin::on_writable(a), dunlin::on_timeout(1s)) == 1);
        auto reader = dunlin::spawn([&b = b] {
            char some[1000];
            require(b.read_some(some) > 0);
        });
        require(dunlin::select(dunlin::on_writable(a), dunlin::on_timeout(1h)) == 0, "there is room");
        reader.get();
        require(a.write_some(block) > 0);
        b.close();
        require(dunlin::select(dunlin::on_readable(a), dunlin::on_timeout(1h)) == 0, "a reset");
        require(dunlin::select(dunlin::on_writable(a), dunlin::otherwise()) == 0, "it is broken");
    });
}

TEST_F(sim_network, ASelectWaitsForCallsAndPackets) {
    sim::check({.seeds = seeds}, [] {
        auto l = net::listen("tcp", ":7");
        require(dunlin::select(dunlin::on_readable(l), dunlin::on_timeout(1s)) == 1, "no call comes");
        auto dialler = dunlin::spawn([] { return net::dial("tcp", "localhost:7"); });
        require(dunlin::select(dunlin::on_readable(l), dunlin::on_timeout(1h)) == 0, "a call");
        require(l.accept().is_open());
        require(dunlin::select(dunlin::on_readable(l), dunlin::otherwise()) == 1);
        dialler.get();
        auto p = net::listen_packet("udp", ":53");
        require(dunlin::select(dunlin::on_readable(p), dunlin::on_timeout(1s)) == 1, "no packet comes");
        net::dial_packet("udp", "localhost:53").write_some("x", 1);
        require(dunlin::select(dunlin::on_readable(p), dunlin::on_timeout(1h)) == 0, "a packet");
        char byte;
        require(p.read_some(&byte, 1) == 1);
    });
}

TEST_F(sim_network, ARefusalIsTold) {
    sim::check({.seeds = 20}, [] {
        std::error_code ec;
        net::dial("tcp", "127.0.0.1:9", ec);
        require(ec == std::errc::connection_refused, "refused");
        net::dial("tcp", "192.0.2.1:9", ec);
        require(ec == std::errc::network_unreachable, "no such host's address");
        net::dial("tcp", "db:9", ec);
        require(ec == dunlin::errc::host_not_found, "no such host");
        net::listen("tcp", "[::1]:0", ec);
        require(ec == std::errc::address_family_not_supported, "IPv6");
        net::listen("tcp", "192.0.2.1:9", ec);
        require(ec == std::errc::address_not_available, "not ours");
        net::listen("tcp", ":80", {.reuse_port = true}, ec);
        require(ec == std::errc::no_protocol_option, "reuse_port");
        auto l = net::listen("tcp", ":80");
        net::listen("tcp", "127.0.0.1:80", ec);
        require(ec == std::errc::address_in_use, "in use");
        l.close();
        net::listen("tcp", ":80");
        try {
            net::stream::adopt(0);
            require(false, "adopted");
        } catch (const dunlin::io_error& e) {
            require(std::string(e.what()).find("dunlin::sim has sockets of its own") != std::string::npos, e.what());
        }
    });
}

TEST_F(sim_network, ACloseWithUnreadDataIsAReset) {
    sim::check({.seeds = 50}, [] {
        auto l = net::listen("tcp", ":0");
        auto c = net::dial("tcp", l.local_address());
        auto s = l.accept();
        c.write_all("for nobody", 10);
        dunlin::sleep_for(1s);
        s.close();
        char byte[1];
        std::error_code ec;
        c.read_some(byte, 1, ec);
        require(ec == std::errc::connection_reset);
        c.write_all("x", 1, ec);
        require(ec == std::errc::broken_pipe);
    });
}

TEST_F(sim_network, WhatCameBeforeTheAcceptIsReadToItsEnd) {
    sim::check({.seeds = seeds}, [] {
        auto l = net::listen("tcp", ":0");
        {
            auto c = net::dial("tcp", l.local_address());
            c.write_all("all there is");
        }
        dunlin::sleep_for(1s);
        auto s = l.accept();
        dunlin::sleep_for(1s);  // what a new descriptor hears first is past
        char buffer[100];
        std::size_t got = 0;
        for (std::size_t n; (n = s.read_some(buffer, sizeof buffer)) != 0;) got += n;
        require(got == 12);
        net::dial("tcp", l.local_address()).set_linger(0s);  // and is reset before it is accepted
        dunlin::sleep_for(1s);
        s = l.accept();
        require(s.remote_address().host() == "127.0.0.1");
        std::error_code ec;
        s.read_some(buffer, sizeof buffer, ec);
        require(ec == std::errc::connection_reset);
    });
}

TEST_F(sim_network, AHostsOwnNameIsAnAddressOfItsOwn) {
    sim::check({.seeds = 20}, [] {
        auto server = net::listen_packet("udp", ":53");
        auto c = net::dial_packet("udp", "test:53");
        c.write_some("x", 1);
        char byte;
        net::address from;
        server.read_from(&byte, 1, from);
        require(from.host() == "10.0.0.1");
        server.write_to("y", 1, from);
        require(c.read_some(&byte, 1) == 1 && byte == 'y');
    });
}

// A deadline each second, of every kind, for an hour; each comes when it is due, and none late.
TEST_F(sim_network, AnHourOfDeadlinesOfEachKind) {
    const sim::result r = sim::check({.seeds = support::sanitized ? 2 : 10}, [] {
        const auto begin = dunlin::clock::now();
        int came = 0;
        dunlin::task_group all;
        for (int i = 1; i <= 3600; ++i) {
            const auto due = begin + 1s * i;
            all.go([&, i, due] {
                dunlin::chan<int> never;
                switch (i % 4) {
                case 0: dunlin::sleep_until(due); break;
                case 1:
                    dunlin::select(dunlin::on_recv(never, [](std::optional<int>) {}),
                        dunlin::on_timeout(due - dunlin::clock::now(), [] {}));
                    break;
                case 2: dunlin::with_deadline({}, due).done().recv(); break;
                default: {
                    std::error_code ec;
                    auto p = net::listen_packet("udp", ':' + std::to_string(1000 + i));
                    p.set_read_deadline(due);
                    char byte;
                    p.read_some(&byte, 1, ec);
                    require(ec == std::errc::timed_out);
                }
                }
                const auto late = dunlin::clock::now() - due;
                require(late >= 0s && late < 100ms);
                ++came;
            });
        }
        all.wait();
        require(came == 3600);
    });
    EXPECT_GT(r.steps, 3600u);
}

TEST_F(sim_network, UnixSocketsAndPairs) {
    sim::check({.seeds = 50}, [] {
        auto l = net::listen("unix", "/nowhere/socket");
        auto c = net::dial("unix", "/nowhere/socket");
        auto s = l.accept();
        c.write_all("ab", 2);
        char buffer[2];
        s.read_exactly(buffer, 2);
        require(l.local_address().to_string() == "/nowhere/socket");
        l.close();
        std::error_code ec;
        net::dial("unix", "/nowhere/socket", ec);
        require(static_cast<bool>(ec));
        auto g = net::listen_packet("unixgram", "/nowhere/packets");
        auto h = net::dial_packet("unixgram", "/nowhere/packets");
        h.write_some("abc", 3);
        require(g.read_some(buffer, 2) == 2);
    });
}

TEST_F(sim_network, DatagramsOvertakeEachOther) {
    bool in_order = false, overtaken = false;
    const auto program = [&](int& lost, int& twice) {
        auto server = net::listen_packet("udp", ":53");
        auto c = net::dial_packet("udp", "localhost:53");
        for (char i = 0; i < 4; ++i) c.write_some(&i, 1);
        std::string got;
        net::address from;
        server.set_read_deadline(dunlin::clock::now() + 1h);
        std::error_code ec;
        for (char one; server.read_from(&one, 1, from, ec) == 1;) {
            require(from == c.local_address());
            got += one;
        }
        std::string once = got;
        std::sort(once.begin(), once.end());
        (once == got ? in_order : overtaken) = true;
        once.erase(std::unique(once.begin(), once.end()), once.end());
        lost += static_cast<int>(4 - once.size());
        twice += static_cast<int>(got.size() - once.size());
        server.write_to("x", 1, from);
        char answer;
        c.set_read_deadline(dunlin::clock::now() + 1h);
        c.read_some(&answer, 1, ec);
    };
    int lost = 0, twice = 0;
    sim::check({.seeds = seeds}, [&] { program(lost, twice); });
    EXPECT_TRUE(in_order && overtaken);
    EXPECT_EQ(lost + twice, 0);
    sim::check({.seeds = seeds}, [&] {
        sim::network();
        program(lost, twice);
    });
    EXPECT_GT(lost, 0);
    EXPECT_GT(twice, 0);
}

TEST_F(sim_network, AResetReachesBothEnds) {
    int resets = 0, whole = 0;
    sim::check({.seeds = seeds}, [&] {
        sim::network({.resets = 0.2});
        auto l = net::listen("tcp", ":7");
        auto server = dunlin::spawn([&] {
            auto s = l.accept();
            std::error_code ec;
            char byte[1];
            while (s.read_some(byte, 1, ec) == 1) {
            }
            return ec;
        });
        auto c = net::dial("tcp", "localhost:7");
        std::error_code ec;
        for (int i = 0; i < 10 && !ec; ++i) {
            c.write_all("x", 1, ec);
            dunlin::sleep_for(5s);
        }
        c.close();
        const std::error_code seen = server.get();
        ++(seen == std::errc::connection_reset ? resets : whole);
        require(ec ? seen == std::errc::connection_reset : true, "both");
    });
    EXPECT_GT(resets, 10);
    EXPECT_GT(whole, 10);
}

TEST_F(sim_network, AWaitForWhatNoPeerSendsIsADeadlock) {
    const sim::result r = sim::explore({.seeds = 5}, [] {
        auto l = net::listen("tcp", ":7");
        l.accept();
    });
    EXPECT_EQ(r.kind, kind::deadlock) << r.report;
    EXPECT_NE(r.report.find("IO wait"), std::string::npos) << r.report;
    EXPECT_TRUE(r.replayed) << r.report;
}

TEST_F(sim_network, AWaitForTheKernelIsStillToldBesideASimulatedOne) {
    const sim::result r = sim::explore({.seeds = 1}, [] {
        auto l = net::listen("tcp", ":7");
        auto waits = dunlin::spawn([&] { l.accept(); });
        auto ends = dunlin::fs::pipe();
        char byte[1];
        ends.read_end.read_some(byte);
    });
    EXPECT_EQ(r.kind, kind::outside_wait) << r.report;
}

TEST_F(sim_network, OddsThatMakeNoSenseAreRefused) {
    EXPECT_THROW(sim::network(), std::logic_error);
    const auto refused = [](const sim::network_options& o) {
        std::string said;
        sim::check({.seeds = 1}, [&] {
            try {
                sim::network(o);
            } catch (const std::invalid_argument& e) {
                said = e.what();
            }
        });
        return said;
    };
    EXPECT_NE(refused({.loss = 1.5}).find("loss is not between 0 and 1"), std::string::npos);
    EXPECT_NE(refused({.resets = -1}).find("resets"), std::string::npos);
    EXPECT_NE(refused({.least_latency = 1s, .most_latency = 1ms}).find("least_latency"), std::string::npos);
    EXPECT_NE(refused({.most_latency = 1min}).find("slow_latency"), std::string::npos);
    EXPECT_EQ(refused({}), "");
}

}  // namespace
