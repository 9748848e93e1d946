// sim.hpp - runs a concurrent program thousands of times, in different orders and in virtual time; an execution that
// fails is run again from its seed.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <dunlin/clock.hpp>
#include <dunlin/detail/spawn.hpp>

namespace dunlin::inline v0_1::sim {

/// How the orders are chosen.
///
/// random    Any goroutine that can run may be next at each choice. The odds of a switch differ from seed to seed (from
///           "only where it must wait" to "at every second call").
/// pct{d}    Each goroutine has a drawn priority, and the highest that can run does. At d - 1 drawn moments the one
///           that runs becomes the lowest (Burckhardt et al., 2010: a fault that needs d moments in the right order is
///           found with a probability that does not shrink with the number of steps between them).
/// exhaustive, exhaustive(n)
///           Every order, each once, those with the fewest detours (at most n) first; `seeds` executions at most, and
///           result::complete says whether these were all. No detour: which goroutine runs next where one waits or
///           ends, which ready case a select takes, what draw() returns. A detour: a goroutine is switched away where
///           it could go on; a deadline, or an arrival over the network, comes first although a goroutine can run
///           (within longest_delay); a call of blocking() takes that long; the network has a fault. For small cases:
///           a failure is found with the fewest detours.
class search_strategy {
public:
    constexpr search_strategy() noexcept = default;
    /// "random", "pct", "pct:3", "exhaustive" or "exhaustive:2". Throws std::invalid_argument.
    DUNLIN_API explicit search_strategy(std::string_view name);

    /// The depth of pct; 0: the strategy is another one.
    constexpr unsigned depth() const noexcept { return is_exhaustive_ ? 0 : number_; }
    constexpr bool is_exhaustive() const noexcept { return is_exhaustive_; }
    /// The most detours of exhaustive; ~0u: there is no limit.
    constexpr unsigned detours() const noexcept { return is_exhaustive_ ? number_ : 0; }

protected:
    constexpr explicit search_strategy(unsigned number, bool is_exhaustive = false) noexcept
        : number_(number), is_exhaustive_(is_exhaustive) {}

private:
    unsigned number_ = 0;
    bool is_exhaustive_ = false;
};

inline constexpr search_strategy random{};

class exhaustive_search : public search_strategy {
public:
    constexpr exhaustive_search() noexcept : search_strategy(~0u, true) {}
    constexpr search_strategy operator()(unsigned detours) const noexcept { return exhaustive_search(detours); }

private:
    constexpr explicit exhaustive_search(unsigned detours) noexcept : search_strategy(detours, true) {}
};
inline constexpr exhaustive_search exhaustive{};

/// d is from 1 to 64; check() throws std::invalid_argument for other values.
class pct : public search_strategy {
public:
    constexpr explicit pct(unsigned d) noexcept : search_strategy(d == 0 ? ~0u : d) {}
};

/// What check() does. The environment overrides it: DUNLIN_SIM_SEED=N runs that seed alone, DUNLIN_SIM_STRATEGY=pct:3
/// names the strategy, DUNLIN_SIM_CHOICES replaces `choices`.
struct options {
    /// The number of executions, with the seeds first_seed, first_seed + 1, ... With `exhaustive` the most executions,
    /// all with the seed first_seed, which draws what is not tried one by one: latencies, draw() of more than 64.
    std::uint64_t seeds = 1000;
    std::uint64_t first_seed = 1;
    search_strategy strategy = random;
    /// The one execution of `exhaustive` that is run, as result::choices names it: "12:1,30:2". Empty: all are run.
    std::string choices = {};
    /// An execution that makes more choices than this counts as one that does not end.
    std::uint64_t max_steps = 100'000;
    /// The longest time for which a goroutine that can run may have to wait, as on a busy machine; and which a call of
    /// blocking() may take before, and again after, what it calls; an hour at most. Zero: nothing takes time but
    /// sleeping.
    dunlin::detail::duration_option longest_delay = std::chrono::milliseconds(1);
    /// How long, in virtual time, goroutines that f leaves behind may take to end by themselves; then they are a leak.
    dunlin::detail::duration_option grace = std::chrono::minutes(1);
    /// Real time. A goroutine that uses a CPU for this long without calling the runtime, or whose thread sleeps in the
    /// kernel for six times as long, counts as one that does not end.
    dunlin::detail::duration_option patience = std::chrono::seconds(10);
    /// How many bytes the process may grow by. An execution that allocates for ever, or executions that leave things
    /// behind, end in a failure and not in a machine without memory.
    std::uint64_t max_memory = std::uint64_t{4} << 30;
    /// Any use of what is outside of the simulation (files, pipes, processes of the kernel) is a failure. If false, the
    /// first use is reported on stderr.
    bool strict = false;
    /// Asked after each execution: has an assertion of the test framework failed? `.failed = testing::Test::HasFailure`
    /// for GoogleTest. Assertions that throw (REQUIRE of Catch2 and doctest) do not need it.
    std::function<bool()> failed = nullptr;
};

/// Why an execution failed.
enum class failure_kind : std::uint8_t {
    none,
    exception,       // left f, or a goroutine
    requirement,     // require()
    assertion,       // options::failed
    misuse,          // of an object of dunlin: unlock of an unlocked mutex, ...
    deadlock,        // goroutines wait, and nothing can wake them
    leak,            // f has returned, and goroutines have not ended
    never_ends,      // max_steps, or patience
    memory,          // max_memory
    outside_thread,  // a plain thread has made a goroutine runnable, or waits for one
    outside_wait,    // a wait for a pipe or process of the kernel, whose answer has no seed; options::strict: its use
    differs,         // exhaustive: the same choices have led elsewhere this time
};

/// The result of an exploration.
struct result {
    failure_kind kind = failure_kind::none;  ///< none: all executions were right
    std::uint64_t seed = 0;                  ///< of the execution that failed; else of the last one
    std::uint64_t executions = 0;
    std::uint64_t steps = 0;                 ///< choices of all executions
    /// A hash of all choices: of the execution that failed, else of all executions. The same seeds and the same program
    /// give the same number each time.
    std::uint64_t hash = 0;
    /// The execution was run a second time from its seed, and made the same choices. Not tried where it did not end.
    bool replayed = false;
    /// exhaustive: every order with at most as many detours as asked for was run.
    bool complete = false;
    /// exhaustive: every order with at most this many detours was run; -1: not even all without a detour.
    int covered = -1;
    std::string choices;                     ///< exhaustive: of the execution that failed, for options::choices
    std::string message;                     ///< one line
    /// All that is known: the seed, how to replay it, the waiters, the last choices. After an exhaustive search, even
    /// if nothing failed: how many orders were run, and whether those are all.
    std::string report;

    bool ok() const noexcept { return kind == failure_kind::none; }
};

/// What check() throws: what() is the report.
class DUNLIN_API failure : public std::runtime_error {
public:
    explicit failure(result r);
    const result& of() const noexcept { return *result_; }

private:
    std::shared_ptr<const result> result_;
};

namespace detail {
DUNLIN_API result explore(const options& o, void (*f)(void*), void* with);
[[noreturn]] DUNLIN_API void fail(result r);
}

/// Runs f() once for each seed, as the main goroutine of a run() of its own, on the real runtime with one processor;
/// ends with the first execution that fails, runs it again to see whether it is repeatable, and says what happened.
///
/// Order     Each choice of the runtime comes from the seed: which goroutine runs next, where one is switched away
///           (at calls of this library: channels, locks, spawns, ...), which ready case of a select is taken.
/// Time      dunlin::clock, sleeps, timers, deadlines and contexts use virtual time. It jumps to the next deadline when
///           nothing can run: an hour of sleep takes no time. blocking(f) calls f at once, and takes a drawn time.
/// Network   dunlin::net in a simulation has a network of its own: sim::network(), sim::host.
/// Outside   What is not dunlin's has no seed: std::chrono clocks, std::thread, random devices, addresses as keys. A
///           plain thread that makes a goroutine runnable, and a wait for a pipe, end the check. What f leaves
///           behind in static variables is still there in the next execution: create what is tested inside f.
/// Failure   An exception that leaves f or a goroutine, a deadlock, goroutines left behind, too many choices, misuse,
///           require(), options::failed. The goroutines of that execution stop where they stand, as at the end of
///           run(): their stacks are not unwound.
/// Blocks    The calling thread, until all seeds are done.
/// Throws    std::logic_error in a goroutine, inside of another check(), while goroutines or timers exist already, and
///           while another thread is inside run(); std::invalid_argument for options, or an environment, that make no
///           sense.
/// Call from A plain thread outside of run().
/// Cost      Some microseconds for each execution, and some 100 ns for each choice.
template <class F>
result explore(const options& o, F&& f) {
    static_assert(dunlin::detail::fits_here<F&>, DUNLIN_DOES_NOT_FIT_HERE);
    auto* function = std::addressof(f);  // of a function, too
    return detail::explore(
        o, [](void* with) { static_cast<void>(std::invoke(**static_cast<decltype(function)*>(with))); }, &function);
}

/// explore(), for tests: throws sim::failure if an execution fails, which every test framework shows.
///
/// Throws    As explore(), and sim::failure.
template <class F>
result check(const options& o, F&& f) {
    result r = explore(o, f);
    if (!r.ok()) detail::fail(std::move(r));
    return r;
}
template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, options>)
result check(F&& f) {
    return check(options{}, f);
}

/// Ends the execution as failed unless `holds`. In a goroutine of a simulation the call does not return then.
///
/// Throws    std::logic_error with `what` if `holds` is false and there is no simulation.
DUNLIN_API void require(bool holds, std::string_view what = "a requirement does not hold",
    std::source_location where = std::source_location::current());

/// The goroutine may be switched away here: for code that shares atomic variables, or relies on nothing happening in
/// between. Does nothing outside of a simulation.
DUNLIN_API void point() noexcept;

/// Waits until no other goroutine of the simulation can run: each has ended, or waits for another, for a time (as one
/// in blocking() does) or for the network. Meanwhile time goes on only by what choices and options::longest_delay take.
/// When it returns, what should have happened by then has happened:
/// `c.send(1); sim::wait(); require(...)`. Several goroutines may wait like this; then all of them go on.
///
/// Blocks    The goroutine.
/// Throws    std::logic_error outside of a simulation.
/// Source    Go's testing/synctest.Wait. Differs: there one goroutine at a time may wait, and waiting for a mutex does
///           not count.
DUNLIN_API void wait(std::source_location where = std::source_location::current());

/// The seed of this execution; 0: the caller is not in a simulation. For random numbers that a program draws itself.
DUNLIN_API std::uint64_t seed() noexcept;

/// A number below `bound`, drawn from the seed; it counts as a choice. `bound` is not 0.
///
/// Throws    std::logic_error outside of a simulation, std::invalid_argument for 0.
DUNLIN_API std::uint64_t draw(std::uint64_t bound);

// ---- the network ----------------------------------------------------------------------------------------------------

/// What may happen between hosts. Odds are from 0 to 1. A kind of fault whose odds are neither 0 nor 1 happens in half
/// of the executions only, since one fault may hide another.
struct network_options {
    /// How long what is sent takes, drawn each time; every order of magnitude in between is equally likely.
    std::chrono::nanoseconds least_latency = std::chrono::microseconds(50);
    std::chrono::nanoseconds most_latency = std::chrono::milliseconds(5);
    /// A connection or a datagram is slow: what it sends takes from most_latency to slow_latency.
    double slow = 0.05;
    std::chrono::nanoseconds slow_latency = std::chrono::seconds(1);
    /// A datagram is lost; arrives twice. (Datagrams overtake each other in any case.)
    double loss = 0.05;
    double duplicates = 0.02;
    /// For each write to a stream: what it wrote is lost, and both ends learn that the connection was reset
    /// (ECONNRESET).
    double resets = 0.02;
    /// For each thing sent from one host to another: the two are cut off from each other, for up to longest_partition.
    /// Datagrams are lost then; streams and dials wait, at most as long as TCP does.
    double partitions = 0.01;
    std::chrono::nanoseconds longest_partition = std::chrono::seconds(10);
    /// How far the clock of a host that is made afterwards may be ahead or behind. See clock_skew().
    std::chrono::nanoseconds longest_skew = std::chrono::milliseconds(0);
};

/// What network() returns. Hosts have the names given to sim::host; "test" is where the function itself runs.
class DUNLIN_API network_controls {
public:
    /// Until heal(), nothing gets from a to b, nor from b to a. Throws std::invalid_argument if there is no such host,
    /// or both are the same; std::logic_error outside of a simulation.
    void partition(std::string_view a, std::string_view b) const;
    void heal(std::string_view a, std::string_view b) const;
    /// Heals all that are cut.
    void heal() const;
};

/// From here to the end of the execution the network has faults, drawn from the seed. Without this call it only takes
/// time: 50 us to 5 ms.
///
/// In a simulation dunlin::net never asks the kernel: listen(), dial(), datagrams, Unix sockets and pairs, with
/// deadlines and contexts, have their ordinary meaning. Each host has its own ports and paths of Unix sockets. Names
/// are those of hosts, which have one IPv4 address each. What one call writes may be read in parts. adopt() and IPv6
/// are refused.
///
/// Throws    std::logic_error outside of a simulation; std::invalid_argument for odds or times that make no sense.
DUNLIN_API network_controls network(const network_options& o = {});

/// Another machine: main runs in a goroutine there, and so does what main starts. A host has a name, by which others
/// dial it ("db:5432"), ports of its own, and links that may be cut. Let hosts share nothing but the network: a host
/// that crashes does not give back what it holds in shared memory (channels, mutexes). What after_func() starts belongs
/// to the test's host.
///
/// The handle may be dropped; when the simulated function has returned, its hosts are switched off. What main uses by
/// reference must live until then: the hosts still run while the function's variables are destroyed.
class DUNLIN_API host {
public:
    /// Throws std::logic_error outside of a simulation; std::invalid_argument for a name that is taken or not allowed,
    /// and for an empty main.
    host(std::string name, std::function<void()> main);
    /// The host's goroutines stop where they stand, for good: no destructor runs, and their memory stays until the
    /// process ends. Its connections are reset, or fall silent (drawn): then writes of its peers end in ETIMEDOUT, or
    /// in ECONNRESET if the host is up again. Does nothing if the host is down. Does not return in a goroutine of that
    /// host.
    void crash() const;
    /// crash(), then main runs again from the beginning.
    void restart() const;
    bool is_up() const;
    /// "10.0.0.2"
    std::string address() const;

private:
    std::uint32_t number_ = 0;
    std::uint64_t execution_ = 0;
};

/// How far the clock of the caller's host is ahead of the others' (or behind, if negative): for a program that compares
/// times of several machines. dunlin::clock itself has no skew.
///
/// Throws    std::logic_error outside of a simulation.
DUNLIN_API std::chrono::nanoseconds clock_skew();

}  // namespace dunlin::sim
