// connection.h - a connection to a cluster, through all the servers that come and go, and the questions asked over it.
//
// Data      wire                 libnats' own connection to one server, driven by a thread of ours (loop.h) in place of
//                                its reading and flushing threads. When it breaks another one is made (reconnect.cpp);
//                                between them there is none.
//           interests            what is subscribed to, anew on each wire (interest.h).
//           kept                 what was published while there was no wire, in order.
//           calls                questions that wait for an answer, by the number at the end of their reply subject:
//                                <inbox>.<number>. One interest, <inbox>.*, has all answers.
//           members              what is looked at every 50 ms (consumers), and told when there is a wire again.
// Protocol  start() records the call, then sends it. answer() (libnats' delivery thread), tick() (our thread) and
//           abandon() (its owner) take it out of the table under the lock; the one that has taken it out calls
//           finished(), and no other does. So it is called once.
//           "No responders" from a stream is an election or a stream that is not there: STREAM.INFO tells which.
//           A call that may be sent twice is sent again when there was no answer for `attempt`, or there is a wire
//           again; what may not be is sent once.
// Wires     A new wire is shown to senders (`wire_`) once all interests are subscribed on it and all that was kept is
//           sent: both are looked for under line_lock_, in the step that shows it. So no interest is forgotten, and
//           what one thread publishes stays in order.
//           libnats calls on_closed() once for each wire, perhaps before it is shown: `last_closed_` tells.
// Locks     mutex_ (calls, members) and line_lock_ (wire, interests, kept) are held in undisturbed() and on our
//           threads, never one within the other, never around a call into libnats, and never while something is woken.
//           Within line_lock_ an interest's own lock is taken (at()), and none within that.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
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
#include "loop.h"
#include "undisturbed.h"

namespace dunlin::inline v0_1::nats::detail {

// CLOCK_BOOTTIME: goes on while the machine sleeps, as the servers' clocks do, and does not jump.
std::int64_t now_ns() noexcept;

constexpr std::int64_t millisecond = 1'000'000;
constexpr std::int64_t tick_ns = 50 * millisecond;
// So many calls that have no answer yet, and a further one is in no hurry: written together they cost less than the
// tenth of a millisecond that each of them waits longer.
constexpr std::size_t crowd = 8;

struct message_and_failure {
    nats::message answer;
    failure fault;
};

class call {
public:
    virtual ~call() = default;
    // Once, without locks, on any thread. May not park.
    virtual void finished(message_and_failure&& f) noexcept = 0;

    nats::message request;           // set by start()
    std::string subject;
    std::uint64_t number = 0;        // 0: not started
    std::int64_t deadline_ns = 0, attempt_ns = 0;
    platform::atomic<std::int64_t> sent_ns{0};
    bool again = false;              // may be sent twice
    bool jetstream = false;          // "no responders" and "no leader" pass: elections
    platform::atomic<bool> sent{false};  // since the connection came
    bool hurried = false;            // written to the socket at once
    failure last;                    // why it was not answered yet; under the connection's lock
};

class member {
public:
    virtual ~member() = default;
    virtual void tick(std::int64_t now) = 0;
    virtual void came_back() = 0;
    virtual void ended(const failure& f) = 0;  // the connection is closed for good
    // Before it is closed here: take no more, and then wait until what the server has sent already is here.
    virtual void leave() {}
    virtual void wait_left() {}
};

// libnats' connection to one server.
class wire {
public:
    wire(natsConnection* nc, std::uint64_t number, std::shared_ptr<event_loop> l) noexcept
        : nc_(nc), number_(number), loop_(std::move(l)) {}
    ~wire();
    wire(const wire&) = delete;
    wire& operator=(const wire&) = delete;

    natsConnection* native() const noexcept { return nc_; }
    std::uint64_t number() const noexcept { return number_; }

private:
    natsConnection* const nc_;
    const std::uint64_t number_;  // from 1, in the order in which they are made
    const std::shared_ptr<event_loop> loop_;  // lives until libnats has detached from it
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
    // The server's address; empty without one.
    std::string server() const;
    std::int64_t max_payload() const noexcept { return max_payload_.load(std::memory_order_relaxed); }

    // With the deadline `limit_ns` from now. Fails at once (finished() is called before it returns) if the connection
    // is closed.
    void start(const std::shared_ptr<call>& c, const std::string& subject, std::string_view data, const headers& h,
        std::int64_t limit_ns);
    void abandon(call& c) noexcept;
    // Waits for the answer.
    nats::message ask(const char* what, const std::string& subject, std::string_view data, const headers& h,
        const context& ctx, bool jetstream, bool again);
    // JetStream's interface; its answer if that is no error.
    std::string api(const std::string& what, std::string_view json, const context& ctx, failure* fault = nullptr);

    // Without an answer. Kept until there is a wire, if there is none.
    failure publish(
        const std::string& subject, const std::string& reply, std::string_view data, const headers& h, bool hurried);

    // Messages go to `to` until it is unsubscribed; `to` lives as long as one may come. Rule: where a message that is
    // lost costs something (a job, a request) the interest is drained, not dropped.
    std::shared_ptr<interest> subscribe(const std::string& subject, const std::string& group, std::shared_ptr<sink> to);
    void unsubscribe(const std::shared_ptr<interest>& i) noexcept;
    void drain(const std::shared_ptr<interest>& i) noexcept;
    // Returns when the server has acted upon all that was sent before.
    void round_trip(const char* what, const context& ctx);

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
    struct told;  // what libnats' callbacks know of a wire
    static void on_closed(natsConnection* nc, void* closure);
    static void on_error(natsConnection*, natsSubscription*, natsStatus s, void* closure);
    attempt dial_one(const std::vector<std::string>& urls, std::uint64_t& number);
    attempt dial_first(const std::vector<std::string>& urls, std::uint64_t& number, const context& ctx);
    void closed_by_libnats(natsConnection* nc, std::uint64_t number);
    // False: it is closed already.
    bool show(const std::shared_ptr<wire>& w);
    // If there is no wire, and none is being made: on a thread of its own.
    void reconnect() noexcept;
    void redial();
    std::shared_ptr<wire> line() const;
    failure put(natsMsg* m, bool hurried, std::shared_ptr<wire>& on) noexcept;
    static std::size_t size_kept(const nats::message& m) noexcept { return m.data().size() + 64; }
    static bool put_kept(std::deque<nats::message>& kept, const wire& w);
    bool keep(nats::message& m, const std::shared_ptr<wire>& seen, failure& f);
    void forget(const std::shared_ptr<interest>& i) noexcept;

    connect_options options_;
    std::string unique_;
    std::string answers_to_;  // "<inbox>."
    std::shared_ptr<event_loop> loop_;
    platform::atomic<std::int64_t> max_payload_{0};
    platform::atomic<unsigned> inboxes_{0};
    platform::atomic<std::uint64_t> next_number_{1};

    mutable std::mutex mutex_;
    std::pmr::unsynchronized_pool_resource table_memory_;  // one thread adds to the table, another one takes out
    std::pmr::unordered_map<std::uint64_t, std::shared_ptr<call>> calls_{&table_memory_};
    // streams from which "no responders" came, and whose existence is asked for
    std::unordered_set<std::string> looked_for_;
    std::vector<std::weak_ptr<member>> members_;
    failure closed_;
    std::int64_t down_since_ = 0;  // 0: connected
    std::int64_t asked_ns_ = 0;    // whether the server lives; of the loop's thread
    std::string last_error_;

    mutable std::mutex line_lock_;
    std::shared_ptr<wire> wire_;
    bool shut_ = false;                  // no wire any more
    std::uint64_t last_closed_ = 0;      // the number of the wire that was closed last
    statistics of_closed_{};             // counts of the wires before
    std::unordered_set<std::shared_ptr<interest>> interests_;
    std::deque<nats::message> kept_;
    std::size_t kept_bytes_ = 0;
    std::vector<std::string> addresses_;  // given, then discovered
    std::size_t current_ = 0;             // the one of them that was connected to last
    platform::atomic<bool> dialling_{false};
    platform::atomic<std::uint64_t> wires_{0}, reconnects_{0};
};

// Throws errc::refused.
void check_subject(const char* what, const std::string& subject);
nats::message make_message(
    const std::string& subject, const std::string& reply, std::string_view data, const headers& h);
// What a context leaves, `otherwise` if it has no deadline.
std::int64_t limit_of(const context& ctx, std::int64_t otherwise);
// Rule: a call that must wait for a server sends nothing when its context is done before it begins.
void check_not_done(const context& ctx, const char* what);

}  // namespace dunlin::nats::detail
