// turns.h - how long goroutines run at a time on a processor, and how long they go on after readying another: is a wake
// worth its price?
//
// Problem    A goroutine that has been readied runs on the same processor as soon as the one that readied it parks.
//            Where turns are short (ping-pong, request and reply, a lock handed over) that is sooner than a thread
//            could be woken, and everything stays in one cache. Where turns are long, another processor should run the
//            goroutine at once. What a goroutine will do next is not known; what it and its neighbours did lately is.
// Data       turn_ns, of a processor: the mean length of a turn, from one visit of the scheduler to the next. A longer
//            mean replaces it at once; a shorter one takes off wake_cost_ns for each turn, so a mistake is paid back:
//            after a turn of 100 us, forty wakes are made that may be needless, and these cost their wakers 100 us.
//            lingers, of a goroutine: how many of its next wakes are made at once. A goroutine that goes on after it
//            has readied another gets one for each wake_cost_ns of that time. It loses one each time that it parks at
//            once, or readies the next one at once.
//            For goroutines that do little between two operations on channels, an eighth of their time counts
//            (talk_step_ns).
// Trial      Goroutines that pass values to each other take longer for each where two processors fetch the values, the
//            channel and the allocator's memory from each other. Then their turns are long because they are spread, and
//            stay spread because their turns are long. So a processor whose long turns consist of steps that are short,
//            but no talk, behaves now and then as if its turns were short: for some turns, in which the goroutines come
//            together on it, and for more that are measured. If one processor does more now than two did, it stays so.
//            If not, the next trial comes after twice the pause.
// Cost       Two readings of the clock in 64 turns while turns are short, one in each turn while they are long or a
//            trial is under way; none with one processor.
// Rule       Wakes are deferred (wake.h) only by processors with short turns, and for queues that take at most
//            deferred_wait_ns at that rate. In a trial the rate is that of the longest short turns.
// Source     Why the length of turns, and not which machine fetches run_next: docs/decisions/032-wakes-by-turns.md.
// Tests      tests/sched/turns_test.cpp
#pragma once

#include "sched/data/types.h"
#include "sched/machines/trace.h"

namespace dunlin::inline v0_1::sched {

// A hand-over to another processor that is awake costs 0.3 to 1 us, a wake 2.5 us to its waker.
inline constexpr std::uint32_t short_turn_ns = 5'000;
// Goroutines that compute no longer than this between two operations on channels talk: another processor would take
// longer to fetch the channel's memory than they compute. Their turns count with a part of their length.
inline constexpr std::int64_t talk_step_ns = 400;
inline constexpr std::int64_t talk_factor = 8;
// Goroutines whose steps are longer than this, on two processors, are not tried on one: they work.
inline constexpr std::int64_t trial_step_ns = 1'500;
// A trial succeeds if a step takes this many times less than it took on two processors: twice would be as fast.
inline constexpr std::int64_t trial_gain = 3;
// A longer turn ends a trial.
inline constexpr std::int64_t trial_turn_ns = 100'000;
// How long goroutines may wait for a processor that keeps up, although another is free.
inline constexpr std::uint32_t deferred_wait_ns = 20'000;
// What a wake costs its waker.
inline constexpr std::uint32_t wake_cost_ns = 2'500;
// Longer turns count as this long.
inline constexpr std::uint32_t longest_turn_ns = 1'000'000;
inline constexpr std::uint32_t most_lingers = 255;
inline constexpr std::uint64_t turns_between_looks = 64;
// Once in this many turns a look also has a wait measured (waits.h).
inline constexpr std::uint64_t turns_between_stamps = 256;

inline bool has_short_turns(const processor* p) noexcept { return p->turn_ns < short_turn_ns; }

// Are p's goroutines to stay together, or to come together, on p?
inline bool keeps_together(const processor* p) noexcept {
    return has_short_turns(p) && p->trial.together.load(std::memory_order_relaxed);
}
inline bool looks_at_each_turn(const processor* p) noexcept { return !has_short_turns(p) || p->trial.under_way(); }

inline std::uint64_t turns_of(const processor* p) noexcept {
    return p->counts.switches.get() + p->counts.in_place_joins.get();
}

// Is there another processor that could be woken? If not, nothing is measured.
inline bool turns_matter() noexcept { return the_scheduler.max_procs.load(std::memory_order_relaxed) > 1; }
// The world is stopped: from here on nothing is known about p's turns.
void forget_turns(processor* p) noexcept;
// Called by p's owner at the end of a turn of m's current goroutine (m null: not known): notes how long turns have been
// since the last look.
void note_turns(processor* p, const machine* m) noexcept;
// The same, if there have been enough turns.
inline void look_at_turns(processor* p, const machine* m) noexcept {
    if (!turns_matter()) return;
    if (looks_at_each_turn(p) || turns_of(p) - p->turns_from >= turns_between_looks) note_turns(p, m);
}
// Called by p's owner when a turn begins after p had nothing to run, or after p changed hands: the time before is not
// part of a turn.
void begin_turns(processor* p) noexcept;
// Called by p's owner when g, which has marks (types.h), begins a turn on p: its wait is measured, or its pushes are
// looked at.
[[gnu::cold]] void note_marks(processor* p, goroutine* g) noexcept;
// Called by p's owner when self (null: no goroutine), which runs on p, readies another. Returns how many readied
// goroutines the wait of that one stands for; 0: it is not measured.
std::uint32_t note_readying(processor* p, goroutine* self, bool others_free) noexcept;
// Called by p's owner when it stamps a goroutine in a short turn (waits.h): how many that one stands for. As many as
// there have been turns since the last stamp in a short turn (a yield counts as well, and one that another thread or
// the poller has readied and stamped), without those whose goroutines were stamped one by one. But no more than it
// takes until the next one that is readied is looked at: in the turns after that, none has been readied here.
std::uint64_t turns_to_stamp_for(processor* p) noexcept;
// Any thread: a goroutine on p has been running for `ns`.
inline void note_long_turn(processor* p, std::uint32_t ns) noexcept {
    if (!turns_matter()) return;  // nothing would bring the mean down again
    if (p->turn_ns < ns) p->turn_ns = ns;
    p->look_at_push(true);
}

// Called by a thief that has taken victim for a moment. The goroutine that runs there readied another one before
// `since_ns` and went on, and the wake was deferred. For how long it went on is known when it leaves or readies the
// next.
inline void note_readied_unseen(processor* victim, std::int64_t since_ns) noexcept {
    if (!turns_matter() || victim->readied_ns != 0) return;
    victim->readied_ns = since_ns;
    victim->readied_at = victim->operations;
    victim->next_look = 0;
}

inline void processor::look_at_push(bool because_of_turns) noexcept {
    looks_at_turns = because_of_turns;
    looks_at_push = because_of_turns || tracing::looks();
}

}  // namespace dunlin::sched
