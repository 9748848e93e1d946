// check.cpp - <dunlin/sim.hpp>: one run() with all seeds, and one more for the seed that failed.
#include <dunlin/sim.hpp>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <string>

#include <dunlin/go.hpp>
#include <dunlin/runtime.hpp>

#include "platform/clock.h"
#include "platform/environment.h"
#include "replay/simulation.h"
#include "sched/data/current.h"
#include "sched/machines/event_notice.h"
#include "sched/machines/processor.h"
#include "sched/preempt/lifetime.h"
#include "timer/timers.h"

namespace dunlin::inline v0_1 {

namespace replay {

namespace {

using sim::failure_kind;

constexpr unsigned deepest = 64;
constexpr std::int64_t settle_ns = 2'000'000'000;  // what has said that it is done is given so long to be gone

platform::atomic<bool> busy{false};

struct only_one {
    only_one() {
        if (busy.exchange(true, std::memory_order_acquire))
            throw std::logic_error("dunlin::sim: another thread is inside check() or explore()");
    }
    ~only_one() { busy.store(false, std::memory_order_release); }
    only_one(const only_one&) = delete;
    only_one& operator=(const only_one&) = delete;
};

struct session {
    const sim::options& o;
    void (*f)(void*);
    void* with;
    unsigned depth;
    std::uint64_t first, count;
    bool tells = false;             // frames of the last choices are kept
    std::uint64_t story_from = 0;
    std::string refused = {};       // why nothing was run
    std::uint64_t executions = 0, steps = 0, seed = 0;
    choice_hash all = {};
    outcome last = {};
};

std::int64_t at_least_zero(std::chrono::nanoseconds d) { return d.count() > 0 ? d.count() : 0; }

// In the run, before the simulation: what is alive already would take part in it.
std::string what_is_in_the_way() {
    const std::int64_t until = platform::now_ns() + settle_ns;
    for (;;) {
        const std::size_t others = sched::live_goroutines() - 1;
        const bool timers = sched::earliest_deadline() != 0;
        if (others == 0 && !timers) return {};
        if (platform::now_ns() >= until) {
            if (others == 0) return "a timer is armed already";
            return std::to_string(others) + (others == 1 ? " goroutine exists already" : " goroutines exist already");
        }
        dunlin::yield();
    }
}

void drive(session& s) {
    s.refused = what_is_in_the_way();
    if (!s.refused.empty()) return;
    simulation& one = the_simulation();
    one.begin({s.o.max_steps, s.depth, at_least_zero(s.o.longest_delay), at_least_zero(s.o.grace),
        at_least_zero(s.o.patience), s.o.max_memory, s.o.strict, !s.tells});
    struct at_end {
        simulation& one;
        ~at_end() { one.end(); }
    } const guard{one};
    for (std::uint64_t i = 0; i < s.count; ++i) {
        s.seed = s.first + i;
        s.last = one.execute(s.seed, s.f, s.with, s.tells, s.story_from);
        ++s.executions;
        s.steps += s.last.steps;
        s.all.add(s.last.hash);
        if (s.last.kind == failure_kind::none && s.o.failed && s.o.failed()) {
            s.last.kind = failure_kind::assertion;
            s.last.message = "an assertion of the test has failed (options::failed)";
        }
        if (s.last.kind != failure_kind::none) return;
    }
}

void run_session(session& s) {
    const unsigned before = runtime::max_procs();
    const auto restore = [before] { runtime::set_max_procs(before); };
    try {
        dunlin::run({.max_procs = 1}, [&s] { drive(s); });
    } catch (...) {
        restore();
        throw;
    }
    restore();
    if (!s.refused.empty()) throw std::logic_error("dunlin::sim: " + s.refused +
        ": a simulation begins with nothing (wait for them, or stop them)");
}

unsigned depth_from_name(std::string_view name, const std::string& where) {
    if (name == "random") return 0;
    if (name == "pct") return 3;
    if (name.substr(0, 4) == "pct:") {
        const auto d = platform::parse_number(name.substr(4));
        if (d && *d >= 1 && *d <= deepest) return static_cast<unsigned>(*d);
    }
    throw std::invalid_argument(where + ": unknown strategy \"" + std::string(name) +
        "\" (there are random, pct, and pct:D with D from 1 to 64)");
}

unsigned depth_for(const sim::options& o) {
    const std::string_view text = platform::environment_text("DUNLIN_SIM_STRATEGY");
    if (!text.empty()) return depth_from_name(text, "dunlin::sim: DUNLIN_SIM_STRATEGY");
    const unsigned depth = o.strategy.depth();
    if (depth > deepest) throw std::invalid_argument("dunlin::sim: the depth of pct is not between 1 and 64");
    return depth;
}

std::optional<std::uint64_t> seed_from_environment() {
    const std::string_view text = platform::environment_text("DUNLIN_SIM_SEED");
    if (text.empty()) return std::nullopt;
    if (const auto seed = platform::parse_number(text)) return seed;
    throw std::invalid_argument("dunlin::sim: DUNLIN_SIM_SEED=" + std::string(text) + " is not a number");
}

std::string hexadecimal(std::uint64_t value) {
    char text[20];
    std::snprintf(text, sizeof text, "%016" PRIx64, value);
    return text;
}

void check_options(const sim::options& o) {
    if (sched::current_machine() != nullptr) {
        throw std::logic_error(sched::steered() != nullptr
                ? "dunlin::sim: check() inside of check(): a simulation is one, make what is tested a part of the outer one"
                : "dunlin::sim: check() in a goroutine: it is a run() of its own, call it from a plain thread outside of run()");
    }
    if (o.seeds == 0) throw std::invalid_argument("dunlin::sim: options::seeds is 0: nothing would be run");
    if (o.max_memory == 0) throw std::invalid_argument("dunlin::sim: options::max_memory is 0: the process could not grow at all");
    if (o.max_steps == 0) throw std::invalid_argument("dunlin::sim: options::max_steps is 0: nothing could be run");
    if (o.patience.count() <= 0) throw std::invalid_argument("dunlin::sim: options::patience is not positive");
}

std::string report_of(const session& s, const sim::result& r, const std::string& second) {
    std::string text = "dunlin::sim: seed " + std::to_string(r.seed) + ": " + r.message + '\n';
    text += "  execution " + std::to_string(s.executions) + ", " + std::to_string(s.last.steps) + " choices, " +
        platform::duration_text(s.last.took_ns) +
            " of virtual time, hash " + hexadecimal(r.hash) + '\n';
    text += "  to run it again: DUNLIN_SIM_SEED=" + std::to_string(r.seed) + ' ' + program_invocation_name + '\n';
    if (!second.empty()) text += "  " + second + '\n';
    return text + s.last.details;
}

// Once more, with frames of the last choices; and is it the same at all?
std::string run_again(session& s, sim::result& r) {
    session again{s.o, s.f, s.with, s.depth, s.seed, 1};
    again.tells = true;
    again.story_from = s.last.steps > 2 * story::kept ? s.last.steps - 2 * story::kept : 0;
    run_session(again);
    r.replayed = again.last.hash == s.last.hash && again.last.kind == s.last.kind;
    if (!r.replayed) {
        return "run a second time from this seed, it made other choices (" + (again.last.kind == failure_kind::none ?
            "and no failure" : again.last.message) +
               "): it depends on something that has no seed (threads, clocks of std, addresses), or on what an execution before it has left behind";
    }
    s.last.details = again.last.details;
    return "run a second time from this seed, it failed in the same way";
}

}  // namespace

}  // namespace replay

namespace sim {

search_strategy::search_strategy(std::string_view name) : depth_(replay::depth_from_name(name,
    "dunlin::sim::search_strategy")) {}

failure::failure(sim::result r) : std::runtime_error(r.report), result_(std::make_shared<const sim::result>(r)) {}

namespace detail {

result explore(const options& o, void (*f)(void*), void* with) {
    replay::check_options(o);
    const auto seed = replay::seed_from_environment();
    replay::session s{o, f, with, replay::depth_for(o), seed.value_or(o.first_seed), seed ? 1 : o.seeds};
    const replay::only_one guard;
    sched::start_runtime();
    replay::run_session(s);
    result r;
    r.kind = s.last.kind;
    r.seed = s.seed;
    r.executions = s.executions;
    r.steps = s.steps;
    r.hash = r.ok() ? s.all.value() : s.last.hash;
    r.message = s.last.message;
    if (r.ok()) return r;
    std::string second;
    if (r.kind != failure_kind::never_ends && r.kind != failure_kind::memory) second = replay::run_again(s, r);
    r.report = replay::report_of(s, r, second);
    return r;
}

void fail(result r) { throw failure(std::move(r)); }

}  // namespace detail

void require(bool holds, std::string_view what, std::source_location where) {
    if (holds) return;
    std::string text(what);
    const std::string_view path = where.file_name();
    text += " (" + std::string(path.substr(path.rfind('/') + 1)) + ':' + std::to_string(where.line()) + ')';
    if (sched::steered() != nullptr && sched::current_machine() != nullptr) replay::the_simulation().stop_here(failure_kind::requirement, text);
    throw std::logic_error(text);
}

void point() noexcept {
    if (sched::steered() != nullptr) sched::pass_point();
}

std::uint64_t seed() noexcept { return sched::steered() != nullptr && sched::current_machine() != nullptr ?
    replay::the_simulation().seed() : 0; }

std::uint64_t draw(std::uint64_t bound) {
    if (bound == 0) throw std::invalid_argument("dunlin::sim::draw: nothing is below 0");
    if (seed() == 0 && (sched::steered() == nullptr || sched::current_machine() == nullptr)) {
        throw std::logic_error("dunlin::sim::draw: called outside of a simulation");
    }
    return replay::the_simulation().draw(bound);
}

}  // namespace sim

}  // namespace dunlin
