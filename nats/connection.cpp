// connection.cpp - connecting, closing, and what libnats tells about the connection. The questions: calls.cpp.
#include "connection.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include <dunlin/nats/subscription.hpp>
#include <dunlin/net.hpp>
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

namespace {

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    for (std::size_t from = 0; from <= text.size();) {
        const std::size_t comma = std::min(text.find(',', from), text.size());
        std::string part = text.substr(from, comma - from);
        while (!part.empty() && part.front() == ' ') part.erase(0, 1);
        while (!part.empty() && part.back() == ' ') part.pop_back();
        if (!part.empty()) parts.push_back(std::move(part));
        from = comma + 1;
    }
    return parts;
}

// "nats://user:password@host:4222" without what must not be printed, and as an address to dial.
std::string printable(const std::string& url) {
    const std::size_t scheme = url.find("://");
    const std::size_t from = scheme == url.npos ? 0 : scheme + 3;
    const std::size_t at = url.rfind('@');
    return at == url.npos || at < from ? url : url.substr(0, from) + url.substr(at + 1);
}

std::string dialled(const std::string& url) {
    std::string host = printable(url);
    if (const std::size_t scheme = host.find("://"); scheme != host.npos) host.erase(0, scheme + 3);
    return host.find(':', host.rfind(']') == host.npos ? 0 : host.rfind(']')) == host.npos ? host + ":4222" : host;
}

// What an address says to a client that dials it: libnats tells one error for all of them.
std::string said(const std::string& url, std::chrono::milliseconds timeout) {
    std::error_code ec;
    const auto [ctx, cancel] = with_timeout(context::background(), timeout);
    auto s = net::dial("tcp", dialled(url), ctx, ec);
    if (ec) return printable(url) + ": " + ec.message();
    return printable(url) + ": accepts connections";
}

struct options_deleter {
    void operator()(natsOptions* o) const noexcept { natsOptions_Destroy(o); }
};

using options_pointer = std::unique_ptr<natsOptions, options_deleter>;

// Throws what libnats dislikes of them: a file that cannot be read, an address that is none.
options_pointer libnats_options(const std::vector<std::string>& urls, const connect_options& o) {
    natsOptions* raw = nullptr;
    failure_of(natsOptions_Create(&raw)).check("connect", "");
    options_pointer made(raw);
    const auto must = [](natsStatus s, const std::string& what) { failure_of(s).check("connect", what); };
    std::vector<const char*> list;
    for (const std::string& url : urls) list.push_back(url.c_str());
    must(natsOptions_SetServers(raw, list.data(), static_cast<int>(list.size())), urls.front());
    if (!o.name.empty()) must(natsOptions_SetName(raw, o.name.c_str()), o.name);
    if (!o.user.empty()) must(natsOptions_SetUserInfo(raw, o.user.c_str(), o.password.c_str()), o.user);
    if (!o.token.empty()) must(natsOptions_SetToken(raw, o.token.c_str()), "token");
    if (!o.credentials_file.empty()) must(natsOptions_SetUserCredentialsFromFiles(raw, o.credentials_file.c_str(), nullptr), o.credentials_file);
    if (o.tls) must(natsOptions_SetSecure(raw, true), "tls");
    if (!o.authorities.empty()) must(natsOptions_LoadCATrustedCertificates(raw, o.authorities.c_str()), o.authorities);
    if (!o.certificate.empty()) must(natsOptions_LoadCertificatesChain(raw, o.certificate.c_str(), o.key.c_str()), o.certificate);
    must(natsOptions_SetTimeout(raw, std::max<std::int64_t>(o.timeout.count(), 1)), "timeout");
    must(natsOptions_SetMaxReconnect(raw, -1), "reconnect");
    must(natsOptions_SetReconnectWait(raw, std::max<std::int64_t>(o.reconnect_wait.count(), 1)), "reconnect_wait");
    must(natsOptions_SetReconnectJitter(raw, o.reconnect_wait.count() / 2, o.reconnect_wait.count() / 2), "reconnect_wait");
    must(natsOptions_SetPingInterval(raw, std::max<std::int64_t>(o.ping.count(), 1)), "ping");
    must(natsOptions_SetMaxPingsOut(raw, 2), "ping");
    must(natsOptions_SetSendAsap(raw, true), "send");  // no flusher thread: loop.h writes
    must(natsOptions_UseGlobalMessageDelivery(raw, true), "delivery");
    return made;
}

}  // namespace

// Answers to calls.
struct connection::answers final : sink {
    explicit answers(std::weak_ptr<connection> c) : owner(std::move(c)) {}
    void arrived(nats::message m) override {
        if (const auto c = owner.lock()) c->answer(std::move(m));
    }
    std::weak_ptr<connection> owner;
};

connection::connection(connect_options o) : options_(std::move(o)), unique_(unique_name()), loop_(std::make_shared<event_loop>()) {}

std::shared_ptr<connection> connection::open(const std::string& addresses, const connect_options& o) {
    const std::vector<std::string> urls = split(addresses);
    if (urls.empty()) throw error(errc::no_server, "connect", addresses, "no address is given");
    const auto c = std::make_shared<connection>(o);
    auto closure = std::make_unique<std::weak_ptr<connection>>(c);
    const std::int64_t began = now_ns();
    failure fault;
    undisturbed([&] {
        try {
            const options_pointer options = libnats_options(urls, o);
            natsOptions_SetDisconnectedCB(options.get(), on_disconnected, closure.get());
            natsOptions_SetReconnectedCB(options.get(), on_reconnected, closure.get());
            natsOptions_SetClosedCB(options.get(), on_closed, closure.get());
            natsOptions_SetErrorHandler(options.get(), on_error, closure.get());
            const bool encrypted = o.tls || std::any_of(urls.begin(), urls.end(), [](const std::string& url) { return url.starts_with("tls://"); });
            c->loop_->configure(options.get(), encrypted);
            fault = failure_of(natsConnection_Connect(&c->nc_, options.get()));
        } catch (const error& e) {
            fault = {static_cast<errc>(e.code().value()), e.subject() + ": " + e.words()};
        }
    });
    if (fault) {
        const auto took = (now_ns() - began) / millisecond;
        if (fault.is(errc::no_server) || fault.is(errc::not_confirmed) || fault.is(errc::connection_lost)) {
            std::string all;
            for (const std::string& url : urls) all += (all.empty() ? "" : "; ") + said(url, o.timeout);
            fault = {errc::no_server, all + "; " + fault.words + "; tried for " + std::to_string(took) + " ms"};
        }
        std::string printed;
        for (const std::string& url : urls) printed += (printed.empty() ? "" : ",") + printable(url);
        fault.raise("connect", printed);
    }
    static_cast<void>(closure.release());  // on_closed() has it now
    undisturbed([&] { c->loop_->start(c); });
    c->answers_ = c->subscribe(c->inbox() + ".*", "", std::make_shared<answers>(c));
    return c;
}

connection::~connection() {
    close({errc::closed, ""});
    undisturbed([&] {
        if (answers_ != nullptr) natsSubscription_Destroy(answers_);
        natsConnection_Destroy(nc_);
    });
}

void connection::leave() {
    const auto all = members();
    for (const auto& m : all) m->leave();
    for (const auto& m : all) {
        if (up() && !closed()) m->wait_left();
    }
}

void connection::close(const failure& why) {
    std::unordered_map<std::uint64_t, std::shared_ptr<call>> calls;
    const bool first = locked(mutex_, [&] {
        if (closed_) return false;
        closed_ = why;
        calls.swap(calls_);
        return true;
    });
    if (!first) return;
    for (auto& [number, c] : calls) c->finished({{}, why});
    for (const auto& m : members()) m->ended(why);
    undisturbed([&] {
        if (nc_ == nullptr) return loop_->stop();
        event_loop::hurry now(*loop_, nc_);  // what was published before, and what ended() has handed back
    });
    undisturbed([&] {
        if (nc_ != nullptr) natsConnection_Close(nc_);
    });
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

// ---- what libnats tells, on a thread of its own ---------------------------------------------------------------------

void connection::on_disconnected(natsConnection* nc, void* closure) {
    const auto c = static_cast<std::weak_ptr<connection>*>(closure)->lock();
    if (!c) return;
    const char* words = nullptr;
    natsConnection_GetLastError(nc, &words);
    std::lock_guard guard(c->mutex_);
    c->last_error_ = words != nullptr ? words : "";
    if (c->down_since_ == 0) c->down_since_ = now_ns();
}

void connection::on_reconnected(natsConnection*, void* closure) {
    if (const auto c = static_cast<std::weak_ptr<connection>*>(closure)->lock()) c->came_back();
}

void connection::on_closed(natsConnection* nc, void* closure) {
    const std::unique_ptr<std::weak_ptr<connection>> last(static_cast<std::weak_ptr<connection>*>(closure));
    const auto c = last->lock();
    if (!c) return;
    const char* words = nullptr;
    const natsStatus s = natsConnection_GetLastError(nc, &words);
    const std::string text = words != nullptr && *words != '\0' ? words : natsStatus_GetText(s);
    const bool refused = s == NATS_CONNECTION_AUTH_FAILED || text.find("uthori") != text.npos || text.find("uthentication") != text.npos;
    c->close({refused ? errc::credentials : errc::connection_lost, text});
}

void connection::on_error(natsConnection* nc, natsSubscription*, natsStatus s, void* closure) {
    const auto c = static_cast<std::weak_ptr<connection>*>(closure)->lock();
    if (!c) return;
    const char* words = nullptr;
    natsConnection_GetLastError(nc, &words);
    const std::string text = words != nullptr ? words : "";
    if (s == NATS_NOT_PERMITTED || text.find("ermissions Violation") != text.npos) c->fail_permission(text);
}

void connection::came_back() {
    std::vector<std::shared_ptr<call>> calls;
    {
        std::lock_guard guard(mutex_);
        down_since_ = 0;
        for (auto& [number, c] : calls_) {
            if (c->again || !c->sent.load()) calls.push_back(c);
        }
    }
    for (const auto& c : calls) send(*c, false);
    for (const auto& m : members()) m->came_back();
}

// ---- subscriptions --------------------------------------------------------------------------------------------------

void connection::take(natsConnection*, natsSubscription*, natsMsg* m, void* closure) {
    (*static_cast<std::shared_ptr<sink>*>(closure))->arrived(nats::message(m));
}
void connection::drop(void* closure) {
    const std::unique_ptr<std::shared_ptr<sink>> last(static_cast<std::shared_ptr<sink>*>(closure));
    sink& to = **last;
    to.over();
    if ((to.ends_.fetch_or(1, std::memory_order_acq_rel) & 2) != 0) to.graves_->bury(to.drained_);
}

natsSubscription* connection::subscribe(const std::string& subject, const std::string& group, std::shared_ptr<sink> to) {
    natsSubscription* s = nullptr;
    const failure fault = undisturbed([&] {
        auto closure = std::make_unique<std::shared_ptr<sink>>(std::move(to));
        failure f = failure_of(group.empty() ? natsConnection_Subscribe(&s, nc_, subject.c_str(), take, closure.get())
                                             : natsConnection_QueueSubscribe(&s, nc_, subject.c_str(), group.c_str(), take, closure.get()));
        if (f) return f;
        natsSubscription_SetOnCompleteCB(s, drop, closure.release());
        natsSubscription_SetPendingLimits(s, -1, -1);  // the sinks take all at once, and have limits of their own
        event_loop::hurry now(*loop_, nc_);
        return f;
    });
    fault.check("subscribe", subject);
    return s;
}

void connection::unsubscribe(natsSubscription* s) noexcept {
    if (s == nullptr) return;
    undisturbed([&] {
        natsSubscription_Unsubscribe(s);
        loop_->bury(s);
    });
}

void connection::drain(natsSubscription* s, const std::shared_ptr<sink>& to) noexcept {
    if (s == nullptr) return;
    undisturbed([&] {
        to->drained_ = s;
        to->graves_ = loop_;
        if (natsSubscription_DrainTimeout(s, 5'000) != NATS_OK || (to->ends_.fetch_or(2, std::memory_order_acq_rel) & 1) != 0) loop_->bury(s);
    });
}

statistics connection::stats() const {
    statistics all{};
    undisturbed([&] {
        natsStatistics* raw = nullptr;
        if (natsStatistics_Create(&raw) != NATS_OK) return;
        if (natsConnection_GetStats(nc_, raw) == NATS_OK) {
            natsStatistics_GetCounts(raw, &all.messages_in, &all.bytes_in, &all.messages_out, &all.bytes_out, &all.reconnects);
        }
        natsStatistics_Destroy(raw);
    });
    all.resent = resent.load();
    all.redelivered = redelivered.load();
    all.lost = lost.load();
    all.handed_back = handed_back.load();
    all.rejected = rejected.load();
    all.dropped = dropped.load();
    all.connected = up();
    return all;
}

}  // namespace detail

// ---- the public face ------------------------------------------------------------------------------------------------

cluster connect(const std::string& addresses, const connect_options& o) { return cluster(detail::connection::open(addresses, o)); }

void cluster::publish(const std::string& subject, std::string_view data, const headers& h) const {
    connection_->publish(subject, "", data, h, false).check("publish", subject);
}

message cluster::request(const std::string& subject, std::string_view data, const context& ctx, const headers& h) const {
    headers all = h;
    const std::int64_t limit = detail::limit_of(ctx, connection_->options().confirm.count() * detail::millisecond);
    all.emplace_back("Dunlin-Timeout-Ms", std::to_string(std::max<std::int64_t>(limit / detail::millisecond, 0)));
    if (const std::string* trace = ctx.value(trace_id)) all.emplace_back("Dunlin-Trace", *trace);
    message answer = connection_->ask("request", subject, data, all, ctx, false, false);
    if (const auto words = answer.header("Dunlin-Error")) {
        throw error(answer.header("Dunlin-Busy") ? errc::busy : errc::handler_failed, "request", subject, *words);
    }
    return answer;
}

void cluster::flush(const context& ctx) const { connection_->round_trip("flush", ctx); }

statistics cluster::stats() const { return connection_->stats(); }
std::int64_t cluster::max_payload() const {
    return detail::undisturbed([&] { return natsConnection_GetMaxPayload(connection_->native()); });
}
std::string cluster::server_address() const {
    char url[512] = "";
    detail::undisturbed([&] { return natsConnection_GetConnectedUrl(connection_->native(), url, sizeof url); });
    return connection_->up() ? url : "";
}
std::string cluster::jetstream(const std::string& what, std::string_view json, const context& ctx) const { return connection_->api(what, json, ctx); }
void cluster::erase_stream(const std::string& name, const context& ctx) const { connection_->api("STREAM.DELETE." + name, "", ctx); }
void cluster::close() const {
    connection_->leave();
    connection_->close({errc::closed, "cluster::close()"});
}

}  // namespace dunlin::nats
