// leaks.cpp - goroutines that can never go on (runtime::leaks()), and those that a test leaves behind
// (testing::no_leaks).
//
// By itself  These are certainly stuck for good: a goroutine that waits, without a limit, for a nil channel or in a
//            select in which no case can become ready; a goroutine that waits, without a limit, for the end of a stuck
//            one; and a goroutine that runs a stuck one in place, on its own stack. Not a waiter for a mutex: any
//            goroutine may unlock it.
// Lost       A goroutine that waits for something that nothing refers to any more, found by the search of lost.h. Where
//            the search is not possible the others are reported all the same.
// Tests      tests/runtime/leaks_test.cpp
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <dunlin/go.hpp>
#include <dunlin/runtime.hpp>
#include <dunlin/testing.hpp>

#include "observe/collect.h"
#include "observe/dump.h"
#include "observe/lost.h"
#include "observe/page.h"
#include "park/join.h"
#include "platform/clock.h"
#include "sched/data/all_goroutines.h"
#include "sched/goroutines/goroutine.h"
#include "sched/machines/processor.h"
#include "sched/preempt/crash.h"
#include "sched/preempt/lifetime.h"
#include "stack/trace.h"

namespace dunlin::inline v0_1::observe {

namespace {

using sched::goroutine;
using sched::goroutine_state;
using sched::wait_reason;

// The world is stopped while this exists.
class stopped_world {
public:
    stopped_world() noexcept { sched::stop_world(); }
    ~stopped_world() { sched::start_world(); }
    stopped_world(const stopped_world&) = delete;
    stopped_world& operator=(const stopped_world&) = delete;
};

const char* why_stuck_by_itself(const goroutine& g) noexcept {
    if (g.state.load(std::memory_order_acquire) != goroutine_state::waiting) return nullptr;
    switch (g.reason.load(std::memory_order_relaxed)) {
    case wait_reason::chan_receive_nil: return "receives from a nil channel";
    case wait_reason::chan_send_nil: return "sends to a nil channel";
    case wait_reason::select_no_cases: return "selects among no cases, or nil channels only";
    default: return nullptr;
    }
}

// f(g) for each goroutine that cannot go on before `child` ends.
template <class F>
void for_each_held_up_by(const goroutine& child, F f) {
    if (const goroutine* joiner = park::joiner_of(&child)) f(*joiner);
    if ((child.flags & goroutine::in_place) == 0) return;
    sched::for_each_goroutine([&](const goroutine& g) {
        const bool runs_another = g.state.load(std::memory_order_acquire) == goroutine_state::waiting &&
                                  g.reason.load(std::memory_order_relaxed) == wait_reason::in_place_join;
        if (runs_another && g.stack == child.stack) f(g);
    });
}

// The stuck goroutines, each with the reason. The world is stopped.
std::map<const goroutine*, const char*> find_stuck() {
    std::map<const goroutine*, const char*> found;
    std::vector<const goroutine*> to_do;
    const auto add = [&](const goroutine& g, const char* why) {
        if (found.emplace(&g, why).second) to_do.push_back(&g);
    };
    sched::for_each_goroutine([&](const goroutine& g) {
        if (const char* why = why_stuck_by_itself(g)) add(g, why);
    });
    while (!to_do.empty()) {
        const goroutine* child = to_do.back();
        to_do.pop_back();
        for_each_held_up_by(*child, [&](const goroutine& g) {
            add(g, "waits for the end of one that can never go on");
        });
    }
    return found;
}

std::vector<std::uint64_t> alive_now() {
    std::vector<std::uint64_t> ids;
    const stopped_world stopped;
    sched::for_each_goroutine([&](const goroutine& g) {
        if (alive(g)) ids.push_back(g.id);
    });
    std::sort(ids.begin(), ids.end());
    return ids;
}

bool is_new(const goroutine& g, const void* before) noexcept {
    const auto& ids = *static_cast<const std::vector<std::uint64_t>*>(before);
    return !std::binary_search(ids.begin(), ids.end(), g.id);
}

struct left_over {
    std::size_t count = 0;
    bool all_stuck = true;
};

left_over look_for_new(const std::vector<std::uint64_t>& before, const lost_goroutines& lost) {
    left_over left;
    const stopped_world stopped;
    const std::map<const goroutine*, const char*> stuck = find_stuck();
    sched::for_each_goroutine([&](const goroutine& g) {
        if (!alive(g) || &g == sched::current_goroutine() || !is_new(g, &before)) return;
        ++left.count;
        left.all_stuck = left.all_stuck && (stuck.contains(&g) || lost.contains(g));
    });
    return left;
}

// Empty: there is none.
std::string report_of_new(const std::vector<std::uint64_t>& before, const std::source_location& where) {
    page page;
    page.reserve(sched::live_goroutines());
    const goroutine_filter filter{is_new, &before};
    std::size_t count = 0;
    {
        const stopped_world stopped;
        sched::for_each_goroutine([&](const goroutine& g) {
            count += alive(g) && &g != sched::current_goroutine() && is_new(g, &before);
        });
        if (count == 0) return {};
        page.text() << "dunlin: " << count << (count == 1 ? " goroutine is" : " goroutines are")
                    << " left of what no_leaks guards (";
        sched::print_where(page.text(), where);
        page.text() << "):\n\n";
        write_goroutines(page, everything, &filter);
    }
    return page.finish();
}

template <class F>
std::string printed(F print) {
    std::string text;
    {
        platform::text_writer out(text);
        print(out);
    }
    return text;
}

}  // namespace

}  // namespace dunlin::observe

namespace dunlin::inline v0_1::runtime {

namespace {

[[gnu::noinline]] std::vector<leak> leaks_seen_from(std::uintptr_t from, std::string& incomplete) {
    struct kept {
        leak l;
        std::source_location waits_at;
        stack::trace frames;  // if they are to say where
        sched::creation_place created_at;
    };
    std::vector<kept> found;
    sched::start_runtime();
    observe::lost_goroutines lost;
    if (const char* why = lost.find(from)) incomplete = why;
    {
        const observe::stopped_world stopped;
        std::map<const sched::goroutine*, const char*> all = observe::find_stuck();
        sched::for_each_goroutine([&](const sched::goroutine& g) {
            if (lost.contains(g)) all.emplace(&g, "nothing that can still run refers to what it waits for");
        });
        for (const auto& [stuck, why] : all) {
            const sched::goroutine& g = *stuck;
            leak l;
            l.id = g.id;
            if (g.extra != nullptr) l.name = g.extra->name;
            l.state = name(g.reason.load(std::memory_order_relaxed));
            l.why = why;
            // A goroutine that runs another in place does not note when its wait began.
            if (g.reason.load(std::memory_order_relaxed) != sched::wait_reason::in_place_join) {
                const std::int64_t ns = platform::now_ns() - g.waits_since_ns;
                l.waited = std::chrono::nanoseconds(std::max<std::int64_t>(ns, 0));
            }
            const bool by_frames = observe::waits_in_library(g);
            found.push_back({std::move(l), g.waits_at, by_frames ? stack::capture_trace(g.context) : stack::trace{},
                g.created_at});
        }
    }
    std::vector<leak> result;
    for (kept& k : found) {
        k.l.waits_at = observe::printed([&](platform::text_writer& out) {
            if (!stack::print_first_of_program(out, k.frames)) sched::print_where(out, k.waits_at);
        });
        k.l.created_at = observe::printed([&](platform::text_writer& out) { sched::print_where(out, k.created_at); });
        result.push_back(std::move(k.l));
    }
    std::sort(result.begin(), result.end(), [](const leak& a, const leak& b) { return a.id < b.id; });
    return result;
}

}  // namespace

std::vector<leak> leaks(std::string& incomplete) {
    DUNLIN_STACK_POINTER_HERE(from);
    incomplete.clear();
    return leaks_seen_from(from, incomplete);
}

std::vector<leak> leaks() {
    DUNLIN_STACK_POINTER_HERE(from);
    std::string incomplete;
    return leaks_seen_from(from, incomplete);
}

}  // namespace dunlin::runtime

namespace dunlin::inline v0_1::testing {

no_leaks::no_leaks(no_leaks_options options, std::source_location where) : options_(std::move(options)), where_(where) {
    sched::start_runtime();
    before_ = observe::alive_now();
}

namespace {

// The search for lost goroutines takes a few milliseconds. Not every look includes it, since most goroutines are about
// to end.
constexpr std::int64_t first_search_after_ns = 10'000'000, at_most_between_searches_ns = 500'000'000;

[[gnu::noinline]] std::string look_with_patience(std::uintptr_t from, const std::vector<std::uint64_t>& before,
    const std::source_location& where, std::int64_t grace_ns) {
    const std::int64_t began_ns = platform::now_ns(), until_ns = platform::deadline_after(began_ns, grace_ns);
    observe::lost_goroutines lost;
    std::int64_t search_at_ns = began_ns + first_search_after_ns;
    for (std::int64_t pause_ns = 100'000;; pause_ns = std::min<std::int64_t>(2 * pause_ns, 20'000'000)) {
        const std::int64_t now_ns = platform::now_ns();
        if (now_ns >= until_ns) return observe::report_of_new(before, where);
        const observe::left_over left = observe::look_for_new(before, lost);
        if (left.count == 0) return {};
        if (left.all_stuck) return observe::report_of_new(before, where);
        if (now_ns >= search_at_ns) {
            lost.find(from);
            search_at_ns = now_ns + std::min(now_ns - began_ns, at_most_between_searches_ns);
        } else {
            sleep_for(std::chrono::nanoseconds(pause_ns));
        }
    }
}

}  // namespace

std::string no_leaks::check() {
    DUNLIN_STACK_POINTER_HERE(from);
    checked_ = true;
    return look_with_patience(from, before_, where_, options_.grace.count());
}

no_leaks::~no_leaks() {
    if (checked_) return;
    const std::string report = check();
    if (report.empty()) return;
    if (options_.on_leak) {
        options_.on_leak(report);
        return;
    }
    platform::text_writer(2) << std::string_view(report);
    std::abort();
}

}  // namespace dunlin::testing
