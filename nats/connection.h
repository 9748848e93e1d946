// connection.h - one connection, and the questions asked over it.
//
// Data      natsConnection       libnats' own, driven by a thread of ours (`drive`, loop.h) in place of its reading and
//                                flushing threads.
//           calls                questions that wait for an answer, by the number at the end of their reply subject:
//                                <inbox>.<number>. One subscription, <inbox>.*, has all answers.
//           members              what is looked at every 50 ms (consumers), and told when the connection comes and
//                                goes.
// Protocol  start() records the call, then sends it. answer() (libnats' delivery thread), tick() (our thread) and
//           abandon() (its owner) take it out of the table under the lock; the one that has taken it out calls
//           finished(), and no other does. So it is called once.
//           "No responders" from a stream is an election or a stream that is not there: STREAM.INFO tells which.
//           A call that may be sent twice is sent again when there was no answer for `attempt`, or the connection came
//           back; what may not be is sent once.
// Locks     mutex_ is held in undisturbed() and on our threads, never around a call into libnats, and never while
//           something is woken.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
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

#include "failure.h"
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

// Takes what a subscription of libnats' gets. On its delivery thread: may not wait.
class sink {
public:
    virtual ~sink() = default;
    virtual void arrived(nats::message m) = 0;
    virtual void over() {}  // nothing more arrives

private:
    friend class connection;
    // Of drain() and libnats' last word, the one that comes second releases the subscription.
    platform::atomic<int> ends_{0};
    natsSubscription* drained_ = nullptr;
    std::shared_ptr<event_loop> graves_;
};

class connection : public std::enable_shared_from_this<connection> {
public:
    static std::shared_ptr<connection> open(const std::string& addresses, const connect_options& o);
    explicit connection(connect_options o);
    ~connection();
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;

    const connect_options& options() const noexcept { return options_; }
    natsConnection* native() const noexcept { return nc_; }
    bool up() const noexcept { return loop_->up(); }

    // With the deadline `limit_ns` from now. Fails at once (finished() is called before it returns) if the connection
    // is closed.
    void start(const std::shared_ptr<call>& c, const std::string& subject, std::string_view data, const headers& h, std::int64_t limit_ns);
    void abandon(call& c) noexcept;
    // Waits for the answer.
    nats::message ask(const char* what, const std::string& subject, std::string_view data, const headers& h, const context& ctx, bool jetstream, bool again);
    // JetStream's interface; its answer if that is no error.
    std::string api(const std::string& what, std::string_view json, const context& ctx, failure* fault = nullptr);

    // Without an answer.
    failure publish(const std::string& subject, const std::string& reply, std::string_view data, const headers& h, bool hurried);

    // Messages go to `to` until the subscription is ended by unsubscribe(); `to` lives as long as one may come.
    natsSubscription* subscribe(const std::string& subject, const std::string& group, std::shared_ptr<sink> to);
    void unsubscribe(natsSubscription* s) noexcept;
    // Ends it too, but what the server has sent until it knows still arrives; over() is called then. Rule: where a
    // message that is lost costs something (a job, a request) its subscription is drained, not dropped. `to` is what it
    // was made with.
    void drain(natsSubscription* s, const std::shared_ptr<sink>& to) noexcept;
    // Returns when the server has acted upon all that was sent before.
    void round_trip(const char* what, const context& ctx);
    // Takes over a subscription's closing, made by libnats with take() and a `new std::shared_ptr<sink>` as closure.
    static void take(natsConnection*, natsSubscription*, natsMsg* m, void* closure);
    static void drop(void* closure);

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
    static void on_disconnected(natsConnection*, void* closure);
    static void on_reconnected(natsConnection*, void* closure);
    static void on_closed(natsConnection*, void* closure);
    static void on_error(natsConnection*, natsSubscription*, natsStatus s, void* closure);

    connect_options options_;
    std::string unique_;
    std::shared_ptr<event_loop> loop_;
    natsConnection* nc_ = nullptr;
    natsSubscription* answers_ = nullptr;
    platform::atomic<unsigned> inboxes_{0};
    platform::atomic<std::uint64_t> next_number_{1};

    mutable std::mutex mutex_;
    std::unordered_map<std::uint64_t, std::shared_ptr<call>> calls_;
    std::unordered_set<std::string> looked_for_;  // streams from which "no responders" came, and whose existence is asked for
    std::vector<std::weak_ptr<member>> members_;
    failure closed_;
    std::int64_t down_since_ = 0;  // 0: connected
    std::int64_t asked_ns_ = 0;    // whether the server lives; of the loop's thread
    std::string last_error_;
};

nats::message make_message(const std::string& subject, const std::string& reply, std::string_view data, const headers& h);
// What a context leaves, `otherwise` if it has no deadline.
std::int64_t limit_of(const context& ctx, std::int64_t otherwise);
// Rule: a call that must wait for a server sends nothing when its context is done before it begins.
void check_not_done(const context& ctx, const char* what);

}  // namespace dunlin::nats::detail
