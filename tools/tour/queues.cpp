// queues.cpp - parts 3 to 5: in which order goroutines run. With one processor, so that it is the scheduler's order and
// not chance.
#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "parts.h"

namespace tour {

using stats = dunlin::runtime::processor_stats;

// ---- 5. the LIFO slot -----------------------------------------------------------------------------------------------

namespace {

struct lifo_order {
    std::string started = "started   ", ran = "ran       ", ticks = "slice     ";
    std::vector<int> order;
    bool slices = true;

    bool as_claimed() const { return slices && order == std::vector<int>{5, 1, 2, 3, 4}; }
};

lifo_order start_five() {
    const dunlin::no_preempt no_other_runs_meanwhile;
    constexpr int children = 5;
    struct event {
        int child;
        std::uint64_t tick;
    };
    std::vector<event> events;
    dunlin::wait_group done;
    done.add(children);
    for (int i = 1; i <= children; ++i) {
        // Started by dunlin::go and not by done.go: those would be run by wait() itself, which is part 8.
        dunlin::go([&events, done, i]() mutable {
            events.push_back({i, dunlin::runtime::stats().procs[0].tick});
            done.done();
        });
    }
    const std::uint64_t ours = dunlin::runtime::stats().procs[0].tick;
    done.wait();

    lifo_order r;
    for (std::size_t i = 0; i < events.size(); ++i) {
        const long since = static_cast<long>(events[i].tick - ours);
        r.started += text("%5zu", i + 1);
        r.ran += text("%5d", events[i].child);
        r.ticks += since == 0 ? " ours" : text("%+5ld", since);
        r.order.push_back(events[i].child);
        // One more at the beginning if the main goroutine's own slice had just ended.
        r.slices = r.slices && (i < 2 ? since <= static_cast<long>(i) + 1 : events[i].tick == events[i - 1].tick + 1);
    }
    return r;
}

void show_lifo_slot() {
    const one_processor alone;
    // The main goroutine may lose its processor in the midst of it, and the order is another one then; seldom, and it
    // is said.
    lifo_order r = start_five();
    for (int again = 0; again < 4 && !r.as_claimed(); ++again) {
        say("%s   in another order: once more", r.ran.c_str());
        r = start_five();
    }
    say("%s   in this order, by the main goroutine", r.started.c_str());
    say("%s   the last one first, then the others as they came", r.ran.c_str());
    say("%s   the scheduler's tick: a new time slice begins with each one but the first", r.ticks.c_str());
    claim(r.order == std::vector<int>{5, 1, 2, 3, 4},
        "the goroutine started last ran first; the others first come, first served");
    claim(r.slices, "it inherited the starter's time slice; each of the others began one of its own");
}

}  // namespace

void lifo_slot(const options&) {
    explain(
        "A goroutine that was just started, or woken, is likely to be what the others wait for, and its data are in the\n"
        "cache. So it goes to a slot that is looked at first, and the one that was there moves to the queue. Two that wake each\n"
        "other could go on like that for ever; so it runs on what is left of the time slice of the one that started it.");
    dunlin::run(show_lifo_slot);
}

// ---- 6. fairness ----------------------------------------------------------------------------------------------------

namespace {

constexpr std::uint64_t global_tick = 61;

// Ping starts pong, pong starts ping: the local queue is never empty.
struct endless {
    std::atomic<std::uint64_t> executions{0};
    std::atomic<bool> stop{false};
    dunlin::wait_group ended;

    void play() {
        ++executions;
        if (stop) return ended.done();
        dunlin::go([this] { play(); });
        // Takes the LIFO slot, so that the other one moves to the queue and gets a time slice of its own.
        dunlin::go([this] { ++executions; });
    }
};

void show_fairness(std::size_t times) {
    const one_processor alone;
    endless game;
    game.ended.add(1);
    dunlin::go([&] { game.play(); });
    std::vector<std::uint64_t> waited;
    std::size_t still_busy = 0;
    const dunlin::runtime::runtime_stats before = dunlin::runtime::stats();
    for (std::size_t i = 0; i < times; ++i) {
        dunlin::wait_group arrived;
        arrived.add(1);
        std::atomic<std::uint64_t> ran_at{0};
        // What a plain thread starts belongs to no processor: it goes into the global queue.
        std::thread([&] {
            dunlin::go([&] {
                ran_at = game.executions.load();
                arrived.done();
            });
        }).join();
        const std::uint64_t from = game.executions;  // the game may have gone on while this thread waited for the other
        arrived.wait();
        waited.push_back(ran_at > from ? ran_at - from : 0);
        if (i % (times / 10) == 0 && dunlin::runtime::stats().procs[0].run_queue > 0) ++still_busy;
    }
    const dunlin::runtime::runtime_stats after = dunlin::runtime::stats();
    game.stop = true;
    game.ended.wait();

    std::sort(waited.begin(), waited.end());
    say("A goroutine went into the global queue %s times while ping and pong ran %s times.", with_commas(times).c_str(),
        with_commas(game.executions.load()).c_str());
    say("Until it ran again, others were executed:  least %llu   median %llu   most %llu",
        static_cast<unsigned long long>(waited.front()), static_cast<unsigned long long>(waited[waited.size() / 2]),
        static_cast<unsigned long long>(waited.back()));
    say("(Two for each tick: ping or pong, and a short one in the LIFO slot, which inherits its starter's slice.)");
    // Not all: the main goroutine's thread sleeps while it waits for the plain one, and its processor may go to the
    // game meanwhile.
    const std::uint64_t nine_of_ten = waited[waited.size() * 9 / 10];
    claim(nine_of_ten <= 2 * global_tick + 2,
        "no later than the 61st tick: at most %llu executions nine times of ten (the bound is %llu)",
        static_cast<unsigned long long>(nine_of_ten), static_cast<unsigned long long>(2 * global_tick + 2));
    // The end of a slice lets it in as well.
    claim(growth(before, after, 0, &stats::global_tick_hits) >= times * 9 / 10,
        "nine times of ten at least it was the 61st tick that let it in: %s times",
        with_commas(growth(before, after, 0, &stats::global_tick_hits)).c_str());
    claim(still_busy >= 5, "the local queue was hardly ever empty then: looked ten times, found something %zu times",
        still_busy);
}

}  // namespace

void fairness(const options& o) {
    explain(
        "Ping starts pong and ends, pong starts ping and ends, for ever: the processor's own queue never runs dry. A goroutine that\n"
        "stands in the global queue would never run if it were looked at only then. So it is looked at every 61st tick.");
    dunlin::run([&] { show_fairness(o.quick ? 100 : 1000); });
}

// ---- 7. overflow ----------------------------------------------------------------------------------------------------

namespace {

struct queues {
    bool slot;
    std::size_t ring, global;
    std::uint64_t overflows;
};

queues look() {
    const dunlin::runtime::runtime_stats s = dunlin::runtime::stats();
    return {s.procs[0].run_next, s.procs[0].run_queue, s.global_queue, s.procs[0].overflows};
}

void draw(int started, const queues& q) {
    say("after %3d:  LIFO slot %d   local queue %s %3zu   global queue %s %3zu", started, q.slot ? 1 : 0,
        bar(static_cast<double>(q.ring) / 256, 16).c_str(), q.ring,
        bar(static_cast<double>(q.global) / 256, 16).c_str(), q.global);
}

void show_overflow() {
    const one_processor alone;
    const dunlin::no_preempt no_other_runs_meanwhile;
    constexpr int full = 257;
    std::vector<int> order;
    dunlin::wait_group done;
    done.add(full + 1);
    const auto start = [&](int i) {
        dunlin::go([&order, done, i]() mutable {
            order.push_back(i);
            done.done();
        });
    };
    const queues before = look();
    for (int i = 1; i <= full; ++i) start(i);
    const queues at_257 = look();
    start(full + 1);
    const queues at_258 = look();
    done.wait();

    draw(0, before);
    draw(full, at_257);
    draw(full + 1, at_258);
    say("They ran in this order: %d %d %d ... %d %d %d", order[0], order[1], order[2], order[255], order[256],
        order[257]);
    claim(at_257.slot && at_257.ring == 256 && at_257.global == before.global && at_257.overflows == before.overflows,
        "257 fit: one in the slot, 256 in the local queue");
    claim(at_258.slot && at_258.ring == 128 && at_258.global == before.global + 129 &&
              at_258.overflows == before.overflows + 1,
        "the next one moved half of the queue and itself, 129 goroutines at once, to the global queue");
    claim(order.size() == 258 && std::set<int>(order.begin(), order.end()).size() == 258, "all 258 ran, each once");
}

}  // namespace

void overflow(const options&) {
    explain(
        "A processor's own queue has 256 places, so that it needs no lock. The main goroutine starts one goroutine more\n"
        "than there is room for, without letting any of them run meanwhile.");
    dunlin::run(show_overflow);
}

}  // namespace tour
