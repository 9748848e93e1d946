// nats/cluster.hpp - a connection to a cluster of NATS servers, from which everything else is made.
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

/// How to connect. The time limit of a call covers all its attempts.
struct connect_options {
    std::string name = {};                           ///< of this process, shown in the server's lists
    /// also in the addresses: nats://user:password@host:4222
    std::string user = {}, password = {}, token = {};
    std::string credentials_file = {};                ///< a .creds file (JWT and key)
    /// insist on TLS; verified with the system's authorities or with `authorities`
    bool tls = false;
    std::string authorities = {}, certificate = {}, key = {};  ///< PEM files
    std::chrono::milliseconds timeout{2'000};        ///< for each address, when connecting
    /// after this time without a connection, waiting calls fail with connection_lost
    std::chrono::milliseconds patience{30'000};
    std::chrono::milliseconds reconnect_wait{100};   ///< between two rounds of attempts
    /// interval of pings; a server that leaves two unanswered is given up for another one
    std::chrono::milliseconds ping{2'000};
    /// how long send(), done() and the like wait for an answer if no context has a deadline
    std::chrono::milliseconds confirm{10'000};
};

/// What a connection has done since connect().
struct statistics {
    std::uint64_t messages_in, messages_out, bytes_in, bytes_out;
    std::uint64_t reconnects;        ///< times that the connection was made again
    std::uint64_t resent;            ///< requests sent again because no answer had come
    std::uint64_t redelivered;       ///< deliveries that were not the first of their message
    std::uint64_t lost;              ///< deliveries whose deadline could not be prolonged in time
    std::uint64_t handed_back;       ///< deliveries that were destroyed without done(), retry() or reject()
    std::uint64_t rejected;          ///< jobs that were put among the dead letters
    /// messages that subscriptions have dropped because of their policy; and messages that publish() had kept while
    /// there was no connection, and that were not sent: the next server does not take them, or close() came first
    std::uint64_t dropped;
    bool connected;                  ///< now
};

/// The trace id of a request or a job: request() and send() take it from their context and send it along; serve() puts
/// it into the handler's context, and delivery::context() contains it. One that is empty, or consists of blanks, is not
/// sent.
DUNLIN_API extern const context_key<std::string> trace_id;

/// A connection. A counted handle: copies share it; queues, subscriptions and so on hold it too, and the last holder
/// closes it.
///
/// Blocks    The goroutine only, except for connect(): it blocks a thread, whose processor goes to others.
/// Threads   All members from goroutines and plain threads at any time. A process has three threads (libnats' timer,
///           callbacks, delivery) and one more for each connection, however many subscriptions there are.
/// Errors    nats::error; context_cancelled if a context has ended the wait.
/// Source    nats.go's Conn and JetStreamContext.
class DUNLIN_API cluster {
public:
    /// The queue `name`: a stream of this name with work queue retention, and its consumer. They are created if they do
    /// not exist.
    /// Throws    errc::other_settings if they exist with other settings; the error names these.
    template <class T>
    nats::queue<T> queue(const std::string& name, const queue_options& o) const;
    template <class T>
    nats::queue<T> queue(const std::string& name) const;
    /// The same until `ctx` is done. With a deadline it waits if servers for the replicas are missing because they are
    /// still starting.
    template <class T>
    nats::queue<T> queue(const std::string& name, const queue_options& o, const context& ctx) const;

    /// The bucket `name`. It is created if it does not exist.
    template <class T>
    nats::bucket<T> bucket(const std::string& name, const bucket_options& o, const context& ctx = {}) const;
    template <class T>
    nats::bucket<T> bucket(const std::string& name) const;

    /// Sends to the present subscribers of `subject`; none of them confirms. While there is no connection, up to 8 MB
    /// are kept; what the next server does not take (its max_payload may be smaller) is counted in statistics::dropped.
    /// Throws    errc::payload_too_large; refused: not a subject, or a header that `headers` does not allow;
    ///           connection_lost: 8 MB are kept already; closed.
    void publish(const std::string& subject, std::string_view data, const headers& h = {}) const;
    /// Waits until the server has received everything that was published before.
    void flush(const context& ctx = {}) const;

    /// Messages for `subject` ("a.*.c", "a.>" too) from now on: when this returns, the connected server knows the
    /// subscription; the other servers of the cluster learn it soon after.
    /// Throws    errc::not_confirmed, connection_lost: no answer within connect_options::confirm; not_permitted (if the
    ///           server says so only later, or another server does, it comes out of recv()); context_cancelled: `ctx`
    ///           is done first.
    subscription subscribe(const std::string& subject, const subscribe_options& o, const context& ctx = {}) const;
    subscription subscribe(const std::string& subject) const;

    /// Asks the servers of `subject`, one of which answers. The deadline of `ctx` and its trace_id are sent along; when
    /// `ctx` is done before the answer is here, the handler's context is cancelled. Without a deadline
    /// connect_options::confirm applies.
    /// Throws    errc::no_responders, busy, handler_failed, not_confirmed; refused: a header that `headers` does not
    ///           allow; context_cancelled: `ctx` is done first.
    message request(
        const std::string& subject, std::string_view data, const context& ctx = {}, const headers& h = {}) const;

    statistics stats() const;
    /// The largest payload that the server accepts, in bytes; headers count.
    std::int64_t max_payload() const;
    /// The address of the connected server; empty while there is none.
    std::string server_address() const;

    /// Deletes a stream or a bucket's stream (KV_name), with all its contents.
    void erase_stream(const std::string& name, const context& ctx = {}) const;
    /// Sends a request to JetStream's own interface, "STREAM.INFO.jobs" for instance. Returns the answer's JSON; throws
    /// the error that the answer contains.
    std::string jetstream(const std::string& what, std::string_view json = {}, const context& ctx = {}) const;

    /// Closes the connection. Consumers take no more jobs, and those that the server has sent them already are handed
    /// back (for that it waits two seconds at most). Deliveries with a holder are handed back, even if a frozen
    /// goroutine holds them. Calls that wait get errc::closed.
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

/// Connects to one of the servers at these addresses ("nats://a:4222,nats://b:4222"). When the connection is lost, it
/// is made again to any of them, or to any server that they have named.
/// Throws    errc::no_server (with the answer of each address, and how long that took), credentials, tls;
///           context_cancelled: `ctx` was done first; std::system_error: no thread, or no descriptor for it, is left.
DUNLIN_API cluster connect(const std::string& addresses, const connect_options& o = {}, const context& ctx = {});

}  // namespace dunlin::nats
