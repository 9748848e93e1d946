// watch.hpp - a value that changes, and receivers that want to know.
#pragma once

#include <dunlin/config.hpp>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <dunlin/chan.hpp>
#include <dunlin/detail/publisher.hpp>
#include <dunlin/error.hpp>

namespace dunlin::inline v0_1 {

namespace detail {

template <class T>
struct watch_version {
    explicit watch_version(T&& v) : value(std::move(v)) {}
    explicit watch_version(const T& v) : value(v) {}
    T value;                     // constant once it is published
    bool was_sent_over = false;  // lock: a send has replaced it, and no modify() counts as made in between
};

// A follower's place is the version that it has received last.
template <class T>
class watch_state : public publisher {
public:
    using follower_type = follower;
    using version = std::shared_ptr<watch_version<T>>;

    explicit watch_state(version first) : current_(std::move(first)) {}

    reading<T> read(follower& f) noexcept {
        const locked guard(*this);
        if (f.place == head) return {closed ? channel_status::closed : channel_status::would_block};
        f.place = head;
        settle(f);
        return {channel_status::ok, value_of(current_)};
    }
    void unread(follower& f, const std::shared_ptr<const T>&) noexcept {
        const locked guard(*this);
        --f.place;
        settle(f);
    }
    version current() const {
        const locked guard(*this);
        return current_;
    }
    static std::shared_ptr<const T> value_of(const version& v) noexcept { return {v, std::addressof(v->value)}; }

    // Afterwards `next` is the old value, so that its last reference is dropped when the lock is free. False: it is
    // closed.
    bool send(version& next) noexcept {
        const locked guard(*this);
        if (closed) return false;
        current_->was_sent_over = true;
        put(next);
        return true;
    }

    enum class outcome : unsigned char { done, closed, changed };
    // `next` was made from `before`. If a send has replaced `before`, the change counts as made just before that send,
    // which has overwritten it: so senders, however many, do not make a modify() begin again. That holds for one change
    // only, since the next one has not seen it. `changed`: by another modify().
    outcome replace(version& next, const version& before) noexcept {
        const locked guard(*this);
        if (closed) return outcome::closed;
        if (std::exchange(before->was_sent_over, false)) return outcome::done;
        if (before != current_) return outcome::changed;
        put(next);
        return outcome::done;
    }

private:
    void put(version& next) noexcept {
        std::swap(current_, next);
        publish();
    }
    version current_;  // lock; never null
};

template <class T>
struct watch_end {
    std::shared_ptr<watch_state<T>> state;
    ~watch_end() { state->close(); }
};

}  // namespace detail

/// Follows a watch: what its value is, and when it has changed. It receives the latest value, not every value: a slow
/// receiver misses those that were replaced meanwhile. A copy has seen what the original has seen.
///
/// One thread or goroutine at a time may use a receiver; give each its own.
/// Select    on_recv(receiver, handler); the handler takes std::optional<T>, T, or nothing.
template <class T>
class watch_receiver : public detail::following<detail::watch_state<T>, T> {
    using base = detail::following<detail::watch_state<T>, T>;

public:
    watch_receiver(const watch_receiver&) = default;
    watch_receiver(watch_receiver&&) noexcept = default;
    watch_receiver& operator=(watch_receiver other) noexcept {
        base::operator=(std::move(other));
        return *this;
    }
    ~watch_receiver() = default;

    /// The value now; it still counts as not received. Throws what copying T throws.
    T get() const { return *snapshot(); }
    /// The same without a copy: the object does not change, whatever is sent meanwhile.
    std::shared_ptr<const T> snapshot() const { return detail::watch_state<T>::value_of(this->state().current()); }
    /// Whether there is a value that it has not received.
    bool has_changed() const { return this->state().behind(this->cell()) != 0; }

private:
    template <class U>
    friend class watch;
    explicit watch_receiver(std::shared_ptr<detail::watch_state<T>> s) : base(std::move(s)) {}
};

/// A value that changes, and receivers that want to know: configuration, a state, a leader. A counted handle: copies
/// refer to the same object. It is closed when the last copy is destroyed, or by close(). From goroutines and plain
/// threads, in any mix.
///
/// T is copied for each receiver, outside any lock; a large T is better held by a std::shared_ptr.
/// Order     What happens before a send happens before the return of the receives that get its value, or a later one.
/// Cost      A send is an allocation, a lock, and a send on a channel for each receiver that had the value before.
/// Source    tokio::sync::watch.
template <class T>
class watch {
    static_assert(std::is_object_v<T> && !std::is_const_v<T> && std::is_copy_constructible_v<T>,
        "the value of a watch is copied for each that receives it: use a std::shared_ptr for what cannot be copied");

public:
    /// Throws what moving T throws; std::bad_alloc.
    explicit watch(T first)
        : end_(std::make_shared<detail::watch_end<T>>(
              std::make_shared<detail::watch_state<T>>(make_version(std::move(first))))) {}

    /// A receiver that has seen the present value. Allowed after close(). Throws std::bad_alloc.
    watch_receiver<T> subscribe() const {
        static_cast<void>(state());
        return watch_receiver<T>(end_->state);
    }

    /// Replaces the value and wakes the receivers. Does not block; without receivers the value is replaced all the
    /// same.
    /// Throws    channel_closed after close(); what moving T throws; std::bad_alloc. Nothing has changed then.
    void send(T value) const {
        const auto state = kept();
        auto next = make_version(std::move(value));
        if (!state->send(next)) throw channel_closed("send on closed channel");
    }
    /// Changes the value: f(T&) gets a copy, which replaces it. If f returns a bool that is false, nothing is replaced,
    /// and no receiver is woken. Returns whether the value was replaced. If another modify() came first, f is called
    /// again, with a copy of the new value: so f must do nothing but change its argument. If a send() came first, the
    /// change counts as made before it, and the sent value stays. Does not block.
    /// Throws    channel_closed, if there is something to replace; what f and copying T throw. Nothing has changed
    ///           then.
    template <class F>
        requires std::invocable<F&, T&>
    bool modify(F&& f) const {
        using result = std::invoke_result_t<F&, T&>;
        constexpr bool says_whether_or_nothing = std::is_void_v<result> || std::is_same_v<result, bool>;
        static_assert(says_whether_or_nothing,
            "dunlin::watch::modify: f changes its argument, a T&, and returns nothing, or a bool: whether it did");
        using outcome = typename detail::watch_state<T>::outcome;
        const auto state = kept();
        for (;;) {
            const auto before = state->current();
            auto next = make_version(std::as_const(before->value));
            if constexpr (std::is_same_v<result, bool>) {
                if (!std::invoke(f, next->value)) return false;
            } else {
                static_cast<void>(std::invoke(f, next->value));
            }
            switch (state->replace(next, before)) {
            case outcome::done: return true;
            case outcome::closed: throw channel_closed("send on closed channel");
            case outcome::changed: break;
            }
        }
    }

    /// The value now. Throws what copying T throws.
    T get() const { return *snapshot(); }
    std::shared_ptr<const T> snapshot() const { return detail::watch_state<T>::value_of(state().current()); }

    /// No more values: receivers get the last one if they have not received it, and then nullopt.
    /// Throws    channel_closed if it is closed already.
    void close() const {
        if (!kept()->close()) throw channel_closed("close of closed channel");
    }
    bool closed() const { return state().is_closed(); }
    /// The number of receivers now.
    std::size_t receiver_count() const { return state().followers(); }

private:
    template <class From>
    static std::shared_ptr<detail::watch_version<T>> make_version(From&& from) {
        return std::make_shared<detail::watch_version<T>>(std::forward<From>(from));
    }
    // Throws std::logic_error: this was moved from.
    detail::watch_state<T>& state() const {
        if (end_ == nullptr) throw std::logic_error("dunlin: a watch was moved from");
        return *end_->state;
    }
    // For the calls that receivers take notice of: one of them may destroy the last handle while the call is still on
    // its way out of the lock.
    std::shared_ptr<detail::watch_state<T>> kept() const {
        static_cast<void>(state());
        return end_->state;
    }

    std::shared_ptr<detail::watch_end<T>> end_;
};

}  // namespace dunlin
