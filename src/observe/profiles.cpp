// profiles.cpp - runtime::goroutine_profile().
#include <algorithm>
#include <new>
#include <ostream>
#include <string>
#include <vector>

#include <dunlin/runtime.hpp>

#include "observe/alike.h"
#include "observe/collect.h"
#include "observe/pprof.h"
#include "sched/data/all_goroutines.h"
#include "sched/goroutines/goroutine.h"
#include "sched/machines/processor.h"
#include "sched/preempt/lifetime.h"
#include "sched/preempt/stack_capture.h"

namespace dunlin::inline v0_1::observe {

namespace {

using sched::goroutine;
using sched::goroutine_state;

// What is kept of a group until the world goes on, when names are looked up.
struct kept {
    stack::trace frames;
    const char* doing;
    std::uint64_t count;
    std::string name;
    profile::labels labels;
};

// The state, or what it waits for.
const char* doing(const goroutine& g) noexcept {
    const goroutine_state state = g.state.load(std::memory_order_acquire);
    const sched::wait_reason reason = g.reason.load(std::memory_order_relaxed);
    const bool blocks = state == goroutine_state::running && reason == sched::wait_reason::blocking_call;
    return state == goroutine_state::waiting || blocks ? name(reason) : name(state);
}

// The world is stopped.
void collect(std::vector<kept>& into) {
    const sched::stack_captures captures;
    std::size_t all = 0;
    sched::for_each_goroutine([&](const goroutine& g) { all += alive(g); });
    alike groups(all);
    if (!groups.usable()) throw std::bad_alloc();
    sched::for_each_goroutine([&](const goroutine& g) {
        if (alive(g)) groups.add(g, key_of(g, captures));
    });
    groups.for_each_group([&](const alike::member& first) {
        const goroutine& g = *first.g;
        kept k{trace_of(g, captures), doing(g), first.in_group, {}, {}};
        if (g.extra != nullptr) {
            k.name = g.extra->name;
            k.labels = g.extra->labels;
        }
        into.push_back(std::move(k));
    });
}

}  // namespace

}  // namespace dunlin::observe

namespace dunlin::inline v0_1::runtime {

void goroutine_profile(std::ostream& stream, profile_format format) {
    sched::start_runtime();
    std::vector<observe::kept> groups;
    groups.reserve(std::min<std::size_t>(sched::live_goroutines(), 1000));
    sched::stop_world();
    try {
        observe::collect(groups);
    } catch (...) {
        sched::start_world();
        throw;
    }
    sched::start_world();
    observe::profile p(observe::profile::types{{"goroutine", "count"}});
    std::uint64_t total = 0;
    for (const observe::kept& k : groups) total += k.count;
    std::string text = "goroutine profile: total " + std::to_string(total) + "\n";
    for (observe::kept& k : groups) {
        k.labels.emplace_back("state", k.doing);
        if (!k.name.empty()) k.labels.emplace_back("name", k.name);
        if (format == profile_format::text) {
            observe::append_sample(text, std::to_string(k.count), k.frames, k.labels);
            continue;
        }
        p.add(k.frames, std::string("(") + k.doing + ")", {k.count}, k.labels);
    }
    const std::string bytes = format == profile_format::text ? text : p.finish();
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace dunlin::runtime
