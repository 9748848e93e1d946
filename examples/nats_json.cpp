// nats_json.cpp - orders as JSON, with Boost.JSON. What is not JSON, or not an order, ends among the dead letters, with
// Boost.JSON's error message; an operator repairs one of them and sends it again.
//
// NATS_URL names the servers (nats://127.0.0.1:4222 otherwise). `dunlin_cluster --around example_nats_json` starts one
// for it.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <boost/json/src.hpp>  // Boost.JSON itself, for one source file of a program that is not linked with it

#include <dunlin/dunlin.hpp>
#include <dunlin/nats.hpp>

using namespace std::chrono_literals;
namespace json = boost::json;
namespace nats = dunlin::nats;

struct order {
    std::string id;
    std::vector<int> cents;
};

template <>
struct dunlin::nats::codec<order> {
    static std::string encode(const order& o) {
        return json::serialize(json::object{{"id", o.id}, {"cents", json::value_from(o.cents)}});
    }
    static order decode(std::string_view bytes) {
        const json::value v = json::parse({bytes.data(), bytes.size()});
        const json::object& o = v.as_object();
        return {json::value_to<std::string>(o.at("id")), json::value_to<std::vector<int>>(o.at("cents"))};
    }
};

int main() {
    const char* url = std::getenv("NATS_URL");
    return dunlin::run([&] {
        auto cluster = nats::connect(url != nullptr ? url : "nats://127.0.0.1:4222", {.name = "shop"});
        auto orders = cluster.queue<order>("orders");
        for (int i = 0; i < 20; ++i)
            orders.send_async({"o" + std::to_string(i), {100, i}}, nats::once_by("o" + std::to_string(i)));
        if (!orders.flush().empty()) return 1;
        // From senders that do not know the format.
        for (const char* text : {"one book, please", R"({"id":"o20","cents":[100,20)", R"({"id":"o21"})",
                 R"({"id":"o22","cents":"many"})"}) {
            cluster.publish("orders", text);
        }

        std::map<std::string, int> totals;
        const auto take = [&](nats::consumer<order>& from) {
            while (auto d = from.recv_for(500ms)) {
                for (const int cents : (*d)->cents) totals[(*d)->id] += cents;
                d->done();
            }
        };
        auto consumer = orders.consume({.in_flight = 8});
        while (orders.size().messages > 0) take(consumer);

        auto dead = orders.dead().consume();
        int letters = 0;
        while (auto letter = dead.recv_for(500ms)) {
            std::printf("%-28s %s\n", (*letter)->data.c_str(), (*letter)->reason.c_str());
            ++letters;
            if ((*letter)->data.ends_with("[100,20")) {
                nats::dead_letter mended = **letter;
                mended.data += "]}";
                orders.send_again(mended);
            }
            letter->done();
        }
        while (orders.size().messages > 0) take(consumer);
        cluster.close();
        std::printf("%zu orders, %d dead letters; o20: %d cents\n", totals.size(), letters, totals["o20"]);
        return totals.size() == 21 && letters == 4 && totals["o20"] == 120 ? 0 : 1;
    });
}
