// publisher.hpp - one side that publishes, and those that follow it, each at a place of its own. watch and broadcast
// are built on it; not for direct use.
//
// Data       head: how much has been published. Each follower has a place, up to which it has read, and a channel
//            `news` with room for one permit. All are under the lock, except for the channels, which have their own.
// Invariant  The permit is there exactly when the follower's place is before the head, except between the receive that
//            has taken it and the read that follows, by the same party. So select() over `news` means what recv() does.
// Publish    head += 1; each follower at the old head gets its permit. (The others have one, or have just taken it and
//            will read.)
// Read       the place moves on; then settle() gives or takes the permit, as the new place requires.
// Close      `closed` is set, and all `news` are closed: from then on they can always be received from, and a read says
//            what there is, or that nothing is left.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <utility>
#include <variant>

#include <dunlin/chan.hpp>
#include <dunlin/clock.hpp>

namespace dunlin::inline v0_1::detail {

struct follower {
    chan<std::monostate> news{1};
    std::uint64_t place = 0;   // publisher's lock
    follower* next = nullptr;  // the same
    follower* prev = nullptr;  // the same
};

// src/sync/publisher.cpp
class DUNLIN_API publisher {
public:
    publisher() noexcept;
    ~publisher() = default;
    publisher(const publisher&) = delete;
    publisher& operator=(const publisher&) = delete;

    // Holds the lock for a scope. It is a lock of the runtime, not of the program: a run() that ends must not leave it
    // held. So no code of the program runs under it: no value is copied or destroyed, and nothing is thrown.
    class DUNLIN_API locked {
    public:
        explicit locked(const publisher& p) noexcept;
        ~locked();
        locked(const locked&) = delete;
        locked& operator=(const locked&) = delete;

    private:
        alignas(8) unsigned char section_[16];
        const publisher& publisher_;
    };

    // Under the lock.
    void publish() noexcept;
    void settle(follower& f) const noexcept;
    std::uint64_t head = 0;
    std::size_t followers_ = 0;
    bool closed = false;

    // These take the lock.
    bool close() noexcept;  // false: it was closed already
    void attach_at_head(follower& f) noexcept;
    void attach_beside(follower& f, const follower& other) noexcept;
    void detach(follower& f) noexcept;
    bool is_closed() const noexcept;
    std::size_t followers() const noexcept;
    std::uint64_t behind(const follower& f) const noexcept;  // how far its place is before the head

private:
    void link(follower& f) noexcept;

    follower* first_ = nullptr;  // lock
    mutable void* woken_ = nullptr;  // lock: a chain of waiters, to be woken when the lock is free
    alignas(8) mutable unsigned char lock_[16];
};

// What a read, which does not wait, returns; ok: `value` is not null.
template <class T>
struct reading {
    channel_status status;
    std::shared_ptr<const T> value = nullptr;
};

// A follower of a State, which is a publisher with a follower_type, `reading<T> read(follower_type&)` and `void
// unread(follower_type&, value)` (both take the lock). This class adds the forms of receiving. `unread`: the value
// could not be copied, and counts as not read.
template <class State, class T>
class following {
public:
    using follows = T;

    /// Receives; waits until there is something that it has not received. Returns nullopt exactly when the sending side
    /// is closed and all has been received.
    /// Blocks    The goroutine, never its thread; on a plain thread, that thread.
    /// Throws    What copying T throws; the value counts as not received then.
    std::optional<T> recv(std::source_location where = std::source_location::current()) {
        std::optional<T> got;
        receive_into(got, where);
        return got;
    }
    /// The same until `ctx` is done: throws context_cancelled then. What is there is received even then.
    std::optional<T> recv(const context& ctx, std::source_location where = std::source_location::current()) {
        std::optional<T> got;
        while (take(got) == channel_status::would_block) cell().news.recv(ctx, where);
        return got;
    }
    /// The same for `d` at most; if the result is empty, its status() says whether the time ran out or the sending side
    /// is closed. Throws std::bad_alloc.
    template <class Rep, class Period>
    received<T> recv_for(const std::chrono::duration<Rep, Period>& d,
                         std::source_location where = std::source_location::current()) {
        return recv_until(clock::time_point(clock::duration(deadline_in(d))), where);
    }
    /// The same until `t`.
    template <class Clock, class Duration>
    received<T> recv_until(const std::chrono::time_point<Clock, Duration>& t,
                           std::source_location where = std::source_location::current()) {
        received<T> got(channel_status::would_block);
        for (;;) {
            received_access::status(got) = take(got);
            if (got.status() != channel_status::would_block) return got;
            if (cell().news.recv_until(t, where).status() == channel_status::would_block) return got;
        }
    }
    /// Receives what is there now; status(): ok, would_block, or closed.
    received<T> try_recv() {
        received<T> got(channel_status::would_block);
        received_access::status(got) = take(got);
        return got;
    }

    /// `for (T v : receiver)` receives until the sending side is closed and all has been received. An exception of
    /// recv() leaves the loop.
    receive_iterator<following, T> begin(std::source_location where = std::source_location::current()) {
        return {this, where};
    }
    std::default_sentinel_t end() const noexcept { return {}; }
    /// The same until `ctx` is done, if that comes first: `for (T v : receiver.until(ctx))`. What is there is received
    /// even then. `*this` must live as long as the loop.
    receive_until<following*, T> until(const context& ctx) & { return {this, ctx}; }
    // In a range-based for, C++20 destroys a temporary receiver before the loop begins.
    template <class Never = void>
    receive_until<following*, T> until(const context& ctx) && {
        static_assert(always_false<Never>,
            "dunlin: a receiver of a watch or broadcast must live as long as the loop: give it a name, then "
            "name.until(ctx)");
        return {this, ctx};
    }

    /// Whether the sending side is closed. There may be something left to receive.
    bool closed() const { return state().is_closed(); }

protected:
    following() noexcept = default;
    using cell_type = typename State::follower_type;

    explicit following(std::shared_ptr<State> s) : state_(std::move(s)), cell_(std::make_unique<cell_type>()) {
        state_->attach_at_head(*cell_);
    }
    following(const following& other) : state_(other.state_) {
        cell_ = std::make_unique<cell_type>();
        state().attach_beside(*cell_, *other.cell_);
    }
    following(following&& other) noexcept : state_(std::move(other.state_)), cell_(std::move(other.cell_)) {}
    following& operator=(following&& other) noexcept {
        following mine(std::move(other));
        std::swap(state_, mine.state_);
        std::swap(cell_, mine.cell_);
        return *this;
    }
    ~following() {
        if (state_ != nullptr) state_->detach(*cell_);
    }

    State& state() const {
        if (state_ == nullptr) throw std::logic_error("dunlin: a receiver of a watch or broadcast was moved from");
        return *state_;
    }
    cell_type& cell() const noexcept { return *cell_; }

private:
    friend struct following_access;
    template <class, class>
    friend class receive_iterator;
    template <class, class, class>
    friend class receive_until;

    void receive_into(std::optional<T>& to, const std::source_location& where) {
        while (take(to) == channel_status::would_block) cell().news.recv(where);
    }
    void receive_into(std::optional<T>& to, const context& ctx, const std::source_location& where) {
        std::optional<std::monostate> permit;
        while (take(to) == channel_status::would_block) {
            if (cell().news.receive_into(permit, ctx, where) == wait_outcome::cancelled) return;
        }
    }
    channel_status take(std::optional<T>& into) {
        reading<T> r = state().read(*cell_);
        if (r.status != channel_status::ok) return r.status;
        try {
            into.emplace(*r.value);
        } catch (...) {
            state_->unread(*cell_, std::move(r.value));
            throw;
        }
        return channel_status::ok;
    }

    std::shared_ptr<State> state_;
    std::unique_ptr<cell_type> cell_;
};

// For select(): the channel that holds the permit.
struct following_access {
    template <class F>
    static chan_core* core(const F& f) {
        static_cast<void>(f.state());
        return handle_access::core(f.cell().news);
    }
};

}  // namespace dunlin::detail
