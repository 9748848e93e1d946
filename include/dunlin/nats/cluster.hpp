// nats/cluster.hpp - a connection to a cluster of NATS servers: what everything else is made from.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <dunlin/context.hpp>
#include <dunlin/nats/codec.hpp>
#include <dunlin/nats/error.hpp>
#include <dunlin/nats/message.hpp>

namespace dunlin::inline v0_1::nats {

namespace detail {
class connection;
}

template <class T>
class queue;
template <class T>
class bucket;
class subscription;
class server;
struct queue_options;
struct bucket_options;
struct subscribe_options;
struct serve_options;

/// How to connect. Times are from the first to the last attempt.
struct connect_options {
    std::string name = {};                           ///< of this process, as the server's lists show it
    /// also in the addresses: nats://user:password@host:4222
    std::string user = {}, password = {}, token = {};
    std::string credentials_file = {};                ///< a .creds file (JWT and key)
    /// insist on TLS; verified by the system's authorities or `authorities`
    bool tls = false;
    std::string authorities = {}, certificate = {}, key = {};  ///< PEM files
    std::chrono::milliseconds timeout{2'000};        ///< for each address, when connecting
    /// without a connection for so long, calls that wait fail with connection_lost
    std::chrono::milliseconds patience{30'000};
    std::chrono::milliseconds reconnect_wait{100};   ///< between two rounds of attempts
    /// a server that leaves two of these unanswered is given up for another one
    std::chrono::milliseconds ping{2'000};
    /// how long send(), done() and their like wait for an answer where no context says so
    std::chrono::milliseconds confirm{10'000};
};

/// What a connection has done since connect().
struct statistics {
    std::uint64_t messages_in, messages_out, bytes_in, bytes_out;
    std::uint64_t reconnects;        ///< times that the connection was made again
    std::uint64_t resent;            ///< requests sent again because no answer had come
    std::uint64_t redelivered;       ///< deliveries that were not the first of their message
    std::uint64_t lost;              ///< deliveries whose deadline could not be prolonged in time
    std::uint64_t handed_back;       ///< deliveries that were destroyed without a word
    std::uint64_t rejected;          ///< put among the dead letters
    std::uint64_t dropped;           ///< messages that subscriptions have dropped, by their policy
    bool connected;                  ///< now
};

/// The trace id of a request or a job: request() and send() take it from their context and send it along, serve() puts
/// it into the handler's context, and delivery::context() has it.
DUNLIN_API extern const context_key<std::string> trace_id;

/// A connection. A counted handle: copies are the same; the last one, and those of queues, subscriptions and so on,
/// closes it.
///
/// Blocks    The goroutine only, but for connect(): that blocks a thread, whose processor goes to others.
/// Threads   All members from goroutines and plain threads at any time. Three threads for a process (libnats' timer,
///           callbacks, delivery) and one for each connection, however many subscriptions there are.
/// Errors    nats::error; context_cancelled where a context has ended the wait.
/// Source    nats.go's Conn and JetStreamContext.
class DUNLIN_API cluster {
public:
    /// The queue `name`: a stream of this name with work queue retention, and its consumer. Made if they are not there.
    /// Throws    errc::other_settings if they are there with other settings, which are named.
    template <class T>
    nats::queue<T> queue(const std::string& name, const queue_options& o) const;
    template <class T>
    nats::queue<T> queue(const std::string& name) const;
    /// The same until `ctx` is done. With a deadline it waits for servers that are missing for so many replicas,
    /// because they are starting.
    template <class T>
    nats::queue<T> queue(const std::string& name, const queue_options& o, const context& ctx) const;

    /// The bucket `name`. Made if it is not there.
    template <class T>
    nats::bucket<T> bucket(const std::string& name, const bucket_options& o, const context& ctx = {}) const;
    template <class T>
    nats::bucket<T> bucket(const std::string& name) const;

    /// Sends to the subscribers of `subject` at this moment; none of them confirms. While there is no connection up to
    /// 8 MB are kept.
    void publish(const std::string& subject, std::string_view data, const headers& h = {}) const;
    /// Waits until the server has had all that was published before.
    void flush(const context& ctx = {}) const;

    /// Messages for `subject` ("a.*.c", "a.>" too) from now on: the server it is connected to knows it when it returns;
    /// the others of a cluster soon after.
    /// Throws    errc::not_confirmed, connection_lost: no answer within connect_options::confirm, or until `ctx` is
    ///           done.
    subscription subscribe(const std::string& subject, const subscribe_options& o, const context& ctx = {}) const;
    subscription subscribe(const std::string& subject) const;

    /// Asks the servers of `subject`, one of which answers. The deadline of `ctx` and its trace_id travel along; when
    /// `ctx` is done before the answer is here, the handler's context is cancelled. Without a deadline:
    /// connect_options::confirm.
    /// Throws    errc::no_responders, busy, handler_failed, not_confirmed.
    message request(
        const std::string& subject, std::string_view data, const context& ctx = {}, const headers& h = {}) const;

    statistics stats() const;
    /// The largest payload that the server takes, in bytes.
    std::int64_t max_payload() const;
    /// The address of the server that it is connected to; empty while there is none.
    std::string server_address() const;

    /// Deletes a stream or a bucket's stream (KV_name), with all that is in it.
    void erase_stream(const std::string& name, const context& ctx = {}) const;
    /// A request to JetStream's own interface, "STREAM.INFO.jobs" for instance: the answer's JSON. Throws what the
    /// answer says.
    std::string jetstream(const std::string& what, std::string_view json = {}, const context& ctx = {}) const;

    /// Ends it: consumers take no more, and what the server has sent them already is handed back (for that it waits,
    /// two seconds at most); deliveries that are held are handed back, what waits gets errc::closed. Also for those
    /// held by goroutines that are frozen.
    void close() const;

    detail::connection& native() const noexcept { return *connection_; }
    explicit cluster(std::shared_ptr<detail::connection> c) noexcept : connection_(std::move(c)) {}

private:
    template <class>
    friend class nats::queue;
    template <class>
    friend class nats::bucket;
    friend class server;
    std::shared_ptr<detail::connection> connection_;
};

/// Connects to one of the servers at these addresses ("nats://a:4222,nats://b:4222"), and again to any of them, or of
/// those they name, when it is lost.
/// Throws    errc::no_server (each address with what it said, and how long that took), credentials, tls;
///           context_cancelled: `ctx` was done first.
DUNLIN_API cluster connect(const std::string& addresses, const connect_options& o = {}, const context& ctx = {});

}  // namespace dunlin::nats
