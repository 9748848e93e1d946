// circles.cpp - goroutines that wait for each other in a circle are reported, once, and the program goes on.
//
// When       The monitor has seen goroutines wait for a second for a mutex or for the end of others, and they are not
//            those of the last report (sched/monitor/monitor.cpp). With DUNLIN_DEBUG=deadlock it is 10 ms.
// Once       Two waits are the same if they began at the same moment. A circle with a wait that was reported is not
//            reported again.
// Tests      tests/runtime/circles_test.cpp
#include "observe/circles.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "observe/collect.h"
#include "observe/dump.h"
#include "observe/page.h"
#include "observe/wait_graph.h"
#include "sched/data/bells.h"
#include "sched/preempt/crash.h"
#include "sched/preempt/stack_capture.h"

namespace dunlin::inline v0_1::observe {

namespace {

using node = wait_graph::node;

// One report at a time: the world is stopped.
struct reported_wait {
    std::uint64_t id;
    std::int64_t since_ns;
};
constexpr std::size_t remembered = 1024;
reported_wait reported[remembered];
std::size_t reported_count = 0;

constexpr std::uint32_t written_of_a_circle = 50;

bool was_reported(const node& n) noexcept {
    const reported_wait* const end = reported + std::min(reported_count, remembered);
    return std::any_of(static_cast<const reported_wait*>(reported), end, [&](const reported_wait& w) {
        return w.id == n.g->id && w.since_ns == n.since_ns;
    });
}

void note_reported(const node& n) noexcept { reported[reported_count++ % remembered] = {n.g->id, n.since_ns}; }

// f(node, the node that it waits for), from the last to the first: the reverse of the order in which they were met.
template <class F>
void for_each_of(const wait_graph& graph, std::uint32_t first, std::uint32_t last, F f) {
    std::uint32_t next = first;
    for (std::uint32_t n = last;; n = graph.at(n).came_by) {
        f(graph.at(n), graph.at(next));
        if (n == first) return;
        next = n;
    }
}

struct link {
    const wait_graph& graph;
    const node &from, &to;
};

// ", for the end of goroutine 7": behind the place of the wait, where the holder of a mutex is named already.
void write_link(platform::text_writer& out, const void* with) noexcept {
    const link& l = *static_cast<const link*>(with);
    switch (l.from.how) {
    case wait_graph::kind::mutex: out << " (mutex " << l.from.object << ')'; return;
    case wait_graph::kind::join: out << ", for the end of goroutine " << l.to.g->id; return;
    case wait_graph::kind::in_place:
        out << ", for the end of goroutine " << l.to.g->id << ", which runs on its stack";
        return;
    case wait_graph::kind::group:
        out << ", for the end of ";
        if (&l.from == &l.to) {
            out << "itself, a member of that group";
        } else if (const std::uint32_t members = l.graph.edges_of(l.from); members == 1) {
            out << "goroutine " << l.to.g->id << ", a member of that group";
        } else {
            out << members << " members of that group that wait like it, of which one is goroutine " << l.to.g->id;
        }
        return;
    case wait_graph::kind::none: return;
    }
}

void write_what_ends_it(platform::text_writer& out, bool any_mutex, std::uint32_t limited) noexcept {
    if (limited != 0) {
        out << "a deadlock, if none of them gives up (" << limited
            << (limited == 1 ? " of these waits has a limit)\n\n" : " of these waits have a limit)\n\n");
    } else if (any_mutex) {
        out << "a deadlock, unless another goroutine unlocks one of the mutexes\n\n";
    } else {
        out << "a deadlock\n\n";
    }
}

void write_circle(page& to, const wait_graph& graph, const wait_graph& again, std::uint32_t first, std::uint32_t last,
    std::optional<sched::stack_captures>& captures) noexcept {
    bool real = true, known = false, only_mutexes = true, any_mutex = false;
    std::uint32_t length = 0, limited = 0;
    for_each_of(graph, first, last, [&](const node& n, const node& next) {
        real = real && again.has(n, next);
        known = known || was_reported(n);
        only_mutexes = only_mutexes && n.how == wait_graph::kind::mutex;
        any_mutex = any_mutex || n.how == wait_graph::kind::mutex;
        limited += n.limited;
        ++length;
    });
    if (!real || known) return;
    if (!captures) captures.emplace();
    if (only_mutexes) {
        to.text() << "dunlin: these goroutines wait for mutexes that they hold among themselves, in a circle: ";
    } else if (length == 1) {
        to.text() << "dunlin: this goroutine waits for its own end, a circle of one: ";
    } else {
        to.text() << "dunlin: these goroutines wait for one another, for mutexes and for their ends, in a circle: ";
    }
    write_what_ends_it(to.text(), any_mutex, limited);
    std::uint32_t written = 0;
    for_each_of(graph, first, last, [&](const node& n, const node& next) {
        note_reported(n);
        if (written++ >= written_of_a_circle) return;
        const link l{graph, n, next};
        write_one(to, *n.g, *captures, {write_link, &l});
    });
    if (written > written_of_a_circle) {
        to.text() << "... and " << written - written_of_a_circle << " more of this circle\n\n";
    }
}

// The world goes on. False: there is certainly none.
bool there_may_be_a_circle() noexcept {
    wait_graph guess(wait_graph::kind_of_look::guess);
    bool any = !guess.usable();
    guess.for_each_circle([&](std::uint32_t, std::uint32_t) { any = true; });
    return any;
}

void write_circles(page& to) noexcept {
    wait_graph graph;
    if (!graph.usable()) return;
    // made only when there is something to report: the graph costs as much as the first, the captures a few
    // milliseconds
    std::optional<wait_graph> again;
    std::optional<sched::stack_captures> captures;
    allow_searches(1000);
    graph.for_each_circle([&](std::uint32_t first, std::uint32_t last) {
        if (!again) again.emplace();
        if (again->usable()) write_circle(to, graph, *again, first, last, captures);
    });
}

}  // namespace

void report_circles() noexcept {
    if (there_may_be_a_circle()) report_later(write_circles, sched::maker_waits_for_stderr_ms);
}

}  // namespace dunlin::observe
