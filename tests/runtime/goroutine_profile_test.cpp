// runtime::goroutine_profile(): what is in it while goroutines begin and others look as well, and how they are grouped.
#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class GoroutineProfile : public support::each_p {};
EACH_P(GoroutineProfile);

struct sample {
    unsigned count;
    std::string labels, stack;
};

std::vector<sample> profile() {
    std::stringstream text;
    dunlin::runtime::goroutine_profile(text, dunlin::runtime::profile_format::text);
    std::vector<sample> samples;
    std::string line;
    unsigned total = 0, counted = 0;
    std::getline(text, line);
    EXPECT_EQ(std::sscanf(line.c_str(), "goroutine profile: total %u", &total), 1) << line;
    while (std::getline(text, line)) {
        if (line.find(" @") != line.npos && line[0] != '#') {
            samples.push_back({static_cast<unsigned>(std::stoul(line)), "", ""});
            counted += samples.back().count;
        } else if (line.starts_with("# labels: ") && !samples.empty()) {
            samples.back().labels = line.substr(10);
        } else if (!samples.empty()) {
            samples.back().stack += line;
        }
    }
    EXPECT_EQ(counted, total);
    return samples;
}

// The values that a label has, as numbers.
std::set<int> values_of(const std::vector<sample>& samples, const std::string& label) {
    std::set<int> values;
    for (const sample& s : samples) {
        const std::string key = '"' + label + "\":\"";
        if (const std::size_t at = s.labels.find(key); at != std::string::npos)
            values.insert(std::stoi(s.labels.substr(at + key.size())));
    }
    return values;
}

// go1.24 src/runtime/pprof/pprof_test.go, TestGoroutineProfileConcurrency; OBS-01. Whoever is there, so are all that
// were started before.
TEST_P(GoroutineProfile, OfSeveralAtOnceEachHasThoseThatWereStartedBefore) {
    run([] {
        constexpr int launched = 100;
        const dunlin::chan<int> gate;
        std::atomic<bool> all_there{false};
        std::atomic<int> complete{0};
        const auto look = [&] {
            for (bool last = false; !last;) {
                last = all_there.load();
                const std::set<int> there = values_of(profile(), "launched");
                const int last_one = there.empty() ? -1 : *there.rbegin();
                EXPECT_EQ(last_one + 1, static_cast<int>(there.size()));
                complete += there.size() == launched;
            }
        };
        std::thread outside(look);
        dunlin::wait_group lookers, all;
        for (int i = 0; i < 2; ++i) lookers.go(look);
        for (int i = 0; i < launched; ++i) {
            all.go({.labels = {{"launched", std::to_string(i)}}}, [=] { gate.recv(); });
            if (i % 10 == 0) dunlin::sleep_for(100us);
        }
        all_there = true;
        lookers.wait();
        dunlin::blocking([&] { outside.join(); });
        EXPECT_GE(complete, 3);
        gate.close();
        all.wait();
    });
}

[[gnu::noinline]] int waits_here(const dunlin::chan<int>& gate) { return gate.recv().value_or(1) + 1; }
[[gnu::noinline]] int waits_there(const dunlin::chan<int>& gate) { return gate.recv().value_or(2) + 2; }

// The same, TestGoroutineCounts; OBS-02.
TEST_P(GoroutineProfile, CountsByStackAndByLabel) {
    run([] {
        const dunlin::chan<int> gate;
        dunlin::wait_group all;
        const auto start = [&](unsigned count, const char* kind, int (*wait)(const dunlin::chan<int>&)) {
            for (unsigned i = 0; i < count; ++i) all.go({.labels = {{"kind", kind}}}, [=] { wait(gate); });
        };
        start(20, "few", waits_here);
        start(50, "some", waits_here);
        start(90, "many", waits_there);
        support::eventually([] { return dunlin::runtime::stats().waiting >= 160; });
        std::map<std::string, unsigned> counts;
        for (const sample& s : profile()) {
            for (const char* kind : {"few", "some", "many"}) {
                if (s.labels.find(kind) == s.labels.npos) continue;
                counts[kind] += s.count;
                const bool there = s.stack.find("waits_there") != s.stack.npos,
                           here = s.stack.find("waits_here") != s.stack.npos;
                EXPECT_NE(there, here) << s.stack;
                EXPECT_EQ(there, kind == std::string("many"));
                EXPECT_EQ(s.count, counts[kind]) << "one sample has them all";
            }
        }
        EXPECT_EQ(counts, (std::map<std::string, unsigned>{{"few", 20}, {"some", 50}, {"many", 90}}));
        gate.close();
        all.wait();
    });
}

}  // namespace
