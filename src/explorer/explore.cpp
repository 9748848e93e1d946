#include "explorer/explore.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "explorer/forked.h"
#include "explorer/strategies.h"

namespace dunlin::inline v0_1::explorer {

namespace {

// A failure at the end of an execution, outside of its threads.
thread_local std::string* failure_at_end = nullptr;

constexpr char letters[] = {'r', 'f', 't', 'v'};

}  // namespace

void check_at_end(const std::vector<std::function<void()>>& checks, world::outcome& outcome, std::string* story) {
    failure_at_end = &outcome.failure;
    for (const auto& check : checks) check();
    failure_at_end = nullptr;
    if (story != nullptr && !outcome.failure.empty()) *story += "FAILS at the end: " + outcome.failure + "\n";
}

void require(bool condition, std::string_view what) {
    if (condition) return;
    if (world* w = here()) w->failed(what);
    if (failure_at_end == nullptr) throw std::logic_error("explorer::require() outside of a case");
    if (failure_at_end->empty()) *failure_at_end = what;
}

class explorer {
public:
    static constexpr std::size_t shrinking_executions = 3000;

    explorer(const options& o, const case_function& build)
        : build_(build), world_({.model = o.model, .max_steps = o.max_steps, .times_out = o.times_out}) {}

    world::outcome once(strategy& s, std::string* story) {
        auto parts = std::make_unique<scenario>();
        build_(*parts);
        world::outcome outcome = world_.execute(s, std::move(parts->threads_), std::move(parts->names_), story);
        if (outcome.failure.empty()) {
            check_at_end(parts->ends_, outcome, story);
            while (!parts->objects_.empty()) parts->objects_.pop_back();
        } else {
            // The stacks that were given up may point into it.
            parts.release();  // NOLINT: not destroyed on purpose
        }
        s.ended(outcome.steps);
        return outcome;
    }

private:
    const case_function& build_;
    world world_;
};

namespace {

// Returns fewer choices that fail in the same way.
template <class Explorer>
std::vector<choice> shrink(
    Explorer& e, std::vector<choice> choices, const std::string& failure, std::size_t executions) {
    std::size_t left = executions;
    const auto fails = [&](const std::vector<choice>& tried) {
        if (left == 0) return false;
        --left;
        replayed_order order(tried);
        order.begin();
        return e.once(order, nullptr).failure == failure;
    };
    for (std::size_t part = std::max<std::size_t>(choices.size() / 2, 1); left != 0; part /= 2) {
        bool shorter = true;
        while (shorter && left != 0) {
            shorter = false;
            for (std::size_t at = choices.size(); at-- > 0 && left != 0;) {
                if (at % part != 0) continue;
                std::vector<choice> tried = choices;
                const std::size_t end = std::min(at + part, choices.size());
                tried.erase(
                    tried.begin() + static_cast<std::ptrdiff_t>(at), tried.begin() + static_cast<std::ptrdiff_t>(end));
                if (!fails(tried)) continue;
                choices = std::move(tried);
                shorter = true;
            }
        }
        if (part == 1) break;
    }
    return choices;
}

std::unique_ptr<strategy> strategy_of(const options& o) {
    switch (o.order) {
    case order::random: return std::make_unique<random_order>(o.seed);
    case order::pct: return std::make_unique<pct_order>(o.seed, o.depth);
    case order::delayed: return std::make_unique<delayed_order>(o.seed);
    case order::held: return std::make_unique<held_order>(o.seed, o.places);
    case order::round_robin: return std::make_unique<round_robin_order>();
    case order::exhaustive: break;
    }
    return std::make_unique<exhaustive_order>(o.detours);
}

template <class Explorer>
result explore_by(Explorer& e, const options& o) {
    const std::unique_ptr<strategy> s = strategy_of(o);
    result r;
    while (r.executions < o.executions) {
        if (!s->begin()) {
            r.complete = true;
            break;
        }
        const world::outcome outcome = e.once(*s, nullptr);
        ++r.executions;
        r.given_up += outcome.gave_up;
        r.steps += outcome.steps;
        r.hash = (r.hash ^ outcome.hash) * 0x9e3779b97f4a7c15u;
        if (outcome.failure.empty()) continue;
        r.failure = outcome.failure;
        if (!o.tells) break;
        r.choices = shrink(e, outcome.choices, r.failure, Explorer::shrinking_executions);
        replayed_order order(r.choices);
        order.begin();
        e.once(order, &r.story);
        break;
    }
    return r;
}

template <class Explorer>
result replay_by(Explorer& e, const std::vector<choice>& choices) {
    replayed_order order(choices);
    order.begin();
    result r;
    const world::outcome outcome = e.once(order, &r.story);
    r.failure = outcome.failure;
    r.choices = outcome.choices;
    r.executions = 1;
    r.steps = outcome.steps;
    r.hash = outcome.hash;
    return r;
}

}  // namespace

result explore(const options& o, const case_function& build) {
    if (o.whole) {
        if (o.order == order::exhaustive)
            throw std::invalid_argument("a whole program has too many orders for all of them");
        return in_process_of_its_own([&] {
            forked_explorer e(o, build);
            return explore_by(e, o);
        });
    }
    explorer e(o, build);
    return explore_by(e, o);
}

result replay(const options& o, const std::vector<choice>& choices, const case_function& build) {
    if (o.whole) {
        return in_process_of_its_own([&] {
            forked_explorer e(o, build);
            return replay_by(e, choices);
        });
    }
    explorer e(o, build);
    return replay_by(e, choices);
}

std::string text_of(const std::vector<choice>& choices) {
    std::string text;
    for (const choice& c : choices) {
        if (!text.empty()) text += ' ';
        text += letters[static_cast<std::size_t>(c.kind)] + std::to_string(c.which);
    }
    return text;
}

std::vector<choice> choices_in(std::string_view text) {
    std::vector<choice> choices;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
        const std::string_view word = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (word.empty()) continue;
        const auto* kind = std::find(std::begin(letters), std::end(letters), word[0]);
        unsigned number = 0;
        const auto read = std::from_chars(word.data() + 1, word.data() + word.size(), number);
        if (kind == std::end(letters) || read.ec != std::errc() || read.ptr != word.data() + word.size() ||
            number >= max_threads) {
            throw std::invalid_argument("not a choice of a simulation: '" + std::string(word) + "'");
        }
        choices.push_back({static_cast<step_kind>(kind - std::begin(letters)), static_cast<std::uint8_t>(number)});
    }
    return choices;
}

}  // namespace dunlin::explorer
