// connection.h - a connection to a cluster, whichever of its servers come and go, and the questions asked over it.
//
// Data      wire                 libnats' connection to one server, driven by our own thread (loop.h) instead of
//                                libnats' reading and flushing threads. When a wire breaks, another one is made
//                                (reconnect.cpp); in between there is none.
//           interests            the subjects that are subscribed to, anew on each wire (interest.h).
//           kept                 messages published while there was no wire, in order.
//           calls                questions that wait for an answer, keyed by the number at the end of their reply
//                                subject: <inbox>.<number>. One interest, <inbox>.*, receives all answers.
//           members              objects (consumers) whose tick() is called every 50 ms, and that are told when there
//                                is a wire again.
// Protocol  start() records the call, then sends it. answer() (libnats' delivery thread), tick() (our thread) or
//           abandon() (the call's owner) takes it out of the table under the lock. Only the thread that has taken it
//           out may call finished(). So the connection calls it once at most.
//           "No responders" from a stream means an election or a missing stream: STREAM.INFO tells which. A call that
//           may be sent twice is sent again when there is no answer within attempt_ns, or when there is a wire again;
//           any other call is sent once.
// Wires     A new wire is shown to senders (`wire_`) once all interests are subscribed on it and all kept messages are
//           sent: the step that shows it checks both under line_lock_. So no interest is forgotten, and the messages of
//           one thread stay in order.
//           libnats calls on_closed() once for each wire, perhaps before it is shown: then `last_closed_` tells.
// Locks     mutex_ (calls, members) and line_lock_ (wire, interests, kept) are held only in undisturbed() and on our
//           threads, never one within the other, never around a call into libnats, and never while a waiter is woken.
//           The only lock taken within line_lock_ is an interest's own (at()), and none is taken within that.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <nats/nats.h>

#include <dunlin/chan.hpp>
#include <dunlin/context.hpp>
#include <dunlin/detail/atomic.hpp>
#include <dunlin/nats/cluster.hpp>

#include "dial.h"
#include "failure.h"
#include "interest.h"
#include "limits.h"
#include "loop.h"
#include "undisturbed.h"

namespace dunlin::inline v0_1::nats::detail {

// CLOCK_BOOTTIME: it goes on while the machine sleeps, as the servers' clocks do, and does not jump.
std::int64_t now_ns() noexcept;

constexpr std::int64_t millisecond = 1'000'000;
constexpr std::int64_t tick_ns = 50 * millisecond;
// When this many calls have no answer yet, a further one is in no hurry: writing calls together saves more than the
// tenth of a millisecond that each of them waits longer.
constexpr std::size_t crowd = 8;

struct message_and_failure {
    nats::message answer;
    failure fault;
};

class call {
public:
    virtual ~call() = default;
    // The connection calls it once at most, without locks, on any thread. May not park.
    virtual void finished(message_and_failure&& f) noexcept = 0;

    nats::message request;           // set by start()
    std::string subject;
    std::uint64_t number = 0;        // 0: not started
    std::int64_t deadline_ns = 0, attempt_ns = 0;
    platform::atomic<std::int64_t> sent_ns{0};
    bool again = false;              // may be sent twice
    bool jetstream = false;          // "no responders" and "no leader" are temporary: elections
    platform::atomic<bool> sent{false};  // since the connection came up
    bool hurried = false;            // written to the socket at once
    failure last;                    // why there is no answer yet; under the connection's lock
};

class member {
public:
    virtual ~member() = default;
    virtual void tick(std::int64_t now) = 0;
    virtual void came_back() = 0;
    virtual void ended(const failure& f) = 0;  // the connection is closed for good
    // Before the connection is closed here: leave() takes no more; wait_left() waits until all that the server has sent
    // already is here.
    virtual void leave() {}
    virtual void wait_left() {}
};

// libnats' connection to one server. It is made before that is dialled, so that there is always an owner for it.
class wire {
public:
    wire(std::uint64_t number, std::shared_ptr<event_loop> l) noexcept : number_(number), loop_(std::move(l)) {}
    ~wire();
    wire(const wire&) = delete;
    wire& operator=(const wire&) = delete;

    // Once, before the wire is given to others.
    void own(natsConnection* nc) noexcept { nc_ = nc; }
    natsConnection* native() const noexcept { return nc_; }
    std::uint64_t number() const noexcept { return number_; }

private:
    natsConnection* nc_ = nullptr;
    const std::uint64_t number_;  // from 1, in the order in which wires are made
    const std::shared_ptr<event_loop> loop_;  // lives until libnats has detached from it
};

// Either a wire or the reason why there is none.
struct wire_or_failure {
    std::shared_ptr<wire> made;
    failure fault;
};

class connection : public std::enable_shared_from_this<connection> {
public:
    static std::shared_ptr<connection> open(const std::string& addresses, const connect_options& o, const context& ctx);
    explicit connection(connect_options o);
    ~connection();
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;

    const connect_options& options() const noexcept { return options_; }
    bool up() const noexcept { return loop_->up(); }
    // The server's address; empty if there is no wire.
    std::string server() const;
    std::int64_t max_payload() const noexcept { return max_payload_.load(std::memory_order_relaxed); }

    // The deadline is `limit_ns` from now. If the connection is closed, the call fails at once: finished() is called
    // before this returns.
    void start(const std::shared_ptr<call>& c, const std::string& subject, std::string_view data, const headers& h,
        std::int64_t limit_ns);
    void abandon(call& c) noexcept;
    // Waits for the answer.
    nats::message ask(const char* what, const std::string& subject, std::string_view data, const headers& h,
        const context& ctx, bool jetstream, bool again);
    // Asks JetStream's interface; returns its answer unless that is an error.
    std::string api(const std::string& what, std::string_view json, const context& ctx, failure* fault = nullptr);

    // Sends without an answer. If there is no wire, the message is kept until there is one.
    failure publish(
        const std::string& subject, const std::string& reply, std::string_view data, const headers& h, bool hurried);

    // Messages go to `to` until unsubscribe(); `to` lives as long as one may come. Rule: where a lost message costs
    // something (a job, a request), the interest is drained, not unsubscribed.
    std::shared_ptr<interest> subscribe(const std::string& subject, const std::string& group, std::shared_ptr<sink> to);
    void unsubscribe(const std::shared_ptr<interest>& i) noexcept;
    void drain(const std::shared_ptr<interest>& i) noexcept;
    // Returns when the server has processed all that was sent before.
    void round_trip(const char* what, const context& ctx);
    // After a round trip: if the server has refused this subscription, waits until `came` says that its sink knows.
    void await_refusal(
        const std::string& subject, const std::string& group, const context& ctx, const std::function<bool()>& came);

    void join(const std::shared_ptr<member>& m);

    statistics stats() const;
    void leave();
    void close(const failure& why);
    failure closed() const;
    std::string inbox() const { return "_INBOX." + unique_; }
    std::string new_inbox() { return inbox() + "-" + std::to_string(inboxes_.fetch_add(1)); }

    platform::atomic<std::uint64_t> resent{0}, redelivered{0}, lost{0}, handed_back{0}, rejected{0}, dropped{0};

private:
    struct answers;
    friend class event_loop;
    void tick();
    void came_back();
    void answer(nats::message m);
    void send(call& c, bool first) noexcept;
    void is_it_alive(std::int64_t now);
    void fail_permission(const std::string& words);
    struct existence;
    void look_for(const std::string& stream);
    void looked_for(const std::string& stream, const failure& f);
    std::vector<std::shared_ptr<member>> members();
    std::shared_ptr<call> out(std::uint64_t number);
    // ---- wires
    struct told;  // what libnats' callbacks know about a wire
    static void on_closed(natsConnection* nc, void* closure);
    static void on_error(natsConnection*, natsSubscription*, natsStatus s, void* closure);
    wire_or_failure dial_one(const std::vector<std::string>& urls);
    wire_or_failure dial_first(const std::vector<std::string>& urls, const context& ctx);
    void closed_by_libnats(natsConnection* nc, std::uint64_t number);
    // False: the wire is closed already.
    bool show(const std::shared_ptr<wire>& w);
    // If there is no wire, and none is being made: makes one, on a thread of its own.
    void reconnect() noexcept;
    void redial();
    std::shared_ptr<wire> line() const;
    failure put(natsMsg* m, bool hurried, std::shared_ptr<wire>& on) noexcept;
    struct kept_message {
        nats::message message;
        std::size_t size;  // with its headers and what it costs here
    };
    bool put_kept(std::deque<kept_message>& kept, const wire& w);
    bool keep(nats::message& m, std::size_t payload, const std::shared_ptr<wire>& seen, failure& f);
    void forget(const std::shared_ptr<interest>& i) noexcept;

    connect_options options_;
    std::string unique_;
    std::string answers_to_;  // "<inbox>."
    std::shared_ptr<event_loop> loop_;
    platform::atomic<std::int64_t> max_payload_{0};
    platform::atomic<unsigned> inboxes_{0};
    platform::atomic<std::uint64_t> next_number_{1};

    mutable std::mutex mutex_;
    std::pmr::unsynchronized_pool_resource table_memory_;  // one thread inserts into the table, another one removes
    std::pmr::unordered_map<std::uint64_t, std::shared_ptr<call>> calls_{&table_memory_};
    // streams from which "no responders" came, and for whose existence a question is under way
    std::unordered_set<std::string> looked_for_;
    std::vector<std::weak_ptr<member>> members_;
    failure closed_;
    std::int64_t down_since_ = 0;  // 0: connected
    std::int64_t asked_ns_ = 0;    // when the server was last asked whether it lives; the loop's thread only
    std::string last_error_, last_refusal_;

    mutable std::mutex line_lock_;
    std::shared_ptr<wire> wire_;
    bool shut_ = false;                  // there will be no further wire
    std::uint64_t last_closed_ = 0;      // the highest number of a closed wire
    statistics of_closed_{};             // the counts of earlier wires
    std::unordered_set<std::shared_ptr<interest>> interests_;
    std::deque<kept_message> kept_;
    std::size_t kept_bytes_ = 0;
    std::vector<std::string> addresses_;  // the given ones, then the discovered ones
    std::size_t current_ = 0;             // index of the address that was connected to last
    platform::atomic<bool> dialling_{false};
    platform::atomic<std::uint64_t> wires_{0}, reconnects_{0};
};

// These throw errc::refused.
void check_subject(const char* what, const std::string& subject);
nats::message make_message(
    const std::string& subject, const std::string& reply, std::string_view data, const headers& h);
bool is_header_name(std::string_view name) noexcept;
// What the server compares with its max_payload: the data and the encoded headers.
std::size_t payload_size(std::string_view data, const headers& h) noexcept;
// The time that a context leaves, in ns; `otherwise` if it has no deadline.
std::int64_t limit_of(const context& ctx, std::int64_t otherwise);
// Rule: a call that must wait for a server sends nothing if its context is done before it begins.
void check_not_done(const context& ctx, const char* what);
// A copy of the text that natsConnection_GetLastError() names. Another thread may write it anew meanwhile, in libnats
// or by such a call: then it is half another one, and ends within its buffer, whose last byte is always zero.
std::string words_of_connection(const char* words);

}  // namespace dunlin::nats::detail
