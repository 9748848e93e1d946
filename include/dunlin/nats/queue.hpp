// nats/queue.hpp - jobs that any number of processes send and take, kept by a JetStream stream.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dunlin/chan.hpp>
#include <dunlin/clock.hpp>
#include <dunlin/select.hpp>
#include <dunlin/nats/cluster.hpp>
#include <dunlin/nats/delivery.hpp>

namespace dunlin::inline v0_1::nats {

/// The settings of a queue's stream and consumer. All processes that use the queue must ask for the same settings.
struct queue_options {
    int replicas = 1;                                  ///< servers that keep each job; 1, 3 or 5
    /// a job whose holder has been silent for this time is given to another one
    std::chrono::milliseconds ack_wait{30'000};
    /// a job that is delivered more often goes to the dead letters; 0: no limit
    int max_deliveries = 5;
    /// limits of the stream; a send to a full stream throws errc::limits_reached
    std::int64_t max_messages = -1, max_bytes = -1;
    std::chrono::milliseconds remember{120'000};       ///< how long the ids of once_by() are remembered
    bool in_memory = false;                            ///< not on disk
    std::size_t window = 1024;                         ///< of send_async(): how many jobs may be unconfirmed
};

/// The id of a job: the same id sent twice within queue_options::remember is stored once. It is sent as a header's
/// value (see `headers`); if it is empty, an id is generated.
struct once_by {
    explicit once_by(std::string name) : id(std::move(name)) {}
    std::string id;
};

/// A job of send_async() that was not confirmed.
struct unconfirmed {
    std::string id;         ///< the id of once_by(), or a generated one
    std::error_code code;
    std::string words;      ///< the server's
    std::string data;       ///< the bytes
};

struct consume_options {
    std::size_t in_flight = 64;   ///< the most jobs that this consumer has: fetched ahead, or with their holders
    dunlin::context ctx = {};     ///< when it is done there are no more deliveries
};

/// How many jobs a queue has now.
struct queue_size {
    std::uint64_t messages;  ///< sent and not done
    std::uint64_t waiting;   ///< of these: never delivered yet
    std::uint64_t in_flight; ///< of these: with a holder
};

/// A job that no consumer could do, as it lies among the dead letters.
struct dead_letter {
    std::string data;             ///< the job's bytes
    /// the reason of reject(), or why it does not decode, or how often it was delivered in vain
    std::string reason;
    std::string by;               ///< connect_options::name of the process that put it there
    std::uint64_t deliveries;     ///< how many times it had been delivered
    std::uint64_t sequence;       ///< its number in the queue's stream
    std::string stored;           ///< when the queue got it: nanoseconds since 1970
    /// "deliveries by reason" for each earlier time as a dead letter that was sent again, oldest first
    std::vector<std::string> history;
    headers original;             ///< the headers it was sent with (of another client: those that `headers` allows)
};

namespace detail {

class outbox;
struct queue_state;

// A queue without the type of its jobs.
class DUNLIN_API raw_queue {
public:
    raw_queue(std::shared_ptr<connection> c, const std::string& name, const queue_options& o, const context& ctx);
    void send(std::string_view data, const std::string& id, const headers& h, const context& ctx) const;
    void send_async(std::string_view data, const std::string& id, const headers& h, const context& ctx) const;
    std::vector<unconfirmed> flush(const context& ctx) const;
    std::shared_ptr<puller> consume(const consume_options& o) const;
    queue_size size(const context& ctx) const;
    raw_queue dead(const context& ctx) const;
    const std::string& name() const noexcept;

private:
    explicit raw_queue(std::shared_ptr<queue_state> s) noexcept : state_(std::move(s)) {}
    std::shared_ptr<queue_state> state_;
};

// The work of a consumer, without the type of its jobs. A `demand` represents a receiver that waits: without one
// nothing is fetched.
struct DUNLIN_API consuming {
    static const chan<std::shared_ptr<held>>& ready(const puller& p) noexcept;
    static void want(puller& p, int receivers) noexcept;
    // Throws the error that has ended the consumer; returns if stop() or its context has ended it.
    static void check(puller& p);
    static void stop(puller& p) noexcept;
    static const context& ctx(const puller& p) noexcept;
    // The delivery to hand out; empty if the job is lost, or was delivered too often and is a dead letter now.
    static std::optional<delivery_base> take(puller& p, std::shared_ptr<held> h);
    static void undecodable(puller& p, delivery_base d, const char* what);
};

class demand {
public:
    explicit demand(std::shared_ptr<puller> p) noexcept : puller_(std::move(p)) { consuming::want(*puller_, 1); }
    demand(demand&& other) noexcept : puller_(std::move(other.puller_)) {}
    demand& operator=(demand&&) = delete;
    ~demand() {
        if (puller_) consuming::want(*puller_, -1);
    }

private:
    std::shared_ptr<puller> puller_;
};

}  // namespace detail

template <class T>
class consumer;
template <class T, class Handler>
[[nodiscard]] auto on_delivery(
    consumer<T>& c, Handler&& handler, std::source_location where = std::source_location::current());

/// Takes jobs from a queue: a range of deliveries, and a case of select (on_delivery). Move-only; at its end it hands
/// back the jobs that were fetched but not handed out.
///
/// Flow      Nothing is fetched unless a recv() waits, and never more than in_flight minus the jobs that are held.
/// Errors    recv() throws the error that has ended the consumer: errc::stream_missing, credentials, ... The loss of a
///           connection that comes back does not end it.
template <class T>
class consumer {
public:
    explicit consumer(std::shared_ptr<detail::puller> p) noexcept : puller_(std::move(p)) {}
    consumer(consumer&&) noexcept = default;
    consumer& operator=(consumer&&) = delete;
    ~consumer() {
        if (puller_) stop();
    }

    /// The next delivery. nullopt after stop(), and when the consumer's context is done. A job that does not decode
    /// becomes a dead letter, and is not returned.
    std::optional<delivery<T>> recv() {
        for (;;) {
            detail::demand waiting(puller_);
            std::shared_ptr<detail::held> h;
            try {
                h = detail::consuming::ready(*puller_).recv(detail::consuming::ctx(*puller_)).value_or(nullptr);
            } catch (const context_cancelled&) {
                return std::nullopt;
            }
            if (!h) {
                detail::consuming::check(*puller_);
                return std::nullopt;
            }
            if (auto d = decoded(std::move(h))) return d;
        }
    }
    /// The same, but waits for `limit` at most, and then returns nullopt.
    template <class Rep, class Period>
    std::optional<delivery<T>> recv_for(const std::chrono::duration<Rep, Period>& limit) {
        const clock::time_point until{clock::duration(dunlin::detail::deadline_in(limit))};
        for (;;) {
            detail::demand waiting(puller_);
            auto h = detail::consuming::ready(*puller_).recv_until(until);
            if (!h) {
                if (h.status() == channel_status::closed) detail::consuming::check(*puller_);
                return std::nullopt;
            }
            if (auto d = decoded(std::move(*h))) return d;
        }
    }

    /// Fetches no more. Jobs that were fetched but not handed out are handed back; waiting receivers get nullopt.
    /// Holders keep their deliveries.
    void stop() noexcept { detail::consuming::stop(*puller_); }

    class iterator {
    public:
        using iterator_concept = std::input_iterator_tag;
        using difference_type = std::ptrdiff_t;
        using value_type = delivery<T>;
        explicit iterator(consumer& c) : consumer_(&c) { ++*this; }
        iterator(iterator&&) noexcept = default;
        iterator& operator=(iterator&&) = delete;
        delivery<T>&& operator*() const noexcept { return std::move(*current_); }
        iterator& operator++() {
            current_.reset();
            if (auto next = consumer_->recv()) current_.emplace(std::move(*next));
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const iterator& i, std::default_sentinel_t) noexcept { return !i.current_; }

    private:
        consumer* consumer_;
        mutable std::optional<delivery<T>> current_;
    };
    iterator begin() { return iterator(*this); }
    std::default_sentinel_t end() const noexcept { return {}; }

private:
    template <class U, class Handler>
    friend auto on_delivery(consumer<U>& c, Handler&& handler, std::source_location where);

    std::optional<delivery<T>> decoded(std::shared_ptr<detail::held> h) { return decode(*puller_, std::move(h)); }
    static std::optional<delivery<T>> decode(detail::puller& p, std::shared_ptr<detail::held> h);

    std::shared_ptr<detail::puller> puller_;
};

/// A case of select(): a delivery of `c`, which must live until select() has returned.
/// handler(std::optional<delivery<T>>): nullopt when `c` has ended, and after a job that went to the dead letters
/// instead.
template <class T, class Handler>
auto on_delivery(consumer<T>& c, Handler&& handler, std::source_location where) {
    auto run = [p = c.puller_, waiting = detail::demand(c.puller_), handle = std::forward<Handler>(handler)](
                   std::optional<std::shared_ptr<detail::held>> h) mutable {
        if (!h) detail::consuming::check(*p);
        return handle(h ? consumer<T>::decode(*p, std::move(*h)) : std::nullopt);
    };
    return on_recv(detail::consuming::ready(*c.puller_), std::move(run), where);
}

/// Jobs of type T, which codec<T> knows. A counted handle.
///
/// Blocks    The goroutine only.
/// Threads   All members from goroutines and plain threads at any time.
template <class T>
class queue {
public:
    queue(std::shared_ptr<detail::connection> c, const std::string& name, const queue_options& o, const context& ctx)
        : raw_(std::move(c), name, o, ctx) {}

    /// Returns when the stream has the job: on the disks of a majority of its replicas. The job is sent again, under
    /// the same id, until that is confirmed or `ctx` is done (without a deadline: for connect_options::confirm).
    /// Throws    errc::not_confirmed (the stream may have the job or not), limits_reached, payload_too_large, ...;
    ///           context_cancelled.
    void send(const T& job, const context& ctx = {}) const { send(job, once_by({}), ctx); }
    /// With headers, which delivery::message() shows. Throws errc::refused for one that `headers` does not allow.
    void send(const T& job, const once_by& id, const context& ctx = {}, const headers& h = {}) const {
        raw_.send(codec<T>::encode(job), id.id, h, ctx);
    }

    /// Sends without waiting for the answer; waits only for room in the window. flush() reports the outcome.
    void send_async(
        const T& job, const once_by& id = once_by({}), const context& ctx = {}, const headers& h = {}) const {
        raw_.send_async(codec<T>::encode(job), id.id, h, ctx);
    }
    /// Waits until every job of send_async() is confirmed or has failed. Returns the failed jobs; when `ctx` is done,
    /// also those that are still unconfirmed, which are then given up.
    [[nodiscard]] std::vector<unconfirmed> flush(const context& ctx = {}) const { return raw_.flush(ctx); }

    [[nodiscard]] consumer<T> consume(const consume_options& o = {}) const { return consumer<T>(raw_.consume(o)); }

    /// The jobs that were rejected, delivered too often or did not decode: itself a queue, of dead_letter.
    queue<dead_letter> dead(const context& ctx = {}) const { return queue<dead_letter>(raw_.dead(ctx)); }
    /// Sends a dead letter's job again; its history is sent along.
    void send_again(const dead_letter& d, const context& ctx = {}) const;

    queue_size size(const context& ctx = {}) const { return raw_.size(ctx); }
    const std::string& name() const noexcept { return raw_.name(); }

private:
    template <class>
    friend class queue;
    explicit queue(detail::raw_queue&& raw) noexcept : raw_(std::move(raw)) {}
    detail::raw_queue raw_;
};

namespace detail {
DUNLIN_API dead_letter read_dead_letter(const nats::message& m);
DUNLIN_API headers headers_of_again(const dead_letter& d);
}  // namespace detail

template <>
struct codec<dead_letter> {
    static std::string_view encode(const dead_letter& d) noexcept { return d.data; }
    static dead_letter decode(std::string_view bytes);
};
inline dead_letter codec<dead_letter>::decode(std::string_view bytes) {
    return {std::string(bytes), {}, {}, 0, 0, {}, {}, {}};
}

template <class T>
std::optional<delivery<T>> consumer<T>::decode(detail::puller& p, std::shared_ptr<detail::held> h) {
    std::optional<delivery_base> d = detail::consuming::take(p, std::move(h));
    if (!d) return std::nullopt;
    std::string fault = "not an std::exception";
    try {
        if constexpr (std::is_same_v<T, dead_letter>) {
            return delivery<T>(std::move(*d), detail::read_dead_letter(d->message()));
        } else {
            T value = codec<T>::decode(d->message().data());
            return delivery<T>(std::move(*d), std::move(value));
        }
    } catch (const context_cancelled&) {
        throw;
    } catch (const std::exception& e) {
        fault = e.what();
    } catch (...) {
        static_cast<void>(dunlin::detail::caught());
    }
    detail::consuming::undecodable(p, std::move(*d), fault.c_str());
    return std::nullopt;
}

template <class T>
void queue<T>::send_again(const dead_letter& d, const context& ctx) const {
    raw_.send(d.data, {}, detail::headers_of_again(d), ctx);
}

template <class T>
nats::queue<T> cluster::queue(const std::string& name, const queue_options& o) const {
    return nats::queue<T>(connection_, name, o, {});
}
template <class T>
nats::queue<T> cluster::queue(const std::string& name) const {
    return nats::queue<T>(connection_, name, queue_options{}, {});
}
template <class T>
nats::queue<T> cluster::queue(const std::string& name, const queue_options& o, const context& ctx) const {
    return nats::queue<T>(connection_, name, o, ctx);
}

}  // namespace dunlin::nats
