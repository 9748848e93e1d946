// check.cpp - <dunlin/sim.hpp>: one run() with all seeds, and one more for the seed that failed.
#include <dunlin/sim.hpp>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include <dunlin/go.hpp>
#include <dunlin/runtime.hpp>

#include "platform/clock.h"
#include "platform/environment.h"
#include "replay/search.h"
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
constexpr unsigned most_detours = 1000;
constexpr std::chrono::nanoseconds longest_allowed_delay = std::chrono::hours(1);
constexpr std::int64_t settle_ns = 2'000'000'000;  // how long goroutines and timers may still take to go away

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
    sim::search_strategy strategy;
    std::uint64_t first, count;
    search* every_order = nullptr;
    bool tells = false;             // frames of the last choices are kept
    std::uint64_t story_from = 0;
    std::string refused = {};       // why nothing was run
    std::uint64_t executions = 0, steps = 0, seed = 0;
    choice_hash all = {};
    outcome last = {};
};

std::int64_t at_least_zero(std::chrono::nanoseconds d) { return d.count() > 0 ? d.count() : 0; }

// Called in the run, before the simulation: goroutines and timers that exist already would take part in it.
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
    one.begin({s.o.max_steps, s.strategy.depth(), at_least_zero(s.o.longest_delay), at_least_zero(s.o.grace),
        at_least_zero(s.o.patience), s.o.max_memory, s.o.strict, !s.tells, s.every_order});
    struct at_end {
        simulation& one;
        ~at_end() { one.end(); }
    } const guard{one};
    search* const all = s.every_order;
    for (std::uint64_t i = 0; all != nullptr ? all->begin() : i < s.count; ++i) {
        s.seed = all != nullptr ? s.first : s.first + i;
        s.last = one.execute(s.seed, s.f, s.with, s.tells, s.story_from);
        if (all != nullptr) all->end();
        ++s.executions;
        s.steps += s.last.steps;
        s.all.add(s.last.hash);
        if (s.last.kind == failure_kind::none && s.o.failed && s.o.failed()) {
            s.last.kind = failure_kind::assertion;
            s.last.message = "an assertion of the test has failed (options::failed)";
        }
        if (all != nullptr && all->differs() && s.last.kind != failure_kind::never_ends) {
            s.last.kind = failure_kind::differs;
            s.last.message =
                "the choices \"" + text_of(all->current()) +
                "\" led elsewhere this time: the program depends on something "
                "that has no seed (threads, clocks of std, addresses), or on what an execution before it has left behind";
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

sim::search_strategy strategy_named(std::string_view name, const std::string& where) {
    if (name == "random") return sim::random;
    if (name == "pct") return sim::pct(3);
    if (name == "exhaustive") return sim::exhaustive;
    const std::size_t colon = std::min(name.find(':'), name.size());
    const std::string_view kind = name.substr(0, colon);
    constexpr std::uint64_t none = ~std::uint64_t{0};
    const std::uint64_t number =
        colon < name.size() ? platform::parse_number(name.substr(colon + 1)).value_or(none) : none;
    if (kind == "pct" && number >= 1 && number <= deepest) return sim::pct(static_cast<unsigned>(number));
    if (kind == "exhaustive" && number <= most_detours) return sim::exhaustive(static_cast<unsigned>(number));
    throw std::invalid_argument(where + ": unknown strategy \"" + std::string(name) +
        "\" (there are random, pct, pct:D with D from 1 to 64, exhaustive, and exhaustive:N with N from 0 to 1000)");
}

sim::search_strategy strategy_for(const sim::options& o) {
    const std::string_view text = platform::environment_text("DUNLIN_SIM_STRATEGY");
    if (!text.empty()) return strategy_named(text, "dunlin::sim: DUNLIN_SIM_STRATEGY");
    if (o.strategy.depth() > deepest)
        throw std::invalid_argument("dunlin::sim: the depth of pct is not between 1 and 64");
    const unsigned detours = o.strategy.detours();
    if (detours > most_detours && detours != search::unlimited) {
        throw std::invalid_argument("dunlin::sim: the detours of exhaustive are more than 1000");
    }
    return o.strategy;
}

// Null: no search is asked for.
std::unique_ptr<search> search_for(const sim::options& o, const sim::search_strategy& strategy) {
    const std::string_view named = platform::environment_text("DUNLIN_SIM_CHOICES");
    const std::string_view text = named.empty() ? std::string_view(o.choices) : named;
    if (text.empty()) return strategy.is_exhaustive() ? std::make_unique<search>(strategy.detours(), o.seeds) : nullptr;
    const char* const where = named.empty() ? "options::choices" : "DUNLIN_SIM_CHOICES";
    if (!strategy.is_exhaustive()) {
        throw std::invalid_argument(
            std::string("dunlin::sim: ") + where + " is set, and the strategy is not exhaustive");
    }
    if (auto name = name_in(text)) return std::make_unique<search>(std::move(*name));
    throw std::invalid_argument(std::string("dunlin::sim: ") + where + "=" + std::string(text) +
        " is not a list of choices (as 12:1,30:2, by ascending numbers, or plain)");
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
        throw std::logic_error(
            sched::steered() != nullptr
                ? "dunlin::sim: check() inside of check(): a simulation is one, make what is tested a part of the outer one"
                : "dunlin::sim: check() in a goroutine: it is a run() of its own, call it from a plain thread outside of run()");
    }
    if (o.seeds == 0) throw std::invalid_argument("dunlin::sim: options::seeds is 0: nothing would be run");
    if (o.max_memory == 0)
        throw std::invalid_argument("dunlin::sim: options::max_memory is 0: the process could not grow at all");
    if (o.max_steps == 0) throw std::invalid_argument("dunlin::sim: options::max_steps is 0: nothing could be run");
    if (o.patience.count() <= 0) throw std::invalid_argument("dunlin::sim: options::patience is not positive");
    // Virtual time would come to its end.
    if (o.longest_delay > longest_allowed_delay)
        throw std::invalid_argument("dunlin::sim: options::longest_delay is more than an hour");
}

std::string counted(std::uint64_t n, const std::string& what) {
    return n == 0 ? "no " + what : std::to_string(n) + ' ' + what + (n == 1 ? "" : "s");
}

std::string report_of_search(const sim::result& r, const search& s) {
    const std::string orders = counted(r.executions, "order");
    if (r.complete) return "dunlin::sim: " + orders + ", which are all within the limit; none fails\n";
    if (s.has_left_out())
        return "dunlin::sim: " + orders + "; not all: some of what the program asks for is drawn, not tried\n";
    return "dunlin::sim: " + orders + ", " +
           (r.covered < 0 ? "not even all without a detour"
                          : "among them all with at most " + std::to_string(r.covered) +
                                (r.covered == 1 ? " detour" : " detours")) +
           "; none fails\n";
}

std::string report_of(const session& s, const sim::result& r, const std::string& second) {
    std::string text = "dunlin::sim: seed " + std::to_string(r.seed) + ": " + r.message + '\n';
    text += "  execution " + std::to_string(s.executions) + ", " + std::to_string(s.last.steps) + " choices, " +
        platform::duration_text(s.last.took_ns) +
            " of virtual time, hash " + hexadecimal(r.hash) + '\n';
    text += "  to run it again: ";
    if (s.every_order != nullptr) text += "DUNLIN_SIM_STRATEGY=exhaustive DUNLIN_SIM_CHOICES=" + r.choices + ' ';
    text += "DUNLIN_SIM_SEED=" + std::to_string(r.seed) + ' ' + program_invocation_name + '\n';
    if (s.every_order != nullptr && s.every_order->found_with_fewest()) {
        text += "  with " + counted(s.every_order->detours(), "detour") + ": no order with fewer fails\n";
    }
    if (!second.empty()) text += "  " + second + '\n';
    return text + s.last.details;
}

// Runs the failed seed once more, with frames of the last choices, and checks that it is the same execution at all.
std::string run_again(session& s, sim::result& r) {
    session again{s.o, s.f, s.with, s.strategy, s.seed, 1};
    std::optional<search> alone;
    if (s.every_order != nullptr) again.every_order = &alone.emplace(s.every_order->current());
    again.tells = true;
    again.story_from = s.last.steps > 2 * story::kept ? s.last.steps - 2 * story::kept : 0;
    run_session(again);
    r.replayed = again.last.hash == s.last.hash && again.last.kind == s.last.kind;
    if (!r.replayed) {
        return "run a second time from this seed, it made other choices (" +
               (again.last.kind == failure_kind::none ? "and no failure" : again.last.message) +
               "): it depends on something that has no seed (threads, clocks of std, addresses), or on what an execution before it has left behind";
    }
    s.last.details = again.last.details;
    return "run a second time from this seed, it failed in the same way";
}

}  // namespace

}  // namespace replay

namespace sim {

search_strategy::search_strategy(std::string_view name) : search_strategy(replay::strategy_named(name,
    "dunlin::sim::search_strategy")) {}

failure::failure(sim::result r) : std::runtime_error(r.report), result_(std::make_shared<const sim::result>(r)) {}

namespace detail {

result explore(const options& o, void (*f)(void*), void* with) {
    replay::check_options(o);
    const auto seed = replay::seed_from_environment();
    const search_strategy strategy = replay::strategy_for(o);
    const auto every_order = replay::search_for(o, strategy);
    replay::session s{o, f, with, strategy, seed.value_or(o.first_seed), seed ? 1 : o.seeds, every_order.get()};
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
    if (every_order) {
        r.complete = every_order->complete();
        r.covered = every_order->covered();
        if (r.ok()) r.report = replay::report_of_search(r, *every_order);
        if (!r.ok()) r.choices = replay::text_of(every_order->current());
    }
    if (r.ok()) return r;
    std::string second;
    const bool may_again =
        r.kind != failure_kind::never_ends && r.kind != failure_kind::memory && r.kind != failure_kind::differs;
    if (may_again) second = replay::run_again(s, r);
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
    if (sched::steered() != nullptr && sched::current_machine() != nullptr)
        replay::the_simulation().stop_here(failure_kind::requirement, text);
    throw std::logic_error(text);
}

void point() noexcept {
    if (sched::steered() != nullptr) sched::pass_point();
}

std::uint64_t seed() noexcept { return sched::steered() != nullptr && sched::current_machine() != nullptr ?
    replay::the_simulation().seed() : 0; }

void wait(std::source_location where) {
    if (sched::steered() == nullptr || sched::current_goroutine() == nullptr) {
        throw std::logic_error("dunlin::sim::wait: called outside of a simulation");
    }
    replay::the_simulation().wait_for_others(where);
}

std::uint64_t draw(std::uint64_t bound) {
    if (bound == 0) throw std::invalid_argument("dunlin::sim::draw: nothing is below 0");
    if (seed() == 0 && (sched::steered() == nullptr || sched::current_machine() == nullptr)) {
        throw std::logic_error("dunlin::sim::draw: called outside of a simulation");
    }
    return replay::the_simulation().draw(bound);
}

}  // namespace sim

}  // namespace dunlin
