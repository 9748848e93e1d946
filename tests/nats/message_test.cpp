// Publish and subscribe, requests, buckets, connecting: what goes right, and what is said when it does not.
#include "nats/servers.h"

namespace {

using namespace std::chrono_literals;
namespace nats = dunlin::nats;
using support::code_of;
using support::nats_servers;
using nats_message = support::nats_test;

TEST_F(nats_message, WhatIsPublishedReachesSubscribersWithItsHeaders) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto all = cluster.subscribe("news.>");
        cluster.publish("news.sport", "goal", {{"Lang", "en"}, {"Lang", "de"}});
        auto m = all.recv();
        ASSERT_TRUE(m);
        EXPECT_EQ(m->subject(), "news.sport");
        EXPECT_EQ(m->data(), "goal");
        EXPECT_EQ(m->header("Lang"), "en");
        EXPECT_EQ(m->all_headers().size(), 2u);
        EXPECT_FALSE(all.recv_for(50ms));
        auto [ctx, cancel] = dunlin::with_timeout(dunlin::context::background(), 50ms);
        EXPECT_THROW(all.recv(ctx), dunlin::context_cancelled);
        dunlin::go([&] { cluster.publish("news.x", "1"); });
        dunlin::select(nats::on_message(all, [](std::optional<nats::message> got) { EXPECT_EQ(got->data(), "1"); }));
        all.close();
        EXPECT_FALSE(all.recv());
        for (const char* none : {"no subject", "", "a..b", ".a", "a."})
            EXPECT_EQ(code_of([&] { cluster.publish(none, ""); }), nats::errc::refused);
        EXPECT_EQ(code_of([&] { cluster.publish("x", "", {{"A: 1\r\nB", "2"}}); }), nats::errc::refused);
        cluster.close();
    });
}

TEST_F(nats_message, AReaderThatIsTooSlowGetsWhatItsPolicySays) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto waits = cluster.subscribe("a", {.buffer = 4});
        auto drops = cluster.subscribe("a", {.buffer = 4, .when_slow = nats::when_slow::drop_oldest});
        auto fails = cluster.subscribe("a", {.buffer = 4, .when_slow = nats::when_slow::fail});
        auto small = cluster.subscribe("a", {.buffer = 4, .overflow_bytes = 200});
        for (int i = 0; i < 100; ++i) cluster.publish("a", std::to_string(i));
        cluster.flush();
        for (int i = 0; i < 100; ++i) EXPECT_EQ(waits.recv()->data(), std::to_string(i));
        for (int i = 96; i < 100; ++i) EXPECT_EQ(drops.recv()->data(), std::to_string(i));
        EXPECT_EQ(drops.dropped(), 96u);
        for (int i = 0; i < 4; ++i) EXPECT_EQ(fails.recv()->data(), std::to_string(i));
        EXPECT_EQ(code_of([&] { fails.recv(); }), nats::errc::slow_consumer);
        EXPECT_EQ(code_of([&] {
            for (;;) small.recv();
        }),
            nats::errc::slow_consumer);
        cluster.close();
    });
}

TEST_F(nats_message, ARequestIsAnsweredWithItsDeadlineAndItsTrace) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        EXPECT_EQ(code_of([&] { cluster.request("double", "4"); }), nats::errc::no_responders);
        auto server = nats::serve(cluster, "double", [](const nats::message& m, const dunlin::context& ctx) {
            if (m.data() == "bad") throw std::runtime_error("not a number");
            EXPECT_TRUE(ctx.deadline());
            const std::string* trace = ctx.value(nats::trace_id);
            return std::to_string(2 * std::stoi(std::string(m.data()))) + (trace != nullptr ? *trace : "");
        });
        EXPECT_EQ(cluster.request("double", "4").data(), "8");
        EXPECT_EQ(
            cluster.request("double", "4", dunlin::with_value(dunlin::context(), nats::trace_id, std::string("-t1")))
                .data(),
            "8-t1");
        try {
            cluster.request("double", "bad");
            ADD_FAILURE();
        } catch (const nats::error& e) {
            EXPECT_EQ(e.code(), nats::errc::handler_failed);
            EXPECT_EQ(e.words(), "not a number");
        EXPECT_STREQ(e.what(), "nats request double: the handler has failed (not a number)");
        }
        server.close();
        cluster.close();
    });
}

TEST_F(nats_message, TheLongestLimitOfARequestIsNone) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls(), {.confirm = std::chrono::milliseconds::max()});
        auto server = nats::serve(cluster, "time", [](const nats::message&, const dunlin::context& ctx) {
            dunlin::sleep_for(200ms);  // the caller looks at its limits meanwhile
            return std::string(ctx.is_done() ? "over" : "there is time");
        });
        EXPECT_EQ(cluster.request("time", "").data(), "there is time");
        using dunlin::clock;
        const auto none = dunlin::context::background();
        const auto late = dunlin::with_deadline(none, clock::time_point::max() - 500ms);
        EXPECT_EQ(cluster.request("time", "", late).data(), "there is time");
        const auto early = dunlin::with_deadline(none, clock::time_point::min());
        EXPECT_THROW(cluster.request("time", "", early), dunlin::context_cancelled);
        server.close();
        cluster.close();
    });
}

// The words of the error of a request, with its code before them; the answer, if there is no error.
std::string outcome_of(const nats::cluster& cluster, const std::string& subject, std::string_view data) {
    try {
        return std::string(
            cluster.request(subject, data, dunlin::with_timeout(dunlin::context::background(), 10s)).data());
    } catch (const nats::error& e) {
        return (e.code() == nats::errc::handler_failed ? "failed: " : "? ") + e.words();
    } catch (const dunlin::context_cancelled&) {
        return "no answer";
    }
}

TEST_F(nats_message, AHandlerThatFailsIsNotTakenForOneThatAnswers) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto server = nats::serve(cluster, "fails", [](const nats::message& m, const dunlin::context&) -> std::string {
            if (m.data() == "7") throw 7;
            throw std::runtime_error(std::string(m.data()));
        });
        EXPECT_EQ(outcome_of(cluster, "fails", "a\nb"), "failed: a b");
        for (const char* blank : {"", " ", "\n", "\t \r\n", "\v"})
            EXPECT_EQ(outcome_of(cluster, "fails", blank), "failed: exception");
        EXPECT_EQ(outcome_of(cluster, "fails", "7"), "failed: not an std::exception");
        // Either header is enough.
        auto other = cluster.subscribe("other");
        dunlin::go([&] {
            for (const char* name : {"Dunlin-Failed", "Dunlin-Error"})
                cluster.publish(std::string(other.recv()->reply()), "looks like an answer", {{name, "1"}});
        });
        EXPECT_EQ(outcome_of(cluster, "other", ""), "failed: ");
        EXPECT_EQ(outcome_of(cluster, "other", ""), "failed: 1");
        server.close();
        cluster.close();
    });
}

// Of what stands behind the handler's call, only destructors run then.
TEST_F(nats_message, AHandlerThatEndsItsGoroutineIsAnsweredForAndGivesUpItsPlace) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        const auto handler = [](const nats::message& m, const dunlin::context&) -> std::string {
            dunlin::sleep_for(2ms);  // others wait for the place meanwhile
            if (m.data() == "exit") dunlin::exit_goroutine();
            return "done";
        };
        for (const bool drains : {false, true}) {
            auto server = nats::serve(cluster, "work", handler, {.at_once = 1, .queued = 100});
            std::atomic<int> done{0}, ended{0};
            dunlin::wait_group all;
            for (int i = 0; i < 40; ++i) {
                all.go([&, i] {
                    const std::string outcome = outcome_of(cluster, "work", i % 4 == 3 ? "go on" : "exit");
                    ++(outcome == "done" ? done : ended);
                    EXPECT_TRUE(outcome == "done" || outcome == "failed: the handler has ended its goroutine")
                        << outcome;
                });
            }
            all.wait();
            EXPECT_EQ(done, 10);
            EXPECT_EQ(ended, 30);
            if (drains) server.drain();
        }
        cluster.close();
    });
}

// They work for the thread that serves; a run() of another thread has nothing to do with them.
TEST_F(nats_message, TheHandlersOfAPlainThreadGoOnWhenRunsEnd) {
    nats_servers servers;
    auto cluster = nats::connect(servers.urls());
    auto server = nats::serve(cluster, "slow", [](const nats::message& m, const dunlin::context&) {
        dunlin::sleep_for(5ms);
        return std::string(m.data());
    });
    std::atomic<bool> over{false};
    std::thread caller([&] {
        for (int i = 0; i < 20; ++i) EXPECT_EQ(cluster.request("slow", "4").data(), "4");
        over = true;
    });
    while (!over) dunlin::run([] { dunlin::sleep_for(1ms); });
    caller.join();
    server.close();
    cluster.close();
}

// The loop's thread and senders in a hurry write beside each other: libnats takes a write of nothing for the end of the
// connection.
TEST_F(nats_message, ManyThatAreInAHurryAtOnceKeepTheConnectionStress) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto server = nats::serve(
            cluster, "echo", [](const nats::message& m, const dunlin::context&) { return std::string(m.data()); });
        dunlin::wait_group all;
        for (int w = 0; w < 4; ++w) {
            all.go([&] {
                for (int i = 0; i < 250; ++i) {
                    cluster.publish("others", "x");  // wakes the thread
                    EXPECT_EQ(cluster.request("echo", "x").data(), "x");
                }
            });
        }
        all.wait();
        EXPECT_EQ(cluster.stats().reconnects, 0u);
        cluster.close();
    });
}

// Of two connections to one server: what one of them serves or subscribes to is known when the call returns.
// libnats uses a subscription while another thread may free it: ours are freed when it no longer can.
TEST_F(nats_message, SubscriptionsThatComeAndGoWhileMessagesArriveStress) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls()), publisher = nats::connect(servers.urls());
        std::atomic<bool> over{false};
        dunlin::wait_group publishers, readers;
        for (int i = 0; i < 2; ++i) {
            publishers.go([&] {
                while (!over) {
                    for (int k = 0; k < 50; ++k) publisher.publish("s", "some text");
                    publisher.flush();
                }
            });
        }
        for (int i = 0; i < 6; ++i) {
            readers.go([&] {
                for (int k = 0; k < (support::sanitized ? 100 : 700); ++k) {
                    auto s = cluster.subscribe("s", {.when_slow = nats::when_slow::drop_oldest});
                    static_cast<void>(s.recv_for(1ms));
                }
            });
        }
        readers.wait();
        over = true;
        publishers.wait();
        publisher.close();
        cluster.close();
    });
}

TEST_F(nats_message, WhatIsServedIsReachedFromAnotherConnectionAtOnce) {
    nats_servers servers;
    dunlin::run([&] {
        auto one = nats::connect(servers.urls()), other = nats::connect(servers.urls());
        for (int i = 0; i < 50; ++i) {
            const std::string subject = "s" + std::to_string(i);
            auto server = nats::serve(
                other, subject, [](const nats::message&, const dunlin::context&) -> std::string { return "here"; });
            EXPECT_EQ(one.request(subject, "").data(), "here");
            auto subscription = other.subscribe(subject + ".x");
            one.publish(subject + ".x", "now");
            auto m = subscription.recv_for(5s);
            ASSERT_TRUE(m) << i;
        }
        other.close();
        one.close();
    });
}

// drain(): requests that have arrived and that no goroutine has begun are answered.
TEST_F(nats_message, ADrainedServerAnswersWhatHasBeenSentToIt) {
    nats_servers servers;
    dunlin::run([&] {
        auto one = nats::connect(servers.urls()), other = nats::connect(servers.urls());
        for (int round = 0; round < 20; ++round) {
            auto server = nats::serve(other, "work",
                [](const nats::message&, const dunlin::context&) -> std::string { return "done"; }, {.at_once = 2});
            std::atomic<int> done{0}, refused{0}, lost{0};
            dunlin::wait_group all;
            for (int i = 0; i < 100; ++i) {
                all.go([&] {
                    auto [ctx, cancel] = dunlin::with_timeout(dunlin::context::background(), 3s);
                    try {
                        one.request("work", "", ctx);
                        ++done;
                    } catch (const nats::error& e) {
                        ++(e.code() == nats::errc::no_responders ? refused : lost);
                    } catch (const dunlin::context_cancelled&) {
                        ++lost;
                    }
                });
            }
            support::eventually([&] { return done > 0; });
            server.drain();
            all.wait();
            EXPECT_EQ(lost, 0) << done << " done, " << refused << " refused";
        }
        other.close();
        one.close();
    });
}

TEST_F(nats_message, ACallerThatNoLongerWaitsCancelsTheHandler) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto other = nats::connect(servers.urls());
        dunlin::chan<std::string> ended(4);
        auto server = nats::serve(other, "slow", [&](const nats::message&, const dunlin::context& ctx) -> std::string {
            ctx.done().recv();
            ended.send(ctx.err() == dunlin::errc::cancelled ? "cancelled" : "deadline");
            return "";
        });
        auto [ctx, cancel] = dunlin::with_cancel(dunlin::context::background());
        dunlin::go([cancel = cancel] {
            dunlin::sleep_for(200ms);
            cancel();
        });
        EXPECT_THROW(cluster.request("slow", "", ctx), dunlin::context_cancelled);
        EXPECT_EQ(ended.recv_for(5s).value_or("neither"), "cancelled");
        server.close();
        other.close();
        cluster.close();
    });
}

TEST_F(nats_message, AServerTakesSoManyAtOnceAndSaysWhenItIsBusy) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        std::atomic<int> now{0}, most{0};
        dunlin::chan<int> go_on;
        auto server = nats::serve(
            cluster, "work",
            [&](const nats::message&, const dunlin::context&) -> std::string {
                const int n = ++now;
                for (int m = most; n > m && !most.compare_exchange_weak(m, n);) continue;
                go_on.recv();
                --now;
                return "done";
            },
            {.at_once = 2, .queued = 3});
        std::atomic<int> done{0}, busy{0};
        dunlin::wait_group all;
        for (int i = 0; i < 8; ++i) {
            all.go([&] {
                try {
                    cluster.request("work", "");
                    ++done;
                } catch (const nats::error& e) {
                    if (e.code() == nats::errc::busy) ++busy;
                }
            });
        }
        support::eventually([&] { return busy == 3 && now == 2; });
        for (int i = 0; i < 5; ++i) go_on.send(1);
        all.wait();
        EXPECT_EQ(done, 5);
        EXPECT_EQ(most, 2);
        server.drain();
        cluster.close();
    });
}

TEST_F(nats_message, ABucketKeepsValuesWithRevisionsAndItsChangesAreWatched) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto bucket = cluster.bucket<std::string>("settings");
        EXPECT_FALSE(bucket.get("colour"));
        const auto first = bucket.create("colour", "red");
        EXPECT_EQ(code_of([&] { bucket.create("colour", "blue"); }), nats::errc::wrong_revision);
        auto watch = bucket.watch();
        auto e = watch.recv();
        EXPECT_EQ(e.key, "colour");
        EXPECT_EQ(e.value, "red");
        const auto second = bucket.update("colour", "blue", first);
        EXPECT_EQ(code_of([&] { bucket.update("colour", "green", first); }), nats::errc::wrong_revision);
        EXPECT_EQ(bucket.get("colour")->value, "blue");
        EXPECT_EQ(bucket.get("colour")->revision, second);
        e = watch.recv();
        EXPECT_EQ(e.value, "blue");
        EXPECT_EQ(e.revision, second);
        bucket.erase("colour");
        EXPECT_FALSE(bucket.get("colour"));
        EXPECT_FALSE(watch.recv().value);
        bucket.create("colour", "white");
        EXPECT_EQ(watch.recv().value, "white");
        EXPECT_EQ(code_of([&] { bucket.put("a b", ""); }), nats::errc::refused);
        EXPECT_EQ(code_of([&] { bucket.put("a..b", ""); }), nats::errc::refused);
        EXPECT_EQ(
            code_of([&] { cluster.bucket<std::string>("settings", {.history = 5}); }), nats::errc::other_settings);
        cluster.close();
    });
}

TEST_F(nats_message, AValueOfABucketThatDoesNotDecodeIsSaidAndPassedOver) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto texts = cluster.bucket<std::string>("numbers");
        auto numbers = cluster.bucket<support::number>("numbers");
        auto watch = numbers.watch();
        texts.put("a", "seven");
        texts.put("b", "8");
        EXPECT_EQ(code_of([&] { numbers.get("a"); }), nats::errc::undecodable);
        EXPECT_EQ(code_of([&] { watch.recv(); }), nats::errc::undecodable);
        EXPECT_EQ(watch.recv().value->value, 8);
        cluster.close();
    });
}

// Where a server that accepts connections, and says nothing, makes each of these wait.
TEST_F(nats_message, AContextEndsEachCallThatWaitsForAServer) {
    const int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int port = support::free_port();
    const sockaddr_in at = fleet::on_loopback(port);
    ASSERT_EQ(bind(silent, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    ASSERT_EQ(listen(silent, 16), 0);
    const auto soon = [] { return dunlin::with_timeout(dunlin::context::background(), 100ms); };
    EXPECT_THROW(
        nats::connect("nats://127.0.0.1:" + std::to_string(port), {.timeout = 60s}, soon()), dunlin::context_cancelled);
    nats_servers servers;
    dunlin::run([&] {
        EXPECT_THROW(nats::connect("nats://127.0.0.1:" + std::to_string(port), {.timeout = 60s}, soon()),
            dunlin::context_cancelled);
        const auto never = dunlin::with_cancel(dunlin::context::background());
        auto cluster = nats::connect(servers.urls(), {.confirm = 60s}, never);
        auto jobs = cluster.queue<std::string>("jobs");
        servers[0].signal(SIGSTOP);
        const auto handler = [](const nats::message&, const dunlin::context&) -> std::string { return ""; };
        EXPECT_THROW(cluster.queue<std::string>("jobs", {}, soon()), dunlin::context_cancelled);
        EXPECT_THROW(cluster.bucket<std::string>("b", {}, soon()), dunlin::context_cancelled);
        EXPECT_THROW(jobs.dead(soon()), dunlin::context_cancelled);
        EXPECT_THROW(cluster.subscribe("s", {}, soon()), dunlin::context_cancelled);
        EXPECT_THROW(nats::serve(cluster, "s", handler, {}, soon()), dunlin::context_cancelled);
        EXPECT_THROW(cluster.request("s", "", soon()), dunlin::context_cancelled);
        EXPECT_THROW(cluster.flush(soon()), dunlin::context_cancelled);
        EXPECT_THROW(jobs.send("x", soon()), dunlin::context_cancelled);
        EXPECT_THROW(jobs.size(soon()), dunlin::context_cancelled);
        jobs.send_async("x", nats::once_by("named"));
        const auto left = jobs.flush(soon());
        EXPECT_EQ(left.size(), 1u);
        EXPECT_EQ(left.empty() ? "" : left[0].id, "named");
        servers[0].signal(SIGCONT);
        cluster.close();
    });
    close(silent);
}

TEST_F(nats_message, NoServerIsSaidWithEachAddress) {
    const std::string a = "nats://127.0.0.1:" + std::to_string(support::free_port());
    const std::string b = "nats://user:secret@127.0.0.1:" + std::to_string(support::free_port());
    try {
        nats::connect(a + "," + b, {.timeout = 500ms});
        FAIL();
    } catch (const nats::error& e) {
        EXPECT_EQ(e.code(), nats::errc::no_server);
        const std::string what = e.what();
        EXPECT_NE(what.find(a + ": Connection refused"), what.npos) << what;
        EXPECT_EQ(what.find("secret"), what.npos) << what;
        EXPECT_NE(what.find("tried for"), what.npos) << what;
    }
}

TEST_F(nats_message, WrongCredentialsAndForbiddenSubjectsAreSaid) {
    nats_servers servers(1,
        "authorization { users: [{user: u, password: p, permissions: {publish: {deny: [\"secret\", \"$JS.API.STREAM.INFO.no\"]}, "
        "subscribe: {deny: [\"secret\", \"group.*\", \"open g\"]}}}] }\n");
    dunlin::run([&] {
        EXPECT_EQ(
            code_of([&] { nats::connect(servers.urls(), {.user = "u", .password = "x"}); }), nats::errc::credentials);
        auto cluster = nats::connect(servers.urls(), {.user = "u", .password = "p"});
        EXPECT_EQ(code_of([&] { cluster.queue<std::string>("no"); }), nats::errc::not_permitted);
        EXPECT_EQ(code_of([&] { cluster.request("secret", ""); }), nats::errc::not_permitted);
        for (int i = 0; i < 2; ++i) {
            EXPECT_EQ(code_of([&] { cluster.subscribe("secret"); }), nats::errc::not_permitted);
            EXPECT_EQ(code_of([&] { cluster.subscribe("group.a", {.group = "g"}); }), nats::errc::not_permitted);
            EXPECT_EQ(
                code_of([&] { nats::serve(cluster, "secret", [](const auto&, const auto&) { return std::string(); }); }),
                nats::errc::not_permitted);
        }
        auto open = cluster.subscribe("open");
        EXPECT_EQ(code_of([&] { cluster.subscribe("open", {.group = "g"}); }), nats::errc::not_permitted);
        auto others = cluster.subscribe("open", {.group = "h"});
        cluster.publish("open", "x");
        EXPECT_EQ(open.recv()->data(), "x");
        EXPECT_EQ(others.recv()->data(), "x") << "another group is another matter";
        cluster.close();
    });
}

TEST_F(nats_message, APasswordWithACommaIsNotShown) {
    const auto said_of = [](const char* addresses) {
        try {
            nats::connect(addresses, {.timeout = 500ms}).close();
        } catch (const nats::error& e) {
            EXPECT_EQ(e.code(), nats::errc::no_server) << addresses;
            return std::string(e.what());
        }
        return std::string("connected");
    };
    dunlin::run([&] {
        for (const char* addresses :
            {"nats://user:pq,ss@127.0.0.1:1", "nats://user:77,ss@127.0.0.1:1", "nats://user:77@pq,ss@127.0.0.1:1",
                "user:77,ss@127.0.0.1:1", "nats://user:pq", "user:pq]", "nats://user:pq:77", "nats://user:77@ss:pq",
                "nats://user:777777", "user:pq://ss@127.0.0.1:1"}) {
            const std::string said = said_of(addresses);
            for (const char* piece : {"pq", "77", "ss@", "user:"})
                EXPECT_EQ(said.find(piece), std::string::npos) << addresses << " -> " << said;
        }
        for (const char* addresses : {"nats://127.0.0.1:1", "127.0.0.1:1/", "nats://[::1]:1", "nats://::1:1",
                 "nats://user:pq@127.0.0.1:1, tls://user:77@[::1]:1", "127.0.0.1:1,nats://user:pq@127.0.0.1:1"}) {
            const std::string said = said_of(addresses);
            EXPECT_NE(said.find("tried for"), std::string::npos) << addresses << " -> " << said;
            EXPECT_EQ(said.find("pq"), std::string::npos) << said;
        }
    });
}

TEST_F(nats_message, PayloadsUpToTheServersLimit) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<std::string>("jobs");
        std::string large(8'000'000, 'x');
        jobs.send(large);
        jobs.send_async(large);
        EXPECT_TRUE(jobs.flush().empty());
        auto consumer = jobs.consume({.in_flight = 2});
        for (int i = 0; i < 2; ++i) {
            auto d = consumer.recv();
            EXPECT_TRUE(**d == large);
            d->done();
        }
        large.resize(9'000'000);
        EXPECT_EQ(code_of([&] { jobs.send(large); }), nats::errc::payload_too_large);
        jobs.send_async(large, nats::once_by("large"));
        const auto left = jobs.flush();
        ASSERT_EQ(left.size(), 1u);
        EXPECT_EQ(left[0].id, "large");
        EXPECT_EQ(left[0].code, nats::errc::payload_too_large);
        const std::string_view huge(large.data(), INT32_MAX);  // which nobody may read
        EXPECT_EQ(code_of([&] { cluster.publish("x", huge); }), nats::errc::payload_too_large);
        cluster.close();
    });
}

TEST_F(nats_message, WhatWaitsWhenItIsClosedIsTold) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<std::string>("jobs");
        auto consumer = jobs.consume();
        auto subscription = cluster.subscribe("x");
        dunlin::go([&] {
            dunlin::sleep_for(100ms);
            cluster.close();
        });
        EXPECT_FALSE(consumer.recv());
        EXPECT_FALSE(subscription.recv());
        EXPECT_EQ(code_of([&] { jobs.send("x"); }), nats::errc::closed);
    });
}

// The calls of goroutines that the end of a run() has frozen hold nothing that others need.
TEST_F(nats_message, ARunThatEndsInTheMidstOfCallsLeavesTheConnectionUsable) {
    nats_servers servers;
    auto cluster = nats::connect(servers.urls());
    auto jobs = cluster.queue<std::string>("jobs");
    for (int round = 0; round < 20; ++round) {
        dunlin::run([&] {
            for (int i = 0; i < 8; ++i) {
                dunlin::go([cluster] {  // a handle of its own: it may be in a call still when the test has ended
                    for (;;) cluster.publish("x", "y");
                });
            }
            dunlin::sleep_for(5ms);
        });
        jobs.send(std::to_string(round));
    }
    EXPECT_EQ(jobs.size().messages, 20u);
    cluster.close();
}

}  // namespace
