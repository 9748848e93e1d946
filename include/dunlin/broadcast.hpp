// broadcast.hpp - values that go to every receiver.
#pragma once

#include <dunlin/config.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <dunlin/chan.hpp>
#include <dunlin/detail/publisher.hpp>
#include <dunlin/error.hpp>

namespace dunlin::inline v0_1 {

/// Thrown by a receive if the broadcast_receiver was too slow: values that it had not received have been overwritten.
/// The next receive goes on with the oldest value that is left; it gets that value, however much is sent before it.
class DUNLIN_API broadcast_lagged : public std::runtime_error {
public:
    explicit broadcast_lagged(std::uint64_t missed);
    ~broadcast_lagged() override;
    /// How many values it has missed.
    std::uint64_t missed() const noexcept { return missed_; }

private:
    std::uint64_t missed_;
};

namespace detail {

DUNLIN_API std::size_t checked_broadcast_capacity(std::ptrdiff_t capacity);  // throws std::invalid_argument

// Its place is the number of the value that it receives next.
template <class T>
struct broadcast_follower : follower {
    // The value at its place, if that may be overwritten before it is read: after broadcast_lagged, otherwise a sender
    // that is always quicker than the receiver would leave it nothing but exceptions; and after a copy that has thrown.
    std::shared_ptr<const T> kept;  // the receiver's own
};

template <class T>
class broadcast_state : public publisher {
public:
    using follower_type = broadcast_follower<T>;

    explicit broadcast_state(std::size_t capacity) : ring(capacity) {}

    // Returns the number of receivers, or -1 if it is closed. If there are any, `next` afterwards holds the value that
    // was overwritten.
    std::ptrdiff_t send(std::shared_ptr<const T>& next) noexcept {
        const locked guard(*this);
        if (closed) return -1;
        if (followers_ == 0) return 0;
        std::swap(ring[head % ring.size()], next);
        publish();
        return static_cast<std::ptrdiff_t>(followers_);
    }

    reading<T> read(follower_type& f) {
        std::uint64_t missed = 0;
        {
            const locked guard(*this);
            if (f.place == head) return {closed ? channel_status::closed : channel_status::would_block};
            if (f.kept == nullptr && head - f.place > ring.size()) {
                missed = head - ring.size() - f.place;
                f.place += missed;
                f.kept = ring[f.place % ring.size()];
            } else {
                std::shared_ptr<const T> value = f.kept != nullptr ? std::move(f.kept) : ring[f.place % ring.size()];
                ++f.place;
                settle(f);
                return {channel_status::ok, std::move(value)};
            }
            settle(f);
        }
        throw broadcast_lagged(missed);
    }
    void unread(follower_type& f, std::shared_ptr<const T> value) noexcept {
        f.kept = std::move(value);
        const locked guard(*this);
        --f.place;
        settle(f);
    }
    void attach_beside(follower_type& f, const follower_type& other) noexcept {
        f.kept = other.kept;
        publisher::attach_beside(f, other);
    }

    std::vector<std::shared_ptr<const T>> ring;  // the elements: lock
};

template <class T>
struct broadcast_end {
    std::shared_ptr<broadcast_state<T>> state;
    ~broadcast_end() { state->close(); }
};

}  // namespace detail

/// Receives each value that is sent after it was made. A receiver that falls behind by more than the ring holds is told
/// by broadcast_lagged how many values it has missed, and goes on with the oldest value that is left. A copy continues
/// where the original stands.
///
/// One thread or goroutine at a time may use a receiver; give each its own.
/// Select    on_recv(receiver, handler); the handler takes std::optional<T>, T, or nothing. broadcast_lagged comes out
///           of select().
template <class T>
class broadcast_receiver : public detail::following<detail::broadcast_state<T>, T> {
    using base = detail::following<detail::broadcast_state<T>, T>;

public:
    broadcast_receiver(const broadcast_receiver&) = default;
    broadcast_receiver(broadcast_receiver&&) noexcept = default;
    broadcast_receiver& operator=(broadcast_receiver other) noexcept {
        base::operator=(std::move(other));
        return *this;
    }
    ~broadcast_receiver() = default;

    /// How many values it has not received, including those that it has already missed.
    std::uint64_t len() const { return this->state().behind(this->cell()); }

private:
    template <class U>
    friend class broadcast;
    explicit broadcast_receiver(std::shared_ptr<detail::broadcast_state<T>> s) : base(std::move(s)) {}
};

/// Sends values to all receivers; each gets them in the order in which they were sent. A counted handle: copies refer
/// to the same object. It is closed when the last copy is destroyed, or by close(). From goroutines and plain threads,
/// in any mix.
///
/// Slow ones A send never waits: it overwrites the oldest value of a ring of `capacity`. A receiver that had not
/// received that value gets broadcast_lagged, with the number of values that it has missed, and then the rest. Other
/// receivers are not affected. (Where nothing may be missed and the sender should wait, use a chan for each receiver.)
/// T is copied for each receiver, outside any lock; a large T is better held by a std::shared_ptr. A value lives until
/// it is overwritten, or all handles are gone; a receiver that was told of missed values keeps the one it receives
/// next.
/// Order     What happens before a send happens before the return of the receives that get its value.
/// Cost      A send is an allocation, a lock, and a send on a channel for each receiver that had received everything.
/// Source    tokio::sync::broadcast.
template <class T>
class broadcast {
    static_assert(std::is_object_v<T> && !std::is_const_v<T> && std::is_copy_constructible_v<T>,
        "a broadcast value is copied for each that receives it: use a std::shared_ptr for what cannot be copied");

public:
    /// Throws std::invalid_argument unless `capacity` is at least 1; std::bad_alloc, std::length_error.
    explicit broadcast(std::ptrdiff_t capacity)
        : end_(std::make_shared<detail::broadcast_end<T>>(
              std::make_shared<detail::broadcast_state<T>>(detail::checked_broadcast_capacity(capacity)))) {}

    /// A receiver of what is sent from now on. Allowed after close(). Throws std::bad_alloc.
    broadcast_receiver<T> subscribe() const {
        static_cast<void>(state());
        return broadcast_receiver<T>(end_->state);
    }

    /// Sends to all receivers, and returns how many there are; 0: the value will never be received. Does not block.
    /// Throws    channel_closed after close(); what moving T throws; std::bad_alloc. Then no receiver gets the value.
    std::size_t send(T value) const {
        const auto state = kept();
        std::shared_ptr<const T> next = std::make_shared<const T>(std::move(value));
        const std::ptrdiff_t receivers = state->send(next);
        if (receivers < 0) throw channel_closed("send on closed channel");
        return static_cast<std::size_t>(receivers);
    }

    /// No more values: receivers get what is left for them, and then nullopt.
    /// Throws    channel_closed if it is closed already.
    void close() const {
        if (!kept()->close()) throw channel_closed("close of closed channel");
    }
    bool closed() const { return state().is_closed(); }
    /// The number of receivers now.
    std::size_t receiver_count() const { return state().followers(); }
    std::size_t cap() const { return state().ring.size(); }

private:
    // Throws std::logic_error: this was moved from.
    detail::broadcast_state<T>& state() const {
        if (end_ == nullptr) throw std::logic_error("dunlin: a broadcast was moved from");
        return *end_->state;
    }
    // As that of a watch.
    std::shared_ptr<detail::broadcast_state<T>> kept() const {
        static_cast<void>(state());
        return end_->state;
    }
    std::shared_ptr<detail::broadcast_end<T>> end_;
};

}  // namespace dunlin
