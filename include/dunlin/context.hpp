// context.hpp - cancellation, deadlines and values that go with a request.
//
// The rule for every call of dunlin that takes a context: a context ends waits, and nothing else. A call that need not
// wait succeeds even if the context is already done, as it does with a deadline in the past: a free lock is taken, a
// value that is there is received, a byte that has arrived is read. Only a call that would have to wait ends with
// context_cancelled. So a loop that never waits must look at ctx.is_done() itself. select() is different, as in Go:
// on_done() is a case like any other, and each case that can go is equally likely. Calls that take several steps and
// cannot know whether these will wait (dialling, looking up names, a TLS handshake or write, opening a file, running a
// process) end when the context is done, whatever else they could do.
#pragma once

#include <dunlin/config.hpp>

#include <atomic>
#include <chrono>
#include <concepts>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>

#include <dunlin/chan.hpp>
#include <dunlin/clock.hpp>
#include <dunlin/detail/helper.hpp>
#include <dunlin/detail/stop_node.hpp>
#include <dunlin/error.hpp>

namespace dunlin::inline v0_1 {

using std::nostopstate;
using std::nostopstate_t;
using std::stop_callback;
using std::stop_source;
using std::stop_token;

class context;
class cancel_function;
class cancellable;

/// A typed key of a context's values. Two keys are the same if they are the same object: define it once, as
/// `inline const`.
template <class T>
class context_key {
public:
    constexpr context_key() noexcept = default;
    /// `name`, a literal, is what to_string() of a context shows for the key.
    constexpr explicit context_key(const char* name) noexcept : name_(name) {}
    context_key(const context_key&) = delete;
    context_key& operator=(const context_key&) = delete;
    constexpr const char* name() const noexcept { return name_; }

private:
    const char* name_ = nullptr;
};

namespace detail {

class context_node;  // src/context/context_node.h

// A key and its value, of any types.
class DUNLIN_API context_value {
public:
    virtual ~context_value();
    // The value if it has this key and is of the wanted type, else null.
    virtual const void* find(const std::type_info& key_type, const void* key,
        const std::type_info& value_type) const noexcept = 0;
    // "key, value", as to_string() shows them.
    virtual std::string describe() const = 0;
};

DUNLIN_API std::string type_name(const std::type_info& type);

// Shows texts, and what can be written to a stream. For pointers and everything else it shows only the type (as in Go).
template <class T>
std::string shown(const T& value) {
    if constexpr (std::is_pointer_v<T>) {
        if (value == nullptr) return "<nil>";
    }
    if constexpr (std::convertible_to<const T&, std::string_view>) {
        return std::string(std::string_view(value));
    } else if constexpr (requires(std::ostream& out) { out << value; } && !std::is_pointer_v<T> &&
        !requires { *value; }) {
        std::ostringstream out;
        out << std::boolalpha << value;
        return std::move(out).str();
    } else {
        return type_name(typeid(T));
    }
}

template <class Key, class T>
class context_value_of final : public context_value {
public:
    template <class K, class V>
    context_value_of(K&& key, V&& value) : key_(std::forward<K>(key)), value_(std::forward<V>(value)) {}
    const void* find(const std::type_info& key_type, const void* key,
        const std::type_info& value_type) const noexcept override {
        const bool found = key_type == typeid(Key) && value_type == typeid(T) && *static_cast<const Key*>(key) == key_;
        return found ? std::addressof(value_) : nullptr;
    }
    std::string describe() const override { return shown(key_) + ", " + shown(value_); }

private:
    Key key_;
    T value_;
};

// The key is the address of a context_key.
template <class T>
class context_value_of_object final : public context_value {
public:
    template <class V>
    context_value_of_object(const context_key<T>& key, V&& value) : key_(&key), name_(key.name()),
        value_(std::forward<V>(value)) {}
    const void* find(const std::type_info& key_type, const void* key,
        const std::type_info& value_type) const noexcept override {
        const bool found = key_type == typeid(const void*) && value_type == typeid(T) &&
            *static_cast<const void* const*>(key) == key_;
        return found ? std::addressof(value_) : nullptr;
    }
    std::string describe() const override {
        return (name_ != nullptr ? std::string(name_) : type_name(typeid(context_key<T>))) + ", " + shown(value_);
    }

private:
    const void* key_;
    const char* name_;
    T value_;
};

// The type that a key is stored as: std::string for a text, so that equal texts are equal keys.
template <class Key>
using stored_key = std::conditional_t<std::convertible_to<const Key&, std::string_view>, std::string,
    std::decay_t<Key>>;

template <class Key, class T>
std::unique_ptr<context_value> make_context_value(const Key& key, T&& value) {
    return std::make_unique<context_value_of<stored_key<Key>, std::decay_t<T>>>(key, std::forward<T>(value));
}
template <class Wanted, class T>
std::unique_ptr<context_value> make_context_value(const context_key<Wanted>& key, T&& value) {
    return std::make_unique<context_value_of_object<Wanted>>(key, std::forward<T>(value));
}

struct cancel_registration;

// All return a reference that the caller owns. `parent` null: the background.
DUNLIN_API chan_handle make_cancel_node(const chan_handle& parent);
// `moment`: what deadline_ns was computed from, if it is of another clock.
DUNLIN_API chan_handle make_deadline_node(const chan_handle& parent, std::int64_t deadline_ns,
    std::unique_ptr<foreign_moment> moment,
    std::exception_ptr cause);
DUNLIN_API chan_handle make_value_node(const chan_handle& parent, std::unique_ptr<context_value> value);
DUNLIN_API chan_handle make_detached_node(const chan_handle& parent);
DUNLIN_API chan_handle make_todo_node() noexcept;

DUNLIN_API void cancel_node(chan_core* node, std::exception_ptr cause) noexcept;
// The exception that is being handled, if it is `cause`; else null.
DUNLIN_API std::exception_ptr handled_as(const std::exception& cause);
// One with its text, and with its code if it is a std::system_error.
DUNLIN_API std::exception_ptr cause_with_text(const std::exception& cause);
DUNLIN_API std::error_code error_of_node(chan_core* node) noexcept;
DUNLIN_API std::string name_of_node(chan_core* node);
DUNLIN_API std::exception_ptr cause_of_node(chan_core* node) noexcept;
DUNLIN_API std::int64_t deadline_of_node(chan_core* node) noexcept;
DUNLIN_API const void* value_of_node(chan_core* node, const std::type_info& key_type, const void* key,
    const std::type_info& value_type) noexcept;
DUNLIN_API std::stop_token stop_token_of_node(chan_core* node);
DUNLIN_API std::shared_ptr<cancel_registration> call_after_cancel(chan_core* node, std::unique_ptr<stored_call> call,
                                                                  const std::source_location& where);
DUNLIN_API bool stop_call_after_cancel(const std::shared_ptr<cancel_registration>& r) noexcept;
DUNLIN_API void sleep_until_or_done(std::int64_t deadline_ns, const context& ctx, const std::source_location& where);

}  // namespace detail

/// Withdraws a function given to context::after_func().
class stop_function {
public:
    /// True if the function has not been started and never will be. False if this was moved from.
    bool operator()() const noexcept {
        return registration_ != nullptr && detail::stop_call_after_cancel(registration_);
    }

private:
    friend class context;
    explicit stop_function(std::shared_ptr<detail::cancel_registration> r) noexcept : registration_(std::move(r)) {}
    std::shared_ptr<detail::cancel_registration> registration_;
};

/// Says when to stop, why, and what belongs to the request (Go's context.Context). A counted handle, cheap to copy;
/// pass it by const reference or value.
///
/// Contexts form a tree: cancelling one cancels all that were derived from it. Every call of dunlin that may wait for
/// long takes one.
/// When run() returns, pending deadlines that goroutines have set are forgotten, as the goroutines are, and so are the
/// functions that they gave to after_func(). Those of plain threads stay, and are called even while run() returns (not
/// if the goroutine that cancels is itself stopped in cancel()); nor does its end, or that of main, stop them.
/// From goroutines and plain threads, all members at any time.
class DUNLIN_API context {
public:
    /// The background: never cancelled, no deadline, no values.
    context() noexcept = default;
    static context background() noexcept { return {}; }
    /// The same, for code where it is not yet clear which context to use; it has a name of its own.
    static context todo() noexcept { return context(detail::make_todo_node()); }

    /// Closes when the context is done; nil for a context that never will be. For select: on_done(ctx).
    receiver<std::monostate> done() const noexcept {
        detail::chan_core* c = detail::done_of_node(core());
        detail::chan_handle::reference(c);
        return detail::handle_access::make_receiver<std::monostate>(detail::chan_handle(c));
    }
    /// Empty while it is not done; then errc::cancelled or errc::deadline_exceeded.
    std::error_code err() const noexcept { return detail::error_of_node(core()); }
    bool is_done() const noexcept { return static_cast<bool>(err()); }
    /// Null while it is not done; then what was given to cancel(), else a context_cancelled with err(). The first cause
    /// is kept.
    std::exception_ptr cause() const noexcept { return detail::cause_of_node(core()); }
    /// The time by which it will be done at the latest.
    std::optional<clock::time_point> deadline() const noexcept {
        const std::int64_t ns = detail::deadline_of_node(core());
        return ns == detail::wait_limit::never ? std::nullopt : std::optional(clock::time_point(clock::duration(ns)));
    }

    /// The value of `key` given by the nearest with_value(); null if there is none. It lives as long as the context.
    template <class T>
    const T* value(const context_key<T>& key) const noexcept {
        const void* address = std::addressof(key);
        return static_cast<const T*>(detail::value_of_node(core(), typeid(const void*), &address, typeid(T)));
    }
    /// The same for a key that is a text, a number, or anything else that can be copied and compared; T is the type of
    /// the value.
    template <class T, class Key>
    const T* value(const Key& key) const {
        const detail::stored_key<Key> stored(key);
        return static_cast<const T*>(detail::value_of_node(core(), typeid(stored), std::addressof(stored), typeid(T)));
    }

    /// For libraries that take a std::stop_token: stop is requested when the context is done. The thread or goroutine
    /// that cancels runs the callbacks; if a signal cancels (signal_context), a thread of their own does. They must not
    /// park: the standard library recognises them by their thread. The token does not keep the context alive.
    std::stop_token stop_token() const { return detail::stop_token_of_node(core()); }

    /// Runs f() in a goroutine of its own when the context is done; at once if it is done already. This does not keep
    /// the context alive: if the context is dropped, f never runs (a context of with_value() counts as its parent). If
    /// there is no memory for the goroutine when the context is done, f runs in the call that cancels.
    /// Throws std::invalid_argument if f is a null function, std::bad_alloc, what copying f throws.
    template <class F>
    stop_function after_func(F&& f, std::source_location where = std::source_location::current()) const {
        constexpr bool can_be_called =
            std::is_invocable_v<std::decay_t<F>&> && std::constructible_from<std::decay_t<F>, F>;
        static_assert(can_be_called,
            "dunlin::context::after_func: the function cannot be copied, or cannot be called without arguments");
        if constexpr (can_be_called) {
            detail::check_function(f, "dunlin::context::after_func");
            return stop_function(detail::call_after_cancel(core(),
                std::make_unique<detail::stored_call_of<std::decay_t<F>>>(std::forward<F>(f)), where));
        } else {
            return stop_function(nullptr);
        }
    }

    /// Derived contexts; see the functions of the same names.
    cancellable with_cancel() const;
    template <class Rep, class Period>
    cancellable with_timeout(const std::chrono::duration<Rep, Period>& d, std::exception_ptr cause = nullptr) const;
    template <class Clock, class Duration>
    cancellable with_deadline(const std::chrono::time_point<Clock, Duration>& t,
        std::exception_ptr cause = nullptr) const;
    template <class Key, class T>
    context with_value(const Key& key, T&& value) const;
    context without_cancel() const;
    cancellable with_stop_token(std::stop_token token) const;

    static cancellable with_cancel(const context& parent);
    template <class Rep, class Period>
    static cancellable with_timeout(const context& parent, const std::chrono::duration<Rep, Period>& d,
        std::exception_ptr cause = nullptr);
    template <class Clock, class Duration>
    static cancellable with_deadline(const context& parent, const std::chrono::time_point<Clock, Duration>& t,
        std::exception_ptr cause = nullptr);
    template <class Key, class T>
    static context with_value(const context& parent, const Key& key, T&& value);
    static context without_cancel(const context& parent);
    static cancellable with_stop_token(const context& parent, std::stop_token token);

    /// Whether both are the same context.
    friend bool operator==(const context& a, const context& b) noexcept { return a.core() == b.core(); }

    /// How it was made, as Go prints it: "context.Background.WithValue(user, ann).WithCancel". Throws std::bad_alloc,
    /// what the << of a key or value throws.
    friend std::string to_string(const context& c) { return detail::name_of_node(c.core()); }
    friend std::ostream& operator<<(std::ostream& out, const context& c) { return out << to_string(c); }

protected:
    explicit context(detail::chan_handle node) noexcept : node_(std::move(node)) {}
    detail::chan_core* core() const noexcept { return node_.core(); }

    detail::chan_handle node_;

private:
    friend class cancel_function;
    friend class cancellable;
    friend detail::chan_core* detail::done_channel(const context& ctx) noexcept;
};

/// Cancels its context. Callable any number of times, from anywhere; the first call counts. All copies cancel the same
/// context.
class cancel_function {
public:
    /// Cancels nothing.
    cancel_function() noexcept = default;
    /// When it returns, err() is errc::cancelled (unless a deadline came first) and done() is closed, also for all
    /// derived contexts, whichever call was the first. The first call has also started the functions of after_func()
    /// and run the callbacks of stop_token()s; other calls do not wait for these.
    /// Cost      Grows with the number of derived contexts: about 0.1 us each. The first call ends them all in one go,
    ///           without being preempted.
    void operator()() const noexcept { detail::cancel_node(node_.core(), nullptr); }
    /// The same with a cause. An exception that is being handled (`catch (const std::exception& e) { cancel(e); }`) is
    /// kept as it is, also if it is of a class derived from that of `e`. One that is not being handled is copied as
    /// what it is seen as; of one that is seen as a std::exception, its text is kept.
    void operator()(std::exception_ptr cause) const noexcept { detail::cancel_node(node_.core(), std::move(cause)); }
    void operator()(std::error_code cause) const { (*this)(std::make_exception_ptr(std::system_error(cause))); }
    template <std::derived_from<std::exception> Exception>
    void operator()(const Exception& cause) const {
        // A copy of what is only seen as an Exception would be less than the cause, and of a std::exception nothing.
        std::exception_ptr whole = typeid(cause) != typeid(Exception) ? detail::handled_as(cause) : nullptr;
        if (whole == nullptr) {
            whole = std::same_as<Exception, std::exception> ? detail::cause_with_text(cause)
                : std::make_exception_ptr(cause);
        }
        (*this)(std::move(whole));
    }

private:
    friend class cancellable;
    explicit cancel_function(detail::chan_handle node) noexcept : node_(std::move(node)) {}
    detail::chan_handle node_;
};

/// A context and the right to cancel it: `auto [ctx, cancel] = with_cancel(parent);`, or
/// `auto ctx = with_cancel(parent); ctx.cancel();`.
class cancellable : public context {
public:
    /// As cancel_function.
    template <class... Cause>
    void cancel(Cause&&... cause) const {
        canceller()(std::forward<Cause>(cause)...);
    }
    cancel_function canceller() const noexcept { return cancel_function(node_); }

    template <std::size_t I>
    auto get() const noexcept {
        if constexpr (I == 0) {
            return context(node_);
        } else {
            return cancel_function(node_);
        }
    }

private:
    friend class context;
    using context::context;
    explicit cancellable(detail::chan_handle node) noexcept : context(std::move(node)) {}
};

/// Derived from `parent`, and cancelled with it or by its cancel function, whichever comes first. When the parent's
/// cancel function returns, both are done; at its own deadline the parent is done a moment earlier.
/// Throws std::bad_alloc. Cost: one allocation. The context ends with its last handle, and then leaves the tree.
inline cancellable context::with_cancel(const context& parent) {
    return cancellable(detail::make_cancel_node(parent.node_));
}
inline cancellable with_cancel(const context& parent) { return context::with_cancel(parent); }
inline cancellable context::with_cancel() const { return with_cancel(*this); }

/// The same, and err() becomes errc::deadline_exceeded at `t` (cause(): `cause` if one is given). A deadline later than
/// the parent's changes nothing: the parent is done first, and its cause is the cause of both. If both have the same
/// deadline, either's may be.
template <class Clock, class Duration>
cancellable context::with_deadline(const context& parent, const std::chrono::time_point<Clock, Duration>& t,
    std::exception_ptr cause) {
    std::unique_ptr<detail::foreign_moment> moment;
    if constexpr (!std::same_as<Clock, clock>) moment = std::make_unique<detail::moment_of<Clock, Duration>>(t);
    return cancellable(detail::make_deadline_node(parent.node_, detail::deadline_at(t), std::move(moment),
        std::move(cause)));
}
template <class Clock, class Duration>
cancellable with_deadline(const context& parent, const std::chrono::time_point<Clock, Duration>& t,
    std::exception_ptr cause = nullptr) {
    return context::with_deadline(parent, t, std::move(cause));
}
template <class Clock, class Duration>
cancellable context::with_deadline(const std::chrono::time_point<Clock, Duration>& t, std::exception_ptr cause) const {
    return with_deadline(*this, t, std::move(cause));
}

namespace detail {
template <class Parent, class D>
inline constexpr bool are_parent_and_duration = std::is_convertible_v<const Parent&, const context&> &&
    requires(const D& d) { detail::deadline_in(d); };
}

/// with_deadline(), `d` from now.
template <class Rep, class Period>
cancellable context::with_timeout(const context& parent, const std::chrono::duration<Rep, Period>& d,
    std::exception_ptr cause) {
    return cancellable(detail::make_deadline_node(parent.node_, detail::deadline_in(d), nullptr, std::move(cause)));
}
template <class Rep, class Period>
cancellable with_timeout(const context& parent, const std::chrono::duration<Rep, Period>& d,
    std::exception_ptr cause = nullptr) {
    return context::with_timeout(parent, d, std::move(cause));
}
template <class Parent, class Rep, class Period, class... More>
cancellable with_deadline(const Parent&, const std::chrono::duration<Rep, Period>&, const More&...) {
    static_assert(detail::always_false<Parent>, "dunlin::with_deadline takes a time; for a duration: with_timeout");
    return context::with_timeout(context::background(), clock::duration(0));
}
template <class Parent, class D, class... More>
    requires(!detail::are_parent_and_duration<Parent, D>)
cancellable with_timeout(const Parent&, const D&, const More&...) {
    static_assert(detail::are_parent_and_duration<Parent, D>,
        "dunlin::with_timeout: first the parent, a context, then a duration with its unit, as 100ms; "
        "a time: with_deadline");
    return context::with_timeout(context::background(), clock::duration(0));
}
template <class Rep, class Period>
cancellable context::with_timeout(const std::chrono::duration<Rep, Period>& d, std::exception_ptr cause) const {
    return with_timeout(*this, d, std::move(cause));
}

/// Derived from `parent`, with one more value, for `key`. Values are for what belongs to a request (its id, its user),
/// not for arguments.
template <class Key, class T>
context context::with_value(const context& parent, const Key& key, T&& value) {
    return context(detail::make_value_node(parent.node_, detail::make_context_value(key, std::forward<T>(value))));
}
template <class Key, class T>
context with_value(const context& parent, const Key& key, T&& value) {
    return context::with_value(parent, key, std::forward<T>(value));
}
template <class Key, class T>
context context::with_value(const Key& key, T&& value) const {
    return with_value(*this, key, std::forward<T>(value));
}

/// The values of `parent`, without its cancellation and deadline.
inline context context::without_cancel(const context& parent) {
    return context(detail::make_detached_node(parent.node_));
}
inline context without_cancel(const context& parent) { return context::without_cancel(parent); }
inline context context::without_cancel() const { return without_cancel(*this); }

/// Derived from `parent`, and also cancelled when stop is requested.
inline cancellable context::with_stop_token(const context& parent, std::stop_token token) {
    return cancellable(detail::make_stop_token_node(parent.node_, std::move(token)));
}
inline cancellable with_stop_token(const context& parent, std::stop_token token) {
    return context::with_stop_token(parent, std::move(token));
}
inline cancellable context::with_stop_token(std::stop_token token) const {
    return with_stop_token(*this, std::move(token));
}

/// Runs f() in a goroutine of its own when `ctx` is done: context::after_func().
template <class F>
stop_function after_func(const context& ctx, F&& f, std::source_location where = std::source_location::current()) {
    return ctx.after_func(std::forward<F>(f), where);
}

template <class Rep, class Period>
cancellable with_timeout(const std::chrono::duration<Rep, Period>&) {
    static_assert(detail::always_false<Rep>,
        "dunlin::with_timeout: first the parent: with_timeout(context::background(), 100ms)");
    return context::with_timeout(context::background(), clock::duration(0));
}
template <class Clock, class Duration>
cancellable with_deadline(const std::chrono::time_point<Clock, Duration>&) {
    static_assert(detail::always_false<Clock>,
        "dunlin::with_deadline: first the parent: with_deadline(context::background(), t)");
    return context::with_timeout(context::background(), clock::duration(0));
}

/// sleep_for() and sleep_until() that end when `ctx` is done: they throw context_cancelled then. If the time is past
/// there is nothing to wait for: they return.
template <class Rep, class Period>
void sleep_for(const std::chrono::duration<Rep, Period>& d, const context& ctx,
    std::source_location where = std::source_location::current()) {
    detail::sleep_until_or_done(detail::deadline_in(d), ctx, where);
}
template <class Rep, class Period>
void sleep_for(const context&, const std::chrono::duration<Rep, Period>&) {
    static_assert(detail::always_false<Rep>, "dunlin::sleep_for: the duration comes first: sleep_for(100ms, ctx)");
}
template <class Clock, class Duration>
void sleep_until(const std::chrono::time_point<Clock, Duration>& t, const context& ctx,
    std::source_location where = std::source_location::current()) {
    detail::wait_on_clock(t, [&](std::int64_t ns) {
        detail::sleep_until_or_done(ns, ctx, where);
        return false;
    });
}

namespace this_goroutine {
/// As those of dunlin.
template <class Rep, class Period>
void sleep_for(const std::chrono::duration<Rep, Period>& d, const context& ctx,
    std::source_location where = std::source_location::current()) {
    dunlin::sleep_for(d, ctx, where);
}
template <class Clock, class Duration>
void sleep_until(const std::chrono::time_point<Clock, Duration>& t, const context& ctx,
    std::source_location where = std::source_location::current()) {
    dunlin::sleep_until(t, ctx, where);
}
}  // namespace this_goroutine

/// The context of the current run(). It is done when the main goroutine has ended, if run_options::at_end is
/// leftovers::cancel_and_wait. A goroutine that outlives main waits with it, or derives its own context from it, to
/// learn that it is time to end. Without a run(): that of the next.
/// Throws    std::bad_alloc. Call from goroutines and plain threads. Cost: a lock.
DUNLIN_API context run_context();

}  // namespace dunlin

template <>
struct std::tuple_size<dunlin::cancellable> : std::integral_constant<std::size_t, 2> {};
template <>
struct std::tuple_element<0, dunlin::cancellable> {
    using type = dunlin::context;
};
template <>
struct std::tuple_element<1, dunlin::cancellable> {
    using type = dunlin::cancel_function;
};
