// steering.h - a simulation for users (src/replay) makes the decisions of the one processor: what runs next, where a
// goroutine is switched away, what time it is.
//
// Problem    The ordinary build must be steerable, at no cost where nothing is steered.
// Way        Slow paths ask whether there is a simulation. Fast paths do not: while one is on, a condition that they
//            test anyway fails:
//              find_local()  next_look stays 0, so each choice comes to the branch that looks at timers, and from there
//                            to choose();
//              enter()       `taken` is steered_taken, so each call of the runtime comes to enter_slow(), and from
//                            there to point();
//              unlock()      each bucket of the parking lot is watched, so an unlock comes to its slow half;
//              lock()        of a mutex compares its word with free_mutex_word;
//              acquire()     of a semaphore, lock() of a shared_mutex: dunlin/detail/simulated_point.hpp;
//              now_ns()      calls clock_gettime() through a pointer, which then points to another function.
//            A select that chooses among several ready cases asks here first.
//            `taken` keeps its meaning for takers (handshake.h): they store 1 over it, and the machine sees that;
//            it is made steered_taken again from 0 only, by compare-and-swap.
// Others     The monitor does nothing but watch(): no hand-off, no preemption, no look at timers. There is one
//            processor. Machines that are idle stay idle. A round that began before may still take the processor, so a
//            simulation begins after it (wait_for_round_in_progress(), monitor.h).
// End        The goroutine that began the simulation clears the pointer; or the monitor does, when a goroutine no
//            longer comes to the runtime (watch()): then everything goes on as without a simulation, and the monitor
//            makes that goroutine stop.
// Tests      tests/replay/
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>
#include <string_view>

#include "platform/simulated.h"
#include "platform/text.h"
#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

inline constexpr std::uint32_t steered_taken = 2;  // a value of machine_handshake::taken

struct steering {
    // Called by m, inside the runtime, when it is about to run another goroutine or to look for one. Null: the
    // goroutine that yields goes on; or the simulation has ended.
    virtual goroutine* choose(machine* m, processor* p) noexcept = 0;
    // Called by a goroutine that has just entered the runtime. Returns the machine that it is on afterwards.
    virtual machine* point(machine* m) noexcept = 0;
    // Called by a select, inside the runtime: which of `count` ready cases, more than one, it takes.
    virtual std::uint32_t choose_case(machine* m, std::uint32_t count) noexcept = 0;
    // Called around a blocking(), outside the runtime.
    virtual void begin_call() noexcept = 0;
    virtual void end_call() noexcept = 0;
    // The time, for a thread with a processor.
    virtual std::int64_t now_ns(const machine* m) noexcept = 0;
    // Called by the monitor in each round; real time.
    virtual void watch(std::int64_t now_ns) noexcept = 0;
    // Called when a plain thread makes a goroutine runnable, or waits for one.
    virtual void from_outside() noexcept = 0;
    // Called when a goroutine has opened an object of the kernel, outside the runtime. Returns if that is allowed.
    virtual void outside(std::string_view what) noexcept = 0;
    // Called before the running goroutine would be reported and end the process. Returns if the caller cannot be
    // stopped here.
    virtual void stop_here(std::string_view what) noexcept = 0;
    // Called by a report that ends the process: prints which simulation it was.
    virtual void print(platform::text_writer& out) const noexcept = 0;

protected:
    ~steering() = default;
};

// Null: there is none. Release and acquire: the object was made before the pointer to it.
DUNLIN_HIDDEN extern platform::atomic<steering*> the_steering;
// 0; in a simulation a word that no mutex has, so that none is taken on the fast path. Changed together with fast_paths
//    (dunlin/detail/simulated_point.hpp), but not a part of it, because an exported variable costs one load more.
DUNLIN_HIDDEN extern platform::atomic<std::uint32_t> free_mutex_word;
// The simulation build has a simulation of its own, in which this load would be one more step.
inline steering* steered() noexcept {
    if constexpr (platform::may_be_simulated) return nullptr;
    return the_steering.load(std::memory_order_acquire);
}
inline std::uint32_t word_of_free_mutex() noexcept {
    if constexpr (platform::may_be_simulated) return 0;
    return free_mutex_word.load(std::memory_order_relaxed);
}

}  // namespace dunlin::sched
