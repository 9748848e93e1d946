// runtime.hpp - the runtime itself: how many processors, what they do, what every goroutine waits for.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace dunlin::inline v0_1::runtime {

/// How many goroutines may execute at the same time.
DUNLIN_API unsigned max_procs();

/// Changes max_procs(); 1 to 1024, else std::invalid_argument. max_procs() shows the new value at once; no goroutine is
/// lost. Returns the old value.
/// Blocks    The thread, until every executing goroutine has been stopped for a moment (microseconds; one that computes
///           is not waited for).
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
    std::uint64_t in_place_joins = 0;   ///< children run on the stack of the goroutine that waited for them
    std::uint64_t parks = 0, yields = 0;
    std::uint64_t stacks_bound = 0;     ///< stacks taken because the goroutine before was parked on its own
    std::uint64_t blocking_calls = 0;   ///< calls of blocking() begun on it
    std::uint64_t hand_offs = 0;        ///< of these, at whose beginning it was handed to another thread at once
    std::chrono::nanoseconds idle{0};   ///< how long it has had nothing to run
    std::vector<std::uint64_t> stolen_from;  ///< goroutines stolen, by the victim's id
};

/// Processors that changed hands because a goroutine blocked its thread or computed for long.
struct hand_off_stats {
    std::uint64_t blocking_calls = 0;   ///< calls of blocking()
    std::uint64_t at_once = 0;          ///< of these, handed on at the beginning
    std::uint64_t from_blocking = 0;    ///< processors that the monitor took from a blocking() that lasted
    std::uint64_t from_blocked = 0;     ///< from threads that slept in the kernel unannounced
    std::uint64_t from_hogs = 0;        ///< from goroutines that computed: at the end of their slice, or before
    std::uint64_t urgent = 0;           ///< of these, before it, for a goroutine just woken: mostly lent
    /// goroutines that were asked, at the end of their slice, to give way in their next call that may wait: each had
    /// made a call, and computed
    std::uint64_t asked = 0;
    std::uint64_t signals = 0;          ///< signals sent to stop a thread that computed without a processor
    std::uint64_t preemptions = 0;      ///< goroutines that such a signal stopped
    std::size_t preempted_now = 0;      ///< of these, those that are stopped now
    /// of these, let go on without a processor, because others seemed to wait for a lock that they held
    std::uint64_t thaws = 0;
    std::uint64_t given_back = 0;       ///< idle or lent processors given to threads that computed without one
    /// goroutines that came to the runtime without a processor and found an idle or offered one
    std::uint64_t returns_idle = 0;
    std::uint64_t returns_queued = 0;   ///< those that found none, and queued
    std::uint64_t threads_ended = 0;    ///< threads given back because they had nothing to do
};

/// Descriptors that goroutines and threads wait for.
struct poll_stats {
    std::size_t descriptors = 0;        ///< open: sockets, pipes, files
    std::size_t waiting = 0;            ///< calls and select cases that wait for one of them
    std::uint64_t polls = 0;            ///< times the kernel was asked, without waiting, which are ready; approximate
};

/// A histogram of durations. `counts[i]`: more than `limits_ns[i - 1]` and at most `limits_ns[i]`; the last: more than
/// all limits.
struct duration_histogram {
    std::vector<std::int64_t> limits_ns;
    std::vector<std::uint64_t> counts;
    std::int64_t total_ns = 0;  ///< the sum of all durations; approximate

    DUNLIN_API std::uint64_t total() const noexcept;
    /// The limit below which the part `q` (0 to 1) of the durations lies, in nanoseconds; 0 if there are none,
    /// INT64_MAX if that is beyond the last limit.
    DUNLIN_API std::int64_t quantile_ns(double q) const noexcept;
    /// What has been counted since `before`, an older state of the same histogram.
    DUNLIN_API duration_histogram since(const duration_histogram& before) const;
};

/// How the processors have spent their time since the runtime started. The share of an interval in which they were
/// busy is the difference of two busy() divided by that of two `total`.
struct processor_time {
    std::chrono::nanoseconds total{0};      ///< the time that has passed, multiplied by max_procs as it was then
    /// Of it: they had nothing to run. A call of blocking() that lasts has no processor, whatever it does.
    std::chrono::nanoseconds idle{0};
    std::chrono::nanoseconds stopped{0};    ///< of it: the world stood still
    /// The rest: they ran goroutines (including those that slept in the kernel unannounced), chose the next one, or
    /// looked for work.
    std::chrono::nanoseconds busy() const noexcept { return total - idle - stopped; }
};

/// How long waits for one thing have lasted.
struct wait_durations {
    std::string reason;  ///< as in dumps: "chan receive"
    duration_histogram waits;
};

/// Counts since the program began. Each number is exact, but those of busy processors are not taken at the same
/// instant.
struct runtime_stats {
    unsigned max_procs = 0;
    unsigned idle_procs = 0;
    unsigned spinning_threads = 0;
    unsigned threads = 0;           ///< threads that run goroutines
    unsigned idle_threads = 0;
    std::size_t goroutines = 0;     ///< alive
    /// by state; costs a walk over all goroutine structs
    std::size_t runnable = 0, running = 0, waiting = 0, preempted = 0;
    std::size_t global_queue = 0;
    std::size_t stacks_in_use = 0;  ///< handed out, the processors' reserves included
    std::size_t stack_bytes_reserved = 0;
    std::string stack_guards;       ///< "madvise", "mprotect", "canary" or "none"
    std::uint64_t steals = 0, stolen = 0, in_place_joins = 0, overflows = 0;
    hand_off_stats hand_offs;
    poll_stats poll;
    /// Waits of goroutines, from runnable to running, while a processor had nothing to run: only the time during which
    /// a processor was idle or searching counts. A sample: of goroutines that follow each other in short turns on one
    /// processor, about one in 256 is timed and counts for all.
    duration_histogram waits_while_idle;
    /// While set_wait_histograms() was on: how long runnable goroutines have waited until they ran; for those that had
    /// yielded or were preempted only the first wait. One in eight is measured, and counts for eight.
    duration_histogram scheduling_latency;
    /// For the same goroutines: the length of the queue that they joined, their processor's own. [0]: empty, [i]: from
    /// 2^(i-1) to 2^i - 1, the last: full.
    std::vector<std::uint64_t> run_queue_lengths;
    /// While set_wait_histograms() was on: waits that have ended, of goroutines and of plain threads, by what was
    /// waited for: channels, locks, descriptors, sleeping and all else that parks. What was never waited for is left
    /// out.
    std::vector<wait_durations> park_times;
    processor_time time;
    /// Stops of the world: for dumps, profiles, leaks(), a trace's begin and end, set_max_procs(), the end of run().
    duration_histogram world_stopping;      ///< from the request until everything stands
    duration_histogram world_stops;         ///< from the request until everything goes on
    std::vector<processor_stats> procs;
};

/// Call from any thread. Stops nothing; the counts by state cost about 2 ns times the largest number of goroutines that
/// were ever alive at once.
DUNLIN_API runtime_stats stats();

/// Starts or stops counting scheduling_latency, run_queue_lengths and park_times of stats(); what has been counted
/// stays. Off at first. Returns what it was before. Costs while it is on: two readings of the clock for each wait, and
/// some nanoseconds for each goroutine that becomes runnable. Stops the world for a moment.
DUNLIN_API bool set_wait_histograms(bool on);

/// Writes every goroutine with its state, what it waits for and since when, where it was created, and its stack.
/// Goroutines that are alike in all of this, and in name and labels, share a paragraph, "and 999 like it", with the
/// shortest and the longest wait; the longest waits come first. Goroutines that compute, or were preempted, are shown
/// with their stacks, too: their threads are asked by the signal of preemption (not with `DUNLIN_PREEMPTION=take` or
/// `off`). For a goroutine whose thread sleeps in the kernel (a raw `read`, a `std::mutex`, inside `blocking()`) the
/// function that called the kernel is shown, in libc mostly, and on x86-64 what called that, up to the first functions
/// of the program mostly: frames above one that uses a frame pointer cannot be found. Its state is then "blocked in the
/// kernel" (in JSON "running", with `asleep_in_kernel_at`). If the program has replaced the runtime's SIGSEGV handler
/// by its own, only the innermost frame of goroutines that compute is shown. There is no stack of a goroutine that has
/// called the runtime since the world stopped and waits there, nor of one that computes inside `blocking()` or
/// `no_preempt`. Stops the world while it looks, at most 4 ms for those that compute; names and lines are looked up
/// afterwards. From goroutines and plain threads.
DUNLIN_API void dump(std::ostream& out);

/// How a dump is written. `json`: one object, `{"version": 1, "goroutines": N, "current": ID, "processors": [...],
/// "groups": [...], "groups_left_out": N, "goroutines_left_out": N}`. A processor has `id` and `queue` (how many wait
/// there). A group of goroutines that are alike has `count`, `ids` (a hundred at most), `state`, `created_at` and
/// `stack` (an array of `{"pc", "function", "at"}`, innermost first, empty if it is not known), and where they apply
/// `name`, `labels`, `reason`, `shortest_wait_ns`, `longest_wait_ns`, `waits_at`, `object` (the mutex that is waited
/// for), `holder` (the goroutine that has it), `locked_to_thread`, `in_place`, `asleep_in_kernel_at`. Any version may
/// add members.
enum class dump_format : unsigned char { text, json };

struct dump_options {
    dump_format format = dump_format::text;
    /// How many are written: those with the longest waits. The others are only counted.
    std::size_t paragraphs = 1000;
};

/// dump(out) is the same with dump_options().
DUNLIN_API void dump(std::ostream& out, const dump_options& options);

/// A goroutine that can never go on.
struct leak {
    std::uint64_t id = 0;
    std::string name;
    std::string state;          ///< what it waits for, as dumps say it: "chan receive (nil chan)"
    std::string why;            ///< why it is certain
    std::chrono::nanoseconds waited{0};
    std::string waits_at, created_at;
};

/// Goroutines that certainly can never go on, in the order of their numbers:
///   they wait without a limit for a nil channel, in a select that has no other cases, or for the end of one of these;
///   they wait, in a channel operation or a select, for a lock, a wait_group, a future or any other object of dunlin,
///   for something that only they themselves refer to, and others of which the same is true. Examples: a sender whose
///   receiver has given up and let its channel go, a loop over a channel that will not be closed, an abandoned circle.
/// There is no false alarm, on one condition: references to channels and objects are kept in memory of the process, as
/// addresses (not encoded, not in a file). It finds fewer than there are: an old value on a stack, or in a register,
/// may still refer to a channel; so may memory that does not come from glibc's malloc. See docs/limits.md.
/// Stops the world, and then every thread of the process, as a debugger does, for one or two nanoseconds for each eight
/// bytes of memory in use, three seconds at most; twice, if the first search finds one. Calls of other threads that
/// sleep in the kernel go on afterwards; epoll_wait() and a few others return EINTR (docs/limits.md). From goroutines
/// and plain threads. Throws std::bad_alloc.
DUNLIN_API std::vector<leak> leaks();
/// The same. `incomplete` says why only the first kind was looked for ("" if both were): ptrace is not allowed (a
/// container may forbid it, a debugger may be attached), ThreadSanitizer is present, or there is too much memory.
DUNLIN_API std::vector<leak> leaks(std::string& incomplete);

/// How a profile is written. `pprof`: in the format of pprof (not compressed), for `go tool pprof`, speedscope and the
/// like. `text`: as Go's profiles for people (what Go calls debug 1).
enum class profile_format : unsigned char { pprof, text };

/// Writes how many goroutines have which stack. Samples have the goroutines' labels, and two more: `state` (what dumps
/// say: "running", "chan receive") and `name`, for goroutines that have one. The same stacks are known as for dump().
/// Stops the world while it looks, as dump(). From goroutines and plain threads. Throws std::bad_alloc.
DUNLIN_API void goroutine_profile(std::ostream& out, profile_format format = profile_format::pprof);

/// Switches the profile of waits on: about one wait is counted for each `rate` of time waited. 1 ns: every wait; zero
/// or less: off, as it is at first. A wait shorter than `rate` is counted with the probability of its length / `rate`,
/// and then represents those that were not, as in Go's SetBlockProfileRate. Waits for channels, select, locks,
/// condition variables, groups, semaphores, futures and tasks count, of goroutines and of plain threads, when they end;
/// sleeping and waiting for descriptors do not. Costs while it is on: two readings of the clock for each wait, and some
/// microseconds for each that is counted. What has been counted stays. Throws std::bad_alloc.
DUNLIN_API void set_block_profile_rate(std::chrono::nanoseconds rate);

/// Writes what was counted since the program began, while set_block_profile_rate() was on: where goroutines and threads
/// have waited, how often (contentions) and how long (delay). Stacks begin with the program's function that waits; the
/// label `reason` says for what ("chan receive", "sync.Mutex.Lock"), and goroutines have their own labels and `name`.
/// Beyond 4096 different stacks the rest are counted together. From goroutines and plain threads. Throws
/// std::bad_alloc.
DUNLIN_API void block_profile(std::ostream& out, profile_format format = profile_format::pprof);

/// Switches the profile of locks on: one in `one_in` unlocks of a mutex or shared_mutex that others wait for is
/// counted; 0: off, as it is at first. Returns the old value. Each counted unlock is charged with the time that all
/// waiters for that lock have waited since the previous unlock: so the profile shows which code holds locks while
/// others wait, as Go's SetMutexProfileFraction. What has been counted stays. Throws std::bad_alloc.
DUNLIN_API unsigned set_mutex_profile_fraction(unsigned one_in);

/// Writes what was counted while set_mutex_profile_fraction() was on, as block_profile() does: the stack is that of the
/// unlock. A function that ends with the unlock (of its lock_guard) may be gone by then, because the compiler made the
/// call a jump: its caller is shown instead, unless the function is compiled with -fno-optimize-sibling-calls.
DUNLIN_API void mutex_profile(std::ostream& out, profile_format format = profile_format::pprof);

/// Begins a profile of CPU time: each thread is interrupted after each 1/`hz` second of its own CPU time, and the stack
/// on which it was interrupted is counted. This covers threads that run goroutines, now or later, and those that the
/// program has now. The kernel looks at the time at its ticks only (some 4 ms). Where other programs keep the CPUs
/// busy, a thread may seldom run at a tick, and one interrupt then stands for up to fifty: the total is right, and
/// shares need a profile that is several times as long. Uses SIGPROF, whose handler is replaced for good (signals from
/// others are passed on to the previous handler); while a profile runs, the program must leave the handler in place.
/// Costs some 20 us a sample. Throws std::system_error: std::errc::device_or_resource_busy: one runs already;
/// std::invalid_argument: hz is not 1 to 1000; std::bad_alloc.
DUNLIN_API void start_cpu_profile(unsigned hz = 100);

/// Ends the profile, and writes what has been counted: samples and CPU time, by stack, with the labels and the `name`
/// of the goroutines. Beyond 4096 different stacks the rest are counted together. For threads that are not the
/// runtime's, only the function that runs is known. Nothing is written if no profile runs. From goroutines and plain
/// threads. Throws std::bad_alloc.
DUNLIN_API void stop_cpu_profile(std::ostream& out, profile_format format = profile_format::pprof);

}  // namespace dunlin::runtime
