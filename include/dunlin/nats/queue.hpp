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
#include <dunlin/select.hpp>
#include <dunlin/nats/cluster.hpp>
#include <dunlin/nats/delivery.hpp>

namespace dunlin::inline v0_1::nats {

/// Of a queue's stream and consumer. All processes that use the queue ask for the same.
struct queue_options {
    int replicas = 1;                                  ///< servers that keep each job; 1, 3 or 5
    /// a job whose holder is not heard of for so long is given to another one
    std::chrono::milliseconds ack_wait{30'000};
    /// one that comes more often goes to the dead letters; 0: no limit
    int max_deliveries = 5;
    /// in the stream; a send to a full one throws errc::limits_reached
    std::int64_t max_messages = -1, max_bytes = -1;
    std::chrono::milliseconds remember{120'000};       ///< how long ids of once_by() are known
    bool in_memory = false;                            ///< not on disk
    std::size_t window = 1024;                         ///< of send_async(): so many may be unconfirmed
};

/// The id of a job: the same id sent twice within queue_options::remember is stored once.
struct once_by {
    explicit once_by(std::string name) : id(std::move(name)) {}
    std::string id;
};

/// What send_async() could not have confirmed.
struct unconfirmed {
    std::string id;         ///< the one of once_by(), or the one that was made for it
    std::error_code code;
    std::string words;      ///< the server's
    std::string data;       ///< the bytes
};

struct consume_options {
    std::size_t in_flight = 64;   ///< jobs that this consumer has at most: fetched ahead, and with their holders
    dunlin::context ctx = {};     ///< when it is done there are no more deliveries
};

/// How many jobs a queue has now.
struct queue_size {
    std::uint64_t messages;  ///< sent, and not done
    std::uint64_t waiting;   ///< of these, never delivered yet
    std::uint64_t in_flight; ///< of these, with a holder
};

/// A job that no consumer could do, as it lies among the dead letters.
struct dead_letter {
    std::string data;             ///< the job's bytes
    std::string reason;           ///< of reject(), or why it does not decode, or how often it was delivered in vain
    std::string by;               ///< connect_options::name of the process that put it there
    std::uint64_t deliveries;     ///< so many times it had been delivered
    std::uint64_t sequence;       ///< its number in the queue's stream
    std::string stored;           ///< when the queue got it: nanoseconds since 1970
    /// "deliveries by reason", oldest first, of the times it had been a dead letter before it was sent again
    std::vector<std::string> history;
    headers original;             ///< the headers it was sent with
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

// What a consumer does, without the type of its jobs. A `demand` stands for a receiver that waits: nothing is fetched
// without one.
struct DUNLIN_API consuming {
    static const chan<std::shared_ptr<held>>& ready(const puller& p) noexcept;
    static void want(puller& p, int receivers) noexcept;
    // Throws what has ended it; returns if that was stop(), or its context.
    static void check(puller& p);
    static void stop(puller& p) noexcept;
    static const context& ctx(const puller& p) noexcept;
    // The delivery as it is handed out; empty if it was delivered too often, and is a dead letter now.
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

/// Takes jobs from a queue: a range of deliveries, and a case of select (on_delivery). Move-only; when it ends, what
/// was fetched and not handed out yet is handed back.
///
/// Flow      Nothing is fetched while no recv() waits in it, and never more than in_flight less what is held.
/// Errors    recv() throws what has ended it: errc::stream_missing, credentials, ... Connections that come back do not.
template <class T>
class consumer {
public:
    explicit consumer(std::shared_ptr<detail::puller> p) noexcept : puller_(std::move(p)) {}
    consumer(consumer&&) noexcept = default;
    consumer& operator=(consumer&&) = delete;
    ~consumer() {
        if (puller_) stop();
    }

    /// The next one. nullopt after stop(), and when its context is done. A job that does not decode is a dead letter,
    /// and not seen here.
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
    /// The same for `limit` at most; nullopt then, too.
    template <class Rep, class Period>
    std::optional<delivery<T>> recv_for(const std::chrono::duration<Rep, Period>& limit) {
        const auto until = clock::now() + limit;
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

    /// No more fetches; what was fetched and not handed out is handed back, waiting receivers get nullopt. Deliveries
    /// that are held stay so.
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

    /// Returns when the stream has it: on the disks of a majority of its replicas. Sent again, under the same id, until
    /// that is confirmed or `ctx` is done (without a deadline: connect_options::confirm).
    /// Throws    errc::not_confirmed (it may be there or not), limits_reached, payload_too_large, ...;
    ///           context_cancelled.
    void send(const T& job, const context& ctx = {}) const { send(job, once_by({}), ctx); }
    /// With headers, which delivery::message() has; names that begin with "Dunlin-" or "Nats-" have meanings there.
    void send(const T& job, const once_by& id, const context& ctx = {}, const headers& h = {}) const {
        raw_.send(codec<T>::encode(job), id.id, h, ctx);
    }

    /// Sends without waiting for the answer, but for room in the window. What becomes of it flush() tells.
    void send_async(
        const T& job, const once_by& id = once_by({}), const context& ctx = {}, const headers& h = {}) const {
        raw_.send_async(codec<T>::encode(job), id.id, h, ctx);
    }
    /// Waits until all that was sent by send_async() is confirmed or has failed. Returns what has failed; and when
    /// `ctx` is done, what is still unconfirmed too, which is then given up.
    [[nodiscard]] std::vector<unconfirmed> flush(const context& ctx = {}) const { return raw_.flush(ctx); }

    [[nodiscard]] consumer<T> consume(const consume_options& o = {}) const { return consumer<T>(raw_.consume(o)); }

    /// Jobs that were rejected, came too often or did not decode: a queue itself, of dead_letter.
    queue<dead_letter> dead(const context& ctx = {}) const { return queue<dead_letter>(raw_.dead(ctx)); }
    /// Sends a dead letter's job again; what has happened to it travels along.
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
