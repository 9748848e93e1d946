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

// If a goroutine readies many in one turn, the first readied_noted are looked at, and then one in
// readied_between_notes: reading the clock costs as much as making a goroutine runnable.
constexpr std::uint32_t readied_noted = 8;
constexpr std::uint32_t readied_between_notes = 32;

}  // namespace

std::uint32_t note_readying(processor* p, goroutine* self, bool others_free) noexcept {
    const std::uint32_t count = p->readied++;
    const bool one_of_first = others_free && count < readied_noted;
    if (!one_of_first && count % readied_between_notes != 0) return 0;
    p->next_look = 0;
    const std::int64_t now = platform::now_ns();
    const std::int64_t before = std::exchange(p->readied_ns, now);
    if (before != 0 && self != nullptr && one_of_first) {
        note_lingering(self, without_talk(now - before, p->operations - p->readied_at));
    }
    p->readied_at = p->operations;
    return one_of_first ? 1 : readied_between_notes;
}

void note_turns(processor* p, const machine* m) noexcept {
    const std::uint64_t turns = turns_of(p);
    const std::uint64_t since = turns - p->turns_from;
    if (since == 0) return;
    p->turns_from = turns;
    p->readied = 0;
    const std::int64_t now = platform::now_ns();
    goroutine* self = m != nullptr ? m->current.load(std::memory_order_relaxed) : nullptr;
    if (const std::int64_t readied = std::exchange(p->readied_ns, 0); readied != 0 && self != nullptr) {
        note_lingering(self, without_talk(now - readied, p->operations - p->readied_at));
    }
    const std::int64_t took = now - std::exchange(p->turns_since_ns, now);
    const std::int64_t length =
        without_talk(took, since + std::exchange(p->operations, 0)) / static_cast<std::int64_t>(since);
    const auto mean = static_cast<std::uint32_t>(std::clamp<std::int64_t>(length, 0, longest_turn_ns));
    const std::uint32_t before = p->turn_ns;
    if (before == unknown_turn_ns) {  // then the time of the last look is not known either
        p->turn_ns = unknown_turn_ns - 1;
        return;
    }
    p->turn_ns = mean >= before ? mean
        : before - static_cast<std::uint32_t>(std::min<std::uint64_t>(before - mean, since * wake_cost_ns));
    p->look_at_push(!has_short_turns(p) || turns - p->stamped_at >= turns_between_stamps);
}

void note_marks(processor* p, goroutine* g) noexcept {
    if (g->marks.measured()) note_latency(p, g);
    if (g->marks.stamped() != 0) note_wait(p, g);
    if (g->marks.lingers() != 0) p->look_at_push(true);
    if (g->marks.traced()) tracing::note_run(p, g);
}

void forget_turns(processor* p) noexcept {
    p->turn_ns = turns_matter() ? unknown_turn_ns : 0;
    p->look_at_push(turns_matter());
}

void begin_turns(processor* p) noexcept {
    p->turns_from = turns_of(p);
    p->readied_ns = 0;
    p->readied = 0;
    p->operations = 0;
    p->turns_since_ns = platform::now_ns();
}

}  // namespace dunlin::sched
