// nats_thumbnails.cpp - a thumbnail service: a request is answered at once if the thumbnail is there; if it is not, a
// work queue makes it.
//
//   caller --request--> front --job--> workers (any number, anywhere) --put--> bucket --watch--> front --answer-->
//   caller
//
// Many clients that ask for the same picture at the same time cause only one job. A front or worker that dies is
// replaced by any other. NATS_URL names the servers.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <dunlin/dunlin.hpp>
#include <dunlin/nats.hpp>

using namespace std::chrono_literals;
namespace nats = dunlin::nats;

namespace {

// ---- pictures: grey, a byte for each point (PGM)

struct picture {
    int width = 0, height = 0;
    std::string points;
};

picture load(const std::string& name) {  // from wherever the originals are
    picture p{640, 480, std::string(640 * 480, '\0')};
    for (std::size_t i = 0; i < p.points.size(); ++i)
        p.points[i] = static_cast<char>(i * static_cast<unsigned char>(name.back()) >> 7 & 0xff);
    return p;
}

// Each point is the mean of `by` times `by`.
picture shrink(const picture& p, int by) {
    picture small{p.width / by, p.height / by, {}};
    for (int y = 0; y < small.height; ++y) {
        for (int x = 0; x < small.width; ++x) {
            int sum = 0;
            for (int dy = 0; dy < by; ++dy) {
                for (int dx = 0; dx < by; ++dx)
                    sum += static_cast<unsigned char>(
                        p.points[static_cast<std::size_t>((y * by + dy) * p.width + x * by + dx)]);
            }
            small.points += static_cast<char>(sum / (by * by));
        }
    }
    return small;
}

std::string pgm(const picture& p) {
    return "P5\n" + std::to_string(p.width) + " " + std::to_string(p.height) + "\n255\n" + p.points;
}

// ---- the service

nats::server serve_front(
    const nats::cluster& cluster, const nats::queue<std::string>& jobs, const nats::bucket<std::string>& made) {
    return nats::serve(cluster, "thumbnail", [=](const nats::message& m, const dunlin::context& ctx) -> std::string {
        const std::string name(m.data());
        if (name.empty() || name.find_first_of(" .*>") != name.npos) throw std::invalid_argument("not a name: " + name);
        if (auto there = made.get(name, ctx)) return *there->value;
        auto change = made.watch(name);                // what is there, and changes from now on
        jobs.send(name, nats::once_by(name), ctx);     // stored once, however many clients ask
        for (;;) {
            if (auto e = change.recv(ctx); e.value) return *e.value;
        }
    });
}

void work(const nats::queue<std::string>& jobs, const nats::bucket<std::string>& made, const dunlin::context& ctx,
    std::atomic<int>& count) {
    for (auto d : jobs.consume({.in_flight = 2, .ctx = ctx})) {
        made.put(*d, pgm(shrink(load(*d), 8)));  // writes the same if the job comes again
        ++count;
        d.done();
    }
}

}  // namespace

int main() {
    const char* url = std::getenv("NATS_URL");
    return dunlin::run([&] {
        // One process here; each part could be a program of its own.
        auto cluster = nats::connect(url != nullptr ? url : "nats://127.0.0.1:4222", {.name = "thumbnails"});
        auto jobs = cluster.queue<std::string>("thumbnails", {.ack_wait = 10s});
        auto made = cluster.bucket<std::string>("thumbnails");
        auto front = serve_front(cluster, jobs, made);
        const auto over = dunlin::with_cancel(dunlin::context::background());
        std::atomic<int> count{0};
        dunlin::wait_group workers;
        for (int w = 0; w < 3; ++w) workers.go([&] { work(jobs, made, over, count); });

        // Callers: ten pictures; six callers ask for each at the same time.
        std::atomic<int> answers{0}, wrong{0};
        const std::size_t size = pgm(shrink(load("x"), 8)).size();
        dunlin::wait_group callers;
        for (int i = 0; i < 60; ++i) {
            callers.go([&, i] {
                auto [ctx, cancel] = dunlin::with_timeout(dunlin::context::background(), 20s);
                const auto answer = cluster.request("thumbnail", "cat" + std::to_string(i % 10), ctx);
                (answer.data().size() == size ? answers : wrong) += 1;
            });
        }
        callers.wait();
        over.cancel();
        workers.wait();
        front.drain();
        cluster.close();
        std::printf("%d answers of %zu bytes, %d thumbnails made\n", answers.load(), size, count.load());
        return answers == 60 && wrong == 0 && count >= 10 ? 0 : 1;
    });
}
