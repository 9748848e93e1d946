// runtime.hpp - the runtime itself: how many processors, what they do, what every goroutine waits for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <dunlin/config.hpp>

namespace dunlin::runtime {

/// How many goroutines may execute at the same time.
DUNLIN_API unsigned max_procs();

/// Changes it; 1 to 1024, else std::invalid_argument. max_procs() shows it at once; no goroutine is lost. Returns the old value.
/// Blocks    The thread, until every goroutine that executes has been stopped for a moment (microseconds; one that computes is not waited for).
DUNLIN_API unsigned set_max_procs(unsigned n);

/// Goroutines alive: started and not ended. The main goroutine is one.
DUNLIN_API std::size_t num_goroutines();

/// One processor, as stats() found it.
struct processor_stats {
    unsigned id = 0;
    std::string state;              ///< "idle", "running", "stopped" or "dead" (beyond max_procs)
    int machine = -1;               ///< the thread that has it; -1: none
    std::size_t run_queue = 0;      ///< goroutines in its local queue
    bool run_next = false;          ///< is there one in the LIFO slot
    std::uint64_t tick = 0;         ///< scheduler ticks: executions that began a new time slice
    std::uint64_t created = 0, ended = 0;
    std::uint64_t switches = 0;     ///< times it looked for the next goroutine
    std::uint64_t run_next_hits = 0;    ///< executions out of the LIFO slot
    std::uint64_t global_hits = 0;      ///< times it took from the global queue
    std::uint64_t global_tick_hits = 0; ///< of these, because it was the 61st tick
    std::uint64_t overflows = 0;        ///< times half of its queue went to the global one
    std::uint64_t steals = 0;           ///< successful steals by it
    std::uint64_t stolen = 0;           ///< goroutines it has stolen
    std::uint64_t run_next_steals = 0;  ///< of these, out of a LIFO slot
    std::uint64_t in_place_joins = 0;   ///< children run on the stack of who waited for them
    std::uint64_t parks = 0, yields = 0;
    std::uint64_t stacks_bound = 0;     ///< stacks taken because the goroutine before was parked on its own
    std::vector<std::uint64_t> stolen_from;  ///< goroutines stolen, by the victim's id
};

/// Counts since the program began. Each number is exact; numbers of busy processors are not of the same instant.
struct runtime_stats {
    unsigned max_procs = 0;
    unsigned idle_procs = 0;
    unsigned spinning_threads = 0;
    unsigned threads = 0;           ///< threads that run goroutines
    unsigned idle_threads = 0;
    std::size_t goroutines = 0;     ///< alive
    std::size_t runnable = 0, running = 0, waiting = 0;  ///< by state; costs a walk over all descriptors
    std::size_t global_queue = 0;
    std::size_t stacks_in_use = 0;  ///< handed out, the processors' reserves included
    std::size_t stack_bytes_reserved = 0;
    std::string stack_guards;       ///< "madvise", "mprotect", "canary" or "none"
    std::uint64_t steals = 0, stolen = 0, in_place_joins = 0, overflows = 0;
    std::vector<processor_stats> procs;
};

/// Any thread. Does not stop anything; the counts by state cost about 2 ns for each goroutine there ever was at once.
DUNLIN_API runtime_stats stats();

/// Writes every goroutine with its state, what it waits for since when, where it was created, and its stack. Stops the world meanwhile.
/// From goroutines and plain threads.
DUNLIN_API void dump(std::ostream& out);

}  // namespace dunlin::runtime
