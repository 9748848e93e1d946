// A codec of Boost.JSON's: what it reads on the stacks of goroutines, and what becomes of messages that it does not
// read.
#include <map>
#include <set>

#include "nats/servers.h"

#if __has_include(<boost/json/src.hpp>)
#include <boost/json/src.hpp>

namespace {

using namespace std::chrono_literals;
namespace json = boost::json;
namespace nats = dunlin::nats;
using nats_json = support::nats_test;
using support::nats_servers;

struct order {
    int number;
    json::value more;
};

}  // namespace

template <>
struct dunlin::nats::codec<order> {
    static std::string encode(const order& o) {
        return json::serialize(json::object{{"number", o.number}, {"more", o.more}});
    }
    static order decode(std::string_view bytes) {
        json::value v = json::parse({bytes.data(), bytes.size()});
        json::object& o = v.as_object();
        return {json::value_to<int>(o.at("number")), o.at("more")};
    }
};

namespace {

// `depth` arrays, one in the other.
std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST_F(nats_json, WhatIsNoneOrNotOfThisShapeIsADeadLetterWithTheError) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls());
        auto orders = cluster.queue<order>("orders");
        // each with a word that Boost.JSON says of it
        const std::map<std::string, std::string> bad = {
            {"one book", "syntax"},
            {"", "incomplete"},
            {R"({"number":1,"more":[)", "incomplete"},
            {R"({"number":1,"more":[]} and more)", "extra"},
            {"{\"number\":1,\"more\":\"\xff\"}", "syntax"},
            {R"({"number":1,"more":)" + nested(100) + "}", "deep"},
            {R"({"number":1})", ""},
            {R"({"number":"one","more":1})", ""},
            {R"({"number":99999999999999,"more":1})", ""},
            {"[]", ""},
        };
        for (const auto& [text, word] : bad) cluster.publish("orders", text);
        orders.send({7, {"fine"}});
        auto consumer = orders.consume({.in_flight = 4});
        auto d = consumer.recv();
        ASSERT_TRUE(d);
        EXPECT_EQ((*d)->number, 7);
        d->done();
        EXPECT_EQ(orders.size().messages, 0u);
        auto dead = orders.dead().consume();
        std::set<std::string> seen;
        while (seen.size() < bad.size()) {
            auto letter = dead.recv();
            ASSERT_TRUE(letter);
            std::printf("%s\n", (*letter)->reason.c_str());
            ASSERT_TRUE(bad.contains((*letter)->data)) << (*letter)->data;
            EXPECT_TRUE((*letter)->reason.starts_with("does not decode: ")) << (*letter)->reason;
            EXPECT_NE((*letter)->reason.find(bad.at((*letter)->data)), std::string::npos) << (*letter)->reason;
            seen.insert((*letter)->data);
            letter->done();
        }
        EXPECT_EQ(cluster.stats().rejected, bad.size());
        cluster.close();
    });
}

TEST_F(nats_json, ManyGoroutinesReadDeepAndLargeTexts) {
    nats_servers servers;
    dunlin::run([&] {
        constexpr int count = support::sanitized ? 64 : 256;
        auto cluster = nats::connect(servers.urls());
        auto orders = cluster.queue<order>("orders", {.window = 64});
        json::array many;
        for (int i = 0; i < 2'000; ++i) many.push_back(json::object{{"i", i}, {"text", std::string(20, 'x')}});
        for (int i = 0; i < count; ++i)
            orders.send_async({i, i % 2 == 0 ? json::parse(nested(30)) : json::value(many)});
        ASSERT_TRUE(orders.flush().empty());
        std::atomic<int> right{0};
        auto consumer = orders.consume({.in_flight = 64});
        dunlin::wait_group all;
        for (int w = 0; w < 32; ++w) {
            all.go([&] {
                while (auto d = consumer.recv()) {
                    const json::value& more = (*d)->more;
                    EXPECT_EQ(json::serialize(more), (*d)->number % 2 == 0 ? nested(30) : json::serialize(many));
                    d->done();
                    if (++right == count) consumer.stop();
                }
            });
        }
        all.wait();
        EXPECT_EQ(right, count);
        EXPECT_EQ(cluster.stats().rejected, 0u);
        cluster.close();
    });
}

}  // namespace

#endif
