// work_bench.cpp - goroutines that work between the hand-overs, which is what programs do: how near a runtime comes to
// keeping all processors busy. Twin: peers/go/work.go.
//
// `fan-*` and `pipe-*` are sweeps over the length of the work, `dunlin_bench fan-4 --n 200`: --n is the work of each
// step in tenths of a microsecond, and 1 stands for none. bench/driver/growth.py says which lengths are run.

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "measure.h"
#include "registry.h"
#include "work.h"

namespace bench {
namespace {

/// The work of each step, by --n.
double step_us(const settings& s) { return s.size() == 1 ? 0 : static_cast<double>(s.size()) / 10; }

/// As many as can run at the same time.
double processors() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) fail("sched_getaffinity failed");
    return std::min(static_cast<double>(dunlin::runtime::max_procs()), static_cast<double>(CPU_COUNT(&allowed)));
}

/// What the requests (or values) of one batch come to.
struct expectation {
    double ideal_us = 0;  // if nothing but the work took time
    std::uint64_t sum = 0;
};

/// So many operations that a batch takes 30 ms, or a little more if `least` of them do.
long operations_of(const settings& s, double ideal_us, double hand_overs, long least) {
    const double each_us = std::max(ideal_us, 0.1 * hand_overs);
    return std::max(s.scaled(static_cast<long>(30'000 / each_us)), least);
}

void expect_sum(const char* what, std::uint64_t got, const expectation& e) {
    expect(what, static_cast<long>(got), static_cast<long>(e.sum));
}

/// Time per operation, and, where there is work, as a multiple of what it would be if nothing else took time.
void report(results& r, double ns, const expectation& e, long operations) {
    r.add("time", ns / 1e3, "us");
    if (e.ideal_us > 0) r.add("of-ideal", ns / 1e3 * static_cast<double>(operations) / e.ideal_us, "x");
}

// ---- sweeps: fan-out and pipelines ----------------------------------------------------------------------------------

/// A request is answered when all of its jobs are: it takes as long as the longest, or as all of them on all
/// processors.
expectation of_fan(const pieces& p, long workers, long requests) {
    expectation e;
    for (long i = 0; i < requests; ++i) {
        double total_us = 0, longest_us = 0;
        for (long job = i * workers; job < (i + 1) * workers; ++job) {
            total_us += p.us(job);
            longest_us = std::max(longest_us, p.us(job));
            e.sum += p.worked(static_cast<std::uint64_t>(job), job);
        }
        e.ideal_us += std::max(total_us / processors(), longest_us);
    }
    return e;
}

/// So many workers take jobs from one channel and answer over another. A request is one job for each.
void fan(const settings& s, results& r, long workers, bool skewed) {
    const pieces p(step_us(s), skewed);
    dunlin::run([&] {
        const double work_us = p.mean_us() * static_cast<double>(workers);
        const long requests =
            operations_of(s, work_us / processors(), 2 * static_cast<double>(workers), skewed ? 25 : 2);
        const expectation e = of_fan(p, workers, requests);
        dunlin::chan<long> jobs;
        dunlin::chan<std::uint64_t> answers;
        dunlin::wait_group working;
        for (long i = 0; i < workers; ++i) {
            working.go([&] {
                for (const long job : jobs) answers.send(p.work(static_cast<std::uint64_t>(job), job));
            });
        }
        const double ns = ns_per_operation(requests, [&] {
            std::uint64_t sum = 0;
            for (long i = 0; i < requests; ++i) {
                for (long w = 0; w < workers; ++w) jobs.send(i * workers + w);
                for (long w = 0; w < workers; ++w) sum += *answers.recv();
            }
            expect_sum("fan", sum, e);
        });
        jobs.close();
        working.wait();
        report(r, ns, e, requests);
    });
}

/// The longest chain is that of an unbuffered pipe, in which a stage waits until the next one takes its value. With
/// work that is all alike, capacity makes it no shorter.
expectation of_pipe(const pieces& p, long stages, long values) {
    expectation e;
    double total_us = 0;
    std::vector<double> free_us(static_cast<std::size_t>(stages));  // when each stage can take its next value
    for (long i = 0; i < values; ++i) {
        double now_us = free_us[0];
        auto value = static_cast<std::uint64_t>(i);
        for (long stage = 0; stage < stages; ++stage) {
            const long piece = i * stages + stage;
            if (stage > 0) {
                now_us = std::max(now_us, free_us[static_cast<std::size_t>(stage)]);
                free_us[static_cast<std::size_t>(stage - 1)] = now_us;
            }
            now_us += p.us(piece);
            total_us += p.us(piece);
            value = p.worked(value, piece);
        }
        free_us.back() = now_us;
        e.sum += value;
    }
    e.ideal_us = std::max(total_us / processors(), free_us.back());
    return e;
}

/// Values go through so many stages, each of which works on them; the first stage makes them, the last one adds them
/// up.
void pipe(const settings& s, results& r, long stages, std::ptrdiff_t capacity, bool skewed) {
    const pieces p(step_us(s), skewed);
    dunlin::run([&] {
        const double work_us = p.mean_us() * static_cast<double>(stages);
        const long values = operations_of(s, work_us / processors(), static_cast<double>(stages - 1), 100);
        const expectation e = of_pipe(p, stages, values);
        const double ns = ns_per_operation(values, [&] {
            std::vector<dunlin::chan<std::uint64_t>> links;
            for (long i = 1; i < stages; ++i) links.emplace_back(capacity);
            dunlin::wait_group working;
            std::uint64_t sum = 0;
            for (long stage = 1; stage < stages; ++stage) {
                working.go([&, stage] {
                    const bool last = stage == stages - 1;
                    long piece = stage;
                    for (std::uint64_t value : links[static_cast<std::size_t>(stage - 1)]) {
                        value = p.work(value, piece);
                        piece += stages;
                        if (last) {
                            sum += value;
                        } else {
                            links[static_cast<std::size_t>(stage)].send(value);
                        }
                    }
                    if (!last) links[static_cast<std::size_t>(stage)].close();
                });
            }
            for (long i = 0; i < values; ++i) links[0].send(p.work(static_cast<std::uint64_t>(i), i * stages));
            links[0].close();
            working.wait();
            expect_sum("pipe", sum, e);
        });
        report(r, ns, e, values);
    });
}

template <long Workers, bool Skewed = false>
void fan_of(const settings& s, results& r) {
    fan(s, r, Workers, Skewed);
}

template <long Stages, std::ptrdiff_t Capacity, bool Skewed = false>
void pipe_of(const settings& s, results& r) {
    pipe(s, r, Stages, Capacity, Skewed);
}

// ---- other shapes ---------------------------------------------------------------------------------------------------

/// How long goroutines that could run have waited while a processor had nothing to run, since `before`.
void report_waits(results& r, const dunlin::runtime::duration_histogram& before) {
    const auto waits = dunlin::runtime::stats().waits_while_idle.since(before);
    constexpr double most_us = 1e6;  // the last bucket has no end
    const auto us = [&](double q) { return std::min(static_cast<double>(waits.quantile_ns(q)) / 1e3, most_us); };
    r.add("wait-p50", us(0.5), "us");
    r.add("wait-p99", us(0.99), "us");
}

/// Requests one after the other; each does the same `total_us` of work, and the longest chain in it is `chain_us`.
template <class Request>
void answer_requests(
    const settings& s, results& r, double total_us, double chain_us, std::uint64_t answer, Request&& request) {
    const double ideal_us = std::max(total_us / processors(), chain_us);
    const long requests = operations_of(s, ideal_us, 0, 2);
    const auto waits = dunlin::runtime::stats().waits_while_idle;
    const double ns = ns_per_operation(requests, [&] {
        for (long i = 0; i < requests; ++i) expect_sum("an answer", request(), {0, answer});
    });
    report(r, ns, {ideal_us * static_cast<double>(requests), 0}, requests);
    report_waits(r, waits);
}

struct tree_job {
    std::uint64_t number;
    long leaves;
};

/// A worker of the tree, which lives on: splits each job in two for the workers below, or does it if it is a leaf.
void tree_worker(
    const pieces& p, const dunlin::chan<tree_job>& jobs, const dunlin::chan<std::uint64_t>& answers, long leaves) {
    if (leaves == 1) {
        for (const tree_job job : jobs) answers.send(p.work(job.number, 0));
        return;
    }
    const dunlin::chan<tree_job> below;
    const dunlin::chan<std::uint64_t> halves;
    dunlin::wait_group working;
    for (int i = 0; i < 2; ++i) working.go([&] { tree_worker(p, below, halves, leaves / 2); });
    for (const tree_job job : jobs) {
        below.send({job.number, job.leaves / 2});
        below.send({job.number + static_cast<std::uint64_t>(job.leaves / 2), job.leaves / 2});
        const std::uint64_t half = *halves.recv();
        answers.send(half + *halves.recv());
    }
    below.close();
    working.wait();
}

void tree(const settings& s, results& r) {
    constexpr long leaves = 16;
    constexpr double us = 20;
    const pieces p(us, false);
    std::uint64_t answer = 0;
    for (std::uint64_t i = 0; i < leaves; ++i) answer += p.worked(i, 0);
    dunlin::run([&] {
        const dunlin::chan<tree_job> jobs;
        const dunlin::chan<std::uint64_t> answers;
        dunlin::wait_group working;
        working.go([&] { tree_worker(p, jobs, answers, leaves); });
        answer_requests(s, r, us * leaves, us, answer, [&] {
            jobs.send({0, leaves});
            return *answers.recv();
        });
        jobs.close();
        working.wait();
    });
}

/// A goroutine for each job, of which four at most may work at once.
void bounded_pool(const settings& s, results& r) {
    constexpr std::size_t jobs = 64;
    constexpr std::ptrdiff_t at_once = 4;
    constexpr double us = 20;
    const pieces p(us, false);
    std::uint64_t answer = 0;
    for (std::uint64_t i = 0; i < jobs; ++i) answer += p.worked(i, 0);
    dunlin::run([&] {
        answer_requests(s, r, us * jobs, us * jobs / at_once, answer, [&] {
            std::array<std::uint64_t, jobs> done;
            dunlin::counting_semaphore<> free_places(at_once);
            dunlin::wait_group working;
            for (std::size_t i = 0; i < jobs; ++i) {
                working.go([&, i] {
                    free_places.acquire();
                    done[i] = p.work(i, 0);
                    free_places.release();
                });
            }
            working.wait();
            std::uint64_t sum = 0;
            for (const std::uint64_t value : done) sum += value;
            return sum;
        });
    });
}

struct letter {
    std::uint64_t value;
    int hops;  // that are left
};

/// Sixteen actors with a mailbox each. A round is a letter for each of them that goes on to three others, so each works
/// on four letters.
void actors(const settings& s, results& r) {
    constexpr std::size_t count = 16;
    constexpr int hops = 4;
    constexpr double us = 5;
    const pieces p(us, false);
    std::uint64_t answer = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        std::uint64_t value = i;
        for (int hop = 0; hop < hops; ++hop) value = p.worked(value, 0);
        answer += value;
    }
    dunlin::run([&] {
        std::vector<dunlin::chan<letter>> mailboxes;
        for (std::size_t i = 0; i < count; ++i) mailboxes.emplace_back(16);
        const dunlin::chan<std::uint64_t> arrived;
        dunlin::wait_group acting;
        for (std::size_t i = 0; i < count; ++i) {
            acting.go([&p, &arrived, in = mailboxes[i], next = mailboxes[(i * 5 + 3) % count]] {
                for (const letter l : in) {
                    const std::uint64_t value = p.work(l.value, 0);
                    if (l.hops > 1) {
                        next.send({value, l.hops - 1});
                    } else {
                        arrived.send(value);
                    }
                }
            });
        }
        answer_requests(s, r, us * hops * count, us * hops, answer, [&] {
            for (std::size_t i = 0; i < count; ++i) mailboxes[i].send({i, hops});
            std::uint64_t sum = 0;
            for (std::size_t i = 0; i < count; ++i) sum += *arrived.recv();
            return sum;
        });
        for (const auto& mailbox : mailboxes) mailbox.close();
        acting.wait();
    });
}

/// Eight workers with a channel each and 10 to 80 us of work; a request goes to all and waits for the slowest.
void scatter(const settings& s, results& r) {
    constexpr std::size_t workers = 8;
    std::vector<pieces> work;
    double total_us = 0, longest_us = 0;
    std::uint64_t answer = 0;
    for (std::size_t i = 0; i < workers; ++i) {
        longest_us = 10 * static_cast<double>(i + 1);
        total_us += longest_us;
        work.emplace_back(longest_us, false);
        answer += work.back().worked(i, 0);
    }
    dunlin::run([&] {
        std::vector<dunlin::chan<std::uint64_t>> requests(workers);
        const dunlin::chan<std::uint64_t> answers(workers);
        dunlin::wait_group working;
        for (std::size_t i = 0; i < workers; ++i) {
            working.go([&p = work[i], in = requests[i], &answers] {
                for (const std::uint64_t value : in) answers.send(p.work(value, 0));
            });
        }
        answer_requests(s, r, total_us, longest_us, answer, [&] {
            for (std::size_t i = 0; i < workers; ++i) requests[i].send(i);
            std::uint64_t sum = 0;
            for (std::size_t i = 0; i < workers; ++i) sum += *answers.recv();
            return sum;
        });
        for (const auto& request : requests) request.close();
        working.wait();
    });
}

const registered all[] = {
    registered({"fan-2", "a job of --n for each of 2 workers over unbuffered channels", fan_of<2>}),
    registered({"fan-4", "the same with 4 workers", fan_of<4>}),
    registered({"fan-8", "the same with 8 workers", fan_of<8>}),
    registered({"fan-16", "the same with 16 workers", fan_of<16>}),
    registered({"fan-2-skewed", "2 workers, and one job in ten takes ten times as long", fan_of<2, true>}),
    registered({"fan-4-skewed", "the same with 4 workers", fan_of<4, true>}),
    registered({"fan-8-skewed", "the same with 8 workers", fan_of<8, true>}),
    registered({"fan-16-skewed", "the same with 16 workers", fan_of<16, true>}),
    registered({"pipe-2-0", "values through 2 stages with work of --n, an unbuffered channel", pipe_of<2, 0>}),
    registered({"pipe-2-1", "the same over a channel of capacity 1", pipe_of<2, 1>}),
    registered({"pipe-2-16", "the same over a channel of capacity 16", pipe_of<2, 16>}),
    registered({"pipe-4-0", "values through 4 stages with work of --n, unbuffered channels", pipe_of<4, 0>}),
    registered({"pipe-4-1", "the same over channels of capacity 1", pipe_of<4, 1>}),
    registered({"pipe-4-16", "the same over channels of capacity 16", pipe_of<4, 16>}),
    registered({"pipe-2-0-skewed", "2 stages, and one step in ten takes ten times as long", pipe_of<2, 0, true>}),
    registered({"pipe-2-1-skewed", "the same over a channel of capacity 1", pipe_of<2, 1, true>}),
    registered({"pipe-2-16-skewed", "the same over a channel of capacity 16", pipe_of<2, 16, true>}),
    registered({"pipe-4-0-skewed", "the same through 4 stages, over unbuffered channels", pipe_of<4, 0, true>}),
    registered({"pipe-4-1-skewed", "the same over channels of capacity 1", pipe_of<4, 1, true>}),
    registered({"pipe-4-16-skewed", "the same over channels of capacity 16", pipe_of<4, 16, true>}),
    registered({"tree", "a job is split in two by each node of a tree of workers, down to 16 leaves", tree}),
    registered({"bounded-pool", "64 goroutines with a job each, four of them at once by a semaphore", bounded_pool}),
    registered({"actors", "16 actors with mailboxes, four letters of 5 us for each in a round", actors}),
    registered({"scatter", "a request to 8 workers of 10 to 80 us, until the slowest has answered", scatter}),
};

}  // namespace
}  // namespace bench
