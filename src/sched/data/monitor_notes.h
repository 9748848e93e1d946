// monitor_notes.h - what the monitor remembers about each processor and each machine, kept there. Only the monitor
// touches it.
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::sched {

struct machine;

// What the monitor (monitor.cpp, retake.cpp) has seen at a processor.
struct monitor_notes {
    std::uint32_t tick = 0;
    std::int64_t tick_since_ns = 0;
    // Since when the global queue has not been empty although the processor has not taken its share.
    std::uint64_t global_batches = 0;
    std::int64_t global_since_ns = 0;
    std::uint32_t run_next = 0;
    std::uint64_t takings = 0;
    // Since when there has been no sign that the machine came to the scheduler: it runs the same goroutine.
    machine* owner = nullptr;
    std::uint64_t progress = 0;
    std::int64_t stuck_since_ns = 0;
    std::int64_t got_it_ns = 0;             // when that goroutine got this processor
    std::int64_t slice_began_ns = 0;            // the same, minus what it had used of its slice before it was preempted
    std::uint32_t blocking_tick = 0;
    // The machine was in a call at the last look; how many such calls have ended by themselves since the processor had
    // to be taken from one; and until when the monitor does not look for them.
    bool seen_in_call = false;
    std::uint8_t short_calls = 0;
    std::int64_t trusted_until_ns = 0;
    // The first look at a machine that is stuck: when it was, the CPU time of the machine then, and how often it had
    // slept.
    bool sampled = false;
    // It was asked to give way (retake.cpp, Asking); when its processor is taken if it has not.
    bool asked = false;
    std::int64_t take_ns = 0;
    bool lent = false;                          // since the last look: a borrower has it, or had it
    bool spins = false;                         // its goroutine was stopped where it waited in a loop, and has been
                                                // resumed
    std::int64_t sampled_ns = 0;
    std::int64_t sampled_cpu_ns = 0;
    std::uint64_t sampled_sleeps = 0;
};

// What the monitor has seen at a machine from which it took the processor.
struct detached_notes {
    machine* next = nullptr;                    // the monitor's list of such machines
    bool listed = false;
    std::int64_t next_look_ns = 0;
    std::int64_t wait_ns = 0;                   // between two looks, growing
    std::int64_t since_ns = 0;                  // beginning of the period over which it is judged; its CPU time then,
    std::int64_t cpu_ns = 0;
    std::uint64_t sleeps = 0;                   // and how often it had slept
};

}  // namespace dunlin::sched
