// spawn.hpp - what go() and its like ask of the runtime (src/api/spawn.cpp), and what makes a function fit. Not for
// direct use: launch() of dunlin/go.hpp, and go_n() of dunlin/task.hpp, are built on it.
#pragma once

#include <dunlin/config.hpp>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <source_location>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>

#include <dunlin/clock.hpp>

namespace dunlin::inline v0_1 {

struct go_options;

namespace detail {

struct goroutine_handle;  // a goroutine, for code that need not know more

struct new_goroutine {
    goroutine_handle* g;
    void* frame;
};

enum class end_kind : unsigned char {
    detached,  // no handle refers to it
    joinable,  // a task holds it, and calls join() and release()
};

/// Makes a goroutine that does not run yet, with `bytes` of storage for its callable. Throws std::bad_alloc,
/// std::invalid_argument (options).
DUNLIN_API new_goroutine make(std::size_t bytes, std::size_t align, const go_options* options,
    std::source_location where);
/// Makes it runnable. `entry(frame)` runs the callable and destroys it. `group`: a waiter of this group may run it in
/// place (null: no waiter; joinable: itself).
DUNLIN_API void start(new_goroutine n, void (*entry)(void*), end_kind kind, const void* group) noexcept;
/// Before it starts, for an object that waits for its end: if a plain thread makes it, it belongs to no run(), and goes
/// on until it ends, as a thread would, when the static objects of the program are destroyed as well. Throws
/// std::bad_alloc.
DUNLIN_API void give_to_owner(new_goroutine n);
/// Gives the goroutine back unused.
DUNLIN_API void discard(new_goroutine n) noexcept;

/// Goroutines that do not run yet, to be started together.
struct new_goroutines {
    goroutine_handle* first = nullptr;
    goroutine_handle* last = nullptr;
    std::size_t count = 0;
};
/// Adds n at the end; `entry` and `group` as for start().
DUNLIN_API void add_to(new_goroutines& list, new_goroutine n, void (*entry)(void*), const void* group) noexcept;
/// Makes them runnable, in order, as one start() after the other does, but publishes and announces them only once.
DUNLIN_API void start_all(const new_goroutines& list) noexcept;
/// Takes the first off again. The list is not empty.
DUNLIN_API new_goroutine take_off(new_goroutines& list) noexcept;

DUNLIN_API void join(goroutine_handle* g, std::source_location where) noexcept;
DUNLIN_API bool has_ended(const goroutine_handle* g) noexcept;
DUNLIN_API void release(goroutine_handle* g) noexcept;
DUNLIN_API unsigned long long id_of(const goroutine_handle* g) noexcept;

[[noreturn]] DUNLIN_API void throw_null_function(const char* operation);

// Callables that can be empty: a null function pointer, an empty std::function or std::move_only_function.
template <class F>
bool is_null_function(const F& f) {
    using D = std::remove_cvref_t<F>;
    if constexpr (std::is_function_v<D>) {
        return false;  // a reference to a function
    } else if constexpr (std::is_pointer_v<D> || std::is_member_pointer_v<D>) {
        return f == nullptr;
    } else if constexpr (requires { static_cast<bool>(f); } && requires { f == nullptr; }) {
        return f == nullptr;
    } else {
        return false;
    }
}

template <class F>
void check_function(const F& f, const char* operation) {
    if (is_null_function(f)) throw_null_function(operation);
}

// To call a null function of these types is undefined.
template <class D>
inline constexpr bool must_not_be_null = std::is_pointer_v<D> || std::is_member_pointer_v<D>;
#if defined(__cpp_lib_move_only_function)
template <class... Signature>
inline constexpr bool must_not_be_null<std::move_only_function<Signature...>> = true;
#endif
#if defined(__cpp_lib_copyable_function)
template <class... Signature>
inline constexpr bool must_not_be_null<std::copyable_function<Signature...>> = true;
#endif

// The same where std says what comes of others: to call an empty std::function throws.
template <class F>
void check_function_as_std(const F& f, const char* operation) {
    if constexpr (must_not_be_null<std::remove_cvref_t<F>>) check_function(f, operation);
}

// f and its arguments, decay-copied as by std::thread.
template <class F, class... Args>
class bound_call {
public:
    template <class G, class... Values>
    explicit bound_call(std::in_place_t, G&& f, Values&&... values)
        : function_(std::forward<G>(f)), arguments_(std::forward<Values>(values)...) {}

    decltype(auto) operator()() {
        return std::apply([this](Args&... a) -> decltype(auto) { return std::invoke(std::move(function_),
            std::move(a)...); }, arguments_);
    }

private:
    F function_;
    std::tuple<Args...> arguments_;
};

template <class F>
class bound_call<F> {
public:
    template <class G>
    explicit bound_call(std::in_place_t, G&& f) : function_(std::forward<G>(f)) {}
    decltype(auto) operator()() { return std::invoke(std::move(function_)); }

private:
    F function_;
};

template <class F, class... Args>
using call_of = bound_call<std::decay_t<F>, std::decay_t<Args>...>;

// What a goroutine's storage is aligned to at most.
inline constexpr std::size_t strictest_frame = 64;

// A call that is aligned more strictly, in memory of its own. For what is like std's; go() says how to do it by hand.
template <class Call>
class call_apart_from_frame {
public:
    template <class... Values>
    explicit call_apart_from_frame(Values&&... values)
        : call_(std::make_unique<Call>(std::forward<Values>(values)...)) {}
    decltype(auto) operator()() { return (*call_)(); }

private:
    std::unique_ptr<Call> call_;
};
template <class Call>
using call_of_any_alignment =
    std::conditional_t<(alignof(Call) > strictest_frame), call_apart_from_frame<Call>, Call>;

// ---- mistakes -------------------------------------------------------------------------------------------------------
//
// A call that does not fit is accepted by the overload and then rejected by one static_assert, as std::thread does it:
// a constraint would make the compiler list every overload with its reasons. tests/packaging/mistakes.txt has the
// messages.

template <class F>
concept not_options = !std::same_as<std::remove_cvref_t<F>, go_options>;

// For a function that is kept and called later. The body that uses it stands in `if constexpr`, so that there is no
// further message.
template <class F, class... Args>
inline constexpr bool fits =
    (std::constructible_from<std::decay_t<F>, F> && ... && std::constructible_from<std::decay_t<Args>, Args>) &&
    std::is_invocable_v<std::decay_t<F>, std::decay_t<Args>...>;
// A constraint where overloads, or a trait such as std::is_constructible, depend on it.
template <class F, class... Args>
concept goroutine_function = fits<F, Args...>;
#define DUNLIN_DOES_NOT_FIT \
    "dunlin: the function cannot be called with these arguments: they are copied (what cannot be: std::move) " \
    "and passed as rvalues, as by std::thread (a reference: std::ref)"

// For a function that is called here, and not kept.
template <class F, class... Args>
inline constexpr bool fits_here = std::is_invocable_v<F, Args...>;
#define DUNLIN_DOES_NOT_FIT_HERE "dunlin: the function cannot be called with these arguments"

// The name of an overloaded function has no type that a template could deduce. This type accepts it, but no compiler
// can convert it: the message is about the name.
struct overloaded_function {
    overloaded_function(...);
    template <class T>
    overloaded_function(const T&) {
        static_assert(always_false<T>,
            "dunlin: no such call: options, or a context where the call takes one, come first, then the function, then "
            "its arguments");
    }
};

}  // namespace detail
}  // namespace dunlin
