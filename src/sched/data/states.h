// states.h - the states of a goroutine and of a processor, and every legal change. One table each; transition() checks
// it.
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

#include "platform/check.h"

namespace dunlin::inline v0_1::sched {

// Goroutine.  Columns: name, text in dumps, whose stack, linked in, may become
#define DUNLIN_GOROUTINE_STATES(X)                                                                                       \
    X(dead,     "dead",     "the pool's",      "a free list, or held by its task",  bit(runnable))                       \
    X(runnable, "runnable", "none's",          "exactly one run queue",             bit(running) | bit(dead) | bit(frozen)) \
    X(running,  "running",  "the goroutine's", "nothing",                           bit(runnable) | bit(waiting) | bit(dead) | bit(preempted) | bit(frozen)) \
    X(waiting,  "waiting",  "none's",          "what it waits on",                  bit(runnable) | bit(running) | bit(frozen)) \
    X(preempted, "preempted", "its thread's, inside a signal handler", "the queue of the preempted", bit(running) | bit(frozen)) \
    X(frozen,   "frozen",   "none's",          "nothing; its run() has returned",   0)

enum class goroutine_state : std::uint8_t {
#define DUNLIN_STATE(name, ...) name,
    DUNLIN_GOROUTINE_STATES(DUNLIN_STATE)
#undef DUNLIN_STATE
};

inline constexpr std::uint8_t goroutine_state_count = 6;

namespace detail {

inline constexpr std::uint8_t dead = 0, runnable = 1, running = 2, waiting = 3, preempted = 4, frozen = 5;
constexpr std::uint8_t bit(std::uint8_t state) { return static_cast<std::uint8_t>(1u << state); }

inline constexpr std::uint8_t may_become[] = {
#define DUNLIN_STATE(name, text, stack, linked, next) static_cast<std::uint8_t>(next),
    DUNLIN_GOROUTINE_STATES(DUNLIN_STATE)
#undef DUNLIN_STATE
};

}  // namespace detail

constexpr const char* name(goroutine_state state) noexcept {
    constexpr const char* names[] = {
#define DUNLIN_STATE(name, text, ...) text,
        DUNLIN_GOROUTINE_STATES(DUNLIN_STATE)
#undef DUNLIN_STATE
    };
    return names[static_cast<std::uint8_t>(state)];
}

// What goroutine::join holds, unless it is the address of the joiner's waiter, or an heir's with heir_bit
// (park/join.cpp; waiters and goroutines are aligned to 8).
struct join_word {
    enum : std::uintptr_t {
        alive = 0,
        ended = 1,
        in_the_lot = 2,  // the joiner may be in the parking lot
        let_go = 3,      // its holder has dropped it
        heir_bit = 4,
    };
};

constexpr bool may_become(goroutine_state from, goroutine_state to) noexcept {
    return (detail::may_become[static_cast<std::uint8_t>(from)] >> static_cast<std::uint8_t>(to)) & 1;
}

// Says which goroutine is in which state where another was expected, and ends the process.
[[noreturn]] void illegal_transition(const platform::atomic<goroutine_state>& where, goroutine_state from,
    goroutine_state to) noexcept;

// How a goroutine's state changes. Two places store it directly: the freezing of a goroutine (end_of_run.cpp,
// frozen.cpp, reenter.cpp), which is legal from every state, and the way out of the signal handler (preempt.cpp), which
// may coincide with it.
//
// Not a compare-and-swap: at any moment only one party may change the state: the goroutine while it runs, the thread
// that took it off a run queue, or the thread that took its waiter off a wait queue. A compare-and-swap would cost 4 ns
// on every switch and only find bugs; correctness does not need it. The load catches the common bugs, above all a
// goroutine readied twice. Release pairs with the acquire in freeze_goroutine(), and with those in observe/, which look
// at goroutines on no queue: they read what was written before the change. The machine that takes a goroutine off a
// queue acquires what its waker did not by the state, but by the queue's word (run_queue.h), by run_next (submit.h), or
// by the scheduler lock, which guards the global queue.
template <goroutine_state From, goroutine_state To>
inline void transition(platform::atomic<goroutine_state>& state) noexcept {
    static_assert(may_become(From, To), "not in the table of states.h");
    if (__builtin_expect(state.load(std::memory_order_acquire) != From, 0)) illegal_transition(state, From, To);
    state.store(To, std::memory_order_release);
}

// Processor. Changed under the scheduler lock, or under the processor's retake lock by the thread that stops the world.
//   idle      on the idle list, queues empty                  -> running
//   running   has a machine, or is on its way to one          -> idle, stopped, dead
//   stopped   held by the thread that has stopped the world   -> running, idle, dead
//   dead      beyond max_procs, or not used yet               -> idle
enum class processor_state : std::uint8_t { dead, idle, running, stopped };

// A machine's thread registers, as it begins, what exit() is to call there. libc takes the dynamic linker's lock for
// it, which a goroutine in dlopen() has for as long as a library's constructors take. Written by the thread; seen and
// written_off by the thread maker, which no longer counts on that thread (machine.cpp).
enum class registration : std::uint8_t { none, under_way, seen, written_off };

constexpr const char* name(processor_state state) noexcept {
    constexpr const char* names[] = {"dead", "idle", "running", "stopped"};
    return names[static_cast<std::uint8_t>(state)];
}

constexpr bool may_become(processor_state from, processor_state to) noexcept {
    switch (from) {
    case processor_state::dead: return to == processor_state::idle;
    case processor_state::idle: return to == processor_state::running;
    case processor_state::running: return to != processor_state::running;
    case processor_state::stopped: return to != processor_state::stopped;
    }
    return false;
}

// Says which state became which, and ends the process.
[[noreturn]] void illegal_transition(processor_state from, processor_state to) noexcept;

// Changes a processor's state. In checking builds a change that the table does not have is fatal.
inline void transition(platform::atomic<processor_state>& state, processor_state to,
    std::memory_order order = std::memory_order_relaxed) noexcept {
    if constexpr (DUNLIN_CHECKING != 0) {
        const processor_state from = state.load(std::memory_order_relaxed);
        if (!may_become(from, to)) illegal_transition(from, to);
    }
    state.store(to, order);
}

}  // namespace dunlin::sched
