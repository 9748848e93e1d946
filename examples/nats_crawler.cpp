// nats_crawler.cpp - a crawler whose frontier is a queue: any number of processes take pages from it and put what they
// find back into it.
//
// A page is known if its name is in a bucket; create() decides this once for all crawlers. The job's id is the page's
// name, so that a page found twice at the same time is stored once. The links of a page are in the queue before the
// page is done: a crawler that dies in between crawls it again, and an empty queue means that everything was seen. Here
// the web is a server in this program. NATS_URL names the NATS servers.
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <dunlin/nats.hpp>

using namespace std::chrono_literals;
namespace nats = dunlin::nats;

namespace {

// ---- the web: 300 pages, each of which links to some others

constexpr int pages = 300;

std::string page(int n) {
    std::string text = "<h1>page " + std::to_string(n) + "</h1>";
    for (const int to : {2 * n + 1, 2 * n + 2, n / 3, n * n % pages}) {
        if (to < pages) text += "<a href=\"/" + std::to_string(to) + "\">more</a>";
    }
    return text;
}

void serve(dunlin::net::listener& listener) {
    std::error_code ec;
    for (;;) {
        auto client = listener.accept(ec);
        if (ec) return;
        dunlin::go([client = std::move(client)]() mutable {
            std::string asked;
            char some[512];
            std::error_code fault;
            while (asked.find("\r\n\r\n") == asked.npos) {
                const std::size_t n = client.read_some(some, sizeof some, fault);
                if (fault || n == 0) return;
                asked.append(some, n);
            }
            const std::string body = page(std::atoi(asked.c_str() + 5));  // "GET /17 HTTP/1.1"
            client.write_all("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) +
                                 "\r\nConnection: close\r\n\r\n" + body,
                fault);
        });
    }
}

// ---- the crawler

std::string fetch(const std::string& host, const std::string& path, const dunlin::context& ctx) {
    auto s = dunlin::net::dial("tcp", host, ctx);
    s.write_all("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
    std::string text;
    char some[4096];
    while (const std::size_t n = s.read_some(some, sizeof some)) text.append(some, n);
    return text;
}

std::vector<std::string> links(const std::string& text) {
    std::vector<std::string> found;
    const std::string before = "href=\"";
    for (std::size_t at = 0; (at = text.find(before, at)) != text.npos;) {
        at += before.size();
        found.push_back(text.substr(at, text.find('"', at) - at));
    }
    return found;
}

// Makes a name that can be a key of a bucket.
std::string key(const std::string& path) { return "page" + path; }

// Puts the page into the frontier if no crawler has seen it yet.
void found(const nats::queue<std::string>& frontier, const nats::bucket<std::string>& seen, const std::string& path) {
    if (seen.get(key(path))) return;
    frontier.send(path, nats::once_by(path));
    try {
        seen.create(key(path), "");
    } catch (const nats::error& e) {
        if (e.code() != nats::errc::wrong_revision) throw;  // another crawler was first
    }
}

}  // namespace

int main() {
    const char* url = std::getenv("NATS_URL");
    return dunlin::run([&] {
        auto web = dunlin::net::listen("tcp", "127.0.0.1:0");
        const std::string host = web.local_address().to_string();
        dunlin::go([&] { serve(web); });

        auto cluster = nats::connect(url != nullptr ? url : "nats://127.0.0.1:4222", {.name = "crawler"});
        auto frontier = cluster.queue<std::string>("frontier", {.ack_wait = 10s});
        auto seen = cluster.bucket<std::string>("seen");
        found(frontier, seen, "/0");

        const auto over = dunlin::with_cancel(dunlin::context::background());
        std::atomic<int> fetched{0};
        dunlin::wait_group crawlers;
        for (int c = 0; c < 8; ++c) {
            crawlers.go([&] {
                for (auto d : frontier.consume({.in_flight = 4, .ctx = over})) {
                    try {
                        const auto [soon, cancel] = dunlin::with_timeout(d.context(), 5s);
                        for (const std::string& to : links(fetch(host, *d, soon))) found(frontier, seen, to);
                        ++fetched;
                        d.done();
                    } catch (const dunlin::io_error&) {
                        d.retry(1s);  // after five times it is a dead letter
                    }
                }
            });
        }
        while (frontier.size().messages > 0) dunlin::sleep_for(50ms);
        over.cancel();
        crawlers.wait();
        web.close();
        cluster.close();
        std::printf("%d pages of %d fetched\n", fetched.load(), pages);
        return fetched >= pages ? 0 : 1;
    });
}
