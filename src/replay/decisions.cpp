// decisions.cpp - the decisions of an execution: drawn, or tried one by one if every order is tried (search.h).
#include "replay/simulation.h"

#include <algorithm>

#include "sched/machines/processor.h"

namespace dunlin::inline v0_1::replay {

namespace {

using sched::goroutine;
using sched::machine;
using sched::processor;

constexpr std::uint64_t most_tried = 64;  // numbers with a larger bound are drawn, not tried

}  // namespace

// ---- who runs, and when ---------------------------------------------------------------------------------------------

// Every order: goroutines that have not yielded come first, so that one that waits by yielding does wait for others;
// anything else is a detour.
std::size_t simulation::pick_any(const goroutine* yields) noexcept {
    const std::size_t count = runnable_.size() + (yields != nullptr);
    const auto yielded = [&](std::size_t i) { return i == runnable_.size() || known(runnable_[i]).yielded; };
    in_turn_.clear();
    for (std::size_t i = 0; i < count; ++i) {
        if (!yielded(i)) in_turn_.push_back(i);
    }
    const std::size_t free = in_turn_.size();
    for (std::size_t i = 0; i < count; ++i) {
        if (yielded(i)) in_turn_.push_back(i);
    }
    return in_turn_[choices_.every_order()->among(count, free, hash_.value())];
}

std::size_t simulation::pick(const goroutine* yields) noexcept {
    if (tries_every_order()) return pick_any(yields);
    const std::size_t count = runnable_.size() + (yields != nullptr);
    if (!choices_.uses_priorities()) return choices_.which(count);
    std::size_t best = 0;
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t priority = known(i < runnable_.size() ? runnable_[i] : yields).priority;
        if (priority < most) continue;
        most = priority;
        best = i;
    }
    return best;
}

// Does another goroutine run now, at a call that self makes? There is one that can.
bool simulation::leaves_for(goroutine* self, std::size_t& next) noexcept {
    if (search* const s = choices_.every_order()) {
        const std::size_t chosen = s->among(1 + runnable_.size(), 1, hash_.value());
        next = chosen - 1;
        return chosen != 0;
    }
    if (!choices_.uses_priorities()) {
        if (!choices_.switches_away()) return false;
        next = choices_.which(runnable_.size());
        return true;
    }
    if (choices_.is_change_point(steps_)) known(self).priority = choices_.lowest_priority();
    next = pick(nullptr);
    return known(runnable_[next]).priority > known(self).priority;
}

// All goroutines that can run have to wait. Every order: they wait until the next event has come, and then perhaps
// again.
void simulation::be_delayed(processor* p) noexcept {
    search* const s = choices_.every_order();
    const auto pass = [&](std::int64_t until_ns) {
        now_ns_ = std::max(now_ns_, until_ns);
        fire_due();
        fetch(p, nullptr);
    };
    if (s == nullptr) {
        if (const std::int64_t delay = choices_.delay_ns()) pass(now_ns_ + delay);
        return;
    }
    const std::int64_t latest_ns = now_ns_ + choices_.longest_delay_ns();
    for (;;) {
        const std::int64_t next_ns = next_event_ns();
        if (next_ns == 0 || next_ns > latest_ns || s->among(2, 1, hash_.value()) == 0) return;
        pass(next_ns);
    }
}

// ---- numbers ------------------------------------------------------------------------------------------------------

std::uint64_t simulation::drawn(std::uint64_t bound) noexcept {
    if (tries_every_order()) choices_.every_order()->leave_out();
    const std::uint64_t number = choices_.below(bound);
    hash_.add(number);
    return number;
}

std::uint64_t simulation::draw(std::uint64_t bound) noexcept {
    if (!tries_every_order() || bound > most_tried) return drawn(bound);
    const std::uint64_t number = choices_.every_order()->among(bound, bound, hash_.value());
    hash_.add(number);
    return number;
}

bool simulation::happens(double odds, std::uint64_t parts) noexcept {
    if (odds <= 0) return false;
    if (!tries_every_order()) return drawn(parts) < static_cast<std::uint64_t>(odds * static_cast<double>(parts));
    const bool yes = odds >= 1 || choices_.every_order()->among(2, 1, hash_.value()) != 0;
    hash_.add(yes);
    return yes;
}

std::uint32_t simulation::choose_case(machine* m, std::uint32_t count) noexcept {
    search* const s = choices_.every_order();
    if (s == nullptr || phase_.load(std::memory_order_relaxed) != phase::running) return m->random.below(count);
    const std::size_t which = s->among(count, count, hash_.value());
    hash_.add(which);
    return static_cast<std::uint32_t>(which);
}

}  // namespace dunlin::replay
