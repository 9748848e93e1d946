#include "scale/workloads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include <dunlin/dunlin.hpp>

namespace dunlin_scale {

namespace {

using namespace std::chrono_literals;
using dunlin::chan;
using dunlin::go;
using dunlin::task_group;
using dunlin::wait_group;

constexpr std::int64_t us = 1'000;

// ---- spawn trees: a goroutine starts two and waits for them; the leaves compute 1 us. ------------------------------

void tree(unsigned leaves, const host& h) {
    if (leaves <= 1) return h.compute(1 * us);
    task_group g;
    g.go([leaves, &h] { tree(leaves / 2, h); });
    g.go([leaves, &h] { tree(leaves - leaves / 2, h); });
    g.wait();
}

std::uint64_t trees(unsigned procs, unsigned size, const host& h) {
    h.begin();
    tree(size * procs, h);
    h.end();
    return std::uint64_t{size} * procs;
}

// ---- what goes on and on: measured for so many microseconds, when each has found its place. -------------------------

// The program's own words: no simulation counts them.
struct alignas(64) tally {
    std::atomic<std::uint64_t> n{0};
    void add() { n.store(n.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
};

class window {
public:
    explicit window(unsigned members) : tallies_(members) {}

    // A member counts an operation. False: it ends.
    bool goes_on(unsigned member) {
        tallies_[member].add();
        return !over_.load(std::memory_order_relaxed);
    }
    // The same, of members that are quick: until all have done their first ones they do something else.
    template <class F>
    bool goes_on_together(unsigned member, F something_else) {
        if (tallies_[member].n.load(std::memory_order_relaxed) == first_ones) {
            while (!together_.load(std::memory_order_relaxed)) something_else();
        }
        return goes_on(member);
    }

    std::uint64_t measure(unsigned microseconds, const host& h) {
        while (std::any_of(tallies_.begin(), tallies_.end(), [](const tally& t) { return t.n.load() < enough; })) {
            dunlin::sleep_for(1ms);
        }
        together_.store(true);
        dunlin::sleep_for(1ms);
        const std::uint64_t before = sum();
        h.begin();
        dunlin::sleep_for(std::chrono::microseconds(microseconds));
        h.end();
        const std::uint64_t operations = sum() - before;
        over_.store(true);
        return operations;
    }

private:
    static constexpr std::uint64_t enough = 3, first_ones = 3;

    std::uint64_t sum() const {
        std::uint64_t all = 0;
        for (const tally& t : tallies_) all += t.n.load(std::memory_order_relaxed);
        return all;
    }

    std::vector<tally> tallies_;
    std::atomic<bool> together_{false}, over_{false};
};

// ---- channels: two goroutines that talk, for each CPU. -------------------------------------------------------------

template <class F>
void talk(wait_group& all, window& w, unsigned member, F until_all_do) {
    chan<int> there, back;
    all.go([=] {
        while (there.recv()) back.send(1);
    });
    do {
        there.send(1);
        back.recv();
    } while (w.goes_on_together(member, until_all_do));
    there.close();
}

std::uint64_t pairs(unsigned procs, unsigned size, const host& h) {
    wait_group all;
    window w(procs);
    for (unsigned p = 0; p < procs; ++p) {
        all.go([&, p] {
            h.compute(100 * us);
            talk(all, w, p, [&h] {
                h.compute(20 * us);
                dunlin::yield();
            });
        });
    }
    const std::uint64_t operations = w.measure(size, h);
    all.wait();
    return operations;
}

// The same after all of them have slept, so that they are woken by few.
std::uint64_t gathered(unsigned procs, unsigned size, const host& h) {
    wait_group all;
    window w(procs);
    for (unsigned p = 0; p < procs; ++p) {
        all.go([&, p] {
            talk(all, w, p, [] { dunlin::sleep_for(200us); });
        });
    }
    const std::uint64_t operations = w.measure(size, h);
    all.wait();
    return operations;
}

// ---- channels: one of jobs, one of results, four workers for each CPU. A job computes 5 us. ------------------------

std::uint64_t fan(unsigned procs, unsigned size, const host& h) {
    chan<int> jobs(64), results(64);
    const unsigned count = size * procs;
    wait_group all;
    h.begin();
    for (unsigned w = 0; w < 4 * procs; ++w) {
        all.go([=] {
            while (const std::optional<int> job = jobs.recv()) {
                h.compute(5 * us);
                results.send(*job);
            }
        });
    }
    go([=] {
        for (unsigned i = 0; i < count; ++i) jobs.send(1);
        jobs.close();
    });
    for (unsigned i = 0; i < count; ++i) results.recv();
    all.wait();
    h.end();
    return count;
}

// ---- stealing: one goroutine makes tasks of 10 us, the others have them from its queue. ----------------------------

std::uint64_t steal(unsigned procs, unsigned size, const host& h) {
    const unsigned count = size * procs;
    wait_group all;
    h.begin();
    for (unsigned i = 0; i < count; ++i) {
        all.go([&h] { h.compute(10 * us); });
    }
    all.wait();
    h.end();
    return count;
}

// ---- wake-ups: eight goroutines for each CPU; each sleeps 1 ms, computes 50 us, and passes a message on. -----------

std::uint64_t wakes(unsigned procs, unsigned size, const host& h) {
    const unsigned count = 8 * procs;
    std::vector<chan<int>> ring;
    for (unsigned i = 0; i < count; ++i) ring.emplace_back(64);
    wait_group all;
    window w(count);
    for (unsigned i = 0; i < count; ++i) {
        all.go([&, i] {
            do {
                dunlin::sleep_for(1ms);
                h.compute(50 * us);
                ring[(i + 1) % count].send(1);
                ring[i].try_recv();
            } while (w.goes_on(i));
        });
    }
    const std::uint64_t operations = w.measure(size, h);
    all.wait();
    return operations;
}

// ---- timers: sixteen goroutines for each CPU that sleep, each for another time, and compute 2 us. ------------------

std::uint64_t timers(unsigned procs, unsigned size, const host& h) {
    const unsigned count = 16 * procs;
    wait_group all;
    window w(count);
    for (unsigned i = 0; i < count; ++i) {
        all.go([&, i] {
            unsigned n = 0;
            do {
                dunlin::sleep_for(std::chrono::nanoseconds(50'000 + (i * 7919 + ++n * 104729) % 50'000));
                h.compute(2 * us);
            } while (w.goes_on(i));
        });
    }
    const std::uint64_t operations = w.measure(size, h);
    all.wait();
    return operations;
}

// ---- connections: eight for each CPU, with a goroutine at each end; 64 bytes there and back. -----------------------

std::uint64_t connections(unsigned procs, unsigned size, const host& h) {
    const unsigned count = 8 * procs;
    std::vector<std::pair<dunlin::net::stream, dunlin::net::stream>> both;
    for (unsigned i = 0; i < count; ++i) both.push_back(dunlin::net::stream_pair());
    wait_group all;
    window w(count);
    for (unsigned i = 0; i < count; ++i) {
        all.go([&, i] {
            char data[64];
            while (both[i].second.read_some(data) != 0) {
                h.compute(2 * us);
                both[i].second.write_all({data, sizeof data});
            }
        });
        all.go([&, i] {
            char data[64] = {};
            do {
                both[i].first.write_all({data, sizeof data});
                both[i].first.read_some(data);
            } while (w.goes_on(i));
            both[i].first.close();
        });
    }
    const std::uint64_t operations = w.measure(size, h);
    all.wait();
    return operations;
}

constexpr workload all_workloads[] = {
    {"trees", "leaves", trees, 1'500, 60'000, 20'000},
    {"pairs", "round trips", pairs, 400, 60'000, 2'000},
    {"gathered", "round trips", gathered, 400, 0, 0},
    {"fan", "jobs", fan, 200, 12'000, 10'000},
    {"steal", "tasks", steal, 400, 6'000, 6'000},
    {"wakes", "messages", wakes, 5'000, 60'000, 60'000},
    {"timers", "timers", timers, 3'000, 60'000, 20'000},
    {"connections", "round trips", connections, 3'000, 60'000, 20'000},
};

}  // namespace

std::span<const workload> workloads() noexcept { return all_workloads; }

}  // namespace dunlin_scale
