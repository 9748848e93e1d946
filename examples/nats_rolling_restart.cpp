// nats_rolling_restart.cpp - workers are replaced one after the other, as in a deployment, and no job is lost or done
// twice.
//
// SIGTERM ends a worker in order: it takes no more jobs, gives back at once what was only fetched, and its goroutines
// finish what they hold. With `worker` as the first argument the program is a worker; without an argument it sends jobs
// and restarts three workers. NATS_URL names the servers.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include <dunlin/dunlin.hpp>
#include <dunlin/nats.hpp>

using namespace std::chrono_literals;
namespace nats = dunlin::nats;

namespace {

nats::cluster connected(const std::string& name) {
    const char* url = std::getenv("NATS_URL");
    return nats::connect(url != nullptr ? url : "nats://127.0.0.1:4222", {.name = name});
}

nats::queue<std::string> jobs_of(const nats::cluster& cluster) {
    return cluster.queue<std::string>("rolling", {.ack_wait = 30s});
}

int work() {
    return dunlin::run([] {
        const dunlin::signal_context ctx({SIGTERM, SIGINT});
        auto cluster = connected("worker");
        auto consumer = jobs_of(cluster).consume({.in_flight = 8, .ctx = ctx});
        dunlin::task_group at_work;
        for (auto d : consumer) {
            at_work.go([&cluster, d = std::move(d)]() mutable {
                dunlin::sleep_for(5ms);  // the work
                cluster.publish("rolling.done", *d);
                d.done();
            });
        }
        at_work.wait();  // before the connection ends
        cluster.close();
        return 0;
    });
}

int restart_them(const char* self) {
    return dunlin::run([&] {
        constexpr int count = 1'000, workers = 3;
        auto cluster = connected("deployment");
        auto jobs = jobs_of(cluster);
        auto reports = cluster.subscribe("rolling.done");
        const auto start = [&] { return dunlin::process({self, "worker"}); };
        std::vector<dunlin::process> all;
        for (int w = 0; w < workers; ++w) all.push_back(start());

        dunlin::go([&] {
            for (int i = 0; i < count; ++i) {
                jobs.send_async(std::to_string(i));
                if (i % 10 == 0) dunlin::sleep_for(5ms);
            }
        });
        std::map<std::string, int> done;
        int restarts = 0, in_order = 0;
        while (done.size() < count) {
            auto m = reports.recv_for(20s);
            if (!m) break;
            ++done[std::string(m->data())];
            // Replaces another worker each time a sixth of the jobs is done.
            if (static_cast<int>(done.size()) / (count / 6) > restarts && restarts < workers) {
                dunlin::process& old = all[static_cast<std::size_t>(restarts++)];
                old.kill(SIGTERM);
                in_order += old.wait().success() ? 1 : 0;
                old = start();
            }
        }
        for (auto& w : all) {
            w.kill(SIGTERM);
            w.wait();
        }
        int twice = 0;
        for (const auto& [job, times] : done) twice += times > 1 ? 1 : 0;
        std::printf("%zu of %d jobs done, %d twice; %d of %d workers ended in order while it went on; %llu jobs left\n",
            done.size(), count, twice, in_order, restarts, static_cast<unsigned long long>(jobs.size().messages));
        cluster.close();
        return done.size() == count && twice == 0 && in_order == workers ? 0 : 1;
    });
}

}  // namespace

int main(int argc, char** argv) {
    return argc > 1 && std::strcmp(argv[1], "worker") == 0 ? work() : restart_them(argv[0]);
}
