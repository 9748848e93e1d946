// Headers: what arrives of them, and which are refused. libnats before 3.11 reads a header without a value together
// with the next one, so none may be sent.
#include "nats/servers.h"

namespace {

using namespace std::chrono_literals;
namespace nats = dunlin::nats;
using nats_header = support::nats_test;
using support::code_of;
using support::nats_servers;
using support::number;

const std::string zero_byte("a\0b", 3);

dunlin::context with_trace(std::string trace) {
    return dunlin::with_value(dunlin::context(), nats::trace_id, std::move(trace));
}

TEST_F(nats_header, ValuesArriveAsTheyWereSentExceptForBlanksAtTheirEnds) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto all = cluster.subscribe("s");
        cluster.publish("s", "data",
            {{"Blanks", " \t a  b \t "}, {"Lines", "a\r\nB: c\n"}, {"Bytes", "\xc3\xbc\x01\x7f:"}, {"Twice", "2"},
                {"Twice", "1"}});
        const auto m = all.recv();
        ASSERT_TRUE(m);
        EXPECT_EQ(m->header("Blanks"), "a  b");
        EXPECT_EQ(m->header("Lines"), "a  B: c");
        EXPECT_EQ(m->header("Bytes"), "\xc3\xbc\x01\x7f:");
        EXPECT_EQ(m->all_headers().size(), 5u);
        std::string twice;
        for (const auto& [name, value] : m->all_headers()) twice += name == "Twice" ? value : "";
        EXPECT_EQ(twice, "21");
        cluster.close();
    });
}

TEST_F(nats_header, OneThatAReceiverCouldNotReadIsRefusedAndNamed) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs");
        auto all = cluster.subscribe("s");
        for (const std::string& value : {std::string(), std::string(" "), std::string("\n"), std::string("\t\v\f\r\n"),
                 std::string(1, '\0'), zero_byte}) {
            const nats::headers h{{"Good", "1"}, {"Odd", value}};
            EXPECT_EQ(code_of([&] { cluster.publish("s", "", h); }), nats::errc::refused);
            EXPECT_EQ(code_of([&] { cluster.request("s", "", {}, h); }), nats::errc::refused);
            EXPECT_EQ(code_of([&] { jobs.send({1}, nats::once_by(""), {}, h); }), nats::errc::refused);
            EXPECT_EQ(code_of([&] { jobs.send_async({1}, nats::once_by(""), {}, h); }), nats::errc::refused);
        }
        for (const std::string& id : {std::string(" "), zero_byte})
            EXPECT_EQ(code_of([&] { jobs.send({1}, nats::once_by(id)); }), nats::errc::refused);
        EXPECT_EQ(code_of([&] { cluster.request("s", "", with_trace(zero_byte)); }), nats::errc::refused);
        try {
            cluster.publish("s", "", {{"Odd", ""}});
            ADD_FAILURE();
        } catch (const nats::error& e) {
            EXPECT_EQ(e.words(), "the header 'Odd' has no value, or one of blanks: leave it out");
        }
        EXPECT_TRUE(jobs.flush().empty());
        EXPECT_EQ(jobs.size().messages, 0u);
        EXPECT_FALSE(all.recv_for(50ms));
        cluster.close();
    });
}

TEST_F(nats_header, ATraceWithoutTextTakesNothingElseAlong) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs");
        auto server = nats::serve(cluster, "look", [](const nats::message& m, const dunlin::context& ctx) {
            return std::string(ctx.deadline() ? "a deadline, " : "") +
                   (ctx.value(nats::trace_id) != nullptr ? "a trace, " : "") + m.header("Lang").value_or("");
        });
        auto consumer = jobs.consume();
        for (const char* blank : {"", " ", "\n"}) {
            EXPECT_EQ(cluster.request("look", "", with_trace(blank), {{"Lang", "de"}}).data(), "a deadline, de");
            jobs.send({1}, nats::once_by(""), with_trace(blank), {{"Lang", "de"}});
            auto d = consumer.recv();
            ASSERT_TRUE(d);
            EXPECT_EQ(d->context().value(nats::trace_id), nullptr);
            EXPECT_EQ(d->message().header("Lang"), "de");
            EXPECT_TRUE(d->message().header("Nats-Msg-Id"));
            d->done();
        }
        cluster.close();
    });
}

TEST_F(nats_header, ADeadLetterWithoutAReasonOrANameLosesNothingElse) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls(), {.name = std::string(" \0", 2)});
        auto jobs = cluster.queue<number>("jobs");
        auto consumer = jobs.consume();
        auto graves = jobs.dead().consume();
        for (const char* reason : {"", " ", "\n"}) {
            jobs.send({7}, nats::once_by(""), {}, {{"Lang", "de"}});
            auto d = consumer.recv();
            ASSERT_TRUE(d);
            const std::uint64_t sequence = d->sequence();
            d->reject(reason);
            auto letter = graves.recv();
            ASSERT_TRUE(letter);
            EXPECT_EQ((*letter)->reason, "");
            EXPECT_EQ((*letter)->by, "");
            EXPECT_EQ((*letter)->deliveries, 1u);
            EXPECT_EQ((*letter)->sequence, sequence);
            EXPECT_GT((*letter)->stored.size(), 10u);
            EXPECT_EQ((*letter)->original, (nats::headers{{"Lang", "de"}}));
            EXPECT_TRUE(letter->message().header("Nats-Msg-Id"));
            letter->done();
        }
        cluster.close();
    });
}

// Otherwise it could never leave the queue.
TEST_F(nats_header, AJobWithAHeaderThatCannotBeSentOnCanBeRejected) {
    nats_servers servers;
    const std::string head = "NATS/1.0\r\nna\xc3\xafve: 1\r\nLang: de\r\n\r\n", data = "7";
    const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const std::string url = servers[0].url();
    const sockaddr_in a = fleet::on_loopback(std::stoi(url.substr(url.rfind(':') + 1)));
    ASSERT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&a), sizeof a), 0);
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto jobs = cluster.queue<number>("jobs");
        const std::string words = "CONNECT {\"verbose\":false,\"headers\":true}\r\nHPUB jobs " +
                                  std::to_string(head.size()) + " " + std::to_string(head.size() + data.size()) +
                                  "\r\n" + head + data + "\r\n";
        EXPECT_EQ(send(client, words.data(), words.size(), MSG_NOSIGNAL), static_cast<ssize_t>(words.size()));
        auto consumer = jobs.consume();
        auto d = consumer.recv();
        ASSERT_TRUE(d);
        EXPECT_EQ(d->message().all_headers().size(), 2u);
        d->reject("no");
        auto letter = jobs.dead().consume().recv();
        ASSERT_TRUE(letter);
        EXPECT_EQ((*letter)->original, (nats::headers{{"Lang", "de"}}));
        letter->done();
        cluster.close();
    });
    close(client);
}

}  // namespace
