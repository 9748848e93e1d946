// monitor_notes.h - what the monitor remembers of processors and of machines, at each of them. The monitor alone
// touches it.
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::sched {

struct machine;

// What the monitor (monitor.cpp, hand_off.cpp) has seen of a processor.
struct monitor_notes {
    std::uint32_t tick = 0;
    std::int64_t tick_since_ns = 0;
    // Since when the global queue has not been empty, and the processor has taken nothing from there.
    std::uint64_t global_hits = 0;
    std::int64_t global_since_ns = 0;
    std::uint32_t run_next = 0;
    std::uint64_t takings = 0;
    // Since when there has been no sign that the machine came to the scheduler: the goroutine that runs is the same.
    machine* owner = nullptr;
    std::uint64_t progress = 0;
    std::int64_t stuck_since_ns = 0;
    std::int64_t turn_began_ns = 0;             // when that goroutine got this processor
    std::int64_t slice_began_ns = 0;            // the same, less what it had used of its slice before it was preempted
    std::uint32_t blocking_tick = 0;
    // The machine was seen in a call that then ended by itself; how often, since one had to be taken; and until when
    // the monitor does not look for such calls.
    bool seen_in_call = false;
    std::uint8_t short_calls = 0;
    std::int64_t trusted_until_ns = 0;
    // First look at a machine that is stuck: its CPU time, and how often it had slept by then.
    bool sampled = false;
    bool spins = false;                         // it was stopped where it waited in a loop, and has been resumed
    std::int64_t sampled_ns = 0;
    std::int64_t sampled_cpu_ns = 0;
    std::uint64_t sampled_sleeps = 0;
};

// What the monitor has seen of a machine from which it took the processor.
struct stray_notes {
    machine* next = nullptr;                    // the monitor's list of such machines
    bool listed = false;
    std::int64_t next_look_ns = 0;
    std::int64_t wait_ns = 0;                   // between two looks, growing
    std::int64_t since_ns = 0;                  // beginning of the time over which it is judged; its CPU time then,
    std::int64_t cpu_ns = 0;
    std::uint64_t sleeps = 0;                   // and how often it had slept
};

}  // namespace dunlin::sched
