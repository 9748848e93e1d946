// calls.cpp - questions and answers. The protocol is in connection.h.
#include "connection.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <optional>

#include "text.h"

namespace dunlin::inline v0_1::nats::detail {

std::int64_t limit_of(const context& ctx, std::int64_t otherwise) {
    const auto deadline = ctx.deadline();
    if (!deadline) return otherwise;
    return std::max<std::int64_t>(dunlin::detail::nanoseconds_between(clock::now(), *deadline).count(), 0);
}

void check_not_done(const context& ctx, const char* what) {
    if (ctx.is_done()) dunlin::detail::throw_cancelled(ctx, what);
}

void check_subject(const char* what, const std::string& subject) {
    const bool token_missing =
        subject.empty() || subject.front() == '.' || subject.back() == '.' || subject.find("..") != subject.npos;
    if (token_missing || subject.find_first_of(std::string_view(" \t\r\n\0", 5)) != subject.npos) {
        throw error(errc::refused, what, subject, "not a subject");
    }
}

namespace {

// Headers of this library's own: without a value they are not sent, and who reads them takes that for an empty value.
bool left_out(const std::string& name, const std::string& value) {
    return name.starts_with("Dunlin-") && is_blank(value);
}

// libnats takes a value for a C string, in which it replaces line ends by blanks. Where it reads a value of nothing but
// blanks, versions before 3.11 skip the line end too: that header takes the next one for its value, and if it is the
// last one, none of the message's headers can be read.
void check_header(const std::string& subject, const std::string& name, const std::string& value) {
    const auto refuse = [&](const std::string& words) { throw error(errc::refused, "publish", subject, words); };
    if (!is_header_name(name)) refuse("not a header's name: '" + name + "'");
    if (value.find('\0') != value.npos) refuse("the value of the header '" + name + "' contains a zero byte");
    if (is_blank(value)) refuse("the header '" + name + "' has no value, or one of blanks: leave it out");
}

}  // namespace

// libnats writes names unchanged.
bool is_header_name(std::string_view name) noexcept {
    return !name.empty() &&
           std::none_of(name.begin(), name.end(), [](char c) { return c == ':' || c <= ' ' || c == 0x7f; });
}

std::size_t payload_size(std::string_view data, const headers& h) noexcept {
    constexpr std::size_t around = std::string_view("NATS/1.0\r\n\r\n").size(), in_each = std::string_view(": \r\n").size();
    std::size_t size = 0;
    for (const auto& [name, value] : h) {
        if (!left_out(name, value)) size += name.size() + value.size() + in_each;
    }
    return data.size() + (size > 0 ? size + around : 0);
}

nats::message make_message(
    const std::string& subject, const std::string& reply, std::string_view data, const headers& h) {
    check_subject("publish", subject);
    // libnats adds up in an int
    if (const std::size_t size = payload_size(data, h); size > INT32_MAX / 2)
        throw error(errc::payload_too_large, "publish", subject, std::to_string(size) + " bytes");
    natsMsg* raw = nullptr;
    const char* answer_to = reply.empty() ? nullptr : reply.c_str();
    failure_of(natsMsg_Create(&raw, subject.c_str(), answer_to, data.data(), static_cast<int>(data.size())))
        .check("publish", subject);
    nats::message m(raw);
    for (const auto& [name, value] : h) {
        if (left_out(name, value)) continue;
        check_header(subject, name, value);
        failure_of(natsMsgHeader_Add(raw, name.c_str(), value.c_str())).check("publish", subject);
    }
    return m;
}

void connection::start(const std::shared_ptr<call>& c, const std::string& subject, std::string_view data,
    const headers& h, std::int64_t limit_ns) {
    const std::uint64_t number = next_number_.fetch_add(1, std::memory_order_relaxed);
    const std::string reply = answers_to_ + base36(number);
    c->subject = subject.empty() ? reply : subject;  // none: the message is its own answer
    c->request = make_message(c->subject, reply, data, h);
    c->deadline_ns = later(now_ns(), limit_ns);
    if (c->attempt_ns == 0) c->attempt_ns = 1'000 * millisecond;
    const failure over = locked(mutex_, [&] {
        if (!closed_) {
            c->number = number;
            if (calls_.size() >= crowd) c->hurried = false;
            calls_.emplace(number, c);
        }
        return closed_;
    });
    if (over) return c->finished({{}, over});
    send(*c, true);
}

// If it cannot be sent now, tick() or came_back() sends it.
void connection::send(call& c, bool first) noexcept {
    if (!up()) return;
    if (!first && c.sent.load()) resent.fetch_add(1, std::memory_order_relaxed);
    c.sent.store(true);
    c.sent_ns.store(now_ns());
    std::shared_ptr<wire> on;
    const failure f = put(c.request.native_handle(), c.hurried, on);
    if (!f) return;
    locked(mutex_, [&] { c.last = f; });
    // the next wire sends it, or close() finishes it with its reason
    if (f.is(errc::connection_lost)) return c.sent.store(false);
    if (const auto mine = out(c.number)) mine->finished({{}, f});
}

std::shared_ptr<call> connection::out(std::uint64_t number) {
    return locked(mutex_, [&]() -> std::shared_ptr<call> {
        const auto found = calls_.find(number);
        if (found == calls_.end()) return nullptr;
        auto c = std::move(found->second);
        calls_.erase(found);
        return c;
    });
}

void connection::abandon(call& c) noexcept {
    if (c.number != 0) out(c.number);
}

namespace {

// The stream that answers messages to this subject; empty if there is none, or if it is not known.
std::string stream_of(std::string_view subject) {
    const auto token = [&](std::size_t from) {
        return std::string(subject.substr(from, std::min(subject.find('.', from), subject.size()) - from));
    };
    if (subject.starts_with("$KV.")) return "KV_" + token(4);
    if (subject.starts_with("$JS.ACK.")) return token(8);
    return subject.starts_with('$') || subject.starts_with('_') ? std::string() : std::string(subject);
}

}  // namespace

struct connection::existence final : call {
    void finished(message_and_failure&& f) noexcept override {
        if (const auto c = owner.lock()) c->looked_for(stream, f.fault ? f.fault : failure_of_answer(f.answer.data()));
    }
    std::weak_ptr<connection> owner;
    std::string stream;
};

void connection::look_for(const std::string& stream) {
    const auto c = std::make_shared<existence>();
    c->owner = weak_from_this();
    c->stream = stream;
    c->jetstream = c->again = c->hurried = true;
    start(c, "$JS.API.STREAM.INFO." + stream, "", {}, 2'000 * millisecond);
}

void connection::looked_for(const std::string& stream, const failure& f) {
    std::vector<std::shared_ptr<call>> calls;
    {
        std::lock_guard guard(mutex_);
        looked_for_.erase(stream);
        if (!f.is(errc::stream_missing)) return;  // the stream has no leader yet, or no server can tell
        for (auto i = calls_.begin(); i != calls_.end();) {
            if (i->second->last.is(errc::no_responders) && stream_of(i->second->subject) == stream) {
                calls.push_back(std::move(i->second));
                i = calls_.erase(i);
            } else {
                ++i;
            }
        }
    }
    for (const auto& c : calls) c->finished({{}, f});
}

void connection::answer(nats::message m) {
    const std::string_view subject = m.subject();
    const auto number = read_base36(subject.substr(std::min(subject.rfind('.') + 1, subject.size())));
    if (!number) return;
    if (natsMsg_IsNoResponders(m.native_handle())) {
        std::unique_lock guard(mutex_);
        const auto found = calls_.find(*number);
        if (found == calls_.end()) return;
        found->second->last = {errc::no_responders, ""};
        if (found->second->jetstream) {  // no leader, or no stream: the call is sent again soon
            found->second->sent_ns.store(now_ns() + 100 * millisecond - found->second->attempt_ns);
            const std::string stream = stream_of(found->second->subject);
            const bool first = !stream.empty() && looked_for_.insert(stream).second;
            guard.unlock();
            if (first) look_for(stream);
            return;
        }
    }
    const auto c = out(*number);
    if (!c) return;
    if (c->last.is(errc::no_responders) && !c->jetstream) return c->finished({{}, c->last});
    c->finished({std::move(m), {}});
}

// Asks a server that has been silent for `ping`; any data from it ends its silence. After three times `ping` it is
// given up.
void connection::is_it_alive(std::int64_t now) {
    const std::int64_t ping = std::max(ns_of(options_.ping), millisecond), silent = now - loop_->heard_ns();
    if (!loop_->up() || silent < ping || now - asked_ns_ < ping) return;
    if (silent / 3 >= ping && asked_ns_ > loop_->heard_ns()) return loop_->give_up();
    asked_ns_ = now;
    static_cast<void>(publish(inbox() + ".-", "", "", {}, false));  // the message comes back; no call has this number
}

void connection::tick() {
    const std::int64_t now = now_ns();
    is_it_alive(now);
    reconnect();
    std::vector<std::shared_ptr<call>> late, waiting;
    std::string why;
    bool gone = false;
    {
        std::lock_guard guard(mutex_);
        if (!loop_->up() && down_since_ == 0) down_since_ = now;
        // The connection may be up again, with came_back() still to be called.
        gone = !loop_->up() && down_since_ != 0 && now - down_since_ > ns_of(options_.patience);
        why = last_error_;
        for (auto i = calls_.begin(); i != calls_.end();) {
            call& c = *i->second;
            if (gone || now >= c.deadline_ns) {
                late.push_back(std::move(i->second));
                i = calls_.erase(i);
                continue;
            }
            if (!c.sent.load() || (c.again && now - c.sent_ns.load() >= c.attempt_ns)) waiting.push_back(i->second);
            ++i;
        }
    }
    for (const auto& c : late) {
        failure f{errc::not_confirmed, c->last.words};
        if (gone) {
            f = {errc::connection_lost, why};
        } else if (c->last.is(errc::no_responders)) {
            f = c->jetstream ? failure{errc::no_majority, "no server leads it, or there is no such stream"} : c->last;
        } else if (c->last) {
            f = c->last;
        } else if (!c->sent.load()) {
            f = {errc::connection_lost, why};
        }
        c->finished({{}, f});
    }
    for (const auto& c : waiting) send(*c, false);
    for (const auto& m : members()) {
        try {
            m->tick(now);
        } catch (const std::bad_alloc&) {  // it tries again at the next tick
        }
    }
}

namespace {

// The text behind `before`, up to the next quote.
std::optional<std::string> quoted_after(const std::string& words, std::string_view before) {
    const std::size_t at = words.find(before);
    if (at == words.npos) return std::nullopt;
    const std::size_t begin = at + before.size(), end = words.find('"', begin);
    if (end == words.npos) return std::nullopt;
    return words.substr(begin, end - begin);
}

constexpr std::string_view of_publish = "for Publish to \"", of_subscription = "for Subscription to \"",
                           of_group = "using queue \"";

// A server's refusal: Permissions Violation for Subscription to "subject" using queue "group"; without the end there is
// no group, and with "(sid 7)" it may be any.
bool refuses(const std::string& words, const std::string& subject, const std::string& group) {
    if (quoted_after(words, of_subscription) != subject) return false;
    if (words.find("(sid") != words.npos) return true;
    return quoted_after(words, of_group).value_or("") == group;
}

}  // namespace

void connection::fail_permission(const std::string& words) {
    std::vector<std::shared_ptr<interest>> interests;
    locked(line_lock_, [&] {
        std::copy_if(interests_.begin(), interests_.end(), std::back_inserter(interests),
            [&](const auto& i) { return refuses(words, i->subject(), i->group()); });
    });
    for (const auto& i : interests) {
        if (i->to().refused({errc::not_permitted, words})) unsubscribe(i);
    }
    const auto subject = quoted_after(words, of_publish);
    std::vector<std::shared_ptr<call>> calls;
    {
        std::lock_guard guard(mutex_);
        last_refusal_ = words;
        for (auto i = calls_.begin(); subject && i != calls_.end();) {
            if (i->second->subject == *subject) {
                calls.push_back(std::move(i->second));
                i = calls_.erase(i);
            } else {
                ++i;
            }
        }
    }
    for (const auto& c : calls) c->finished({{}, {errc::not_permitted, words}});
}

// Not for ThreadSanitizer: libnats writes the text under a lock that its callers cannot take.
__attribute__((no_sanitize("thread"))) std::string words_of_connection(const char* words) {
    std::string copy;
    if (words == nullptr) return copy;
    for (const volatile char* c = words; *c != '\0'; ++c) copy.push_back(*c);
    return copy;
}

// libnats tells of a refusal on a thread of its own, which may come after the answer behind it. But its connection has
// the words of the last error by then: about this subscription, perhaps an earlier one, or about another one whose
// refusal has not been told either. (They are read without a lock, as libnats offers it: a text that is half another
// one costs a wait or spares one.)
void connection::await_refusal(
    const std::string& subject, const std::string& group, const context& ctx, const std::function<bool()>& came) {
    for (int i = 0; i < 100 && !came(); ++i) {
        const std::shared_ptr<wire> w = line();
        if (!w) return;
        const std::string last = undisturbed([&] {
            const char* words = nullptr;
            natsConnection_GetLastError(w->native(), &words);
            return words_of_connection(words);
        });
        const bool told = locked(mutex_, [&] { return last == last_refusal_; });
        if (!refuses(last, subject, group) && (told || last.find(of_subscription) == last.npos)) return;
        sleep_for(std::chrono::milliseconds(2), ctx);
    }
}

namespace {

// A call whose caller waits.
struct waited_call final : call {
    void finished(message_and_failure&& f) noexcept override {
        outcome = std::move(f);
        done.try_send(std::monostate());
    }
    chan<std::monostate> done{1};
    message_and_failure outcome;  // written before `done`
};

}  // namespace

nats::message connection::ask(const char* what, const std::string& subject, std::string_view data, const headers& h,
    const context& ctx, bool jetstream, bool again) {
    check_not_done(ctx, what);
    const auto c = std::make_shared<waited_call>();
    c->jetstream = jetstream;
    c->again = again;
    c->hurried = true;
    const std::int64_t limit =
        later(limit_of(ctx, ns_of(options_.confirm)), ctx.deadline() ? 1'000 * millisecond : 0);
    // its parts use undisturbed() too, which is cheaper inside
    undisturbed([&] { start(c, subject, data, h, limit); });
    try {
        c->done.recv(ctx);
    } catch (const context_cancelled&) {
        abandon(*c);
        if (!jetstream && !subject.empty() && c->sent.load())
            publish("_DUNLIN.CANCEL." + subject, "", natsMsg_GetReply(c->request.native_handle()), {}, true);
        throw;
    }
    c->outcome.fault.check(what, subject);
    return std::move(c->outcome.answer);
}

void connection::round_trip(const char* what, const context& ctx) {
    try {
        static_cast<void>(ask(what, "", "", {}, ctx, false, true));
    } catch (const error& e) {
        if (e.code() != errc::not_permitted) throw;  // a refusal is also an answer
    }
}

std::string connection::api(const std::string& what, std::string_view json, const context& ctx, failure* fault) {
    const std::string subject = "$JS.API." + what;
    const std::int64_t until = later(now_ns(), limit_of(ctx, ns_of(options_.confirm)));
    for (;;) {
        const nats::message answer = ask("jetstream", subject, json, {}, ctx, true, true);
        failure f = failure_of_answer(answer.data());
        // An election is temporary.
        if (f.is(errc::no_majority) && now_ns() + 200 * millisecond < until) {
            sleep_for(std::chrono::milliseconds(200), ctx);
            continue;
        }
        if (fault != nullptr) {
            *fault = std::move(f);
        } else {
            f.check("jetstream", what);
        }
        return std::string(answer.data());
    }
}

}  // namespace dunlin::nats::detail
