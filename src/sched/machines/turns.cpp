#include "sched/machines/turns.h"

#include <algorithm>
#include <utility>

#include "platform/clock.h"
#include "sched/machines/machine.h"
#include "sched/machines/trace.h"
#include "sched/machines/waits.h"

namespace dunlin::inline v0_1::sched {

namespace {

// `ns` as it is compared with short_turn_ns: less if it contains so many steps that the goroutines talk.
std::int64_t without_talk(std::int64_t ns, std::uint64_t steps) noexcept {
    return ns < static_cast<std::int64_t>(steps) * talk_step_ns ? ns / talk_factor : ns;
}

// g went on for `ns` after it had readied another goroutine; then it left or readied the next.
void note_lingering(goroutine* g, std::int64_t ns) noexcept {
    const std::uint32_t before = g->marks.lingers();
    if (ns >= short_turn_ns) {
        g->marks.set_lingers(std::max(before,
            static_cast<std::uint32_t>(std::min<std::int64_t>(ns / wake_cost_ns, most_lingers))));
    } else if (before != 0) {
        g->marks.set_lingers(before - 1);
    }
}

// No stamp in a short turn is to stand for so many of p's turns.
void pass_over(processor* p, std::uint64_t turns) noexcept {
    p->stamped_at = std::min(p->stamped_at + turns, turns_of(p));
}

// ---- the trial ------------------------------------------------------------------------------------------------------

// p's turns count as long, and one has just ended. Were the last ones long indeed, with steps that are neither talk nor
// work? If they were short, the mean is to come down by itself: the wakes until then pay for a mistake.
bool trial_is_due(turn_trial& t, std::int64_t took_ns, std::uint64_t steps, std::int64_t now) noexcept {
    t.see(took_ns, steps);
    if (t.seen < turn_trial::looked_at) return false;
    const bool long_turns = t.seen_ns >= static_cast<std::int64_t>(turn_trial::looked_at) * short_turn_ns;
    t.step_ns_before = t.take_step_ns();
    return long_turns && t.step_ns_before >= talk_step_ns && t.step_ns_before < trial_step_ns && now >= t.not_before_ns;
}

void begin_trial(processor* p, std::int64_t now) noexcept {
    turn_trial& t = p->trial;
    t.now = turn_trial::phase::settles;
    t.left = turn_trial::settling;
    t.looked_ns = now;
    t.turn_ns_before = p->turn_ns;
    t.together.store(true, std::memory_order_relaxed);
    p->turn_ns = short_turn_ns - 1;
}

void end_trial(processor* p, bool found, std::int64_t now) noexcept {
    turn_trial& t = p->trial;
    t.now = turn_trial::phase::none;
    t.forget();
    t.together.store(found, std::memory_order_relaxed);
    if (found) {
        t.pause_ns = std::max(t.pause_ns / 4, turn_trial::first_pause_ns);
    } else {
        note_long_turn(p, t.turn_ns_before);
        t.pause_ns = std::min(2 * t.pause_ns, turn_trial::longest_pause_ns);
    }
    t.not_before_ns = now + t.pause_ns;
    p->turns_from = turns_of(p);
    p->turns_since_ns = now;
}

// Does one processor do more than two did? If no other one is idle or searching, steps may be short here because the
// goroutines that work are elsewhere.
bool trial_has_found(turn_trial& t) noexcept {
    return t.take_step_ns() * trial_gain < t.step_ns_before &&
           the_scheduler.idle_and_spinning.load(std::memory_order_relaxed) != 0;
}

// Called at the end of each turn of a goroutine, self, while a trial is under way.
void go_on_with_trial(processor* p, goroutine* self) noexcept {
    turn_trial& t = p->trial;
    const std::int64_t now = platform::now_ns();
    const std::int64_t took = now - std::exchange(t.looked_ns, now);
    t.see(took, 1 + std::exchange(p->operations, 0));
    p->readied = 0;
    if (const std::int64_t readied = std::exchange(p->readied_ns, 0); readied != 0) note_lingering(self, now - readied);
    // turn_ns is long if a thief or the monitor has found a goroutine that goes on.
    if (!has_short_turns(p) || took > trial_turn_ns) return end_trial(p, false, now);
    if (--t.left != 0) return;
    if (t.now == turn_trial::phase::measures) return end_trial(p, trial_has_found(t), now);
    t.forget();
    t.now = turn_trial::phase::measures;
    t.left = turn_trial::measured;
}

// If a goroutine readies many in one turn, the first readied_noted are looked at, and then one in
// readied_between_notes: reading the clock costs as much as making a goroutine runnable.
constexpr std::uint32_t readied_noted = 8;
constexpr std::uint32_t readied_between_notes = 32;

}  // namespace

std::uint32_t note_readying(processor* p, goroutine* self, bool others_free) noexcept {
    const std::uint32_t count = p->readied++;
    const bool one_of_first = count < readied_noted, one_of_many = count % readied_between_notes == 0;
    const std::uint32_t since_last =
        count == readied_between_notes ? readied_between_notes - readied_noted + 1 : readied_between_notes;
    const std::uint32_t stands_for = one_of_first ? 1 : one_of_many ? since_last : 0;
    if (has_short_turns(p)) pass_over(p, 1);  // the turn of the one that is readied here
    if (!one_of_many && !(one_of_first && others_free)) return stands_for;
    p->next_look = 0;
    const std::int64_t now = platform::now_ns();
    const std::int64_t before = std::exchange(p->readied_ns, now);
    if (before != 0 && self != nullptr && one_of_first && others_free) {
        note_lingering(self, without_talk(now - before, p->operations - p->readied_at));
    }
    p->readied_at = p->operations;
    return stands_for;
}

void note_turns(processor* p, const machine* m) noexcept {
    const std::uint64_t turns = turns_of(p);
    const std::uint64_t since = turns - p->turns_from;
    if (since == 0) return;
    goroutine* self = m != nullptr ? m->current.load(std::memory_order_relaxed) : nullptr;
    if (p->trial.under_way()) {
        if (self != nullptr) go_on_with_trial(p, self);
        return;
    }
    p->turns_from = turns;
    p->readied = 0;
    const std::int64_t now = platform::now_ns();
    if (const std::int64_t readied = std::exchange(p->readied_ns, 0); readied != 0 && self != nullptr) {
        note_lingering(self, without_talk(now - readied, p->operations - p->readied_at));
    }
    const std::int64_t took = now - std::exchange(p->turns_since_ns, now);
    const std::uint64_t steps = since + std::exchange(p->operations, 0);
    const std::int64_t length = without_talk(took, steps) / static_cast<std::int64_t>(since);
    if (took >= static_cast<std::int64_t>(steps) * trial_step_ns) {  // they work: what the last trial has found is past
        p->trial.together.store(false, std::memory_order_relaxed);
    }
    const auto mean = static_cast<std::uint32_t>(std::clamp<std::int64_t>(length, 0, longest_turn_ns));
    const std::uint32_t before = p->turn_ns;
    if (before == unknown_turn_ns) {  // then the time of the last look is not known either
        p->turn_ns = unknown_turn_ns - 1;
        p->stamped_at = turns;
        return;
    }
    if (before >= short_turn_ns) pass_over(p, since);  // what was readied in them has been stamped one by one
    p->turn_ns = mean >= before ? mean
        : before - static_cast<std::uint32_t>(std::min<std::uint64_t>(before - mean, since * wake_cost_ns));
    if (self != nullptr && !has_short_turns(p) && trial_is_due(p->trial, took, steps, now)) begin_trial(p, now);
    p->look_at_push(!has_short_turns(p) || turns - p->stamped_at >= turns_between_stamps);
}

std::uint64_t turns_to_stamp_for(processor* p) noexcept {
    const std::uint64_t turns = turns_of(p);
    return std::min(turns - std::exchange(p->stamped_at, turns), turns_between_stamps + turns_between_looks);
}

void note_marks(processor* p, goroutine* g) noexcept {
    if (g->marks.measured()) note_latency(p, g);
    if (g->marks.stamped() != 0) note_wait(p, g);
    if (g->marks.lingers() != 0) {
        if (!keeps_together(p)) {
            p->look_at_push(true);
        } else if (!p->trial.under_way()) {
            g->marks.set_lingers(0);  // it has lingered because it was spread
        }
    }
    if (g->marks.traced()) tracing::note_run(p, g);
}

void forget_turns(processor* p) noexcept {
    p->turn_ns = turns_matter() ? unknown_turn_ns : 0;
    p->trial.now = turn_trial::phase::none;
    p->trial.together.store(false, std::memory_order_relaxed);
    p->stamped_at = turns_of(p);
    p->look_at_push(turns_matter());
}

void begin_turns(processor* p) noexcept {
    const std::uint64_t turns = turns_of(p);
    pass_over(p, turns - p->turns_from);  // these were looks of a machine that found nothing
    p->turns_from = turns;
    p->readied_ns = 0;
    p->readied = 0;
    p->operations = 0;
    p->turns_since_ns = p->trial.looked_ns = platform::now_ns();
}

}  // namespace dunlin::sched
