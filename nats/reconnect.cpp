// reconnect.cpp - wires: how they are made, shown, lost and made again. connection.h has the protocol.
#include <algorithm>
#include <exception>
#include <random>
#include <thread>
#include <variant>

#include "apart.h"
#include "connection.h"

namespace dunlin::inline v0_1::nats::detail {

wire::~wire() {
    undisturbed([&] { natsConnection_Destroy(nc_); });  // and closes it
}

// Lives from a dial to on_closed(), which frees it.
struct connection::told {
    std::weak_ptr<connection> owner;
    std::uint64_t number;
};

// In undisturbed(). Blocks the thread.
wire_or_failure connection::dial_one(const std::vector<std::string>& urls) {
    const std::uint64_t number = wires_.fetch_add(1) + 1;
    auto closure = std::make_unique<told>(told{weak_from_this(), number});
    auto w = std::make_shared<wire>(number, loop_);
    attempt a = dial(urls, options_, *loop_, {on_closed, on_error, closure.get()});
    if (a.fault) return {nullptr, std::move(a.fault)};
    static_cast<void>(closure.release());
    w->own(a.made);
    return {std::move(w), {}};
}

// Dials until `ctx` is done: libnats' call cannot be interrupted, so a thread waits in it; a connection that comes too
// late is closed.
wire_or_failure connection::dial_first(const std::vector<std::string>& urls, const context& ctx) {
    if (ctx.done().is_nil()) return undisturbed([&] { return dial_one(urls); });
    struct dialling {
        std::vector<std::string> urls;
        // written before `over`
        wire_or_failure outcome;
        std::exception_ptr failed;
        chan<std::monostate> over{1};
    };
    const auto d = std::make_shared<dialling>();
    d->urls = urls;
    undisturbed([&] {
        apart("dunlin-dial", [self = shared_from_this(), d] {
            try {
                d->outcome = self->dial_one(d->urls);
            } catch (...) {
                d->failed = std::current_exception();
            }
            d->over.try_send(std::monostate());
        });
    });
    d->over.recv(ctx);
    if (d->failed) std::rethrow_exception(d->failed);
    return std::move(d->outcome);
}

// ---- what libnats reports, on a thread of its own -------------------------------------------------------------------

void connection::on_closed(natsConnection* nc, void* closure) {
    const std::unique_ptr<told> last(static_cast<told*>(closure));
    if (const auto c = last->owner.lock()) c->closed_by_libnats(nc, last->number);
}

void connection::on_error(natsConnection* nc, natsSubscription*, natsStatus s, void* closure) {
    const auto c = static_cast<told*>(closure)->owner.lock();
    if (!c) return;
    // Of this error, where libnats keeps it with the error; else of the connection's last one.
    natsStatus of_words = NATS_OK;
    const char* words = nats_GetLastError(&of_words);
    if (of_words != s || words == nullptr || *words == '\0') natsConnection_GetLastError(nc, &words);
    const std::string text = words_of_connection(words);
    if (s == NATS_NOT_PERMITTED || text.find("ermissions Violation") != text.npos) c->fail_permission(text);
}

namespace {

void add_counts(statistics& to, natsConnection* nc) {
    natsStatistics* raw = nullptr;
    if (natsStatistics_Create(&raw) != NATS_OK) return;
    statistics more{};
    if (natsConnection_GetStats(nc, raw) == NATS_OK) {
        natsStatistics_GetCounts(raw, &more.messages_in, &more.bytes_in, &more.messages_out, &more.bytes_out, nullptr);
    }
    natsStatistics_Destroy(raw);
    to.messages_in += more.messages_in;
    to.bytes_in += more.bytes_in;
    to.messages_out += more.messages_out;
    to.bytes_out += more.bytes_out;
}

}  // namespace

void connection::closed_by_libnats(natsConnection* nc, std::uint64_t number) {
    const char* words = nullptr;
    const natsStatus s = natsConnection_GetLastError(nc, &words);
    std::string text = words_of_connection(words);
    if (text.empty()) text = natsStatus_GetText(s);
    statistics counts{};
    add_counts(counts, nc);
    std::vector<std::string> known;
    {
        std::lock_guard guard(line_lock_);
        known = addresses_;
    }
    const std::vector<std::string> fresh = discovered(nc, known);
    std::shared_ptr<wire> old;
    {
        std::lock_guard guard(line_lock_);
        last_closed_ = std::max(last_closed_, number);
        if (wire_ && wire_->number() <= last_closed_) old.swap(wire_);
        of_closed_.messages_in += counts.messages_in;
        of_closed_.bytes_in += counts.bytes_in;
        of_closed_.messages_out += counts.messages_out;
        of_closed_.bytes_out += counts.bytes_out;
        addresses_.insert(addresses_.end(), fresh.begin(), fresh.end());
    }
    {
        std::lock_guard guard(mutex_);
        last_error_ = text;
        if (down_since_ == 0) down_since_ = now_ns();
    }
    reconnect();
}

// ---- the next wire --------------------------------------------------------------------------------------------------

// In undisturbed(). False: the wire is closed already, or the whole connection is.
bool connection::show(const std::shared_ptr<wire>& w) {
    max_payload_.store(natsConnection_GetMaxPayload(w->native()), std::memory_order_relaxed);
    char url[512] = "";
    natsConnection_GetConnectedUrl(w->native(), url, sizeof url);
    std::unordered_set<std::shared_ptr<interest>> tried;
    for (;;) {
        std::vector<std::shared_ptr<interest>> fresh;
        std::deque<kept_message> kept;
        {
            std::lock_guard guard(line_lock_);
            if (shut_ || w->number() <= last_closed_) return false;
            for (const auto& i : interests_) {
                if (i->at() != w->number() && !tried.contains(i)) fresh.push_back(i);
            }
            if (fresh.empty()) kept.swap(kept_);
            if (fresh.empty() && kept.empty()) {
                wire_ = w;
                current_ = index_of(addresses_, url);
                break;
            }
        }
        for (const auto& i : fresh) {
            tried.insert(i);
            static_cast<void>(i->subscribe(w->native(), w->number(), loop_));
        }
        const bool all_sent = put_kept(kept, *w);
        std::lock_guard guard(line_lock_);
        if (shut_) {
            dropped.fetch_add(kept.size());
            return false;
        }
        // If the wire is closed again, the rest waits for the next one.
        kept_.insert(kept_.begin(), std::make_move_iterator(kept.begin()), std::make_move_iterator(kept.end()));
        kept_bytes_ = 0;
        for (const kept_message& m : kept_) kept_bytes_ += m.size;
        if (!all_sent) return false;
    }
    {
        std::lock_guard guard(mutex_);
        down_since_ = 0;
    }
    loop_->wake();
    return true;
}

void connection::reconnect() noexcept {
    {
        std::lock_guard guard(line_lock_);
        if (shut_ || wire_) return;
    }
    if (closed() || dialling_.exchange(true)) return;
    try {
        apart("dunlin-redial", [self = shared_from_this()] {
            try {
                self->redial();
            } catch (const std::exception&) {  // no memory: tick() tries again
            }
            self->dialling_.store(false);
        });
    } catch (const std::exception&) {
        dialling_.store(false);  // no thread can be made: tick() tries again
    }
}

// Runs on a thread of its own until there is a wire or the connection is closed. The server after the last connected
// one is tried first. A server that has refused the credentials twice is left out; when all have, the connection is
// closed for good.
void connection::redial() {
    std::minstd_rand random(static_cast<std::uint32_t>(now_ns()));
    std::unordered_map<std::string, int> refusals;
    failure refusal;
    for (;;) {
        std::vector<std::string> urls;
        std::size_t from = 0;
        {
            std::lock_guard guard(line_lock_);
            urls = addresses_;
            from = current_ + 1;
        }
        bool all_refuse = true;
        for (std::size_t i = 0; i < urls.size(); ++i) {
            const std::string& url = urls[(from + i) % urls.size()];
            if (refusals[url] >= 2) continue;
            while (!loop_->free() && !closed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            if (closed()) return;
            const wire_or_failure a = dial_one({url});
            if (!a.fault) {
                if (show(a.made)) {
                    reconnects_.fetch_add(1);
                    return came_back();
                }
                if (closed()) return;
            }
            if (a.fault.is(errc::credentials)) {
                refusal = a.fault;
                all_refuse = ++refusals[url] >= 2 && all_refuse;
            } else {
                all_refuse = false;
            }
            if (a.fault) {
                std::lock_guard guard(mutex_);
                last_error_ = printable(url) + ": " + a.fault.words;
            }
        }
        if (all_refuse) return close({errc::credentials, refusal.words});
        const std::int64_t wait = std::clamp<std::int64_t>(options_.reconnect_wait.count(), 1, INT64_MAX / 2);
        for (std::int64_t left = wait + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(wait / 2 + 1));
             left > 0; left -= 10) {
            if (closed()) return;
            std::this_thread::sleep_for(std::chrono::milliseconds(std::min<std::int64_t>(left, 10)));
        }
    }
}

void connection::came_back() {
    std::vector<std::shared_ptr<call>> calls;
    {
        std::lock_guard guard(mutex_);
        for (auto& [number, c] : calls_) {
            if (c->again || !c->sent.load()) calls.push_back(c);
        }
    }
    for (const auto& c : calls) send(*c, false);
    for (const auto& m : members()) m->came_back();
}

// ---- what callers can see of wires ----------------------------------------------------------------------------------

std::string connection::server() const {
    char url[512] = "";
    if (const auto w = line(); w && up())
        undisturbed([&] { natsConnection_GetConnectedUrl(w->native(), url, sizeof url); });
    return url;
}

statistics connection::stats() const {
    std::shared_ptr<wire> w;
    statistics all = locked(line_lock_, [&] {
        w = wire_;
        return of_closed_;
    });
    if (w) undisturbed([&] { add_counts(all, w->native()); });
    all.reconnects = reconnects_.load();
    all.resent = resent.load();
    all.redelivered = redelivered.load();
    all.lost = lost.load();
    all.handed_back = handed_back.load();
    all.rejected = rejected.load();
    all.dropped = dropped.load();
    all.connected = up();
    return all;
}

}  // namespace dunlin::nats::detail
