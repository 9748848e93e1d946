// connection.cpp - opening, closing, publishing, subscribing. Questions: calls.cpp; wires: reconnect.cpp.
#include "connection.h"

#include <algorithm>
#include <ctime>

#include <dunlin/nats/subscription.hpp>
#include <dunlin/timer.hpp>

#include "text.h"

namespace dunlin::inline v0_1::nats {

const context_key<std::string> trace_id;

namespace detail {

std::int64_t now_ns() noexcept {
    timespec t{};
    clock_gettime(CLOCK_BOOTTIME, &t);
    return t.tv_sec * std::int64_t{1'000'000'000} + t.tv_nsec;
}

// Answers to calls.
struct connection::answers final : sink {
    explicit answers(std::weak_ptr<connection> c) : owner(std::move(c)) {}
    void arrived(nats::message m) override {
        if (const auto c = owner.lock()) c->answer(std::move(m));
    }
    std::weak_ptr<connection> owner;
};

connection::connection(connect_options o)
    : options_(std::move(o)),
      unique_(unique_name()),
      answers_to_(inbox() + '.'),
      loop_(std::make_shared<event_loop>()) {}

std::shared_ptr<connection> connection::open(
    const std::string& addresses, const connect_options& o, const context& ctx) {
    check_not_done(ctx, "connect");
    const std::vector<std::string> urls = split_addresses(addresses);
    if (urls.empty()) throw error(errc::no_server, "connect", addresses, "no address is given");
    const auto c = std::make_shared<connection>(o);
    c->addresses_ = urls;
    const std::int64_t began = now_ns();
    c->dialling_.store(true);  // what is given up here is not dialled again
    wire_or_failure first = c->dial_first(urls, ctx);
    if (failure& fault = first.fault) {
        const auto took = (now_ns() - began) / millisecond;
        if (fault.is(errc::no_server) || fault.is(errc::not_confirmed) || fault.is(errc::connection_lost)) {
            fault = {errc::no_server, said_by_each(urls, o.timeout, ctx) + "; " + fault.words + "; tried for " +
                                          std::to_string(took) + " ms"};
        }
        check_not_done(ctx, "connect");
        fault.raise("connect", printable(urls));
    }
    c->interests_.insert(std::make_shared<interest>(c->inbox() + ".*", "", std::make_shared<answers>(c)));
    undisturbed([&] {
        c->loop_->start(c);
        // if the wire is closed already, tick() makes the next one
        c->show(first.made);
    });
    c->dialling_.store(false);
    return c;
}

connection::~connection() { close({errc::closed, ""}); }

void connection::leave() {
    const auto all = members();
    for (const auto& m : all) m->leave();
    for (const auto& m : all) {
        if (up() && !closed()) m->wait_left();
    }
}

void connection::close(const failure& why) {
    std::vector<std::shared_ptr<call>> calls;
    const bool first = locked(mutex_, [&] {
        if (closed_) return false;
        closed_ = why;
        for (auto& [number, c] : calls_) calls.push_back(std::move(c));
        calls_.clear();
        return true;
    });
    if (!first) return;
    for (const auto& c : calls) c->finished({{}, why});
    for (const auto& m : members()) m->ended(why);
    if (const auto last = line()) {
        // write what was published before, and what ended() has handed back
        undisturbed([&] { event_loop::hurry now(*loop_); });
        undisturbed([&] { natsConnection_Close(last->native()); });
    }
    undisturbed([&] { loop_->stop(); });
    std::shared_ptr<wire> last;
    std::unordered_set<std::shared_ptr<interest>> interests;
    locked(line_lock_, [&] {
        shut_ = true;
        last.swap(wire_);
        interests.swap(interests_);
        dropped.fetch_add(kept_.size());
        kept_.clear();
    });
    undisturbed([&] { last.reset(); });
    for (const auto& i : interests) unsubscribe(i);
}

failure connection::closed() const {
    return locked(mutex_, [&] { return closed_; });
}

void connection::join(const std::shared_ptr<member>& m) {
    const failure over = locked(mutex_, [&] {
        if (!closed_) {
            std::erase_if(members_, [](const auto& w) { return w.expired(); });
            members_.push_back(m);
        }
        return closed_;
    });
    if (over) m->ended(over);
}

std::vector<std::shared_ptr<member>> connection::members() {
    return locked(mutex_, [&] {
        std::vector<std::shared_ptr<member>> all;
        for (const auto& w : members_) {
            if (auto m = w.lock()) all.push_back(std::move(m));
        }
        return all;
    });
}

// ---- what is sent without an answer ---------------------------------------------------------------------------------

std::shared_ptr<wire> connection::line() const {
    return locked(line_lock_, [&] { return wire_; });
}

namespace {

failure publish_on(const wire& w, natsMsg* m) {
    const natsStatus s = natsConnection_PublishMsg(w.native(), m);
    return s == NATS_CONNECTION_CLOSED ? failure{errc::connection_lost, natsStatus_GetText(s)} : failure_of(s);
}

}  // namespace

// Fails with connection_lost if there is no wire, or `on` is closed.
failure connection::put(natsMsg* m, bool hurried, std::shared_ptr<wire>& on) noexcept {
    return undisturbed([&]() -> failure {
        {
            std::lock_guard guard(line_lock_);
            on = wire_;
        }
        if (!on) return {errc::connection_lost, ""};
        if (!hurried) return publish_on(*on, m);
        event_loop::hurry now(*loop_);
        return publish_on(*on, m);
    });
}

failure connection::publish(
    const std::string& subject, const std::string& reply, std::string_view data, const headers& h, bool hurried) {
    nats::message m = make_message(subject, reply, data, h);
    for (;;) {
        std::shared_ptr<wire> on;
        failure f = put(m.native_handle(), hurried, on);
        if (!f.is(errc::connection_lost)) return f;
        if (const failure over = closed()) return {errc::closed, over.words};
        if (keep(m, payload_size(data, h), on, f)) return f;
    }
}

// In undisturbed(), on a wire that is not shown yet. False: the wire is closed. What this server does not take (its
// max_payload may be smaller than the last one's) is counted: publish() has returned long ago.
bool connection::put_kept(std::deque<kept_message>& kept, const wire& w) {
    while (!kept.empty()) {
        const failure f = publish_on(w, kept.front().message.native_handle());
        if (f.is(errc::connection_lost)) break;
        if (f) dropped.fetch_add(1);
        kept.pop_front();
    }
    return kept.empty();
}

// False: the wire is no longer the one seen, or the connection is closed.
bool connection::keep(nats::message& m, std::size_t payload, const std::shared_ptr<wire>& seen, failure& f) {
    constexpr std::size_t most = 8 << 20;
    const std::size_t size = payload + 64;
    f = {};
    if (payload > static_cast<std::size_t>(max_payload())) {
        f = {errc::payload_too_large,
            std::to_string(payload) + " bytes with the headers; the server takes " + std::to_string(max_payload())};
        return true;
    }
    return locked(line_lock_, [&] {
        if (shut_ || (wire_ != seen && wire_ != nullptr)) return false;
        if (kept_bytes_ + size > most) {
            f = {errc::connection_lost, "8 MB wait already for a server to be connected to"};
        } else {
            kept_bytes_ += size;
            kept_.push_back({std::move(m), size});
        }
        return true;
    });
}

// ---- interests ------------------------------------------------------------------------------------------------------

std::shared_ptr<interest> connection::subscribe(
    const std::string& subject, const std::string& group, std::shared_ptr<sink> to) {
    check_subject("subscribe", subject);
    if (const failure over = closed()) failure(errc::closed, over.words).raise("subscribe", subject);
    const auto i = std::make_shared<interest>(subject, group, std::move(to));
    const std::shared_ptr<wire> w = locked(line_lock_, [&] {
        interests_.insert(i);
        return wire_;
    });
    if (!w) return i;
    const failure fault = undisturbed([&] {
        event_loop::hurry now(*loop_);
        return i->subscribe(w->native(), w->number(), loop_);
    });
    if (fault && !fault.is(errc::closed)) {  // closed: the wire is closed, and the next one will have the interest
        forget(i);
        fault.raise("subscribe", subject);
    }
    return i;
}

void connection::forget(const std::shared_ptr<interest>& i) noexcept {
    locked(line_lock_, [&] { interests_.erase(i); });
}

void connection::unsubscribe(const std::shared_ptr<interest>& i) noexcept {
    if (!i) return;
    forget(i);
    if (undisturbed([&] { return i->unsubscribe(); })) i->to().over();
}

void connection::drain(const std::shared_ptr<interest>& i) noexcept {
    if (!i) return;
    forget(i);
    if (undisturbed([&] { return i->drain(); })) i->to().over();
}

}  // namespace detail

// ---- the public face ------------------------------------------------------------------------------------------------

cluster connect(const std::string& addresses, const connect_options& o, const context& ctx) {
    return cluster(detail::connection::open(addresses, o, ctx));
}

void cluster::publish(const std::string& subject, std::string_view data, const headers& h) const {
    connection_->publish(subject, "", data, h, false).check("publish", subject);
}

message cluster::request(
    const std::string& subject, std::string_view data, const context& ctx, const headers& h) const {
    headers all = h;
    const std::int64_t limit = detail::limit_of(ctx, detail::ns_of(connection_->options().confirm));
    all.emplace_back("Dunlin-Timeout-Ms", std::to_string(std::max<std::int64_t>(limit / detail::millisecond, 0)));
    if (const std::string* trace = ctx.value(trace_id)) all.emplace_back("Dunlin-Trace", *trace);
    message answer = connection_->ask("request", subject, data, all, ctx, false, false);
    const auto words = answer.header("Dunlin-Error");
    if (words || answer.header("Dunlin-Failed")) {
        throw error(
            answer.header("Dunlin-Busy") ? errc::busy : errc::handler_failed, "request", subject, words.value_or(""));
    }
    return answer;
}

void cluster::flush(const context& ctx) const { connection_->round_trip("flush", ctx); }

statistics cluster::stats() const { return connection_->stats(); }
std::int64_t cluster::max_payload() const { return connection_->max_payload(); }
std::string cluster::server_address() const { return connection_->server(); }
std::string cluster::jetstream(const std::string& what, std::string_view json, const context& ctx) const {
    return connection_->api(what, json, ctx);
}
void cluster::erase_stream(const std::string& name, const context& ctx) const {
    connection_->api("STREAM.DELETE." + name, "", ctx);
}
void cluster::close() const {
    const auto mine = connection_;  // what it ends may have held the last owner of this handle
    mine->leave();
    mine->close({errc::closed, "cluster::close()"});
}

}  // namespace dunlin::nats
