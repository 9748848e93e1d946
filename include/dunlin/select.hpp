// select.hpp - wait for several channels, deadlines and contexts at once, one time or again and again.
#pragma once

#include <dunlin/config.hpp>

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <dunlin/chan.hpp>
#include <dunlin/clock.hpp>
#include <dunlin/detail/full_expression.hpp>
#include <dunlin/detail/publisher.hpp>

namespace dunlin::inline v0_1 {

/// What a handler returns to select_loop() and select_again(). A handler that returns nothing, or anything else, means:
/// go on. The compiler warns of a bool where the cases are the arguments.
enum class loop : bool {
    again,  ///< wait for the next case
    leave,  ///< that was the last
};

namespace detail {

enum class case_kind : unsigned char { receive, send, timeout, otherwise, readable, writable };

// What select() must know about a case. prepare() fills it in, just before.
struct case_base {
    case_kind kind;
    bool ok = false;             // the result: an element was moved; false: the channel was closed
    bool listed = false;         // in the list that is being made
    std::uint32_t edge = 0;      // readable, writable: the last edge that was seen (src/chan/descriptor_case.h)
    chan_core* core = nullptr;   // the channel of a receive or a send. Null: nil, never ready
    void* slot = nullptr;        // where the element is or will be; readable, writable: the descriptor
    std::int64_t duration_ns = 0;
    std::source_location where;
    alignas(8) unsigned char node[64];  // its place in the queue of what it waits for: src/chan/select.cpp

    case_base(case_kind k, std::source_location w) noexcept : kind(k), where(w) {}
};

// Returns the index of the case that was taken. Throws channel_closed (a send on a closed channel),
// std::invalid_argument (more than 65536 cases, or two `otherwise`), std::bad_alloc.
DUNLIN_API std::size_t select_among(case_base* const* cases, std::size_t count);
// Throws std::invalid_argument if a case is there twice.
DUNLIN_API void check_once(case_base* const* cases, std::size_t count);

struct no_handler {
    void operator()() const noexcept {}
};

// A case's channel: the case's own handle, or a variable of the caller's, which is read by each select().
class case_channel {
public:
    case_channel(const chan_handle& h, bool own) noexcept
        : variable_(own ? nullptr : &h), own_(own ? h : chan_handle()) {}
    explicit case_channel(chan_handle&& h) noexcept : variable_(nullptr), own_(std::move(h)) {}
    // a case that is moved may be kept: it owns its channel
    case_channel(case_channel&& other) noexcept : case_channel(other.handle(), true) {}
    case_channel& operator=(case_channel&&) = delete;
    ~case_channel() = default;
    chan_core* core() const noexcept { return handle().core(); }

private:
    const chan_handle& handle() const noexcept { return variable_ != nullptr ? *variable_ : own_; }

    const chan_handle* variable_;
    chan_handle own_;
};

template <class Handler, class... Args>
loop run_handler(Handler& handler, Args&&... args) {
    if constexpr (std::same_as<std::remove_cvref_t<std::invoke_result_t<Handler&, Args...>>, loop>) {
        return std::invoke(handler, std::forward<Args>(args)...);
    } else {
        static_cast<void>(std::invoke(handler, std::forward<Args>(args)...));
        return loop::again;
    }
}

// A receive's handler takes a std::optional<T>; or a T, and then is not called at the end of the channel; or nothing.
template <class Handler, class T>
concept receive_handler =
    std::invocable<Handler&, std::optional<T>> || std::invocable<Handler&, T> || std::invocable<Handler&>;

// The parameter of a function, or of a function object that is neither overloaded nor a template.
template <class A, class R>
A parameter_of(R (*)(A));
template <class A, class R, class Object>
A parameter_of(R (Object::*)(A));
template <class A, class R, class Object>
A parameter_of(R (Object::*)(A) const);

// A std::any, and whatever else can be made of anything, can be made of an optional as well: the handler's parameter
// decides then.
template <class Handler, class T>
concept takes_itself = std::is_convertible_v<std::optional<T>, T> &&
    (requires(Handler& h) { requires std::same_as<std::remove_cvref_t<decltype(parameter_of(h))>, T>; } ||
        requires { requires std::same_as<std::remove_cvref_t<decltype(parameter_of(&Handler::operator()))>, T>; });

// A pointer to a member is applied to a T, although std::invoke() would apply it to what an optional holds, even to an
// empty one.
template <class Handler, class T>
concept takes_optional = std::invocable<Handler&, std::optional<T>> && !takes_itself<Handler, T> &&
                         (!std::is_member_pointer_v<Handler> || !std::invocable<Handler&, T>);

// Does the handler return a bool, which ends no loop?
template <class Handler, class... Args>
inline constexpr bool says_bool = std::same_as<std::remove_cvref_t<std::invoke_result_t<Handler&, Args...>>, bool>;
template <class Handler, class T>
consteval bool received_says_bool() {
    if constexpr (takes_optional<Handler, T>) {
        return says_bool<Handler, std::optional<T>>;
    } else if constexpr (std::invocable<Handler&, T>) {
        return says_bool<Handler, T>;
    } else {
        return says_bool<Handler>;
    }
}

// The argument is a prvalue in the handler's call: nothing is moved between the channel and the parameter.
template <class T, class Handler>
loop run_receive_handler(Handler& handler, bool ok, element_slot<element_of<T>>& slot, [[maybe_unused]] chan_core* c) {
    const auto value = [&] { return take_as<T>(slot, c, [](auto&& v) { return T(std::forward<decltype(v)>(v)); }); };
    const auto optional = [&] { return ok ? take<T>(slot, c) : std::nullopt; };
    const auto result = [](auto&& call) {
        if constexpr (std::same_as<decltype(call()), loop>) {
            return call();
        } else {
            static_cast<void>(call());
            return loop::again;
        }
    };
    if constexpr (!takes_itself<Handler, T> && requires { handler(optional()); }) {
        return result([&] { return handler(optional()); });
    } else if constexpr (takes_optional<Handler, T>) {
        return run_handler(handler, optional());
    } else if constexpr (std::invocable<Handler&, T>) {
        if (!ok) throw_receive_on_closed();
        if constexpr (requires { handler(value()); }) {
            return result([&] { return handler(value()); });
        } else {
            return run_handler(handler, value());
        }
    } else {
        if (ok) take_as<T>(slot, c, [](auto&&) {});
        return run_handler(handler);
    }
}

template <class T, class Handler>
class receive_case : public case_base {
public:
    template <class H>
    receive_case(const chan_handle& c, bool own, H&& handler, std::source_location w)
        : case_base(case_kind::receive, w), channel_(c, own), handler_(std::forward<H>(handler)) {}
    template <class H>
    receive_case(chan_handle&& c, H&& handler, std::source_location w)
        : case_base(case_kind::receive, w), channel_(std::move(c)), handler_(std::forward<H>(handler)) {}
    receive_case(receive_case&& other) : case_base(case_kind::receive, other.where),
        channel_(std::move(other.channel_)), handler_(std::move(other.handler_)) {}

    case_base* prepare() noexcept {
        core = channel_.core();
        slot = std::addressof(slot_.value);
        return this;
    }
    loop run() { return run_receive_handler<T>(handler_, ok, slot_, core); }
    static constexpr bool ends_no_loop = received_says_bool<Handler, T>();

private:
    case_channel channel_;
    element_slot<element_of<T>> slot_;
    [[no_unique_address]] Handler handler_;
};

// Receives from a Follower, whose channel of news says when there is something.
template <class Follower, class Handler>
class follower_case : public case_base {
    using T = typename Follower::follows;

public:
    static constexpr bool ends_no_loop = received_says_bool<Handler, T>();

    template <class H>
    follower_case(Follower& f, H&& handler, std::source_location w)
        : case_base(case_kind::receive, w), follower_(&f), handler_(std::forward<H>(handler)) {}
    follower_case(follower_case&& other)
        : case_base(case_kind::receive, other.where), follower_(other.follower_), handler_(std::move(other.handler_)) {}

    case_base* prepare() {
        core = following_access::core(*follower_);
        slot = std::addressof(news_);
        return this;
    }
    loop run() {
        std::optional<T> value = follower_->recv(where);  // there is something, or it is closed
        if constexpr (takes_optional<Handler, T>) {
            return run_handler(handler_, std::move(value));
        } else if constexpr (std::invocable<Handler&, T>) {
            if (!value) throw_receive_on_closed();
            return run_handler(handler_, std::move(*value));
        } else {
            return run_handler(handler_);
        }
    }

private:
    Follower* follower_;
    std::monostate news_;
    [[no_unique_address]] Handler handler_;
};

// Owns its value: a case may outlive the object that its value was made from.
template <class T, class Handler>
class send_case : public case_base {
public:
    template <class Value, class H>
    send_case(const chan_handle& c, bool own, Value&& value, H&& handler, std::source_location w, full_expression& now)
        : case_base(case_kind::send, w),
          channel_(c, own),
          handler_(std::forward<H>(handler)),
          value_(static_cast<given<Value>>(value)) {
        if constexpr (std::same_as<Value, T> && !std::is_trivially_copyable_v<T> && !needs_box<T>) {
            now.lend(loan_, std::addressof(value));
        }
    }
    send_case(send_case&& other)
        : case_base(case_kind::send, other.where),
          channel_(std::move(other.channel_)),
          handler_(std::move(other.handler_)),
          value_(static_cast<given<T>>(other.value_)) {
        other.loan_.end();
    }
    ~send_case() { settle(false); }  // also after an exception of select()

    // After select(): a value that was not sent goes back to the object that it was moved from, if that still exists.
    void settle(bool taken) noexcept {
        if (!taken) bring(true);
        loan_.end();
    }
    // Home, to that object, or back from there.
    void bring(bool home) noexcept {
        if constexpr (!needs_box<T>) {  // else it was copied: there is no loan
            if (loan_.from == nullptr) return;
            T& lender = *static_cast<T*>(loan_.from);
            T &from = home ? value_ : lender, &to = home ? lender : value_;
            if constexpr (std::is_nothrow_move_assignable_v<T>) {
                to = std::move(from);
            } else {
                std::destroy_at(std::addressof(to));
                std::construct_at(std::addressof(to), std::move(from));
            }
        }
    }

    // What it sends; moved from after it was sent.
    T& value() noexcept { return value_; }

    case_base* prepare() noexcept(!needs_box<T>) {
        core = channel_.core();
        if constexpr (needs_box<T>) {
            slot = box_.emplace(value_).slot();
        } else {
            slot = const_cast<void*>(static_cast<const volatile void*>(std::addressof(value_)));
        }
        return this;
    }
    loop run() { return run_handler(handler_); }
    static constexpr bool ends_no_loop = says_bool<Handler>;

private:
    // A value whose move may throw is copied, so that the original is as it was.
    template <class Value>
    using given = std::conditional_t<needs_box<T> && std::same_as<Value, T>, const T&, Value&&>;

    case_channel channel_;
    [[no_unique_address]] Handler handler_;  // its copy may throw: before the value is moved
    T value_;
    struct no_box {};
    [[no_unique_address]] std::conditional_t<needs_box<T>, std::optional<outgoing<T>>, no_box> box_;
    full_expression::loan loan_;
};

template <class Handler>
class plain_case : public case_base {
public:
    template <class H>
    plain_case(case_kind k, std::int64_t d, H&& handler, std::source_location w) : case_base(k, w),
        handler_(std::forward<H>(handler)) {
        duration_ns = d;
    }
    // `object`: what on_readable() or on_writable() waits for.
    template <class H>
    plain_case(case_kind k, void* object, H&& handler, std::source_location w) : case_base(k, w),
        handler_(std::forward<H>(handler)) {
        slot = object;
    }
    plain_case(plain_case&& other) : case_base(other.kind, other.where), handler_(std::move(other.handler_)) {
        duration_ns = other.duration_ns;
        slot = other.slot;
    }

    case_base* prepare() noexcept { return this; }
    loop run() { return run_handler(handler_); }
    static constexpr bool ends_no_loop = says_bool<Handler>;

private:
    [[no_unique_address]] Handler handler_;
};

// If no case can be made of the arguments, one line says so (dunlin/detail/spawn.hpp), and no_case() takes its place.
inline auto no_case() {
    return plain_case<no_handler>(case_kind::otherwise, std::int64_t{0}, no_handler{}, std::source_location());
}

template <class Handler>
inline constexpr bool handles = std::is_invocable_v<std::decay_t<Handler>&>;
template <class Handler, class T>
inline constexpr bool handles_received = receive_handler<std::decay_t<Handler>, T>;
#define DUNLIN_DOES_NOT_HANDLE "dunlin::select: the handler of this case is called without arguments, and takes some"
#define DUNLIN_DOES_NOT_HANDLE_RECEIVED \
    "dunlin::on_recv: the handler takes a T or a std::optional<T>, T being the channel's type, or nothing"

template <class C>
concept select_case_type = requires(std::remove_cvref_t<C>& c) {
    { c.prepare() } -> std::same_as<case_base*>;
    { c.run() } -> std::same_as<loop>;
};

template <class... C>
inline constexpr bool are_cases = (select_case_type<C> && ...);

// A handler of one of the cases returns a bool.
template <class C>
inline constexpr bool is_no_loop_case = requires { requires C::ends_no_loop; };
template <class... C>
inline constexpr bool end_no_loop = (is_no_loop_case<std::remove_cvref_t<C>> || ...);
#define DUNLIN_BOOL_ENDS_NO_LOOP(function)                                                                            \
    function ": a handler returns a bool, which ends no loop: return dunlin::loop::leave or loop::again, or nothing: " \
             "[&] { (void)f(); }"

template <class C>
void settle(C& c, bool taken) noexcept {
    if constexpr (requires { c.settle(taken); }) c.settle(taken);
}
template <class C>
void bring(C& c, bool home) noexcept {
    if constexpr (requires { c.bring(home); }) c.bring(home);
}

template <class C>
concept receivable = requires { typename std::remove_cvref_t<C>::receives; };
template <class C>
concept sendable = requires { typename std::remove_cvref_t<C>::sends; };
template <class C>
concept followable = requires { typename C::follows; };

}  // namespace detail

/// A case of select(): receive from `c` (a chan or receiver; nil is never ready). handler(std::optional<T>) gets the
/// value, or nullopt when the channel is closed and drained. handler(T) gets the value, and cannot be told of the end:
/// then select() throws channel_closed. A handler may also take nothing. Like every case it owns its handler; it owns
/// the channel, too, if it is given a temporary handle. A handle in a variable is only referred to, and each select()
/// waits for the channel that it refers to by then: to keep the case for longer than `c` lives, give it a copy.
template <detail::receivable C, class Handler = detail::no_handler>
[[nodiscard]] auto on_recv(C&& c, Handler&& handler = {},
    std::source_location where = std::source_location::current()) {
    using element = typename std::remove_cvref_t<C>::receives;
    static_assert(detail::handles_received<Handler, element>, DUNLIN_DOES_NOT_HANDLE_RECEIVED);
    if constexpr (detail::handles_received<Handler, element>) {
        using result = detail::receive_case<element, std::decay_t<Handler>>;
        return result(detail::handle_access::handle(c), !std::is_lvalue_reference_v<C>, std::forward<Handler>(handler),
            where);
    } else {
        return detail::no_case();
    }
}

/// A case of select(): receive from `f`, a watch_receiver or a broadcast_receiver, which must live until select() has
/// returned. The handler is as for a channel. What f.recv() throws comes out of select().
template <detail::followable F, class Handler = detail::no_handler>
[[nodiscard]] auto on_recv(F& f, Handler&& handler = {}, std::source_location where = std::source_location::current()) {
    static_assert(detail::handles_received<Handler, typename F::follows>, DUNLIN_DOES_NOT_HANDLE_RECEIVED);
    if constexpr (detail::handles_received<Handler, typename F::follows>) {
        return detail::follower_case<F, std::decay_t<Handler>>(f, std::forward<Handler>(handler), where);
    } else {
        return detail::no_case();
    }
}
template <class Never = void>
decltype(detail::no_case()) on_recv(detail::anything, detail::anything = {}, detail::anything = {}) {
    static_assert(detail::always_false<Never>,
        "dunlin::on_recv receives from a chan, a receiver, or a variable that is a watch_receiver or "
        "broadcast_receiver; "
        "a timer or ticker is a case by its channel(), a context by on_done(ctx)");
    return detail::no_case();
}

/// A case of select(): send `value` on `c` (a chan or sender; nil is never ready). handler() runs after it was sent.
/// The case owns the value: an lvalue is copied now, an rvalue moved; each case needs a value of its own. Where the
/// case is made in the call, `select(on_send(c, std::move(v)), ...)`, and v is of the channel's own type, a value
/// that was not sent is back in v before another case's handler runs, and after an exception; a v of another type is
/// converted when the case is made, and lost with it. A case that is kept, `auto s = on_send(c, std::move(v))`, or
/// put into a list keeps the value until it is sent; s.value() is what it holds. select() throws channel_closed when it
/// takes this case and the channel is closed.
template <detail::sendable C, class Value, class Handler = detail::no_handler>
[[nodiscard]] auto on_send(C&& c, Value&& value, Handler&& handler = {},
    std::source_location where = std::source_location::current(),
    detail::full_expression&& now = {}) {
    using element = typename std::remove_cvref_t<C>::sends;
    static_assert(detail::can_be_sent<Value, element>, DUNLIN_CANNOT_BE_SENT);
    static_assert(detail::handles<Handler>, DUNLIN_DOES_NOT_HANDLE);
    if constexpr (detail::can_be_sent<Value, element> && detail::handles<Handler>) {
        using result = detail::send_case<element, std::decay_t<Handler>>;
        return result(detail::handle_access::handle(c), !std::is_lvalue_reference_v<C>, std::forward<Value>(value),
            std::forward<Handler>(handler), where, now);
    } else {
        return detail::no_case();
    }
}

/// A case of select(): none of the others was ready for `d`, which begins with the call of select(). Zero or negative:
/// as otherwise(). Throws std::invalid_argument for a duration that is not a number.
template <class Rep, class Period, class Handler = detail::no_handler>
[[nodiscard]] auto on_timeout(const std::chrono::duration<Rep, Period>& d, Handler&& handler = {},
    std::source_location where = std::source_location::current()) {
    static_assert(detail::handles<Handler>, DUNLIN_DOES_NOT_HANDLE);
    if constexpr (detail::handles<Handler>) {
        return detail::plain_case<std::decay_t<Handler>>(detail::case_kind::timeout, detail::to_nanoseconds(d).count(),
            std::forward<Handler>(handler), where);
    } else {
        return detail::no_case();
    }
}
template <detail::number N, class... Handler>
auto on_timeout(N, Handler&&...) {
    static_assert(detail::has_a_unit<N>, DUNLIN_NEEDS_A_UNIT);
    return detail::no_case();
}
template <class Clock, class Duration, class... Handler>
decltype(detail::no_case()) on_timeout(const std::chrono::time_point<Clock, Duration>&, Handler&&...) {
    static_assert(detail::always_false<Clock>,
        "dunlin::on_timeout takes a duration; until a time: on_timeout(t - Clock::now(), ...)");
    return detail::no_case();
}

/// A case of select(): the context is cancelled, or its deadline has passed. If other cases can go as well, each is
/// equally likely, as in Go.
template <std::derived_from<context> Context, class Handler = detail::no_handler>
[[nodiscard]] auto on_done(const Context& ctx, Handler&& handler = {},
    std::source_location where = std::source_location::current()) {
    static_assert(detail::handles<Handler>, DUNLIN_DOES_NOT_HANDLE);
    if constexpr (detail::handles<Handler>) {
        detail::chan_core* const done = detail::done_channel(ctx);
        detail::chan_handle::reference(done);
        return detail::receive_case<std::monostate, std::decay_t<Handler>>(
            detail::chan_handle(done), std::forward<Handler>(handler), where);
    } else {
        return detail::no_case();
    }
}

template <class T, class... Handler>
decltype(detail::no_case()) on_done(const receiver<T>&, Handler&&...) {
    static_assert(detail::always_false<T>,
        "dunlin::on_done takes the context itself; a channel is a case by dunlin::on_recv");
    return detail::no_case();
}
template <class Never = void>
decltype(detail::no_case()) on_done(detail::anything, detail::anything = {}, detail::anything = {}) {
    static_assert(detail::always_false<Never>,
        "dunlin::on_done takes a context; of a stop_token, with_stop_token() makes one; "
        "a channel is a case by on_recv");
    return detail::no_case();
}

/// A case of select(): none of the others is ready now. select() does not wait then. A select() has at most one.
template <class Handler = detail::no_handler>
[[nodiscard]] auto otherwise(Handler&& handler = {}, std::source_location where = std::source_location::current()) {
    static_assert(detail::handles<Handler>, DUNLIN_DOES_NOT_HANDLE);
    if constexpr (detail::handles<Handler>) {
        return detail::plain_case<std::decay_t<Handler>>(detail::case_kind::otherwise, std::int64_t{0},
            std::forward<Handler>(handler), where);
    } else {
        return detail::no_case();
    }
}

/// Any of the cases above, to put into a vector for instance. It keeps its channel alive, and its value until that is
/// sent. Copies are the same case, with one handler and one value: a select() has one of them,
/// and one select() at a time.
class select_case {
public:
    template <detail::select_case_type Case>
        requires(!std::same_as<std::remove_cvref_t<Case>, select_case> && !std::is_lvalue_reference_v<Case>)
    select_case(Case&& c) : body_(std::make_shared<body_of<Case>>(std::move(c))) {}

    // Null: it was moved from.
    detail::case_base* prepare() const { return body_ != nullptr ? body_->prepare() : nullptr; }
    loop run() const { return body_->run(); }

private:
    struct body {
        virtual ~body() = default;
        virtual detail::case_base* prepare() = 0;
        virtual loop run() = 0;
    };
    template <class Case>
    struct body_of final : body {
        explicit body_of(Case&& c) : content(std::move(c)) {}
        detail::case_base* prepare() override { return content.prepare(); }
        loop run() override { return content.run(); }
        Case content;
    };
    std::shared_ptr<body> body_;
};

namespace detail {

// Only copies of a select_case are one case.
template <class... Cases>
inline constexpr bool may_be_there_twice =
    (0 + ... + (std::same_as<std::remove_cvref_t<Cases>, select_case> ? 1 : 0)) > 1;

struct round_of_select {
    std::size_t taken;
    loop handler_says;
};

template <class... Cases>
[[gnu::always_inline]] inline round_of_select select_one(Cases&... cases) {
    const std::array<case_base*, sizeof...(Cases)> list{cases.prepare()...};
    if constexpr (may_be_there_twice<Cases...>) check_once(list.data(), list.size());
    const std::size_t taken = select_among(list.data(), list.size());
    std::size_t i = 0;
    (settle(cases, i++ == taken), ...);
    i = 0;
    loop says = loop::again;
    static_cast<void>(((i++ == taken ? (says = cases.run(), true) : false) || ...));
    return {taken, says};
}

// The rounds of select_loop(): the cases keep their channels, and a send that was taken is not offered again.
class DUNLIN_API select_rounds {
public:
    select_rounds(case_base* const* cases, std::size_t count);  // throws std::bad_alloc
    select_rounds(const select_rounds&) = delete;
    select_rounds& operator=(const select_rounds&) = delete;

    std::size_t next();  // index of the case that was taken

private:
    case_base* const* cases_;
    std::size_t count_;
    std::vector<chan_handle> channels_;
};

// While it lives, values that were not sent are in the objects that they were moved from.
template <class... Cases>
class values_at_home {
public:
    explicit values_at_home(Cases&... cases) noexcept : cases_(cases...) { (bring(cases, true), ...); }
    ~values_at_home() {
        std::apply([](Cases&... cases) { (bring(cases, false), ...); }, cases_);
    }
    values_at_home(const values_at_home&) = delete;
    values_at_home& operator=(const values_at_home&) = delete;

private:
    std::tuple<Cases&...> cases_;
};

template <class... Cases>
std::size_t loop_over(Cases&... cases) {
    const std::array<case_base*, sizeof...(Cases)> list{cases.prepare()...};
    if constexpr (may_be_there_twice<Cases...>) check_once(list.data(), list.size());
    select_rounds rounds(list.data(), list.size());
    for (;;) {
        const std::size_t taken = rounds.next();
        std::size_t i = 0;
        static_cast<void>(((i++ == taken ? (settle(cases, true), true) : false) || ...));
        // Those of the others: the next round offers what the handler has left there.
        const values_at_home<Cases...> during_the_handler(cases...);
        loop says = loop::again;
        i = 0;
        static_cast<void>(((i++ == taken ? (says = cases.run(), true) : false) || ...));
        if (says == loop::leave) return taken;
    }
}

}  // namespace detail

/// Waits until one of the cases can go, takes it, runs its handler here, and returns its index, counted from 0 in the
/// order given.
///
/// If several can go, each is equally likely. All channels are looked at in one moment: if at every moment some case is
/// ready, `otherwise` is not taken. A channel may appear in several cases.
/// Lifetime  The channels of its cases must live until it returns: hold handles, whose copies refer to the same
///           channel. A party that is served by one of the cases while select() waits knows that select() has finished
///           with that channel, but not with the others.
/// Blocks    The goroutine, never its thread, without using CPU (on a plain thread, that thread). No cases, or nil
///           channels only: for ever.
/// Throws    channel_closed when it takes a send on a closed channel, or the end of one whose handler takes a T;
///           std::invalid_argument for more than 65536 cases or two otherwise(); std::bad_alloc; what the handler
///           throws.
/// Order     As for send() and recv().
/// Cost      A lock for each channel, and one more for each when it has to wait; no allocation up to 16 cases. Figures:
///           docs/benchmarks.md, select4.
/// Source    Go specification, "Select statements".
template <detail::select_case_type... Cases>
std::size_t select(Cases&&... cases) {
    return detail::select_one(cases...).taken;
}

// For an argument that is not a case.
template <class... Cases>
    requires(!(detail::select_case_type<Cases> && ...) &&
        !(sizeof...(Cases) == 1 && (std::convertible_to<Cases, std::span<const select_case>> && ...)))
std::size_t select(Cases&&...) {
    static_assert(detail::are_cases<Cases...>,
        "dunlin::select: each argument is a case: on_recv(c, ...), on_send(c, value), on_timeout(d), ...");
    return 0;
}

/// The same for a list that is made at run time: a vector, or `select({on_recv(a), on_send(b, v)})`. The cases may be
/// used again; a send that was taken has given its value away.
/// Throws    Also std::invalid_argument for a case that was moved from, or is there twice.
std::size_t DUNLIN_API select(std::span<const select_case> cases);
inline std::size_t select(std::initializer_list<select_case> cases) {
    return select(std::span(cases.begin(), cases.size()));
}
inline std::size_t select(const std::vector<select_case>& cases) { return select(std::span<const select_case>(cases)); }

/// select(), and returns whether to go on: false if the handler that ran returned loop::leave. A loop that a handler
/// ends:
///     while (select_again(on_recv(jobs, [&](std::optional<job> j) { return j ? work(*j) : loop::leave; }),
///                         on_done(ctx, [] { return loop::leave; }))) {}
/// Everything in the parentheses is made anew each time, as in a loop around Go's select: handlers may change
/// the channels and values of the next round. Throws as select().
template <detail::select_case_type... Cases>
    requires(!detail::end_no_loop<Cases...>)
[[nodiscard]] bool select_again(Cases&&... cases) {
    return detail::select_one(cases...).handler_says == loop::again;
}
template <detail::select_case_type... Cases>
    requires(detail::end_no_loop<Cases...>)
[[nodiscard, deprecated(DUNLIN_BOOL_ENDS_NO_LOOP("dunlin::select_again"))]] bool select_again(Cases&&... cases) {
    return detail::select_one(cases...).handler_says == loop::again;
}

/// select() on the same cases again and again, until a handler returns loop::leave or throws; returns the index of the
/// case whose handler left. The cases are made once: their channels are those that they were made with, and the loop
/// keeps these alive, whatever becomes of the variables. An on_timeout() begins anew with each round. A send is offered
/// until it is taken, and then no more; where its value is back in v while a handler runs (on_send()), the next round
/// offers what the handler has left in v: v must stay where it is until the loop has ended. If a channel is closed and
/// its handler does not leave, the handler is called again and again.
/// Throws    As select().
template <detail::select_case_type... Cases>
    requires(!detail::end_no_loop<Cases...>)
std::size_t select_loop(Cases&&... cases) {
    return detail::loop_over(cases...);
}
template <detail::select_case_type... Cases>
    requires(detail::end_no_loop<Cases...>)
[[deprecated(DUNLIN_BOOL_ENDS_NO_LOOP("dunlin::select_loop"))]] std::size_t select_loop(Cases&&... cases) {
    return detail::loop_over(cases...);
}
/// The same for a list that is made at run time. Throws std::invalid_argument for a case that was moved from.
DUNLIN_API std::size_t select_loop(std::span<const select_case> cases);
inline std::size_t select_loop(std::initializer_list<select_case> cases) {
    return select_loop(std::span(cases.begin(), cases.size()));
}
inline std::size_t select_loop(const std::vector<select_case>& cases) {
    return select_loop(std::span<const select_case>(cases));
}

}  // namespace dunlin
