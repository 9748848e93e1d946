// trace.h - what happens to goroutines, recorded as events in rings: for a trace in a file, or for the flight recorder.
//
// Off        Hot paths have no test of their own for a trace: a condition that they test anyway is made true while a
//            trace runs. A push tests looks_at_push, a goroutine that begins to run its marks, a wait waits_counter, an
//            end the goroutine's flags. The exceptions, one test each: yield(), the beginning of blocking(), a poller's
//            batch.
// Rings      Each machine writes into a chunk of its own, without a lock: inside the runtime, in an
//            unstoppable_section, or in the handler that has stopped a goroutine outside both, so never twice at the
//            same time. Threads that are not machines write into the ring `outside`, under the scheduler lock; the
//            monitor into its own; the thread that starts a trace, which has stopped the world, into `control`. A full
//            chunk goes into the list of full ones, under a lock, once in some 500 events. A reader of a chunk that is
//            being written to reads no further than `used` (release, acquire).
// Modes      file: a thread writes full chunks and gives them back; while all are full, events are lost, and counted.
//            recorder: the oldest full chunk is used again; while none is full, events are lost, and what was recorded
//            before counts as incomplete.
// Order      The clocks of two CPUs, and loads that pass the reading of the clock, may differ by some ten nanoseconds.
//            So the events of a goroutine are ordered by `turn`, its run_count(): raised each time it begins to run,
//            and noted with each event of that turn, including the event that ends the wait after it. A wait and the
//            wake that ends it may be noted in either order: a goroutine can be found before it has left
//            (goroutine.cpp, Leaving).
// Old events A chunk is never given back to the system: an event that was begun before a trace ended goes into a chunk
//            of that trace, which its machine keeps until it writes the next event (generation).
// Latency    The same places, and no others, begin to measure how long goroutines are runnable (waits.h), with or
//            without events. One goroutine in eight is measured, chosen at random.
// Tests      tests/runtime/trace_test.cpp, tests/tools/trace_test.py, tests/runtime/wait_histograms_test.cpp
#pragma once

#include <dunlin/config.hpp>

#include <dunlin/detail/atomic.hpp>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sched/data/trace_ring.h"
#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched::tracing {

// The file has these numbers (tools/trace/dunlin_trace.py has the same list).
enum class kind : std::uint8_t {
    none = 0,
    // existed when the trace began. arg: created_at; detail: its state; p: its wait reason, also if it runs in a
    // blocking()
    existing = 1,
    created = 2,      // arg: created_at
    runnable = 3,     // by goroutine `arg`; detail: a cause
    run = 4,          // detail 1: on the stack of another goroutine, which waits for it
    park = 5,         // arg: where; detail: the reason
    yield = 6,
    // it queues, because its processor was gone when it came to the runtime, or because its thread has other duties
    queued = 7,
    preempted = 8,    // stopped in a signal handler
    resumed = 9,      // goes on after that; detail 1: without a processor
    end = 10,
    call = 11,        // a blocking() begins
    call_end = 12,
    taken = 13,       // p was taken from machine `arg`, which runs g; detail: a taking
    released = 14,    // the machine gives its processor p up
    steal = 15,       // arg: from which processor; turn: number of goroutines
    timers = 16,      // arg: how many were due
    polled = 17,      // arg: how many descriptors were ready; detail 1: the machine has slept for them
    world_stops = 18,
    world_starts = 19,
    name = 20,        // of g. A text follows its event, in whole events; turn is its length in bytes
    region = 21,      // begins; its name follows; arg: task
    region_end = 22,
    task = 23,        // begins; its name follows; arg: the task, g: the goroutine that begins it
    task_of = 24,     // g is part of task arg
    task_end = 25,
    message = 26,     // category, zero byte, text; arg: task
    parent_task = 27, // arg: the task of which the one that g has just begun is a part
    in_place = 28,    // the `run` event before it is on the stack of goroutine `arg`
    frozen = 29,      // its run() has returned: it never runs again, or only until it is stopped
};

enum class taking : std::uint8_t { from_call = 1, from_sleeper, from_hog, lent };

struct event {
    std::uint64_t time;  // ticks()
    std::uint64_t g;
    std::uint64_t arg;
    std::uint32_t turn;  // of g. Of `steal`: how many; of a name: the length of its text
    std::uint16_t p;     // no_processor: none
    kind what;
    std::uint8_t detail;
};
static_assert(sizeof(event) == 32);

inline constexpr std::uint16_t no_processor = 0xffff;

struct chunk {
    static constexpr std::size_t bytes = 16 << 10, places = bytes / sizeof(event) - 1;
    platform::atomic<std::uint32_t> used;
    std::uint32_t source;      // a machine's number, or one of the constants below
    std::uint64_t lost;        // events of its ring lost before the first
    pid_t tid;
    chunk* next;               // the list of free chunks
    event events[places];
};
static_assert(sizeof(chunk) == chunk::bytes);

inline constexpr std::uint32_t outside_source = ~0u, monitor_source = ~0u - 1, control_source = ~0u - 2;
inline constexpr std::size_t longest_text = 512;

// What is wanted, in one word: a place that tests for one also tests for the other at no cost.
inline constexpr std::uint8_t events_wanted = 1, latency_wanted = 2;
DUNLIN_HIDDEN extern platform::atomic<std::uint8_t> wanted;
inline bool looks() noexcept { return wanted.load(std::memory_order_relaxed) != 0; }
inline bool on() noexcept { return (wanted.load(std::memory_order_relaxed) & events_wanted) != 0; }
inline bool measures() noexcept { return (wanted.load(std::memory_order_relaxed) & latency_wanted) != 0; }

// The clock of events: the CPU's cycle counter where it runs evenly on all CPUs, else nanoseconds.
std::uint64_t ticks() noexcept;
bool ticks_are_cycles() noexcept;

// ---- what the scheduler notes; on(), of the first two looks() -------------------------------------------------------

// Called by a machine before g is published.
void note_runnable(machine* m, goroutine* g) noexcept;
// Called by any thread, under the scheduler lock.
void note_runnable_outside(goroutine* g, cause why) noexcept;
// Called by note_marks() when g's machine has begun to run it. While no trace runs it only clears the mark.
void note_run(processor* p, goroutine* g) noexcept;
// The others are called by m's own thread. `p` is passed where m may have no processor any more.
void note(machine* m, kind what, const goroutine* g, std::uint64_t arg = 0, std::uint8_t detail = 0) noexcept;
void note_processor(machine* m, kind what, const processor* p, std::uint64_t arg = 0, std::uint32_t count = 0) noexcept;
void note_text(machine* m, kind what, const goroutine* g, std::uint64_t arg, std::string_view text) noexcept;
// The monitor.
void note_taken(const processor* p, const machine* from, taking how) noexcept;
// Under the scheduler lock.
void note_world(kind what) noexcept;
void note_frozen(goroutine& g) noexcept;  // once for each; with the world stopped

// While this object lives, goroutines that the machine makes runnable are noted with this cause.
class because {
public:
    because(machine* m, cause why) noexcept;
    ~because();
    because(const because&) = delete;
    because& operator=(const because&) = delete;

private:
    machine* m_;
    cause before_;
};

// ---- the trace as a whole: one at a time, and its caller sees to that ----------------------------------------------

// Stops the world. `recycle`: for the recorder. Throws std::bad_alloc.
// `switch_waits` sets waits_counter (park/contention.h), while the world is stopped.
void begin(std::size_t bytes, bool recycle, void (*switch_waits)(bool on));
// No events are recorded from here on. Stops the world.
void finish(void (*switch_waits)(bool on)) noexcept;

// Latency is measured from here on, or no longer measured. Stops the world.
void measure(bool yes) noexcept;

// For readers, after finish() or before.
struct view {
    std::uint32_t source;
    pid_t tid;
    std::uint64_t lost;
    std::uint32_t used;
    event events[chunk::places];
};
// Takes the oldest full chunk out. False: there is none.
bool take_full(view& into) noexcept;
// Copies the full chunk number `at`, counted over all full chunks of the trace. If it is gone, copies the oldest that
// is left, and `at` becomes its number. False: there is none.
bool look_at_full(std::uint64_t& at, view& into) noexcept;
// Calls f(with, view) for each chunk that is being written to, and for each ring that loses its events for want of one
// (used is 0); holds no lock during the call.
void look_at_open(view& room, void (*f)(void*, const view&), void* with) noexcept;
// The share of full chunks that wait to be taken in all chunks: 0 to 256.
unsigned filled() noexcept;
// Recorder: the time of the last event that was overwritten, or lost for want of a chunk; 0: none. There are gaps
// before it. Call after look_at_open(), which notes what is being lost.
std::uint64_t complete_from() noexcept;
// The process dies: nothing waits for locks any longer.
void ignore_locks() noexcept;

}  // namespace dunlin::sched::tracing
