// puller.h - takes jobs from a queue's consumer.
//
// Data      taken_       jobs that have come and not ended yet: in `ready_`, or with their holders.
//           requested_   the number of jobs that the pull under way may still bring; there is one pull at a time.
//           waiting_     the number of receivers that wait, and of cases of select that exist.
// Flow      A pull is sent when none is under way, a receiver waits, at most a quarter of in_flight is ready and taken_
//           < in_flight. It asks for in_flight - taken_ jobs, but for no more than half of in_flight at once, so that
//           the next pull overlaps with the work. When no receiver has waited for 100 ms, the pull is ended by draining
//           its inbox: otherwise it would bring jobs for which another process may have a receiver. Its answers are
//           statuses: 100 it is alive; 404, 408 and 409 it is over; 503 there is no server for it.
//           Rule: a message with a reply subject of JetStream's is a job, and every job that arrives is taken or handed
//           back, even if its pull was given up or the puller is gone. Only a lost job is left alone, because the
//           server would apply a word about it to its next delivery. Without a heartbeat for 2.5 s the pull counts as
//           lost (its server is gone) and another one is sent. Jobs beyond in_flight that then arrive are handed back.
//           stop() drains the subscription: its pull ends at the server, and jobs that were sent before still arrive.
//           cluster::close() waits for them: otherwise they would be left undone until ack_wait has passed.
// Prolong   The deadline of each held job is prolonged (+WPI, with an answer) each time a quarter of ack_wait has
//           passed. The server's time is counted from the moment when the last answered +WPI was sent: once ack_wait
//           has passed since then, the job is lost.
#pragma once

#include <deque>
#include <optional>
#include <unordered_set>

#include <dunlin/nats/queue.hpp>

#include "connection.h"
#include "text.h"

namespace dunlin::inline v0_1::nats::detail {

constexpr std::string_view consumer_name = "workers";

std::string consumer_body(const std::string& stream, std::int64_t ack_wait_ns);
std::uint64_t send_confirmed(connection& c, const char* what, const std::string& subject, std::string_view data,
    const headers& h, const context& ctx);
std::string dead_name(const std::string& queue);
void make_dead(connection& c, const std::string& queue, const queue_options& o, const context& ctx);

struct held {
    nats::message job;
    ack_subject about;
    std::shared_ptr<puller> from;
    std::string reply;
    platform::atomic<bool> lost{false};
    platform::atomic<bool> ambiguous{false};   // done() was begun: the server may have it as done
    platform::atomic<std::int64_t> prolonged_ns{0};  // when the last answered +WPI was sent, or the job arrived
    platform::atomic<std::int64_t> asked_ns{0};      // when the last +WPI was sent
    std::optional<cancellable> ctx;             // under the puller's lock
};

class puller final : public member, public std::enable_shared_from_this<puller> {
public:
    puller(std::shared_ptr<connection> c, std::string queue, const queue_options& q, consume_options o);
    ~puller() override;
    void begin();

    void want(int receivers) noexcept;
    void stop(failure why) noexcept;
    failure why() const {
        return locked(mutex_, [&] { return ended_; });
    }
    static delivery_base deliver(std::shared_ptr<held> h) noexcept { return delivery_base(std::move(h)); }
    void settled(const std::shared_ptr<held>& h) noexcept;  // the delivery has ended, in whatever way
    void hand_back(held& h, std::chrono::nanoseconds delay) noexcept;
    context context_of(held& h);
    void to_dead_letters(held& h, const std::string& reason, const context& ctx);

    void tick(std::int64_t now) override;
    void came_back() override;
    void ended(const failure& f) override;
    void leave() override { stop({}); }
    void wait_left() override;

    connection& link() noexcept { return *link_; }
    const std::string& queue() const noexcept { return queue_; }
    const queue_options& settings() const noexcept { return settings_; }
    const consume_options& options() const noexcept { return options_; }
    const chan<std::shared_ptr<held>>& ready() const noexcept { return ready_; }

private:
    struct intake;
    struct prolongation;
    struct inspection;
    void arrived(nats::message m, const intake& at);
    void status(int code, const std::string& words);
    void pull() noexcept;
    std::string listen();
    void end_pull() noexcept;
    void inspect();
    void inspected(const message_and_failure& f) noexcept;
    void make_again();
    void prolong(const std::shared_ptr<held>& h, std::int64_t now);
    void lose(const std::shared_ptr<held>& h) noexcept;

    const std::shared_ptr<connection> link_;
    const std::string queue_;
    const queue_options settings_;
    const consume_options options_;
    const chan<std::shared_ptr<held>> ready_;
    mutable std::mutex mutex_;
    std::shared_ptr<interest> subscription_;  // to the inbox; none: the next pull makes one
    std::shared_ptr<intake> intake_;          // of the present inbox; statuses at earlier ones are ignored
    std::string inbox_;
    std::unordered_set<std::shared_ptr<held>> taken_;
    std::size_t requested_ = 0;
    int waiting_ = 0;
    std::int64_t heard_ns_ = 0, not_before_ns_ = 0, waited_ns_ = 0;
    bool inspecting_ = false, closed_ = false, dead_made_ = false;
    failure ended_;
};

}  // namespace dunlin::nats::detail
