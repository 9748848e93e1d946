// go.hpp - start goroutines, and what a goroutine can do to itself.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <dunlin/clock.hpp>
#include <dunlin/detail/caught.hpp>
#include <dunlin/detail/spawn.hpp>

namespace dunlin::inline v0_1 {

/// How a goroutine is started. All members have defaults; use designated initialisers: `go_options{.name = "reader"}`.
struct go_options {
    /// Shown in reports and dumps; copied.
    std::string_view name = {};
    /// How many bytes of stack the function can use at least; 0: the program's default (run_options, DUNLIN_STACK_SIZE;
    /// else what a thread has, see run_options::stack_size). Rounded up. Below min_stack_size, or 1 GiB and more:
    /// std::invalid_argument.
    std::size_t stack_size = 0;
    /// Key and value, shown in dumps; a goroutine without labels inherits its parent's.
    std::vector<std::pair<std::string, std::string>> labels = {};
};

/// The smallest stack that can be asked for: room for a call to printf.
inline constexpr std::size_t min_stack_size = 8 * 1024;

/// For programs with very many goroutines that call no library that needs much stack:
/// `run_options{.stack_size = dunlin::dense_stack_size}`, or DUNLIN_STACK_SIZE=239K. A parked goroutine then takes 4.9
/// KB, page tables included, instead of 8.5: stacks so close to each other share pages of the page table.
inline constexpr std::size_t dense_stack_size = 239 * 1024;

/// What run() does with goroutines that are left when its main goroutine has ended.
enum class leftovers : unsigned char {
    /// As in Go: they are stopped where they stand, for good. Their destructors do not run, and what they have locked
    /// stays locked. If main then waits a tenth of a second for a std::mutex that one of them holds, this is reported
    /// on stderr, and the holder goes on until it has unlocked the mutex.
    stop,
    /// run() returns when all have ended. If they all wait for each other, that is reported as a deadlock; with a
    /// run_options::at_end_limit they are stopped when that is over.
    wait,
    /// The same, and run_context() is cancelled first.
    cancel_and_wait,
};

/// How the runtime is started by run(). What `max_procs` and `stack_size` set remains set for later runs; a zero leaves
/// what an earlier run() or runtime::set_max_procs() has set, at first what the environment says, or else the default.
struct run_options {
    /// How many goroutines execute at the same time: 1 to 1024. 0: DUNLIN_MAXPROCS, else GOMAXPROCS, else the CPUs that
    /// the affinity mask and the cgroup quota allow.
    unsigned max_procs = 0;
    /// Stack size, in bytes, of goroutines whose go_options do not set one. 0: DUNLIN_STACK_SIZE, else what a thread of
    /// this process would have (RLIMIT_STACK, mostly 8 MiB, rounded down to a power of two; 64 MiB at most), so that
    /// what works on a thread works in a goroutine. This is address space; only what is touched takes memory. The size
    /// is smaller, but at least 256 KiB, where address space is scarce (39 bits, `ulimit -v` or `-d`,
    /// vm.overcommit_memory = 2), and under valgrind and the sanitizers.
    std::size_t stack_size = 0;
    /// Stack size of the main goroutine, in bytes, whatever stack_size is; rounded up. 0: 8 MiB at least, as main
    /// threads have.
    std::size_t main_stack_size = 0;
    /// What becomes of goroutines that are left when the main goroutine has ended.
    leftovers at_end = leftovers::stop;
    /// How long run() waits for them at most, where it waits; then the rest are stopped, as by leftovers::stop,
    /// also if they all wait for each other. The longest duration, of any unit: for ever; zero or less: not at all.
    detail::duration_option at_end_limit = clock::duration::max();
    /// After that, name on stderr the goroutines that are left.
    bool report_leaks = false;
};

namespace detail {

// Destroys the callable when the goroutine's function returns, throws, or is unwound by exit_goroutine().
template <class T>
struct destroy_at_exit {
    T* object;
    ~destroy_at_exit() { object->~T(); }
};

// Constructs Frame in a new goroutine and starts it. Inlined, like all its callers that have no source location: make()
// then notes its return address, which lies in the program's own function. `Owned`: an object waits for its end, as
// those of std wait for a thread.
template <class Frame, bool Owned = false, class... Values>
[[gnu::always_inline]] inline new_goroutine launch(const go_options* options, std::source_location where, end_kind kind,
    const void* group, void (*entry)(void*), Values&&... values) {
    static_assert(alignof(Frame) <= strictest_frame,
        "a goroutine's function and arguments may be aligned to 64 bytes at most: put the object behind a std::unique_ptr");
    const new_goroutine n = make(sizeof(Frame), alignof(Frame), options, where);
    if constexpr (std::is_nothrow_constructible_v<Frame, Values...> && !Owned) {
        ::new (n.frame) Frame(std::forward<Values>(values)...);
    } else {
        try {
            if constexpr (Owned) give_to_owner(n);
            ::new (n.frame) Frame(std::forward<Values>(values)...);
        } catch (...) {
            discard(n);
            throw;
        }
    }
    start(n, entry, kind, group);
    return n;
}

template <class Call>
void run_detached(void* frame) {
    Call& call = *static_cast<Call*>(frame);
    destroy_at_exit<Call> guard{std::addressof(call)};
    static_cast<void>(call());
}

}  // namespace detail

/// Starts a detached goroutine that runs f(args...).
///
/// f, args   Decay-copied as by std::thread, and destroyed on the goroutine when f has returned.
/// Blocks    Nothing. The first call without run() starts the runtime.
/// Order     Everything before the call happens before f starts.
/// Throws    std::invalid_argument if f is a null function or an option is out of range, std::bad_alloc if there is no
///           memory for the goroutine (or for a stack of its own size), what copying f and args throws; then no
///           goroutine was started.
/// Errors    An exception that leaves f ends the process with status 2 after a report (or through the program's own
///           std::terminate handler).
/// Call from Goroutines and plain threads.
/// Cost      About 10 ns from a goroutine; no allocation if f and args fit into 64 bytes. Figures: docs/benchmarks.md,
///           spawn-join, spawn-million.
/// Source    Go specification, "Go statements".
template <detail::not_options F>
void go(F&& f, std::source_location where = std::source_location::current()) {
    static_assert(detail::fits<F>, DUNLIN_DOES_NOT_FIT);
    if constexpr (detail::fits<F>) {
        using call = detail::call_of<F>;
        detail::check_function(f, "dunlin::go");
        detail::launch<call>(nullptr, where, detail::end_kind::detached, nullptr, detail::run_detached<call>,
            std::in_place, std::forward<F>(f));
    }
}

/// The same with arguments.
template <detail::not_options F, class Arg, class... Args>
    requires(!std::same_as<std::decay_t<Arg>, std::source_location>)
[[gnu::always_inline]] inline void go(F&& f, Arg&& arg, Args&&... args) {
    static_assert(detail::fits<F, Arg, Args...>, DUNLIN_DOES_NOT_FIT);
    if constexpr (detail::fits<F, Arg, Args...>) {
        using call = detail::call_of<F, Arg, Args...>;
        detail::check_function(f, "dunlin::go");
        detail::launch<call>(nullptr, std::source_location(), detail::end_kind::detached, nullptr,
            detail::run_detached<call>, std::in_place,
                             std::forward<F>(f), std::forward<Arg>(arg), std::forward<Args>(args)...);
    }
}

/// The same with options.
template <class F>
void go(const go_options& options, F&& f, std::source_location where = std::source_location::current()) {
    static_assert(detail::fits<F>, DUNLIN_DOES_NOT_FIT);
    if constexpr (detail::fits<F>) {
        using call = detail::call_of<F>;
        detail::check_function(f, "dunlin::go");
        detail::launch<call>(&options, where, detail::end_kind::detached, nullptr, detail::run_detached<call>,
            std::in_place, std::forward<F>(f));
    }
}

/// The same with options and arguments.
template <class F, class Arg, class... Args>
    requires(!std::same_as<std::decay_t<Arg>, std::source_location>)
[[gnu::always_inline]] inline void go(const go_options& options, F&& f, Arg&& arg, Args&&... args) {
    static_assert(detail::fits<F, Arg, Args...>, DUNLIN_DOES_NOT_FIT);
    if constexpr (detail::fits<F, Arg, Args...>) {
        using call = detail::call_of<F, Arg, Args...>;
        detail::check_function(f, "dunlin::go");
        detail::launch<call>(&options, std::source_location(), detail::end_kind::detached, nullptr,
            detail::run_detached<call>, std::in_place,
                             std::forward<F>(f), std::forward<Arg>(arg), std::forward<Args>(args)...);
    }
}

// The name of an overloaded function is ambiguous: pass a lambda that calls it, or a cast. Not defined.
void go(detail::overloaded_function, ...);

namespace detail {
template <class F>
concept not_run_options = !std::same_as<std::remove_cvref_t<F>, run_options>;
DUNLIN_API void run_main(const run_options& options, void (*entry)(void*), void* frame, std::source_location where);
}

/// Runs f() as the main goroutine and returns what it returns, or rethrows what it throws.
///
/// Blocks    The calling thread, until f has ended. Goroutines run on other threads, so f does not see the calling
///           thread's thread_local objects.
/// After     No goroutine runs any more. Those that were left are frozen where they stand; their destructors do not run
///           (as in Go). Those that were computing are stopped at their next call into the runtime, or by a signal
///           within milliseconds; not one whose thread is always inside calls of libc (docs/limits.md). run() may be
///           called again.
/// Order     Everything before the call happens before f starts; everything f did happens before the return.
/// Throws    std::logic_error if called from a goroutine (in on_thread_stack(), too) or while another run() is active,
///           std::invalid_argument for options out of range, std::bad_alloc.
template <class F>
    requires std::invocable<F&>
auto run(const run_options& options, F&& f,
    std::source_location where = std::source_location::current()) -> std::invoke_result_t<F&> {
    using result = std::invoke_result_t<F&>;
    struct frame {
        std::remove_reference_t<F>& function;
        std::exception_ptr error;
        std::conditional_t<std::is_void_v<result>, std::monostate, std::optional<std::conditional_t<
            std::is_reference_v<result>, std::remove_reference_t<result>*,
                std::conditional_t<std::is_void_v<result>, std::monostate, result>>>> value;
    } f_and_result{f, nullptr, {}};
    detail::check_function(f, "dunlin::run");
    detail::run_main(
        options,
        [](void* raw) {
            frame& fr = *static_cast<frame*>(raw);
            try {
                if constexpr (std::is_void_v<result>) {
                    std::invoke(fr.function);
                } else if constexpr (std::is_reference_v<result>) {
                    auto&& referred = std::invoke(fr.function);
                    fr.value = std::addressof(referred);
                } else {
                    fr.value.emplace(std::invoke(fr.function));
                }
            } catch (...) {
                fr.error = detail::caught();
            }
        },
        &f_and_result, where);
    if (f_and_result.error) std::rethrow_exception(f_and_result.error);
    if constexpr (std::is_reference_v<result>) {
        return static_cast<result>(**f_and_result.value);
    } else if constexpr (!std::is_void_v<result>) {
        return std::move(*f_and_result.value);
    }
}

/// The same with default options.
template <class F>
    requires std::invocable<F&>
auto run(F&& f, std::source_location where = std::source_location::current()) -> std::invoke_result_t<F&> {
    return run(run_options{}, std::forward<F>(f), where);
}

// A function that run() cannot call.
template <class F>
    requires(!std::invocable<F&> && detail::not_run_options<F>)
int run(F&&) {
    static_assert(detail::fits_here<F&>,
        "dunlin::run: the function cannot be called without arguments (a lambda with captures has what it needs)");
    return 0;
}
template <class F>
    requires(!std::invocable<F&>)
int run(const run_options&, F&&) {
    static_assert(detail::fits_here<F&>,
        "dunlin::run: the function cannot be called without arguments (a lambda with captures has what it needs)");
    return 0;
}
template <detail::not_run_options F>
void run(F&&, const run_options&) {
    static_assert(detail::always_false<F>, "dunlin::run: the options come first: run({.max_procs = 2}, f)");
}

/// Lets others run: the goroutine goes to the tail of its processor's queue, or now and then to that of the global
/// queue. On a plain thread: sched_yield().
/// Blocks    The goroutine, until its turn comes. Returns at once if nothing else is runnable here.
/// Cost      About 15 ns with another goroutine waiting. Figures: docs/benchmarks.md, yield.
/// Source    runtime.Gosched.
DUNLIN_API void yield() noexcept;

namespace detail {
DUNLIN_API void sleep_until(clock::time_point t, std::source_location where);
}

/// Waits until `t`; returns at once if that is past.
/// Blocks    The goroutine, never its thread. On a plain thread, the thread.
/// Exact     Never early; in an idle process late by the time it takes to wake a thread (about 60 us). No rounding to
///           milliseconds.
/// Clock     Any: the moment has not come before Clock::now() says so.
/// Throws    std::bad_alloc if there is no memory for the timer; std::invalid_argument for a time that is not a number.
template <class Clock, class Duration>
void sleep_until(const std::chrono::time_point<Clock, Duration>& t,
    std::source_location where = std::source_location::current()) {
    detail::wait_on_clock(t, [&](std::int64_t ns) {
        detail::sleep_until(clock::time_point(clock::duration(ns)), where);
        return false;
    });
}

/// Waits for `d`; returns at once if it is zero or negative. The longest duration means for ever. Otherwise as
/// sleep_until().
template <class Rep, class Period>
void sleep_for(const std::chrono::duration<Rep, Period>& d,
    std::source_location where = std::source_location::current()) {
    const auto ns = detail::to_nanoseconds(d);
    if (ns.count() <= 0) return;
    detail::sleep_until(clock::time_point(clock::duration(detail::deadline_in(ns))), where);
}
template <detail::number N, class... More>
void sleep_for(N, const More&...) {
    static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
}
template <class Clock, class Duration, class... More>
void sleep_for(const std::chrono::time_point<Clock, Duration>&, const More&...) {
    static_assert(detail::always_false<Clock>, "dunlin::sleep_for takes a duration; until a time: sleep_until");
}
template <class Rep, class Period, class... More>
void sleep_until(const std::chrono::duration<Rep, Period>&, const More&...) {
    static_assert(detail::always_false<Rep>, "dunlin::sleep_until takes a time; for a duration: sleep_for");
}

/// Ends the calling goroutine: the destructors of its frames run, then it is gone. catch (...) blocks run, but cannot
/// stop it. In the main goroutine: the others go on, and when all have ended, the process is reported as deadlocked
/// (Go: runtime.Goexit). If it has to pass through a noexcept function: std::terminate. Throws std::logic_error on a
/// plain thread.
[[noreturn]] DUNLIN_API void exit_goroutine();

/// Wires the calling goroutine to its thread: until unlock_os_thread() has been called as many times, the goroutine
/// runs on this thread only, and nothing else runs there. For libraries that keep per-thread state on purpose (graphics
/// contexts, namespaces, set-uid). On a plain thread it does nothing. If the goroutine ends while it is wired, its
/// thread ends too, and so does every change made to that thread.
/// Cost      Each park and each wake-up of a wired goroutine costs two thread switches.
/// Throws    std::bad_alloc. Source: runtime.LockOSThread.
DUNLIN_API void lock_os_thread();
/// Undoes one lock_os_thread(); does nothing if there was none.
DUNLIN_API void unlock_os_thread() noexcept;

/// Wired from construction to destruction.
class os_thread_lock {
public:
    os_thread_lock() { lock_os_thread(); }
    ~os_thread_lock() { unlock_os_thread(); }
    os_thread_lock(const os_thread_lock&) = delete;
    os_thread_lock& operator=(const os_thread_lock&) = delete;
};

/// Which goroutine, with what std::thread::id has. It converts from and to the goroutine's number, and is compared,
/// ordered, printed and hashed as that; a default-constructed one is 0: no goroutine.
class goroutine_id {
public:
    constexpr goroutine_id() noexcept = default;
    constexpr goroutine_id(std::uint64_t number) noexcept : number_(number) {}
    constexpr operator std::uint64_t() const noexcept { return number_; }

private:
    std::uint64_t number_ = 0;
};

/// The calling goroutine.
namespace this_goroutine {

/// A number that no other goroutine of the process has or had; that of the first run()'s main
/// goroutine is 1. 0 on a plain thread.
DUNLIN_API std::uint64_t id() noexcept;
/// The name that set_name() or go_options::name gave it, else "". A copy.
DUNLIN_API std::string name();
/// Gives it a name for reports and dumps. Copied. It has no effect on a plain thread. Throws std::bad_alloc.
DUNLIN_API void set_name(std::string_view name);
/// What std::this_thread has, under the same names: get_id(), yield(), sleep_for() and sleep_until() of dunlin.
inline goroutine_id get_id() noexcept { return id(); }
inline void yield() noexcept { dunlin::yield(); }
template <class Rep, class Period>
void sleep_for(const std::chrono::duration<Rep, Period>& d,
    std::source_location where = std::source_location::current()) {
    dunlin::sleep_for(d, where);
}
template <detail::number N, class... More>
void sleep_for(N, const More&...) {
    static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
}
template <class Clock, class Duration>
void sleep_until(const std::chrono::time_point<Clock, Duration>& t,
    std::source_location where = std::source_location::current()) {
    dunlin::sleep_until(t, where);
}
// With a context: dunlin/context.hpp.

}  // namespace this_goroutine
}  // namespace dunlin

template <>
struct std::hash<dunlin::goroutine_id> {
    std::size_t operator()(dunlin::goroutine_id id) const noexcept { return std::hash<std::uint64_t>()(id); }
};
