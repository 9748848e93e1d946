// replay.cpp - part 17: a program that fails once in thousands of runs; found, played again and mended with
// <dunlin/sim.hpp>.
#include <mutex>

#include <dunlin/sim.hpp>

#include "parts.h"

namespace tour {

namespace {

// Two customers want the last ticket. The look and the sale hold the lock, but not from the one to the other.
int tickets_sold(bool mended) {
    dunlin::mutex lock;
    int left = 1, sold = 0;
    const auto buy = [&] {
        std::unique_lock held(lock);
        if (left == 0) return;
        if (!mended) {
            held.unlock();  // the price is looked up here, say
            held.lock();
        }
        --left;
        ++sold;
    };
    auto other = dunlin::spawn(buy);
    buy();
    other.get();
    return sold;
}

void sells_one(bool mended) { dunlin::sim::require(tickets_sold(mended) == 1, "one ticket, sold once"); }

std::uint64_t oversold_in(std::uint64_t runs) {
    std::uint64_t failures = 0;
    dunlin::run([&] {
        for (std::uint64_t i = 0; i < runs; ++i) failures += tickets_sold(false) != 1;
    });
    return failures;
}

// The report, without the frames of a stack and what is the same in each.
void show_report(const std::string& report) {
    std::size_t begin = 0;
    while (begin < report.size()) {
        const std::size_t end = std::min(report.find('\n', begin), report.size());
        std::string line = report.substr(begin, end - begin);
        for (const std::string_view word : {"tour::(anonymous namespace)::", "dunlin::sim: "}) {
            if (const std::size_t at = line.find(word); at != std::string::npos) line.erase(at, word.size());
        }
        const bool is_frame = line.find(" #") != std::string::npos || line.find("  in g") == 0;
        if (!is_frame) say("%s", line.substr(0, 118).c_str());
        begin = end + 1;
    }
}

}  // namespace

void replay(const options& o) {
    namespace sim = dunlin::sim;
    explain(
        "Two goroutines buy the last of the tickets; each looks whether there is one, and takes it, under a lock, but\n"
        "lets go of it between the two. Tests pass, nearly always. sim::explore() runs the same function on this same\n"
        "runtime, in orders that are drawn from seeds, with virtual time.");
    const std::uint64_t runs = o.quick ? 5'000 : 50'000;
    const std::uint64_t oversold = oversold_in(runs);
    say("run as it is       %s times: it failed %s times", with_commas(runs).c_str(), with_commas(oversold).c_str());

    const stopwatch watch;
    const sim::result found = sim::explore({.seeds = 2'000}, [] { sells_one(false); });
    say("explored           it failed with seed %s, after %s", bold(with_commas(found.seed)).c_str(),
        readable(watch.elapsed()).c_str());
    show_report(found.report);
    claim(!found.ok(), "the fault is found within 2,000 seeds");

    const sim::result again = sim::explore({.seeds = 1, .first_seed = found.seed}, [] { sells_one(false); });
    say("played again       hash of all choices %016llx, and the first time %016llx",
        static_cast<unsigned long long>(again.hash), static_cast<unsigned long long>(found.hash));
    claim(
        again.kind == found.kind && again.hash == found.hash, "the seed makes the same choices, and the same failure");

    const sim::result every = sim::explore({.seeds = 100'000, .strategy = sim::exhaustive(2)}, [] { sells_one(true); });
    const sim::result mended = sim::explore({.seeds = o.quick ? 2'000u : 20'000u}, [] { sells_one(true); });
    say("mended             %s drawn orders, and %s, which are all with at most two detours",
        with_commas(mended.executions).c_str(), with_commas(every.executions).c_str());
    claim(
        mended.ok() && every.ok() && every.complete, "with the lock held from the look to the sale none of them fails");
}

}  // namespace tour
