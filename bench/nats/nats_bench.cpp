// nats_bench.cpp - dunlin::nats beside libnats alone, in turns, with one server on this machine (NATS_URL).
//
//   dunlin_cluster --around dunlin_nats_bench [JOBS [ROUNDS]]
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <nats/nats.h>

#include <dunlin/dunlin.hpp>
#include <dunlin/nats.hpp>

using namespace std::chrono_literals;
namespace nats = dunlin::nats;

namespace {

void must(natsStatus s) {
    if (s != NATS_OK) throw std::runtime_error(natsStatus_GetText(s));
}

double seconds(const std::function<void()>& f) {
    const auto began = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

std::size_t from_proc(const char* key) {
    std::ifstream in("/proc/self/status");
    for (std::string word; in >> word;) {
        if (word == key) {
            std::size_t n = 0;
            in >> n;
            return n;
        }
    }
    return 0;
}

// libnats alone, on a plain thread.
class alone {
public:
    explicit alone(const char* url) {
        natsOptions* o = nullptr;
        must(natsOptions_Create(&o));
        must(natsOptions_SetURL(o, url));
        must(natsConnection_Connect(&nc_, o));
        natsOptions_Destroy(o);
        jsOptions j;
        jsOptions_Init(&j);
        j.PublishAsync.MaxPending = 1024;
        must(natsConnection_JetStream(&js_, nc_, &j));
    }
    ~alone() {
        jsCtx_Destroy(js_);
        natsConnection_Destroy(nc_);
    }
    alone(const alone&) = delete;
    alone& operator=(const alone&) = delete;

    void publish(int count, const std::string& data) const {
        for (int i = 0; i < count; ++i) must(js_PublishAsync(js_, "bench", data.data(), static_cast<int>(data.size()), nullptr));
        must(js_PublishAsyncComplete(js_, nullptr));
    }
    // Acknowledged, or acknowledged and confirmed by the server.
    void consume(int count, bool confirmed) const {
        natsSubscription* s = nullptr;
        jsErrCode code{};
        jsSubOptions o;
        jsSubOptions_Init(&o);
        o.Stream = "bench";
        must(js_PullSubscribe(&s, js_, "bench", "workers", nullptr, &o, &code));
        for (int done = 0; done < count;) {
            natsMsgList list{};
            must(natsSubscription_Fetch(&list, s, 64, 10'000, &code));
            for (int i = 0; i < list.Count; ++i) must(confirmed ? natsMsg_AckSync(list.Msgs[i], nullptr, &code) : natsMsg_Ack(list.Msgs[i], nullptr));
            done += list.Count;
            natsMsgList_Destroy(&list);
        }
        natsConnection_Flush(nc_);
        natsSubscription_Destroy(s);
    }
    void serve(const char* subject) {
        must(natsConnection_Subscribe(&served_, nc_, subject, [](natsConnection* nc, natsSubscription*, natsMsg* m, void*) {
            natsConnection_PublishString(nc, natsMsg_GetReply(m), "pong");
            natsMsg_Destroy(m);
        }, nullptr));
        natsConnection_Flush(nc_);
    }
    void stop_serving() {
        natsSubscription_Destroy(served_);
        served_ = nullptr;
    }
    void request(int count, const char* subject) const {
        for (int i = 0; i < count; ++i) {
            natsMsg* answer = nullptr;
            must(natsConnection_RequestString(&answer, nc_, subject, "ping", 5'000));
            natsMsg_Destroy(answer);
        }
    }

private:
    natsConnection* nc_ = nullptr;
    jsCtx* js_ = nullptr;
    natsSubscription* served_ = nullptr;
};

void consume(const nats::queue<std::string>& jobs, int count) {
    std::atomic<int> done{0};
    auto consumer = jobs.consume({.in_flight = 256});
    dunlin::wait_group all;
    for (int w = 0; w < 64; ++w) {
        all.go([&] {
            while (auto d = consumer.recv()) {
                d->done();
                if (++done == count) consumer.stop();
            }
        });
    }
    all.wait();
}

struct figure {
    const char* name;
    double per;  // how many things one round does
    std::vector<double> rates;
    double median() {
        std::sort(rates.begin(), rates.end());
        return rates[rates.size() / 2];
    }
};

}  // namespace

int main(int argc, char** argv) {
    const char* url = std::getenv("NATS_URL");
    const int count = argc > 1 ? std::atoi(argv[1]) : 20'000, rounds = argc > 2 ? std::atoi(argv[2]) : 5, requests = count / 10;
    if (url == nullptr || count < 100 || rounds < 1) {
        std::fprintf(stderr, "NATS_URL must name a server: dunlin_cluster --around dunlin_nats_bench [JOBS [ROUNDS]]\n");
        return 2;
    }
    return dunlin::run([&] {
        const std::string data(100, 'x');
        auto cluster = nats::connect(url);
        auto jobs = cluster.queue<std::string>("bench");
        alone plain(url);
        std::array<figure, 7> f{{{"published and confirmed/s, dunlin", count + 0.0, {}}, {"published and confirmed/s, libnats", count + 0.0, {}},
            {"consumed, done() confirmed/s, dunlin", count + 0.0, {}}, {"consumed, acknowledged without confirmation/s, libnats", count + 0.0, {}},
            {"consumed, each acknowledgement waited for/s, libnats", requests + 0.0, {}}, {"requests one after the other/s, dunlin", requests + 0.0, {}},
            {"requests one after the other/s, libnats", requests + 0.0, {}}}};
        const auto take = [&](std::size_t i, const std::function<void()>& what) { f[i].rates.push_back(f[i].per / seconds(what)); };
        const auto on_thread = [](const std::function<void()>& what) { dunlin::blocking(what); };
        for (int r = 0; r < rounds; ++r) {
            take(0, [&] {
                for (int i = 0; i < count; ++i) jobs.send_async(data);
                if (!jobs.flush().empty()) throw std::runtime_error("not confirmed");
            });
            take(2, [&] { consume(jobs, count); });
            on_thread([&] {
                take(1, [&] { plain.publish(count, data); });
                take(3, [&] { plain.consume(count, false); });
                plain.publish(requests, data);
                take(4, [&] { plain.consume(requests, true); });
                plain.serve("ping");
            });
            take(5, [&] {
                for (int i = 0; i < requests; ++i) static_cast<void>(cluster.request("ping", "ping"));
            });
            on_thread([&] {
                take(6, [&] { plain.request(requests, "ping"); });
                plain.stop_serving();
            });
        }
        std::printf("medians of %d rounds, %d jobs of %zu bytes, %d requests\n", rounds, count, data.size(), requests);
        for (figure& one : f) std::printf("%10.0f  %s\n", one.median(), one.name);
        std::printf("dunlin to libnats: published %.2f, consumed %.2f (of the unconfirmed), requests %.2f\n", f[0].median() / f[1].median(),
            f[2].median() / f[3].median(), f[5].median() / f[6].median());

        const std::size_t threads = from_proc("Threads:"), kilobytes = from_proc("VmRSS:");
        std::vector<nats::subscription> many;
        for (int i = 0; i < 1'000; ++i) many.push_back(cluster.subscribe("s" + std::to_string(i)));
        std::printf("1000 subscriptions: %zu more threads, %.1f KB each\n", from_proc("Threads:") - threads,
            static_cast<double>(from_proc("VmRSS:") - kilobytes) / 1'000);
        many.clear();
        cluster.close();
        return 0;
    });
}
