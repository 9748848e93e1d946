// service.cpp - a goroutine for each request, with a bound on their number; a caller that no longer waits sends its
// reply subject to _DUNLIN.CANCEL.<subject>.
//
// Answers   In an answer that is none, Dunlin-Failed says so, Dunlin-Error why, and Dunlin-Busy that no handler was
//           called.
// Ends      A handler may end its goroutine (exit_goroutine()): of what stands behind its call then only catch (...)
//           blocks and destructors run. So the answer, and what the request and its goroutine have taken, are in the
//           destructors of `request_under_way` and `place`.
#include <deque>
#include <unordered_map>

#include <dunlin/detail/caught.hpp>
#include <dunlin/detail/helper.hpp>
#include <dunlin/nats/service.hpp>

#include "connection.h"
#include "text.h"

namespace dunlin::inline v0_1::nats {

namespace detail {

namespace {

headers failed(const std::string& why) {
    const std::string words = one_line(why);
    return {{"Dunlin-Failed", "1"}, {"Dunlin-Error", is_blank(words) ? "exception" : words}};
}

}  // namespace

struct service final : std::enable_shared_from_this<service> {
    service(std::shared_ptr<connection> c, request_handler h, serve_options o)
        : link(std::move(c)), handler(std::move(h)), options(std::move(o)), all(with_cancel(context::background())) {}

    void arrived(message m) {
        enum { begin, queue, refuse } what = refuse;
        locked(mutex, [&] {
            if (over) return;
            if (running < std::max<std::size_t>(options.at_once, 1)) {
                ++running;
                what = begin;
            } else if (waiting.size() < options.queued) {
                waiting.push_back(std::move(m));
                what = queue;
            }
        });
        if (what == refuse) {
            headers h = failed("as many requests as it takes");
            h.emplace_back("Dunlin-Busy", "1");
            return answer(m, "", h);
        }
        if (what == begin) start(std::move(m));
    }

    // In a goroutine, whose place is taken already. If there is no memory for it the request is lost, and its caller
    // waits for its limit; so are those that wait, if no other goroutine is left that would take them.
    void start(message m) noexcept {
        try {
            dunlin::detail::go_for(server, [self = shared_from_this(), m = std::move(m)]() mutable {
                const place mine(*self);
                do {
                    self->handle(m);
                } while (self->next(m));
            });
        } catch (const std::exception&) {
            const bool last = locked(mutex, [&] {
                if (--running == 0) waiting.clear();
                return running == 0 && over;
            });
            if (last) idle.try_send(std::monostate());
        }
    }

    // Takes the request that has waited longest. With `leaves` the caller gives its place back if there is none.
    bool next(message& m, bool leaves = false) {
        bool last = false;
        const bool more = locked(mutex, [&] {
            if (!waiting.empty() && !cancelled) {
                m = std::move(waiting.front());
                waiting.pop_front();
                return true;
            }
            last = leaves && --running == 0 && over;
            return false;
        });
        if (last) idle.try_send(std::monostate());
        return more;
    }

    // One of options.at_once, for as long as a goroutine takes requests.
    struct place {
        explicit place(service& s) noexcept : of(s) {}
        place(const place&) = delete;
        place& operator=(const place&) = delete;
        ~place() {
            // One may have come since the goroutine looked; and it has not looked if a handler has ended it.
            if (message m; of.next(m, true)) of.start(std::move(m));
        }
        service& of;
    };

    struct request_under_way {
        request_under_way(service& s, const message& m, cancellable c)
            : of(s), request(m), reply(m.reply()), ctx(std::move(c)) {
            locked(of.mutex, [&] { of.under_way.emplace(reply, ctx); });
        }
        request_under_way(const request_under_way&) = delete;
        request_under_way& operator=(const request_under_way&) = delete;
        ~request_under_way() {
            locked(of.mutex, [&] { of.under_way.erase(reply); });
            ctx.cancel();
            try {
                if (!answered && h.empty()) h = failed("the handler has ended its goroutine");
                of.answer(request, text, h);
            } catch (const std::exception&) {
                // no memory for the words: its caller waits for its limit
            }
        }
        service& of;
        const message& request;
        const std::string reply;
        const cancellable ctx;
        bool answered = false;
        std::string text;
        headers h;  // why not
    };

    void handle(const message& m) {
        context base = all;
        if (const auto trace = m.header("Dunlin-Trace")) base = with_value(base, trace_id, *trace);
        const auto timeout = m.header("Dunlin-Timeout-Ms");
        request_under_way r(*this, m,
            timeout ? with_timeout(base, std::chrono::milliseconds(std::strtoll(timeout->c_str(), nullptr, 10)))
                    : with_cancel(base));
        try {
            r.text = handler(m, r.ctx);
            r.answered = true;
        } catch (const std::exception& e) {
            r.h = failed(e.what());
        } catch (...) {
            static_cast<void>(dunlin::detail::caught());  // the end of the goroutine goes on
            r.h = failed("not an std::exception");
        }
    }

    void answer(const message& m, const std::string& text, const headers& h) noexcept {
        if (m.reply().empty()) return;
        try {
            const failure f = link->publish(std::string(m.reply()), "", text, h, true);
            if (f.is(errc::payload_too_large))
                static_cast<void>(link->publish(std::string(m.reply()), "", "", failed(f.words), true));
        } catch (const std::exception&) {
            // The caller gives up at its deadline.
        }
    }

    void cancel(const std::string& reply) {
        std::optional<cancellable> ctx;
        locked(mutex, [&] {
            if (const auto found = under_way.find(reply); found != under_way.end()) ctx = found->second;
            std::erase_if(waiting, [&](const message& w) { return w.reply() == reply; });
        });
        if (ctx) ctx->cancel();
    }

    // Requests that the NATS server has sent already are still taken.
    void refuse_more() {
        std::shared_ptr<interest> s;
        locked(mutex, [&] { s = std::exchange(requests, nullptr); });
        link->drain(s);
        no_more.recv();
    }

    void end(bool cancel_all) {
        std::shared_ptr<interest> a, b;
        locked(mutex, [&] {
            over = true;
            cancelled = cancelled || cancel_all;
            if (cancel_all) waiting.clear();
            a = std::exchange(requests, nullptr);
            if (cancel_all) b = std::exchange(cancels, nullptr);
        });
        link->unsubscribe(a);
        link->unsubscribe(b);
        if (cancel_all) all.cancel();
    }

    void wait() {
        if (locked(mutex, [&] { return running > 0; })) {
            idle.recv();
            idle.try_send(std::monostate());
        }
    }

    const std::shared_ptr<connection> link;
    const request_handler handler;
    const serve_options options;
    // of serve(): the handlers work for it
    const dunlin::detail::caller server = dunlin::detail::this_caller();
    const cancellable all;
    const chan<std::monostate> idle{1};
    const chan<std::monostate> no_more;  // closed when no more requests can arrive
    std::shared_ptr<sink> intake;
    std::shared_ptr<interest> requests, cancels;

    std::mutex mutex;
    std::deque<message> waiting;
    std::unordered_map<std::string, cancellable> under_way;  // by reply subject
    std::size_t running = 0;
    bool over = false, cancelled = false;
    bool begins = true;  // serve() has not returned
    failure refusal;     // the server does not permit the subject
};

namespace {

struct request_sink final : sink {
    explicit request_sink(std::weak_ptr<service> s, bool c) : owner(std::move(s)), cancels(c) {}
    void arrived(message m) override {
        const auto s = owner.lock();
        if (!s) return;
        if (cancels) {
            s->cancel(std::string(m.data()));
        } else {
            s->arrived(std::move(m));
        }
    }
    void over() override {
        if (const auto s = owner.lock(); s && !cancels) s->no_more.close();
    }
    // Without cancellations a request ends at its deadline. Where a later server does not permit the subject, the one
    // after that may.
    bool refused(const failure& f) override {
        const auto s = owner.lock();
        if (!s || cancels) return false;
        return locked(s->mutex, [&] {
            if (s->begins) s->refusal = f;
            return s->begins;
        });
    }
    std::weak_ptr<service> owner;
    bool cancels;
};

}  // namespace

}  // namespace detail

server serve(
    const cluster& c, const std::string& subject, request_handler handler, const serve_options& o, const context& ctx) {
    auto connection = c.native().shared_from_this();
    auto s = std::make_shared<detail::service>(connection, std::move(handler), o);
    s->cancels =
        connection->subscribe("_DUNLIN.CANCEL." + subject, "", std::make_shared<detail::request_sink>(s, true));
    s->intake = std::make_shared<detail::request_sink>(s, false);
    s->requests = connection->subscribe(subject, o.group, s->intake);
    server made(s);
    connection->round_trip("serve", ctx);
    const auto refusal = [&] { return detail::locked(s->mutex, [&] { return s->refusal; }); };
    connection->await_refusal(subject, o.group, ctx, [&] { return static_cast<bool>(refusal()); });
    detail::locked(s->mutex, [&] { s->begins = false; });
    if (const detail::failure f = refusal()) f.raise("serve", subject);
    return made;
}

server::~server() {
    if (!service_) return;
    close();
    service_->wait();
}

void server::close() noexcept { service_->end(true); }

void server::drain() {
    service_->refuse_more();
    service_->end(false);
    service_->wait();
    service_->end(true);
}

}  // namespace dunlin::nats
