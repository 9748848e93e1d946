// Queues: what is sent is delivered, and ends by done, retry, reject or by itself.
#include <map>
#include <set>

#include "nats/servers.h"

namespace {

using namespace std::chrono_literals;
namespace nats = dunlin::nats;
using support::code_of;
using support::moody;
using support::nats_servers;
using support::number;
using support::leaving;
using nats_queue = support::nats_test;

TEST_F(nats_queue, WhatIsSentIsDeliveredOnceAndIsDone) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls(), {.name = "test"});
        auto jobs = cluster.queue<number>("jobs");
        for (int i = 0; i < 10; ++i) jobs.send({i});
        std::set<int> seen;
        auto consumer = jobs.consume({.in_flight = 4});
        for (auto d : consumer) {
            EXPECT_EQ(d.deliveries(), 1u);
            seen.insert(d->value);
            d.done();
            if (seen.size() == 10) break;
        }
        EXPECT_EQ(jobs.size().messages, 0u);
        EXPECT_FALSE(consumer.recv_for(200ms));
        cluster.close();
    });
}

TEST_F(nats_queue, WorksFromPlainThreads) {
    nats_servers servers;
    auto cluster = nats::connect(servers.urls());
    auto jobs = cluster.queue<std::string>("jobs");
    jobs.send("from a thread");
    auto consumer = jobs.consume();
    auto d = consumer.recv();
    ASSERT_TRUE(d);
    EXPECT_EQ(**d, "from a thread");
    d->done();
    cluster.close();
}

TEST_F(nats_queue, TheSameIdIsStoredOnce) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs");
        for (int i = 0; i < 3; ++i) jobs.send({1}, nats::once_by("one"));
        jobs.send_async({1}, nats::once_by("one"));
        EXPECT_TRUE(jobs.flush().empty());
        EXPECT_EQ(jobs.size().messages, 1u);
        cluster.close();
    });
}

TEST_F(nats_queue, ADeliveryDestroyedWithoutAWordIsHandedBackAtOnce) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs", {.ack_wait = 30s});
        jobs.send({7});
        auto consumer = jobs.consume({.in_flight = 1});
        { auto d = consumer.recv(); }
        const auto began = dunlin::clock::now();
        auto again = consumer.recv();
        ASSERT_TRUE(again);
        EXPECT_LT(dunlin::clock::now() - began, 10s);
        EXPECT_EQ(again->deliveries(), 2u);
        EXPECT_EQ(cluster.stats().handed_back, 1u);
        again->done();
        cluster.close();
    });
}

// A job is told from a status of the server's by its reply subject, not by what its sender wrote into it.
TEST_F(nats_queue, AJobThatLooksLikeAStatusIsAJob) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<std::string>("jobs");
        cluster.publish("jobs", "", {{"Status", "409"}});
        auto consumer = jobs.consume();
        auto d = consumer.recv_for(5s);
        ASSERT_TRUE(d);
        d->done();
        cluster.close();
    });
}

TEST_F(nats_queue, RetryComesAgainAfterItsTime) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs");
        jobs.send({7});
        auto consumer = jobs.consume();
        consumer.recv()->retry(300ms);
        const auto began = dunlin::clock::now();
        auto again = consumer.recv();
        ASSERT_TRUE(again);
        EXPECT_GE(dunlin::clock::now() - began, 250ms);
        again->done();
        cluster.close();
    });
}

TEST_F(nats_queue, TheLongestTimesAreForEver) {
    nats_servers servers;
    dunlin::run([&] {
        using std::chrono::milliseconds, std::chrono::hours;
        auto cluster = nats::connect(servers.urls(), {.timeout = milliseconds::max(),
                                                         .patience = milliseconds::max(),
                                                         .ping = milliseconds::max(),
                                                         .confirm = milliseconds::max()});
        auto jobs = cluster.queue<number>("jobs", {.ack_wait = milliseconds::max(), .remember = milliseconds::max()});
        jobs.send({1});
        auto consumer = jobs.consume({.in_flight = 1});
        auto d = consumer.recv_for(hours::max());
        ASSERT_TRUE(d);
        EXPECT_EQ((*d)->value, 1);
        d->retry(hours::max());
        jobs.send_async({2});
        EXPECT_TRUE(jobs.flush().empty());
        d = consumer.recv_for(std::chrono::duration<double>(20));
        ASSERT_TRUE(d);
        EXPECT_EQ((*d)->value, 2) << "the first one comes again before its time";
        d->done();
        EXPECT_FALSE(consumer.recv_for(100ms));
        cluster.close();
    });
}

TEST_F(nats_queue, RejectedGoesToTheDeadLettersWithReasonAndHistory) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls(), {.name = "worker-1"});
        auto jobs = cluster.queue<number>("jobs");
        jobs.send({7});
        auto consumer = jobs.consume();
        consumer.recv()->reject("no such user");
        EXPECT_EQ(jobs.size().messages, 0u);
        auto dead = jobs.dead();
        auto graves = dead.consume();
        auto letter = graves.recv();
        ASSERT_TRUE(letter);
        EXPECT_EQ((*letter)->data, "7");
        EXPECT_EQ((*letter)->reason, "no such user");
        EXPECT_EQ((*letter)->by, "worker-1");
        EXPECT_EQ((*letter)->deliveries, 1u);
        jobs.send_again(**letter);
        letter->done();
        consumer.recv()->reject("still none");
        letter = graves.recv();
        ASSERT_TRUE(letter);
        EXPECT_EQ((*letter)->reason, "still none");
        ASSERT_EQ((*letter)->history.size(), 1u);
        EXPECT_EQ((*letter)->history[0], "1 worker-1 no such user");
        letter->done();
        cluster.close();
    });
}

TEST_F(nats_queue, WhatDoesNotDecodeGoesToTheDeadLetters) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs");
        cluster.publish("jobs", "seven");
        jobs.send({8});
        auto consumer = jobs.consume();
        auto d = consumer.recv();
        ASSERT_TRUE(d);
        EXPECT_EQ((*d)->value, 8);
        d->done();
        auto graves = jobs.dead().consume();
        auto letter = graves.recv();
        ASSERT_TRUE(letter);
        EXPECT_EQ((*letter)->data, "seven");
        EXPECT_NE((*letter)->reason.find("does not decode: stoi"), std::string::npos) << (*letter)->reason;
        letter->done();
        cluster.close();
    });
}

// Whatever a codec throws.
TEST_F(nats_queue, ACodecThatThrowsNoExceptionOfTheLibrarysIsADeadLetterToo) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<moody>("jobs");
        jobs.send({});
        auto consumer = jobs.consume();
        EXPECT_FALSE(consumer.recv_for(1s));
        EXPECT_EQ(cluster.stats().rejected, 1u);
        auto letter = jobs.dead().consume().recv();
        EXPECT_EQ((*letter)->reason, "does not decode: not an std::exception");
        letter->done();
        cluster.close();
    });
}

TEST_F(nats_queue, AJobInWhoseCodecOrHandlerAGoroutineEndsIsHandedBack) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<leaving>("jobs", {.max_deliveries = 2});
        auto consumer = jobs.consume({.in_flight = 1});
        const auto in_a_goroutine = [](const auto& f) {
            dunlin::wait_group one;
            one.go([&] {
                f();
                ADD_FAILURE() << "it goes on";
            });
            one.wait();
        };
        cluster.publish("jobs", "exit");
        for (int i = 0; i < 2; ++i) in_a_goroutine([&] { consumer.recv(); });
        EXPECT_FALSE(consumer.recv_for(1s));
        EXPECT_EQ(cluster.stats().handed_back, 2u);
        EXPECT_EQ(cluster.stats().rejected, 1u);
        jobs.send({});
        in_a_goroutine([&] {
            dunlin::select(nats::on_delivery(consumer, [](std::optional<nats::delivery<leaving>> d) {
                EXPECT_TRUE(d);
                dunlin::exit_goroutine();
            }));
        });
        auto again = consumer.recv();
        ASSERT_TRUE(again);
        EXPECT_EQ(again->deliveries(), 2u);
        again->done();
        auto bucket = cluster.bucket<leaving>("b");
        auto texts = cluster.bucket<std::string>("b");
        auto watch = bucket.watch();
        auto all = cluster.subscribe("s");
        texts.put("k", "exit");
        in_a_goroutine([&] { bucket.get("k"); });
        in_a_goroutine([&] { watch.recv(); });
        texts.put("k", "stay");
        in_a_goroutine([&] { dunlin::select(nats::on_change(watch, [](const auto&) { dunlin::exit_goroutine(); })); });
        cluster.publish("s", "1");
        cluster.publish("s", "2");
        in_a_goroutine([&] { dunlin::select(nats::on_message(all, [](const auto&) { dunlin::exit_goroutine(); })); });
        EXPECT_EQ(all.recv()->data(), "2");
        texts.put("k", "stay again");
        EXPECT_TRUE(watch.recv().value);
        cluster.close();
    });
}

TEST_F(nats_queue, WhatComesTooOftenGoesToTheDeadLetters) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs", {.max_deliveries = 2});
        jobs.send({7});
        auto consumer = jobs.consume();
        for (int i = 0; i < 2; ++i) consumer.recv()->retry();
        EXPECT_FALSE(consumer.recv_for(1s));
        auto graves = jobs.dead().consume();
        auto letter = graves.recv();
        ASSERT_TRUE(letter);
        EXPECT_EQ((*letter)->reason, "delivered 2 times, and never done");
        letter->done();
        cluster.close();
    });
}

TEST_F(nats_queue, TheDeadlineIsProlongedWhileItIsHeld) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs", {.ack_wait = 2s});
        jobs.send({7});
        auto consumer = jobs.consume({.in_flight = 2});
        auto d = consumer.recv();
        ASSERT_TRUE(d);
        EXPECT_FALSE(consumer.recv_for(4500ms));
        EXPECT_FALSE(d->lost());
        d->done();
        EXPECT_EQ(cluster.stats().redelivered, 0u);
        cluster.close();
    });
}

TEST_F(nats_queue, InFlightBoundsWhatAProcessHasTakenAndNothingIsFetchedWithoutAReceiver) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs");
        for (int i = 0; i < 20; ++i) jobs.send_async({i});
        EXPECT_TRUE(jobs.flush().empty());
        auto consumer = jobs.consume({.in_flight = 6});
        dunlin::sleep_for(200ms);
        EXPECT_EQ(jobs.size().in_flight, 0u);
        std::vector<nats::delivery<number>> held;
        for (int i = 0; i < 6; ++i) held.push_back(std::move(*consumer.recv()));
        EXPECT_FALSE(consumer.recv_for(300ms));
        EXPECT_EQ(jobs.size().in_flight, 6u);
        held.back().done();
        held.pop_back();
        held.push_back(std::move(*consumer.recv()));
        EXPECT_EQ(jobs.size().in_flight, 6u);
        held.clear();
        cluster.close();
    });
}

// A receiver that has given up leaves no pull behind, which would bring jobs to where nobody waits for them.
TEST_F(nats_queue, AConsumerInWhichNoReceiverWaitsTakesNothingFromOthers) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs");
        auto idle = jobs.consume({.in_flight = 8}), busy = jobs.consume({.in_flight = 8});
        for (int round = 0; round < 3; ++round) {
            EXPECT_FALSE(idle.recv_for(50ms));
            dunlin::sleep_for(700ms);
            for (int i = 0; i < 4; ++i) jobs.send({i});
            for (int i = 0; i < 4; ++i) {
                auto d = busy.recv_for(10s);
                ASSERT_TRUE(d) << "round " << round << ", job " << i;
                EXPECT_EQ(d->deliveries(), 1u);
                d->done();
            }
        }
        dunlin::sleep_for(700ms);
        jobs.send({7});
        auto d = idle.recv_for(10s);
        ASSERT_TRUE(d);
        d->done();
        cluster.close();
    });
}

TEST_F(nats_queue, InSelect) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs");
        auto consumer = jobs.consume();
        bool late = false;
        dunlin::select(nats::on_delivery(consumer, [](auto) {}), dunlin::on_timeout(50ms, [&] { late = true; }));
        EXPECT_TRUE(late);
        jobs.send({5});
        int got = 0;
        dunlin::select(nats::on_delivery(consumer,
                           [&](std::optional<nats::delivery<number>> d) {
                               got = (*d)->value;
                               d->done();
                           }),
            dunlin::on_timeout(5s, [] {}));
        EXPECT_EQ(got, 5);
        cluster.close();
    });
}

TEST_F(nats_queue, AContextEndsTheRangeAndTheWait) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs");
        auto [ctx, cancel] = dunlin::with_timeout(dunlin::context::background(), 200ms);
        int count = 0;
        for (auto d : jobs.consume({.ctx = ctx})) {
            ++count;
            d.done();
        }
        EXPECT_EQ(count, 0);
        EXPECT_THROW(jobs.send({1}, ctx), dunlin::context_cancelled);
        cluster.close();
    });
}

TEST_F(nats_queue, ACallWhoseContextIsDoneBeforeItBeginsSendsNothing) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs", {.ack_wait = 120s});
        const auto over = dunlin::with_cancel(dunlin::context::background());
        over.cancel();
        const auto before = cluster.stats().messages_out;
        for (int i = 0; i < 200; ++i) {
            EXPECT_THROW(jobs.send({i}, over), dunlin::context_cancelled);
            EXPECT_THROW(jobs.send_async({i}, nats::once_by("x"), over), dunlin::context_cancelled);
            EXPECT_THROW(cluster.request("nobody", "", over), dunlin::context_cancelled);
        }
        // of these calls none; it may have asked whether the server lives
        EXPECT_LT(cluster.stats().messages_out - before, 200u);
        EXPECT_TRUE(jobs.flush().empty());
        // done() was not begun, so what is destroyed then is handed back.
        jobs.send({7});
        auto consumer = jobs.consume({.in_flight = 1});
        {
            auto d = consumer.recv();
            EXPECT_THROW(d->done(over), dunlin::context_cancelled);
        }
        auto again = consumer.recv();
        ASSERT_TRUE(again);
        EXPECT_EQ(again->deliveries(), 2u);
        again->done();
        cluster.close();
    });
}

TEST_F(nats_queue, HeadersAndTheSendersTraceTravelWithAJobAndThroughTheDeadLetters) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs");
        const auto traced = dunlin::with_value(dunlin::context(), nats::trace_id, std::string("t-1"));
        jobs.send({1}, nats::once_by("one"), traced, {{"Lang", "de"}});
        jobs.send_async({2}, nats::once_by("two"), {}, {{"Lang", "en"}});
        EXPECT_TRUE(jobs.flush().empty());
        auto consumer = jobs.consume();
        const auto look = [](nats::delivery<number>& d) {
            const std::string* trace = d.context().value(nats::trace_id);
            return d.message().header("Lang").value_or("") + (trace != nullptr ? *trace : "");
        };
        auto d = consumer.recv();
        EXPECT_EQ(look(*d), "det-1");
        d->reject("not now");
        d = consumer.recv();
        EXPECT_EQ(look(*d), "en");
        d->done();
        auto dead = jobs.dead().consume();
        auto letter = dead.recv();
        jobs.send_again(**letter);
        letter->done();
        d = consumer.recv();
        EXPECT_EQ(look(*d), "det-1");
        d->done();
        cluster.close();
    });
}

TEST_F(nats_queue, OtherSettingsAreNamed) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs", {.ack_wait = 5s, .max_messages = 7});
        cluster.queue<number>("jobs", {.ack_wait = 5s, .max_messages = 7});
        try {
            cluster.queue<number>("jobs", {.ack_wait = 5s, .max_messages = 8});
            ADD_FAILURE();
        } catch (const nats::error& e) {
            EXPECT_EQ(e.code(), nats::errc::other_settings);
            EXPECT_EQ(e.words(), "max_msgs is 7, not 8");
        }
        EXPECT_EQ(code_of([&] { cluster.queue<number>("jobs", {.ack_wait = 6s, .max_messages = 7}); }),
            nats::errc::other_settings);
        EXPECT_EQ(code_of([&] { cluster.queue<number>("other", {.replicas = 3}); }), nats::errc::too_few_servers);
        EXPECT_EQ(code_of([&] { cluster.queue<number>("a.b"); }), nats::errc::refused);
        EXPECT_EQ(code_of([&] { cluster.queue<number>("odd", {.ack_wait = -1s}); }), nats::errc::refused);
        EXPECT_EQ(code_of([&] { cluster.queue<number>("odd", {.replicas = 0}); }), nats::errc::refused);
        cluster.close();
    });
}

// Those that docs/cluster.md says a worker and a sender need.
TEST_F(nats_queue, ThePermissionsOfTheGuideSuffice) {
    nats_servers servers(1, R"(authorization { users: [
        { user: worker, password: p, permissions: {
            publish: ["jobs", "jobs-dead", "$JS.API.STREAM.*.jobs", "$JS.API.STREAM.*.jobs-dead", "$JS.API.CONSUMER.>", "$JS.ACK.jobs.>", "_INBOX.>"]
            subscribe: ["_INBOX.>"] } }
        { user: sender, password: p, permissions: {
            publish: ["jobs", "$JS.API.STREAM.*.jobs", "$JS.API.CONSUMER.>", "_INBOX.>"]
            subscribe: ["_INBOX.>"] } } ] })");
    dunlin::run([&] {
        auto sender = nats::connect(servers.urls(), {.user = "sender", .password = "p"});
        auto to = sender.queue<number>("jobs");
        for (int i = 0; i < 4; ++i) to.send({i});
        auto worker = nats::connect(servers.urls(), {.user = "worker", .password = "p"});
        auto jobs = worker.queue<number>("jobs");
        auto consumer = jobs.consume();
        consumer.recv()->done();
        consumer.recv()->reject("bad");
        consumer.recv()->retry();
        for (int i = 0; i < 2; ++i) consumer.recv()->done();
        EXPECT_EQ(jobs.size().messages, 0u);
        EXPECT_EQ(code_of([&] { sender.request("other", ""); }), nats::errc::not_permitted);
        worker.close();
        sender.close();
    });
}

TEST_F(nats_queue, ManyJobsThroughManyGoroutinesStress) {
    nats_servers servers;
    dunlin::run([&] {
        constexpr int count = support::sanitized ? 1000 : 10'000;
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs");
        auto sender = dunlin::spawn([&] {
            for (int i = 0; i < count; ++i) jobs.send_async({i});
            return jobs.flush().size();
        });
        std::mutex mutex;
        std::map<int, int> seen;
        auto consumer = jobs.consume({.in_flight = 128});
        dunlin::wait_group all;
        for (int w = 0; w < 64; ++w) {
            all.go([&] {
                while (auto d = consumer.recv()) {
                    const int value = (*d)->value;
                    d->done();
                    std::size_t n;
                    {
                        std::lock_guard guard(mutex);
                        ++seen[value];
                        n = seen.size();
                    }
                    if (n == static_cast<std::size_t>(count)) consumer.stop();
                }
            });
        }
        all.wait();
        EXPECT_EQ(sender.get(), 0u);
        EXPECT_EQ(seen.size(), static_cast<std::size_t>(count));
        for (const auto& [value, times] : seen) EXPECT_EQ(times, 1) << value;
        cluster.close();
    });
}

}  // namespace
