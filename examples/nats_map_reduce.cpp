// nats_map_reduce.cpp - counts the words of files, with queues, buckets and goroutines. Mappers and reducers may be on
// any machine that sees the files. A job that is done twice writes the same result twice, so nothing counts twice.
// NATS_URL names the servers; files are the arguments (without any: this source).
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <dunlin/dunlin.hpp>
#include <dunlin/nats.hpp>

using namespace std::chrono_literals;
namespace nats = dunlin::nats;

constexpr std::size_t parts = 4;
using counts = std::map<std::string, long>;
template <>
struct dunlin::nats::codec<counts> {  // "word number word number ..."
    static std::string encode(const counts& c) {
        std::string text;
        for (const auto& [word, n] : c) text += word + ' ' + std::to_string(n) + ' ';
        return text;
    }
    static counts decode(std::string_view bytes) {
        std::istringstream in{std::string(bytes)};
        counts c;
        std::string word;
        for (long n = 0; in >> word >> n;) c[word] += n;
        return c;
    }
};

// Does the jobs of a queue, with the given number of goroutines, until `ctx` is done.
static void workers(
    dunlin::wait_group& all, const nats::queue<std::string>& jobs, int n, const dunlin::context& ctx, auto work) {
    for (; n > 0; --n) {
        all.go([=] {
            for (auto d : jobs.consume({.in_flight = 2, .ctx = ctx})) {
                work(*d);
                d.done();
            }
        });
    }
}

int main(int argc, char** argv) {
    const char* url = std::getenv("NATS_URL");
    return dunlin::run([&] {
        auto cluster = nats::connect(url != nullptr ? url : "nats://127.0.0.1:4222");
        auto map_jobs = cluster.queue<std::string>("map"), reduce_jobs = cluster.queue<std::string>("reduce");
        auto mapped = cluster.bucket<counts>("mapped"), reduced = cluster.bucket<counts>("reduced");
        std::map<std::string, std::string> files;  // by their names in the bucket
        for (int i = 1; i < argc; ++i) files["f" + std::to_string(i)] = argv[i];
        if (files.empty()) files["f0"] = __FILE__;

        const auto over = dunlin::with_cancel(dunlin::context::background());
        dunlin::wait_group all;
        workers(all, map_jobs, 4, over, [&](const std::string& file) {
            std::ifstream in(files.at(file));
            counts found[parts];
            for (std::string word; in >> word;) {
                if (std::isalpha(static_cast<unsigned char>(word[0])))
                    ++found[std::hash<std::string>()(word) % parts][word];
            }
            for (std::size_t p = 0; p < parts; ++p) mapped.put(file + "." + std::to_string(p), found[p]);
        });
        workers(all, reduce_jobs, 2, over, [&](const std::string& part) {
            counts sum;
            for (const auto& [file, path] : files) {
                auto found = mapped.get(file + "." + part);
                // a replica may be behind
                for (; !found; found = mapped.get(file + "." + part)) dunlin::sleep_for(10ms);
                for (const auto& [word, n] : *found->value) sum[word] += n;
            }
            reduced.put(part, sum);
        });
        for (const auto& [file, path] : files) map_jobs.send(file);
        while (map_jobs.size().messages > 0) dunlin::sleep_for(20ms);
        auto results = reduced.watch();
        for (std::size_t p = 0; p < parts; ++p) reduce_jobs.send(std::to_string(p));
        counts words;
        for (std::map<std::string, bool> seen; seen.size() < parts;) {
            auto e = results.recv();
            if (e.value && !std::exchange(seen[e.key], true)) words.merge(*e.value);
        }
        over.cancel();
        all.wait();
        cluster.close();
        std::pair<std::string, long> most;
        for (const auto& [word, n] : words) most = n > most.second ? std::pair(word, n) : most;
        std::printf("%zu words in %zu files; most often: %s, %ld times\n", words.size(), files.size(),
            most.first.c_str(), most.second);
        return words.size() > 20 ? 0 : 1;
    });
}
