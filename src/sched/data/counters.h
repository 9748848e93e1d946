// counters.h - what is counted for stats(): for each processor, for the monitor, for waits.
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace dunlin::inline v0_1::sched {

// Counts what one owner at a time does; any thread may read it.
class counter {
public:
    void add(std::uint64_t n = 1) noexcept {
        value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
    std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }
    // For a count that must not be seen before what it counts: acquire pairs with release.
    void add_last() noexcept { value_.store(value_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
    std::uint64_t get_first() const noexcept { return value_.load(std::memory_order_acquire); }
    void reset() noexcept { value_.store(0, std::memory_order_relaxed); }

private:
    platform::atomic<std::uint64_t> value_{0};
};

struct processor_counters {
    counter created;            // goroutines started by this P
    counter ended;              // goroutines ended on it
    counter switches;           // goroutines executed, run_next included
    counter run_next_hits;      // of these, taken from run_next
    counter global_hits;        // visits of the global queue that found something, the 61st tick included
    counter global_tick_hits;   // of these, by the 61st tick
    counter global_batches;     // of these, as many as were p's share
    counter overflows;          // half of the queue moved to the global one
    counter steals;             // successful steals by this P
    counter stolen;             // goroutines that this P has stolen
    counter run_next_steals;    // of these, out of a run_next slot
    counter in_place_joins;     // children run on the waiter's stack
    counter parks;
    counter yields;
    counter stack_binds;        // stacks taken to start a goroutine that could not use the one below it
    counter blocking_calls;     // calls of blocking()
    counter hand_offs;          // of these, those that handed the processor on at once, at their beginning
    counter io_waits;           // waits for a descriptor begun on this P
    counter io_wakes;           // waits ended by the machine that had this P; not necessarily those counted in
                                // io_waits
};

// waits.h. The last bucket has no limit.
inline constexpr std::array<std::int64_t, 19> wait_limits_ns{500, 1'000, 2'000, 5'000, 10'000, 20'000, 50'000, 100'000,
    200'000, 500'000, 1'000'000, 2'000'000, 5'000'000, 10'000'000, 20'000'000, 50'000'000, 100'000'000, 500'000'000,
    1'000'000'000};
struct wait_counters {
    std::array<counter, wait_limits_ns.size() + 1> by_length;
    counter total_ns;

    // Counts `weight` waits of `ns` each.
    void add(std::int64_t ns, std::uint64_t weight) noexcept;  // waits.cpp
};
// Where the time of all processors went (machines/processor_time.h).
struct time_counters {
    std::int64_t proc_ns = 0;       // scheduler lock: number of processors x time, up to since_ns
    std::int64_t since_ns = 0;      // scheduler lock: when the number last changed; 0: there are none yet
    std::int64_t stopped_ns = 0;    // scheduler lock: since when all processors have been stopped; 0: they are not
    std::int64_t stop_wanted_ns = 0;    // written by the thread that stops the world, as are all that follow
    wait_counters stopping;         // from the request until all processors are stopped
    wait_counters stops;            // from the request until they go on
    // also under the scheduler lock: number of processors x the time during which they were stopped
    counter stopped_proc_ns;
};
// 0, 1, 2 to 3, 4 to 7 ... 128 to 255, 256.
inline constexpr std::size_t queue_length_classes = 10;

// What stats() tells about processors that changed hands. Written by the monitor, or under the scheduler lock where it
// says so.
struct hand_off_counters {
    counter from_blocking;      // processors taken from threads in a blocking() that lasted
    counter from_blocked;       // from threads that slept in the kernel unannounced
    counter from_hogs;          // from goroutines that computed
    counter urgent;             // of these, before the end of their slice, because a goroutine had just been woken
    counter asked;              // goroutines asked to give way in their next call that may wait
    counter stop_requests;      // signals sent by ask_to_stop() to threads that compute without a processor
    counter thaws;              // preempted goroutines resumed without a processor, because others seemed to wait for
                                // locks that they hold
    counter given_back;         // processors given to threads that computed without one; scheduler lock
    counter threads_ended;
    counter preemptions;        // goroutines stopped inside a signal handler; scheduler lock
    counter returns_idle;       // goroutines that came to the runtime without a processor and found an idle or an
                                // offered one; scheduler lock
    counter returns_queued;     // that queued instead, mostly because they found none; scheduler lock
};

}  // namespace dunlin::sched
