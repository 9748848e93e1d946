// stealing.cpp - part 2: all work is started in one place; the other processors come and take it.
#include <algorithm>
#include <atomic>
#include <vector>

#include "parts.h"
#include "sha256.h"

namespace tour {

namespace {

using stats = dunlin::runtime::processor_stats;
using dunlin::runtime::runtime_stats;

// So many fit into the local queue of one processor; more would go to the global queue, and then no processor needs to
// steal.
constexpr std::size_t pieces = 240;
constexpr std::size_t shown_at_most = 8;  // processors in the matrix

// 50 to 400 us of computing, by the piece's number.
void compute(std::size_t piece) {
    std::vector<char> block(16 * 1024 * (1 + piece % 8), static_cast<char>(piece));
    sha256 hash;
    hash.add(block.data(), block.size());
    volatile std::uint8_t keep = hash.finish()[0];
    static_cast<void>(keep);
}

// Starts all pieces from this goroutine, so into the queue of the processor that it is on, and waits.
void one_round(std::vector<std::atomic<int>>& times) {
    dunlin::wait_group done;
    done.add(static_cast<int>(pieces));
    for (std::size_t i = 0; i < pieces; ++i) {
        dunlin::go([&times, done, i]() mutable {
            compute(i);
            times[i].fetch_add(1, std::memory_order_relaxed);
            done.done();
        });
    }
    done.wait();
}

std::uint64_t stolen_from(
    const runtime_stats& before, const runtime_stats& after, std::size_t thief, std::size_t victim) {
    const auto at = [&](const runtime_stats& s) {
        return thief < s.procs.size() && victim < s.procs[thief].stolen_from.size() ? s.procs[thief].stolen_from[victim]
                                                                                    : 0;
    };
    return at(after) - at(before);
}

void draw_shares(const runtime_stats& before, const runtime_stats& after) {
    const double all = static_cast<double>(growth(before, after, &stats::ended));
    say("             %s  started      ran  steals", std::string(40, ' ').c_str());
    for (std::size_t p = 0; p < after.procs.size(); ++p) {
        const std::uint64_t ran = growth(before, after, p, &stats::ended);
        if (ran == 0) continue;
        say("processor %-2zu %s  %7s  %7s  %6s", p, bar(static_cast<double>(ran) / all).c_str(),
            with_commas(growth(before, after, p, &stats::created)).c_str(), with_commas(ran).c_str(),
            with_commas(growth(before, after, p, &stats::steals)).c_str());
    }
}

void draw_matrix(const runtime_stats& before, const runtime_stats& after) {
    const std::size_t shown = std::min<std::size_t>(after.max_procs, shown_at_most);
    std::string line = "goroutines stolen     from";
    for (std::size_t victim = 0; victim < shown; ++victim) line += text("%9s", text("P%zu", victim).c_str());
    say("%s", line.c_str());
    for (std::size_t thief = 0; thief < shown; ++thief) {
        line = text("                   by P%-2zu  ", thief);
        for (std::size_t victim = 0; victim < shown; ++victim) {
            line += text("%9s", thief == victim ? "-" : with_commas(stolen_from(before, after, thief, victim)).c_str());
        }
        say("%s", line.c_str());
    }
    if (shown < after.max_procs) say("                   (and %zu processors more)", after.max_procs - shown);
}

void show(std::size_t rounds) {
    if (dunlin::runtime::max_procs() == 1) {
        say("There is one processor here, so there is none to steal. DUNLIN_MAXPROCS=2 would make another.");
        std::vector<std::atomic<int>> times(pieces);
        one_round(times);
        claim(std::all_of(times.begin(), times.end(), [](const auto& n) { return n == 1; }),
            "every piece was done exactly once");
        return;
    }
    std::vector<std::atomic<int>> times(pieces);
    const runtime_stats before = dunlin::runtime::stats();
    const stopwatch watch;
    {
        progress line("pieces started in one place", rounds);
        for (std::size_t i = 0; i < rounds; ++i) {
            one_round(times);
            line.show(i + 1);
        }
    }
    const std::chrono::nanoseconds took = watch.elapsed();
    settle();
    const runtime_stats after = dunlin::runtime::stats();
    say("%zu times, %zu pieces of 50 to 400 us, started by one goroutine: %s", rounds, pieces, readable(took).c_str());
    draw_shares(before, after);
    draw_matrix(before, after);

    const std::uint64_t all = growth(before, after, &stats::ended);
    std::uint64_t busiest = 0;
    for (std::size_t p = 0; p < after.procs.size(); ++p)
        busiest = std::max(busiest, growth(before, after, p, &stats::ended));
    const double others = static_cast<double>(all - busiest) / static_cast<double>(all);
    const double fair = 1 - 1.0 / static_cast<double>(std::min<std::size_t>(after.max_procs, pieces));
    claim(std::all_of(times.begin(), times.end(), [&](const auto& n) { return n == static_cast<int>(rounds); }),
        "every piece was done exactly once each time");
    claim(growth(before, after, &stats::stolen) > 0,
        "work moved because it was stolen: %s goroutines by %s steals, half a queue at a time",
        with_commas(growth(before, after, &stats::stolen)).c_str(),
        with_commas(growth(before, after, &stats::steals)).c_str());
    // Others use this machine too, perhaps; half of the fair share is fair.
    claim(others >= fair / 2, "all but the busiest processor did %.0f %% of the work (fair would be %.0f %%)",
        100 * others, 100 * fair);
}

}  // namespace

void stealing(const options& o) {
    explain(
        "One goroutine starts all the work, so it stands in the queue of one processor. It is not handed out: a processor\n"
        "that has nothing to do looks at the others in random order and takes half of the first queue it finds.");
    dunlin::run([&] { show(o.quick ? 4 : 20); });
}

}  // namespace tour
