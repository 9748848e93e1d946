// blocking.hpp - calls that are known to block, and code that must not be preempted. Neither is needed for progress: a
// thread that sleeps in the kernel loses its processor anyway, and so does a goroutine that computes.
#pragma once

#include <dunlin/config.hpp>

#include <concepts>
#include <exception>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/caught.hpp>
#include <dunlin/detail/spawn.hpp>

namespace dunlin::inline v0_1 {

namespace detail {

// How calls from one place have behaved: whether to hand the processor on at once, or to wait and see.
struct blocking_site {
    platform::atomic<unsigned char> score{0};
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

// A function of its own, so that what f learns about its thread (the address of errno) is not shared with the code
// before and after the call.
template <class F>
[[gnu::noinline]] decltype(auto) call_apart(F&& f) {
    return std::invoke(std::forward<F>(f));
}

}  // namespace detail

/// Calls f() and returns what it returns, for an f that may block its thread: a read of a slow file, getaddrinfo(), a
/// library that does its own waiting.
///
/// Thread    f runs on this thread, on the goroutine's own stack: thread_local variables and locks behave as without
///           blocking().
/// Blocks    The thread, as f does. If another goroutine waits, the processor goes to it: at once if earlier calls from
///           this place took long, or else by the monitor, which looks at once at a place's first call, and within
///           about a millisecond at later ones. While no other goroutine waits, the processor stays for ten
///           to twenty milliseconds; then it is free for any goroutine that becomes runnable.
/// After     The goroutine has a processor again: its old one or an idle one. If there is none, it waits for its turn
///           in the global queue and may continue on another thread. errno has the value that f left, whichever thread
///           that is. Compilers keep errno's address across calls: read errno in the function that made the call, that
///           is, inside f (which is never inlined), and return it; or read it afterwards in a function that is not
///           inlined.
/// Inside    f may use everything of this library; a goroutine that parks in f is an ordinary goroutine from then on.
/// Throws    What f throws.
/// Call from Goroutines and plain threads (there it only calls f).
/// Cost      A few nanoseconds if nothing is handed on; a wake of a thread (5 to 10 us) if something is. Figures:
///           docs/results.md, blocking-*.
/// Source    Go's entersyscall and exitsyscall.
template <class F>
decltype(auto) blocking(F&& f) {
    static_assert(detail::fits_here<F>, DUNLIN_DOES_NOT_FIT_HERE);
    if constexpr (detail::fits_here<F>) {
        // One site for each type F, that is, for each place where a lambda is written.
        static constinit detail::blocking_site site;
        detail::blocking_scope scope(site);
        return detail::call_apart(std::forward<F>(f));
    }
}

namespace detail {

DUNLIN_API void call_on_thread_stack(void (*entry)(void*), void* argument);

// The call and its outcome, on the goroutine's stack.
template <class F, class R>
struct thread_stack_call {
    F& function;
    std::variant<std::monostate, R, std::exception_ptr> outcome;

    static void make(void* raw) {
        auto& call = *static_cast<thread_stack_call*>(raw);
        try {
            if constexpr (std::is_same_v<R, std::monostate>) {
                std::invoke(std::forward<F>(call.function));
                call.outcome.template emplace<1>();
            } else if constexpr (std::is_pointer_v<R> && std::is_reference_v<std::invoke_result_t<F>>) {
                auto&& result = std::invoke(std::forward<F>(call.function));
                call.outcome.template emplace<1>(std::addressof(result));
            } else {
                call.outcome.template emplace<1>(std::invoke(std::forward<F>(call.function)));
            }
        } catch (...) {
            call.outcome.template emplace<2>(caught());
        }
    }
};

}  // namespace detail

/// Calls f() on the stack that this thread was created with, and returns what f returns. For libraries that ask for
/// their thread's stack (pthread_getattr_np) and compare addresses with it, or scan it: a JVM, the Boehm collector,
/// some interpreters. Most of them want the same thread each time: use them under lock_os_thread().
///
/// Thread    f runs on this goroutine's thread, and inside f that is a plain thread: this_goroutine::id() is 0, a wait
///           blocks the thread, go() starts goroutines as from any thread, and a nested on_thread_stack() just calls
///           its function. Do not unlock in f what the goroutine has locked.
/// Stack     As large as the system gives threads (RLIMIT_STACK, mostly 8 MiB); less where address space is scarce
///           (run_options::stack_size).
/// Blocks    The thread, as f does; its processor goes to others as in blocking(). f is not preempted.
/// After     As after blocking(). errno is what f left; exceptions that the goroutine is handling stay its own.
/// Returns   What f returns: a value that can be moved, or a reference.
/// Throws    What f throws.
/// Call from Goroutines and plain threads (there it only calls f).
/// Cost      Two more switches than blocking(): some tens of nanoseconds.
template <class F>
    requires std::invocable<F>
std::invoke_result_t<F> on_thread_stack(F&& f) {
    using result = std::invoke_result_t<F>;
    static_assert(std::is_void_v<result> || std::is_reference_v<result> || std::is_move_constructible_v<result>,
        "dunlin::on_thread_stack: what f returns is carried from one stack to another, so it must be movable");
    using kept = std::conditional_t<std::is_void_v<result>, std::monostate,
        std::conditional_t<std::is_reference_v<result>, std::remove_reference_t<result>*, result>>;
    static constinit detail::blocking_site site;
    detail::thread_stack_call<F, kept> call{f, {}};
    {
        detail::blocking_scope scope(site);
        detail::call_on_thread_stack(call.make, std::addressof(call));
    }
    if (call.outcome.index() == 2) std::rethrow_exception(std::get<2>(std::move(call.outcome)));
    if constexpr (std::is_reference_v<result>) {
        return static_cast<result>(*std::get<1>(call.outcome));
    } else if constexpr (!std::is_void_v<result>) {
        return std::get<1>(std::move(call.outcome));
    }
}

/// From construction to destruction the calling goroutine is not preempted: it keeps its processor however long it
/// computes, and no signal stops its thread. It still gives the processor up when it parks or yields, and still loses
/// it when its thread sleeps in the kernel. For the rare code that must not be interrupted: a spin lock, a measurement.
/// Other goroutines may starve meanwhile. If one is waiting when the scope ends, this goroutine yields. Scopes nest. On
/// a plain thread it does nothing.
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
