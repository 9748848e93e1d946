// blocking.hpp - calls that are known to block, and code that must not be preempted. Neither is needed for progress: threads that sleep in the kernel
// and goroutines that compute lose their processor to others without being asked.
#pragma once

#include <atomic>
#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>

#include <dunlin/config.hpp>

namespace dunlin {

namespace detail {

// What calls of one place have been like: hand the processor on at once, or wait and see.
struct blocking_site {
    std::atomic<unsigned char> score{0};
};

// From construction to destruction the goroutine is in a call that may block.
class blocking_scope {
public:
    DUNLIN_API explicit blocking_scope(blocking_site& site) noexcept;
    DUNLIN_API ~blocking_scope();
    blocking_scope(const blocking_scope&) = delete;
    blocking_scope& operator=(const blocking_scope&) = delete;

private:
    blocking_site& site_;
    long long began_ns_ = 0;  // 0: not timed
    unsigned char reason_before_ = 0;
};

// A function of its own, so that what f asks of its thread (the address of errno) is not shared with code before and after.
template <class F>
[[gnu::noinline]] decltype(auto) call_apart(F&& f) {
    return std::invoke(std::forward<F>(f));
}

}  // namespace detail

/// Calls f() and returns what it returns, for an f that may block its thread: a read of a slow file, getaddrinfo(), a library that waits by itself.
///
/// Thread    f runs on this thread, on the goroutine's own stack: thread_local variables and locks are as without blocking().
/// Blocks    The thread, as f does. Its processor goes to others as soon as they need it: at once where calls of this place have lasted, else after
///           some tens of microseconds. With nobody waiting it stays.
/// After     The goroutine has a processor again: the old one, an idle one, or it waits for its turn in the global queue and may go on on another
///           thread. errno is what f left, on whichever thread that is. Compilers keep errno's address over calls: read it in the function
///           that made the call, that is, inside f (which is never inlined), and return it, or read it afterwards in a function that is not inlined.
/// Inside    f may use everything of this library; a goroutine that parks in f is an ordinary goroutine from then on.
/// Throws    What f throws.
/// Call from Goroutines and plain threads (there it only calls f).
/// Cost      A few nanoseconds if nothing is handed on; a wake of a thread (5 to 10 us) if something is. Figures: docs/figures.md, blocking.
/// Source    Go's entersyscall and exitsyscall.
template <class F>
    requires std::invocable<F>
decltype(auto) blocking(F&& f) {
    // One for each type of F, that is, for each place where a lambda is written.
    static constinit detail::blocking_site site;
    detail::blocking_scope scope(site);
    return detail::call_apart(std::forward<F>(f));
}

/// From construction to destruction the calling goroutine is not preempted: it keeps its processor however long it computes, and no signal stops its thread.
/// It still leaves when it parks or yields, and a thread that sleeps in the kernel still loses its processor. For the rare code that must not
/// be interrupted: a spin lock, a measurement. Others may starve meanwhile. When the scope ends and somebody has waited, the goroutine yields.
/// Scopes nest. On a plain thread: nothing.
/// Cost      About a nanosecond. Source: Go's acquirem.
class no_preempt {
public:
    DUNLIN_API no_preempt() noexcept;
    DUNLIN_API ~no_preempt();
    no_preempt(const no_preempt&) = delete;
    no_preempt& operator=(const no_preempt&) = delete;

private:
    bool outermost_;
};

}  // namespace dunlin
