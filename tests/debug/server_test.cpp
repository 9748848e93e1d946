// dunlin::debug::serve(): each of its paths, over real connections, and what it says to clients that err.
#include <atomic>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <dunlin/debug.hpp>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

namespace debug = dunlin::debug;

class Server : public support::each_p {};
EACH_P(Server);

// What the server says until it closes.
std::string all_of(dunlin::net::stream& s) {
    std::string text;
    char piece[4096];
    while (const std::size_t n = s.read_some(piece, sizeof piece)) text.append(piece, n);
    return text;
}

std::string answer_to(const debug::server& at, const std::string& sent) {
    auto s = dunlin::net::dial("tcp", at.local_address());
    s.write_all(sent);
    return all_of(s);
}

std::string get(const debug::server& at, const std::string& target, const std::string& headers = "") {
    return answer_to(at, "GET " + target + " HTTP/1.1\r\nHost: localhost:6060\r\n" + headers + "\r\n");
}

int status_of(const std::string& reply) {
    return reply.starts_with("HTTP/1.1 ") ? std::stoi(reply.substr(9)) : 0;
}
std::string body_of(const std::string& reply) { return reply.substr(reply.find("\r\n\r\n") + 4); }
bool has(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

// The promised length is that of the body, and the whole says that it was right.
std::string good(const std::string& reply, const std::string& type) {
    EXPECT_EQ(status_of(reply), 200) << reply;
    EXPECT_TRUE(has(reply, "\r\nContent-Type: " + type)) << reply.substr(0, 300);
    const std::string length = std::to_string(body_of(reply).size());
    EXPECT_TRUE(has(reply, "\r\nContent-Length: " + length + "\r\n")) << reply.substr(0, 300);
    return body_of(reply);
}

// Four goroutines that wait, while `body` runs.
template <class Body>
void with_waiters(Body body) {
    const dunlin::chan<int> silent;
    dunlin::wait_group all;
    const dunlin::go_options options{.name = "quiet one", .labels = {{"kind", "<b>&\"test"}}};
    for (int i = 0; i < 4; ++i) all.go(options, [=] { silent.recv(); });
    support::eventually([] {  // all four, each at its channel
        std::ostringstream dump;
        dunlin::runtime::dump(dump);
        return has(dump.str(), "\"quiet one\" [chan receive") && has(dump.str(), "and 3 like it");
    });
    body();
    silent.close();
    all.wait();
}

TEST_P(Server, EachPathIsAnswered) {
    run([] {
        const debug::server s = debug::serve("127.0.0.1:0");
        EXPECT_TRUE(s);
        EXPECT_EQ(s.url(), "http://127.0.0.1:" + std::to_string(s.local_address().port()) + "/");
        with_waiters([&] {
            const std::string page = good(get(s, "/"), "text/html");
            EXPECT_TRUE(has(page, "</html>"));
            EXPECT_FALSE(has(page, "http")) << "it needs nothing from the network";
            EXPECT_TRUE(has(get(s, "/"), "Content-Security-Policy: default-src 'none'"));
            const std::string dump = good(get(s, "/dump"), "text/plain");
            EXPECT_TRUE(has(dump, "\"quiet one\" [chan receive")) << dump;
            EXPECT_TRUE(has(dump, "and 3 like it"));
            const std::string json = good(get(s, "/dump.json"), "application/json");
            EXPECT_TRUE(has(json, "\"name\": \"quiet one\"")) << json;
            EXPECT_TRUE(has(json, "\"count\": 4")) << json;
            EXPECT_TRUE(has(good(get(s, "/debug/pprof/"), "text/plain"), "mutex"));
            const std::string text = good(get(s, "/debug/pprof/goroutine?debug=1"), "text/plain");
            EXPECT_TRUE(text.starts_with("goroutine profile: total ")) << text;
            EXPECT_TRUE(has(text, "\n4 @ 0x")) << text;
            const std::string whole = good(get(s, "/debug/pprof/goroutine?debug=2"), "text/plain");
            EXPECT_TRUE(has(whole, "\"quiet one\" [chan receive"));
            EXPECT_TRUE(has(good(get(s, "/debug/pprof/goroutine"), "application/octet-stream"), "quiet one"));
            EXPECT_TRUE(good(get(s, "/debug/pprof/block?debug=1"), "text/plain").starts_with("--- contention:\n"));
            EXPECT_TRUE(good(get(s, "/debug/pprof/mutex?debug=1"), "text/plain").starts_with("--- mutex:\n"));
            EXPECT_TRUE(has(good(get(s, "/debug/pprof/block"), "application/octet-stream"), "contentions"));
        });
    });
}

// Each line is what Prometheus's text format allows, and the figures are those of stats().
TEST_P(Server, ServesMetricsAsPrometheusReadsThem) {
    run([] {
        const debug::server s = debug::serve("127.0.0.1:0");
        std::string text;
        with_waiters([&] { text = good(get(s, "/metrics"), "text/plain; version=0.0.4"); });
        std::istringstream lines(text);
        std::string type;
        std::uint64_t before = 0;
        for (std::string line; std::getline(lines, line);) {
            if (line.starts_with("# HELP dunlin_")) continue;
            if (line.starts_with("# TYPE dunlin_")) {
                type = line.substr(7, line.rfind(' ') - 7);
                before = 0;
                continue;
            }
            EXPECT_TRUE(line.starts_with(type)) << line << " after " << type;
            const std::string value = line.substr(line.rfind(' ') + 1);
            const bool is_time = has(line, "_sum ") || has(line, "_sum{") || has(line, "_seconds_total{");
            EXPECT_EQ(value.find_first_not_of(is_time ? "0123456789.e-" : "0123456789"), std::string::npos) << line;
            if (has(line, "_bucket{")) {
                EXPECT_GE(std::stoull(value), before) << line;  // cumulative
                before = has(line, "le=\"+Inf\"") ? 0 : std::stoull(value);
            }
        }
        EXPECT_TRUE(has(text, "dunlin_processors " + std::to_string(dunlin::runtime::max_procs()) + "\n")) << text;
        EXPECT_TRUE(has(text, "_bucket{le=\"+Inf\"} "));
        for (const char* one : {"busy", "idle", "stopped"}) {
            EXPECT_TRUE(has(text, "dunlin_processor_seconds_total{what=\"" + std::string(one) + "\"} ")) << text;
        }
        const std::size_t at = text.find("dunlin_goroutines{state=\"waiting\"} ");
        ASSERT_NE(at, text.npos);
        EXPECT_GE(std::stoi(text.substr(at + 35)), 4);
        EXPECT_EQ(text.back(), '\n');
    });
}

TEST_P(Server, WhatIsAskedWronglyIsAnsweredClearly) {
    run([] {
        const debug::server s = debug::serve("127.0.0.1:0");
        const auto expect = [&](const std::string& reply, int status, const std::string& sentence) {
            EXPECT_EQ(status_of(reply), status) << reply;
            EXPECT_TRUE(has(body_of(reply), std::to_string(status))) << reply;
            EXPECT_TRUE(has(body_of(reply), sentence)) << reply;
        };
        expect(get(s, "/nothing"), 404, "there are /, /dump");
        expect(get(s, "/debug/pprof/heap"), 404, "there are the profiles");
        expect(get(s, "/debug/pprof/block?debug=7"), 400, "debug is 0, 1 or 2");
        expect(get(s, "/debug/pprof/block?seconds=3"), 400, "seconds");
        expect(get(s, "/%zz"), 400, "begins with /");
        expect(get(s, "/%2"), 400, "begins with /");
        expect(get(s, "dump"), 400, "begins with /");
        expect(get(s, "/" + std::string(3000, 'a')), 414, "2048");
        expect(get(s, "/", "X: " + std::string(9000, 'a') + "\r\n"), 431, "8192");
        expect(get(s, "/", "no name\r\n"), 400, "header");
        const std::string post = answer_to(s, "POST /dump HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc");
        expect(post, 405, "GET and HEAD");
        EXPECT_TRUE(has(post, "\r\nAllow: GET, HEAD\r\n"));
        expect(answer_to(s, "GET / HTTP/2.0\r\n\r\n"), 505, "HTTP/1.1");
        expect(answer_to(s, "GET /\r\n\r\n"), 400, "no HTTP request");
        expect(answer_to(s, "\x16\x03\x01\x02 what is this\n\n"), 400, "no HTTP request");
        expect(answer_to(s, std::string(20'000, 'x')), 431, "8192");
        auto half = dunlin::net::dial("tcp", s.local_address());
        half.write_all(std::string("GET / HT"));
        half.close_write();
        expect(all_of(half), 400, "ends in its midst");
        // And it is there for the next one.
        const std::string head = answer_to(s, "HEAD /metrics HTTP/1.0\r\n\r\n");
        EXPECT_EQ(status_of(head), 200);
        EXPECT_EQ(body_of(head), "");
        EXPECT_EQ(status_of(get(s, "/d%75mp")), 200);
        EXPECT_EQ(status_of(answer_to(s, "GET /dump HTTP/1.1\nHost: localhost\n\n")), 200);
    });
}

// A site of somebody else's whose name is resolved to this machine shall not read it.
TEST_P(Server, WithoutATokenOnlyForRequestsToThisMachine) {
    run([] {
        const debug::server s = debug::serve("localhost:0");
        const auto with_host = [&](const std::string& host) {
            return status_of(answer_to(s, "GET /metrics HTTP/1.1\r\nhOST: " + host + "\r\n\r\n"));
        };
        EXPECT_EQ(with_host("evil.example"), 403);
        EXPECT_EQ(with_host("evil.example:6060"), 403);
        EXPECT_EQ(with_host("192.0.2.1:6060"), 403);
        EXPECT_EQ(with_host("127.0.0.1.evil.example"), 403);
        EXPECT_EQ(with_host("127.0.0.1:6060"), 200);
        EXPECT_EQ(with_host("[::1]:6060"), 200);
        EXPECT_EQ(with_host("localhost"), 200);
        EXPECT_EQ(with_host("LocalHost:6060"), 200);
    });
}

TEST_P(Server, WithoutATokenARequestNamesItsHost) {
    run([] {
        const auto status = [](const debug::server& s, const std::string& rest) {
            return status_of(answer_to(s, "GET /metrics " + rest + "\r\n\r\n"));
        };
        const debug::server s = debug::serve("localhost:0");
        EXPECT_EQ(status(s, "HTTP/1.1"), 400);
        EXPECT_EQ(status(s, "HTTP/1.1\r\nHost: :80"), 400);
        EXPECT_EQ(status(s, "HTTP/1.0\r\nhost: :80"), 400);
        EXPECT_EQ(status(s, "HTTP/1.0"), 200) << "it knows no hosts";
        const debug::server secret = debug::serve("localhost:0", {.token = "abc"});
        EXPECT_EQ(status(secret, "HTTP/1.1\r\nAuthorization: Bearer abc"), 200) << "the token counts there";
    });
}

TEST_P(Server, OtherAddressesNeedAToken) {
    run([] {
        EXPECT_THROW(debug::serve(":0"), std::invalid_argument);
        EXPECT_THROW(debug::serve("0.0.0.0:0"), std::invalid_argument);
        EXPECT_THROW(debug::serve("[::]:0"), std::invalid_argument);
        EXPECT_THROW(debug::serve("127.0.0.1:65536"), dunlin::io_error);
        std::error_code ec;
        EXPECT_FALSE(debug::serve("0.0.0.0:0", ec));
        EXPECT_EQ(ec, std::errc::permission_denied);
        const debug::server s = debug::serve("0.0.0.0:0", {.token = "let me/in"}, ec);
        ASSERT_FALSE(ec);
        const auto ask = [&](const std::string& target, const std::string& headers) {
            auto c = dunlin::net::dial("tcp", "127.0.0.1:" + std::to_string(s.local_address().port()));
            c.write_all("GET " + target + " HTTP/1.1\r\nHost: any.example\r\n" + headers + "\r\n");
            return all_of(c);
        };
        EXPECT_EQ(status_of(ask("/metrics", "")), 401);
        EXPECT_TRUE(has(ask("/", ""), "\r\nWWW-Authenticate: Bearer\r\n"));
        EXPECT_EQ(status_of(ask("/metrics?token=let+me/in", "")), 401);
        EXPECT_EQ(status_of(ask("/metrics?token=", "")), 401);
        EXPECT_EQ(status_of(ask("/metrics", "Authorization: Bearer let me/i\r\n")), 401);
        EXPECT_EQ(status_of(ask("/metrics", "Authorization: Basic let me/in\r\n")), 401);
        EXPECT_EQ(status_of(ask("/nothing", "")), 401);  // a stranger learns nothing
        EXPECT_EQ(status_of(ask("/metrics", "authorization:  bearer let me/in \r\n")), 200);
        EXPECT_EQ(status_of(ask("/metrics?a=b&token=let%20me%2fin", "")), 200);
    });
}

TEST_P(Server, SlowClientsAreEndedAndOthersServed) {
    run([] {
        const debug::server s = debug::serve("127.0.0.1:0", {.request_limit = 50ms, .reply_limit = 100ms});
        auto slow = dunlin::net::dial("tcp", s.local_address());
        slow.write_all(std::string("GET / "));
        auto silent = dunlin::net::dial("tcp", s.local_address());
        EXPECT_EQ(status_of(get(s, "/metrics")), 200);
        EXPECT_EQ(status_of(all_of(slow)), 408);
        EXPECT_EQ(status_of(all_of(silent)), 408);
        // One that asks and never reads: the reply is larger than what the kernel keeps, or it is kept; nobody waits.
        auto deaf = dunlin::net::dial("tcp", s.local_address());
        deaf.write_all(std::string("GET /dump HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        EXPECT_EQ(status_of(get(s, "/dump")), 200);
    });
}

TEST_P(Server, TooManyAreTurnedAway) {
    run([] {
        const debug::server s = debug::serve("127.0.0.1:0", {.connections = 2, .request_limit = 10s});
        std::vector<dunlin::net::stream> waiting;
        for (int i = 0; i < 2; ++i) waiting.push_back(dunlin::net::dial("tcp", s.local_address()));
        support::eventually([&] { return dunlin::runtime::num_goroutines() == 4; });  // main, listener, and these
        const std::string reply = get(s, "/metrics");
        EXPECT_EQ(status_of(reply), 503) << reply;
        EXPECT_TRUE(has(reply, "too many requests")) << reply;
        waiting.clear();
        support::eventually([&] { return status_of(get(s, "/metrics")) == 200; });
    });
}

TEST_P(Server, TheGreatestLimitsAreNone) {
    run([] {
        using std::chrono::nanoseconds;
        const debug::server s = debug::serve("127.0.0.1:0",
            {.connections = 1u << 31, .request_limit = nanoseconds::max(), .reply_limit = nanoseconds::max()});
        EXPECT_EQ(status_of(get(s, "/metrics")), 200);
        EXPECT_EQ(status_of(get(s, "/dump")), 200);
    });
}

TEST_P(Server, CloseEndsEverythingAndLeavesNothing) {
    run([] {
        std::string address;
        dunlin::net::stream idle;
        const auto began = std::chrono::steady_clock::now();
        {
            debug::server s = debug::serve("127.0.0.1:0", {.request_limit = 1h});
            address = s.local_address().to_string();
            idle = dunlin::net::dial("tcp", address);
            EXPECT_EQ(status_of(get(s, "/metrics")), 200);
            debug::server moved = std::move(s);
            EXPECT_FALSE(s);
            EXPECT_EQ(status_of(get(moved, "/metrics")), 200);
            EXPECT_EQ(s.url(), "");
        }
        EXPECT_LT(std::chrono::steady_clock::now() - began, 1900ms);
        support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
        EXPECT_THROW(dunlin::net::dial("tcp", address), dunlin::io_error);
        char byte;
        std::error_code ec;
        EXPECT_EQ(idle.read_some(&byte, 1, ec), 0u);
    });
}

TEST_P(Server, HistogramsOfWaitsStayOnForTheServersThatAreLeft) {
    run([] {
        const bool before = dunlin::runtime::set_wait_histograms(false);
        dunlin::debug::server a = dunlin::debug::serve("127.0.0.1:0"), b = dunlin::debug::serve("127.0.0.1:0");
        a.close();
        EXPECT_TRUE(dunlin::runtime::set_wait_histograms(true)) << "b still serves";
        b.close();
        EXPECT_FALSE(dunlin::runtime::set_wait_histograms(true)) << "no server is left";
        dunlin::debug::serve("127.0.0.1:0").close();
        EXPECT_TRUE(dunlin::runtime::set_wait_histograms(before)) << "it was on before the last one served";
    });
}

// Its goroutines have ended with their run(): nothing is waited for.
TEST(ServerOutside, OneThatOutlivesItsRunIsClosedAtOnce) {
    debug::server s;
    dunlin::run([&] { s = debug::serve("127.0.0.1:0"); });
    const auto began = std::chrono::steady_clock::now();
    s.close();
    EXPECT_LT(std::chrono::steady_clock::now() - began, 1900ms);
    // And one that is closed in a later run().
    dunlin::run([&] { s = debug::serve("127.0.0.1:0"); });
    dunlin::run([&] { s.close(); });
}

// Many ask for everything while the program works: nobody is held up for long, and each has an answer.
TEST_P(Server, ManyAskWhileTheProgramWorks) {
    run([] {
        const debug::server s = debug::serve("127.0.0.1:0");
        std::atomic<bool> enough{false};
        std::atomic<std::uint64_t> rounds{0};
        dunlin::wait_group all;
        const dunlin::chan<int> c;
        dunlin::mutex m;
        dunlin::runtime::set_block_profile_rate(1us);
        for (int i = 0; i < 3; ++i) {
            all.go([&] {
                while (!enough.load()) {
                    const std::lock_guard guard(m);
                    ++rounds;
                    dunlin::yield();
                }
            });
        }
        dunlin::wait_group asking;
        for (int i = 0; i < 6; ++i) {
            asking.go([&, i] {
                for (const char* path : {"/dump", "/dump.json", "/metrics", "/debug/pprof/block",
                         "/debug/pprof/goroutine"}) {
                    EXPECT_EQ(status_of(get(s, path)), 200) << path << ' ' << i;
                }
            });
        }
        std::thread outside([&] {
            for (int i = 0; i < 5; ++i) EXPECT_EQ(status_of(get(s, "/dump.json")), 200);
        });
        asking.wait();
        dunlin::blocking([&] { outside.join(); });
        const std::uint64_t so_far = rounds.load();
        support::eventually([&] { return rounds.load() > so_far; });
        enough.store(true);
        all.wait();
        dunlin::runtime::set_block_profile_rate(0ns);
    });
}

}  // namespace
