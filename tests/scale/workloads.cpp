#include "scale/workloads.h"

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

// ---- channels: two goroutines that talk, for each CPU. -------------------------------------------------------------

std::uint64_t pairs(unsigned procs, unsigned size, const host& h) {
    wait_group all;
    chan<int> start;
    for (unsigned p = 0; p < procs; ++p) {
        chan<int> there, back;
        all.go([=] {
            for (unsigned i = 0; i < size; ++i) back.send(*there.recv());
        });
        all.go([=] {
            start.recv();
            for (unsigned i = 0; i < size; ++i) {
                there.send(1);
                back.recv();
            }
        });
    }
    h.begin();
    start.close();
    all.wait();
    h.end();
    return std::uint64_t{size} * procs;
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
    for (unsigned i = 0; i < count; ++i) ring.emplace_back(size);
    wait_group all;
    h.begin();
    for (unsigned i = 0; i < count; ++i) {
        all.go([&, i] {
            for (unsigned n = 0; n < size; ++n) {
                dunlin::sleep_for(1ms);
                h.compute(50 * us);
                ring[(i + 1) % count].send(1);
                ring[i].recv();
            }
        });
    }
    all.wait();
    h.end();
    return std::uint64_t{count} * size;
}

// ---- timers: sixteen goroutines for each CPU that sleep, each for another time, and compute 2 us. ------------------

std::uint64_t timers(unsigned procs, unsigned size, const host& h) {
    const unsigned count = 16 * procs;
    wait_group all;
    h.begin();
    for (unsigned i = 0; i < count; ++i) {
        all.go([&h, i, size] {
            for (unsigned n = 0; n < size; ++n) {
                dunlin::sleep_for(std::chrono::nanoseconds(50'000 + (i * 7919 + n * 104729) % 50'000));
                h.compute(2 * us);
            }
        });
    }
    all.wait();
    h.end();
    return std::uint64_t{count} * size;
}

// ---- connections: eight for each CPU, with a goroutine at each end; 64 bytes there and back. -----------------------

std::uint64_t connections(unsigned procs, unsigned size, const host& h) {
    const unsigned count = 8 * procs;
    std::vector<std::pair<dunlin::net::stream, dunlin::net::stream>> both;
    for (unsigned i = 0; i < count; ++i) both.push_back(dunlin::net::stream_pair());
    wait_group all;
    h.begin();
    for (unsigned i = 0; i < count; ++i) {
        all.go([&, i] {
            char data[64];
            for (unsigned n = 0; n < size; ++n) {
                both[i].second.read_some(data);
                h.compute(2 * us);
                both[i].second.write_all({data, sizeof data});
            }
        });
        all.go([&, i] {
            char data[64] = {};
            for (unsigned n = 0; n < size; ++n) {
                both[i].first.write_all({data, sizeof data});
                both[i].first.read_some(data);
            }
        });
    }
    all.wait();
    h.end();
    return std::uint64_t{count} * size;
}

constexpr workload all_workloads[] = {
    {"trees", "leaves", trees, 2'000, 200'000, 20'000},
    {"pairs", "round trips", pairs, 1'000, 4'000'000, 40'000},
    {"fan", "jobs", fan, 400, 40'000, 10'000},
    {"steal", "tasks", steal, 400, 20'000, 20'000},
    {"wakes", "messages", wakes, 15, 200, 200},
    {"timers", "timers", timers, 40, 3'000, 1'000},
    {"connections", "round trips", connections, 60, 6'000, 2'000},
};

}  // namespace

std::span<const workload> workloads() noexcept { return all_workloads; }

}  // namespace dunlin_scale
