// nats/subscription.hpp - the messages of a subject as they are published, with a policy for readers that are too slow.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>

#include <dunlin/chan.hpp>
#include <dunlin/select.hpp>
#include <dunlin/nats/cluster.hpp>

namespace dunlin::inline v0_1::nats {

/// What happens to a message that finds the buffer full.
enum class when_slow {
    /// it waits behind the buffer, in this process, up to overflow_bytes; beyond that as fail. Slows no other
    /// subscription
    wait,
    drop_oldest,  ///< the oldest message is dropped, and counted
    /// the subscription ends: recv() first returns what is in the buffer, then throws errc::slow_consumer
    fail,
};

struct subscribe_options {
    std::string group = {};                              ///< one subscriber of a group gets each message
    std::size_t buffer = 256;                            ///< messages
    nats::when_slow when_slow = when_slow::wait;
    std::size_t overflow_bytes = std::size_t{64} << 20;
};

namespace detail {

struct inflow;

struct DUNLIN_API inflow_access {
    static const chan<message>& ready(const inflow& f) noexcept;
    static void taken(inflow& f) noexcept;      // one was received: those that wait behind the buffer move up
    static void check(inflow& f);               // throws the error that has ended it
};

}  // namespace detail

template <class Handler>
[[nodiscard]] auto on_message(
    const subscription& s, Handler&& handler, std::source_location where = std::source_location::current());

/// Move-only; unsubscribes when it ends.
/// Blocks    The goroutine only. Threads: all members except moves from anywhere; there may be several readers.
/// Order     The messages of one publisher keep their order. Cost: no thread; 8 bytes for each place in the buffer.
class DUNLIN_API subscription {
public:
    subscription(subscription&&) noexcept = default;
    subscription& operator=(subscription&&) = delete;
    ~subscription();

    /// The next message; nullopt after close(). Throws the error that has ended the subscription.
    std::optional<message> recv(const context& ctx = {}) const;
    /// The same, but waits for `d` at most, and then returns nullopt.
    template <class Rep, class Period>
    std::optional<message> recv_for(const std::chrono::duration<Rep, Period>& d) const {
        auto m = detail::inflow_access::ready(*flow_).recv_for(d);
        if (m) {
            detail::inflow_access::taken(*flow_);
            return std::optional<message>(std::move(*m));
        }
        if (m.status() == channel_status::closed) detail::inflow_access::check(*flow_);
        return std::nullopt;
    }
    /// Ends the subscription; messages that have come can still be read.
    void close() noexcept;
    /// The number of messages that were dropped because of the policy.
    std::uint64_t dropped() const noexcept;

    class iterator {
    public:
        using iterator_concept = std::input_iterator_tag;
        using difference_type = std::ptrdiff_t;
        using value_type = message;
        explicit iterator(const subscription& s) : subscription_(&s) { ++*this; }
        message&& operator*() const noexcept { return std::move(*current_); }
        iterator& operator++() {
            current_ = subscription_->recv();
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const iterator& i, std::default_sentinel_t) noexcept { return !i.current_; }

    private:
        const subscription* subscription_;
        mutable std::optional<message> current_;
    };
    iterator begin() const { return iterator(*this); }
    std::default_sentinel_t end() const noexcept { return {}; }

    explicit subscription(std::shared_ptr<detail::inflow> f) noexcept : flow_(std::move(f)) {}

private:
    template <class Handler>
    friend auto on_message(const subscription& s, Handler&& handler, std::source_location where);
    std::shared_ptr<detail::inflow> flow_;
};

/// A case of select(): a message of `s`. handler(std::optional<message>): nullopt after close(); select() throws the
/// error if one has ended the subscription.
template <class Handler>
auto on_message(const subscription& s, Handler&& handler, std::source_location where) {
    auto run = [f = s.flow_, handle = std::forward<Handler>(handler)](std::optional<message> m) mutable {
        if (m) {
            detail::inflow_access::taken(*f);
        } else {
            detail::inflow_access::check(*f);
        }
        return handle(std::move(m));
    };
    return on_recv(detail::inflow_access::ready(*s.flow_), std::move(run), where);
}

inline subscription cluster::subscribe(const std::string& subject) const {
    return subscribe(subject, subscribe_options{}, {});
}

}  // namespace dunlin::nats
