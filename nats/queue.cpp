// queue.cpp - makes streams and their consumers; sends jobs.
#include <algorithm>
#include <new>

#include <dunlin/nats/queue.hpp>
#include <dunlin/timer.hpp>
#include <dunlin/weighted_semaphore.hpp>

#include "connection.h"
#include "puller.h"
#include "text.h"

namespace dunlin::inline v0_1::nats::detail {

namespace {

// The failure in a stream's answer to a message, if there is one. If there is no memory to read it, it confirms
// nothing.
failure failure_of_confirmation(message_and_failure&& f) noexcept {
    if (f.fault) return std::move(f.fault);
    try {
        return failure_of_answer(f.answer.data());
    } catch (const std::bad_alloc&) {
        return {errc::not_confirmed, {}};
    }
}

void check_name(const std::string& name) {
    const bool good =
        !name.empty() &&
        name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == name.npos;
    if (!good) throw error(errc::refused, "queue", name, "a name is made of letters, digits, - and _");
}

struct setting {
    const char* key;
    std::string value;  // JSON
};

std::string json_of(const std::vector<setting>& all) {
    std::string json = "{";
    for (const setting& s : all) json += (json.size() > 1 ? ",\"" : "\"") + std::string(s.key) + "\":" + s.value;
    return json + "}";
}

// Makes the stream or consumer if it does not exist; if it exists, it must have all `wanted` settings.
void make_or_compare(connection& c, const std::string& name, const std::string& info, const std::string& create,
    const std::string& body, const std::vector<setting>& wanted, const context& ctx) {
    failure f;
    std::string answer = c.api(info, "", ctx, &f);
    if (f.is(errc::stream_missing)) {
        answer = c.api(create, body, ctx, &f);
        // While a cluster starts, some of its servers do not know each other yet.
        while (f.is(errc::too_few_servers) && f.words.find("peers") != f.words.npos &&
               limit_of(ctx, 0) > 300 * millisecond) {
            sleep_for(std::chrono::milliseconds(200), ctx);
            answer = c.api(create, body, ctx, &f);
        }
        if (f.is(errc::other_settings)) answer = c.api(info, "", ctx, &f);  // another process was first
    }
    f.check("queue", name);
    std::string differences;
    for (const setting& s : wanted) {
        const std::string have = json_text(answer, {"config", s.key}).value_or("0");
        const std::string want = s.value.starts_with('"') ? s.value.substr(1, s.value.size() - 2) : s.value;
        if (have != want)
            differences += (differences.empty() ? "" : ", ") + std::string(s.key) + " is " + have + ", not " + want;
    }
    if (!differences.empty()) throw error(errc::other_settings, "queue", name, differences);
}

void make_stream(connection& c, const std::string& name, const queue_options& o, const context& ctx) {
    const std::vector<setting> wanted = {
        {"retention", "\"workqueue\""},
        {"storage", o.in_memory ? "\"memory\"" : "\"file\""},
        {"num_replicas", std::to_string(o.replicas)},
        {"max_msgs", std::to_string(o.max_messages)},
        {"max_bytes", std::to_string(o.max_bytes)},
        {"duplicate_window", std::to_string(ns_of(o.remember))},
    };
    std::vector<setting> all = wanted;
    all.push_back({"name", json_quoted(name)});
    all.push_back({"subjects", "[" + json_quoted(name) + "]"});
    all.push_back({"discard", "\"new\""});  // a full stream refuses jobs; it never drops one
    all.push_back({"max_consumers", "-1"});
    make_or_compare(c, name, "STREAM.INFO." + name, "STREAM.CREATE." + name, json_of(all), wanted, ctx);
}

}  // namespace

std::string consumer_body(const std::string& stream, std::int64_t ack_wait_ns) {
    return "{\"stream_name\":" + json_quoted(stream) + ",\"config\":{\"durable_name\":\"" + std::string(consumer_name) +
           "\",\"ack_policy\":\"explicit\",\"deliver_policy\":\"all\",\"replay_policy\":\"instant\",\"max_deliver\":-1,\"max_ack_pending\":100000,"
           "\"max_waiting\":8192,\"ack_wait\":" +
           std::to_string(ack_wait_ns) + "}}";
}

namespace {

void make_consumer(connection& c, const std::string& name, const queue_options& o, const context& ctx) {
    const std::int64_t wait = ns_of(o.ack_wait);
    const std::string durable(consumer_name);
    make_or_compare(c, name, "CONSUMER.INFO." + name + "." + durable, "CONSUMER.DURABLE.CREATE." + name + "." + durable,
        consumer_body(name, wait), {{"ack_wait", std::to_string(wait)}}, ctx);
}

// The id, and the trace of the sender; a job that is sent again has one already.
headers with_id(std::string id, const headers& h, const context& ctx) {
    headers all;
    all.reserve(h.size() + 2);
    all.insert(all.end(), h.begin(), h.end());
    all.emplace_back("Nats-Msg-Id", std::move(id));
    const std::string* trace = ctx.value(trace_id);
    const auto is_trace = [](const auto& one) { return one.first == "Dunlin-Trace"; };
    if (trace != nullptr && std::none_of(h.begin(), h.end(), is_trace)) all.emplace_back("Dunlin-Trace", *trace);
    return all;
}

}  // namespace

// Keeps the jobs of send_async(): each job that is not confirmed yet has a permit, which finished() gives back. Failed
// jobs wait for flush(). A job's id is only in its headers, and the outstanding jobs are linked through the items
// themselves: each block that one thread allocates and another one frees costs more than everything else here.
class outbox : public std::enable_shared_from_this<outbox> {
public:
    outbox(std::shared_ptr<connection> c, std::size_t window)
        : connection_(std::move(c)),
          window_(static_cast<std::ptrdiff_t>(std::max<std::size_t>(window, 1))),
          room_(window_) {}

    void send(const std::string& stream, std::string_view data, const headers& h, const context& ctx) {
        check_not_done(ctx, "send_async");
        // Whatever fails from the permit on gives it back.
        const auto c = std::make_shared<item>();
        c->owner = shared_from_this();
        c->jetstream = c->again = true;
        room_.acquire(ctx);
        const std::int64_t limit = limit_of(ctx, ns_of(connection_->options().confirm));
        undisturbed([&] { begin(c, stream, data, h, limit); });
    }

    std::vector<unconfirmed> flush(const context& ctx) {
        std::vector<std::shared_ptr<item>> given_up;
        try {
            room_.acquire(window_, ctx);
            room_.release(window_);
        } catch (const context_cancelled&) {
            locked(mutex_, [&] {
                for (item* i = first_; i != nullptr; i = i->next) {
                    if (auto c = i->weak_from_this().lock()) given_up.push_back(std::move(c));
                }
            });
        }
        for (const auto& c : given_up) {
            failure why{errc::not_confirmed, "given up by flush()"};
            connection_->abandon(*c);
            c->finished({{}, std::move(why)});
        }
        report_the_rest();
        return locked(mutex_, [&] { return std::exchange(failed_, {}); });
    }

private:
    struct item final : call, std::enable_shared_from_this<item> {
        void finished(message_and_failure&& f) noexcept override {
            owner->finished(*this, failure_of_confirmation(std::move(f)));
        }
        std::shared_ptr<outbox> owner;
        // under the outbox' lock
        item *next = nullptr, *before = nullptr;
        bool outstanding = false;
        failure why;
        std::shared_ptr<item> unreported;  // the next one
    };

    // In undisturbed().
    void begin(const std::shared_ptr<item>& c, const std::string& stream, std::string_view data, const headers& h,
        std::int64_t limit) {
        {
            std::lock_guard guard(mutex_);
            c->outstanding = true;
            c->next = first_;
            if (first_ != nullptr) first_->before = c.get();
            first_ = c.get();
        }
        try {
            connection_->start(c, stream, data, h, limit);
        } catch (...) {
            give_back(locked(mutex_, [&] { return taken_out(*c); }));
            throw;
        }
    }

    void finished(item& c, failure&& f) noexcept {
        give_back(locked(mutex_, [&]() -> std::ptrdiff_t {
            if (!c.outstanding) return 0;  // flush() and an answer have both finished it
            if (f) {
                c.why = std::move(f);
                try {
                    failed_.push_back(report_of(c));
                } catch (const std::bad_alloc&) {
                    c.unreported = std::exchange(unreported_, c.shared_from_this());
                }
            }
            return taken_out(c);
        }));
    }

    static unconfirmed report_of(const item& c) {
        return {c.request.header("Nats-Msg-Id").value_or(""), make_error_code(static_cast<errc>(c.why.code)),
            c.why.words, std::string(c.request.data())};
    }

    // Those for whose report there was no memory. If there is none now, the rest stays for the next call.
    void report_the_rest() {
        for (;;) {
            std::shared_ptr<item> one;  // released without the lock
            locked(mutex_, [&] {
                if (!unreported_) return;
                failed_.push_back(report_of(*unreported_));
                one = std::move(unreported_);
                unreported_ = std::move(one->unreported);
            });
            if (!one) return;
        }
    }

    // Returns how many permits to give back. They are collected, so that a sender that waits for room is not woken for
    // each one; all are given back when nothing is outstanding, because flush() waits for that.
    std::ptrdiff_t taken_out(item& c) noexcept {
        c.outstanding = false;
        (c.before != nullptr ? c.before->next : first_) = c.next;
        if (c.next != nullptr) c.next->before = c.before;
        ++kept_;
        return kept_ >= window_ / 8 || first_ == nullptr ? std::exchange(kept_, 0) : 0;
    }
    void give_back(std::ptrdiff_t n) noexcept {
        if (n > 0) room_.release(n);
    }

    const std::shared_ptr<connection> connection_;
    const std::ptrdiff_t window_;
    weighted_semaphore room_;
    std::mutex mutex_;
    item* first_ = nullptr;
    std::ptrdiff_t kept_ = 0;
    std::vector<unconfirmed> failed_;
    std::shared_ptr<item> unreported_;  // a list; it owns this object until flush()
};

struct queue_state {
    std::shared_ptr<connection> link;
    std::string name;
    queue_options options;
    std::shared_ptr<outbox> out;
};

raw_queue::raw_queue(
    std::shared_ptr<connection> c, const std::string& name, const queue_options& o, const context& ctx) {
    check_name(name);
    if (o.replicas < 1 || o.ack_wait.count() < 1 || o.max_deliveries < 0 || o.remember.count() < 1) {
        throw error(errc::refused, "queue", name,
            "replicas, ack_wait and remember are positive, max_deliveries is not negative");
    }
    make_stream(*c, name, o, ctx);
    make_consumer(*c, name, o, ctx);
    auto out = std::make_shared<outbox>(c, o.window);
    state_ = std::make_shared<queue_state>(queue_state{std::move(c), name, o, std::move(out)});
}

const std::string& raw_queue::name() const noexcept { return state_->name; }

void raw_queue::send(std::string_view data, const std::string& id, const headers& h, const context& ctx) const {
    send_confirmed(*state_->link, "send", state_->name, data, with_id(id.empty() ? unique_name() : id, h, ctx), ctx);
}

std::uint64_t send_confirmed(connection& c, const char* what, const std::string& subject, std::string_view data,
    const headers& h, const context& ctx) {
    const std::int64_t until = later(now_ns(), limit_of(ctx, ns_of(c.options().confirm)));
    for (;;) {
        const nats::message answer = c.ask(what, subject, data, h, ctx, true, true);
        const failure f = failure_of_answer(answer.data());
        if (f.is(errc::no_majority) && now_ns() + 200 * millisecond < until) {
            sleep_for(std::chrono::milliseconds(200), ctx);
            continue;
        }
        f.check(what, subject);
        return static_cast<std::uint64_t>(json_number(answer.data(), {"seq"}).value_or(0));
    }
}

void raw_queue::send_async(std::string_view data, const std::string& id, const headers& h, const context& ctx) const {
    state_->out->send(state_->name, data, with_id(id.empty() ? unique_name() : id, h, ctx), ctx);
}

std::vector<unconfirmed> raw_queue::flush(const context& ctx) const { return state_->out->flush(ctx); }

std::shared_ptr<puller> raw_queue::consume(const consume_options& o) const {
    auto p = std::make_shared<puller>(state_->link, state_->name, state_->options, o);
    p->begin();
    return p;
}

queue_size raw_queue::size(const context& ctx) const {
    const std::string stream = state_->link->api("STREAM.INFO." + state_->name, "", ctx);
    const std::string consumer =
        state_->link->api("CONSUMER.INFO." + state_->name + "." + std::string(consumer_name), "", ctx);
    const auto number = [](const std::string& json, std::initializer_list<std::string_view> path) {
        return static_cast<std::uint64_t>(json_number(json, path).value_or(0));
    };
    return {number(stream, {"state", "messages"}), number(consumer, {"num_pending"}),
        number(consumer, {"num_ack_pending"})};
}

std::string dead_name(const std::string& queue) { return queue + "-dead"; }

void make_dead(connection& c, const std::string& queue, const queue_options& o, const context& ctx) {
    queue_options of_dead = o;
    of_dead.max_messages = of_dead.max_bytes = -1;
    make_stream(c, dead_name(queue), of_dead, ctx);
}

raw_queue raw_queue::dead(const context& ctx) const {
    queue_options o = state_->options;
    o.max_messages = o.max_bytes = -1;
    o.max_deliveries = 0;
    return raw_queue(state_->link, dead_name(state_->name), o, ctx);
}

}  // namespace dunlin::nats::detail
