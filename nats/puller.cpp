// puller.cpp - see puller.h.
#include "puller.h"

#include <new>

namespace dunlin::inline v0_1::nats::detail {

namespace {
constexpr std::int64_t heartbeat_ns = 1'000 * millisecond;
constexpr std::int64_t expires_ns = 30'000 * millisecond;
constexpr std::int64_t silent_ns = 2'500 * millisecond;
constexpr std::int64_t idle_ns = 100 * millisecond;
}  // namespace

struct puller::intake final : sink {
    intake(std::weak_ptr<puller> p, std::weak_ptr<connection> c) : owner(std::move(p)), link(std::move(c)) {}
    void arrived(nats::message m) override {
        if (const auto p = owner.lock()) return p->arrived(std::move(m), *this);
        const auto c = link.lock();
        if (!c || !read_ack_subject(m.reply())) return;
        try {
            static_cast<void>(c->publish(std::string(m.reply()), "", "-NAK", {}, true));
            c->handed_back.fetch_add(1);
        } catch (...) {
        }
    }
    void over() override { gone.close(); }
    std::weak_ptr<puller> owner;
    std::weak_ptr<connection> link;
    const chan<std::monostate> gone;  // closed when nothing more arrives
};

struct puller::prolongation final : call {
    void finished(message_and_failure&& f) noexcept override {
        if (const auto h = job.lock(); h && !f.fault) h->prolonged_ns.store(began_ns);
    }
    std::weak_ptr<held> job;
    std::int64_t began_ns = 0;
};

struct puller::inspection final : call {
    void finished(message_and_failure&& f) noexcept override {
        if (const auto p = owner.lock()) p->inspected(f);
    }
    std::weak_ptr<puller> owner;
    bool making = false;
};

puller::puller(std::shared_ptr<connection> c, std::string queue, const queue_options& q, consume_options o)
    : link_(std::move(c)), queue_(std::move(queue)), settings_(q), options_(std::move(o)),
      ready_(static_cast<std::ptrdiff_t>(std::max<std::size_t>(options_.in_flight, 1))) {}

void puller::begin() {
    listen();
    link_->join(shared_from_this());
}

// Makes a new inbox, which is used from now on, and drains the old one.
std::string puller::listen() {
    const std::string inbox = link_->new_inbox();
    const auto to = std::make_shared<intake>(weak_from_this(), link_);
    auto s = link_->subscribe(inbox, "", to);
    locked(mutex_, [&] {
        if (closed_) return;
        intake_ = to;
        inbox_ = inbox;
        subscription_.swap(s);
    });
    link_->drain(s);
    return inbox;
}

// Jobs that are on their way still arrive.
void puller::end_pull() noexcept {
    std::shared_ptr<interest> mine;
    locked(mutex_, [&] {
        if (waiting_ > 0 || requested_ == 0 || closed_ || now_ns() - waited_ns_ < idle_ns) return;
        requested_ = 0;
        mine = std::exchange(subscription_, nullptr);
    });
    link_->drain(mine);
}

puller::~puller() { link_->drain(subscription_); }

void puller::want(int receivers) noexcept {
    locked(mutex_, [&] {
        waiting_ += receivers;
        if (receivers < 0) waited_ns_ = now_ns();
    });
    if (receivers > 0) pull();
}

void puller::pull() noexcept {
    std::size_t batch = 0;
    bool deaf = false;
    locked(mutex_, [&] {
        const std::size_t limit = std::max<std::size_t>(options_.in_flight, 1);
        const std::int64_t now = now_ns();
        if (closed_ || waiting_ <= 0 || requested_ > 0 || inspecting_ || now < not_before_ns_ ||
            taken_.size() >= limit || !link_->up())
            return;
        if (ready_.len() > limit / 4) return;
        batch = std::min(limit - taken_.size(), std::max<std::size_t>(limit / 2, 1));
        requested_ = batch;
        heard_ns_ = now;
        deaf = !subscription_;
    });
    if (batch == 0) return;
    try {
        const std::string inbox = deaf ? listen() : locked(mutex_, [&] { return inbox_; });
        const std::string body = "{\"batch\":" + std::to_string(batch) +
                                 ",\"expires\":" + std::to_string(expires_ns) +
                                 ",\"idle_heartbeat\":" + std::to_string(heartbeat_ns) + "}";
        static_cast<void>(link_->publish(
            "$JS.API.CONSUMER.MSG.NEXT." + queue_ + "." + std::string(consumer_name), inbox, body, {}, true));
    } catch (const std::exception&) {  // it is closed, or there is no memory, and tick() tries again
        locked(mutex_, [&] { requested_ = 0; });
    }
}

void puller::arrived(nats::message m, const intake& at) {
    auto about = read_ack_subject(m.reply());
    if (!about) {
        const bool mine = locked(mutex_, [&] { return intake_.get() == &at; });
        if (const auto code = m.header("Status"); code && mine)
            status(std::atoi(code->c_str()), m.header("Description").value_or(""));
        return;
    }
    const auto h = std::make_shared<held>();
    h->reply = m.reply();
    h->about = std::move(*about);
    h->job = std::move(m);
    h->from = shared_from_this();
    h->prolonged_ns.store(now_ns());
    h->asked_ns.store(now_ns());
    if (h->about.deliveries > 1) link_->redelivered.fetch_add(1);
    const bool room = locked(mutex_, [&] {
        heard_ns_ = now_ns();
        if (requested_ > 0 && intake_.get() == &at) --requested_;
        if (closed_ || taken_.size() >= std::max<std::size_t>(options_.in_flight, 1)) return false;
        taken_.insert(h);
        return true;
    });
    if (!room) return hand_back(*h, std::chrono::nanoseconds(0));
    try {
        if (ready_.try_send(std::shared_ptr<held>(h)) == channel_status::ok) return pull();
    } catch (const channel_closed&) {
    }
    hand_back(*h, std::chrono::nanoseconds(0));
    settled(h);
}

void puller::status(int code, const std::string& words) {
    bool look = false;
    locked(mutex_, [&] {
        heard_ns_ = now_ns();
        if (code == 100) return;
        requested_ = 0;
        if (code == 503 || (code == 409 && words.find("eleted") != words.npos)) look = true;
        if (code != 404 && code != 408) not_before_ns_ = now_ns() + 100 * millisecond;
    });
    if (look) return inspect();
    if (code != 100) pull();
}

// Asks whether the consumer still exists.
void puller::inspect() {
    const bool first = locked(mutex_, [&] { return !closed_ && !std::exchange(inspecting_, true); });
    if (!first) return;
    try {
        const auto c = std::make_shared<inspection>();
        c->owner = weak_from_this();
        c->jetstream = c->again = c->hurried = true;
        link_->start(
            c, "$JS.API.CONSUMER.INFO." + queue_ + "." + std::string(consumer_name), "", {}, 5'000 * millisecond);
    } catch (const std::exception&) {
        locked(mutex_, [&] { inspecting_ = false; });
        throw;
    }
}

void puller::inspected(const message_and_failure& f) noexcept {
    try {
        const failure said = f.fault ? f.fault : failure_of_answer(f.answer.data());
        if (said.is(errc::stream_missing)) {
            const bool stream_is_there = said.words.find("consumer") != said.words.npos;
            return stream_is_there ? make_again() : stop(said);
        }
    } catch (const std::exception&) {  // no memory: what the server says to the next pull leads here again
    }
    locked(mutex_, [&] { inspecting_ = false; });
    pull();
}

// Only the consumer is missing. Its jobs are in the stream.
void puller::make_again() {
    const auto c = std::make_shared<inspection>();
    c->owner = weak_from_this();
    c->jetstream = c->again = c->hurried = true;
    link_->start(c, "$JS.API.CONSUMER.DURABLE.CREATE." + queue_ + "." + std::string(consumer_name),
        consumer_body(queue_, ns_of(settings_.ack_wait)), {}, 5'000 * millisecond);
}

void puller::came_back() {
    locked(mutex_, [&] { requested_ = 0; });
    pull();
}

void puller::wait_left() {
    const auto last = locked(mutex_, [&] { return intake_; });
    static_cast<void>(last->gone.recv_for(std::chrono::seconds(2)));
}

void puller::stop(failure why) noexcept {
    const bool first = locked(mutex_, [&] {
        if (closed_) return false;
        closed_ = true;
        ended_ = std::move(why);
        return true;
    });
    if (!first) return;
    link_->drain(locked(mutex_, [&] { return std::exchange(subscription_, nullptr); }));
    ready_.close();
    while (auto h = ready_.try_recv()) {
        hand_back(**h, std::chrono::nanoseconds(0));
        settled(*h);
    }
}

// Held jobs are handed back too, and their holders see that they are lost.
void puller::ended(const failure& f) {
    stop(f);
    std::vector<std::shared_ptr<held>> all;
    locked(mutex_, [&] { all.assign(taken_.begin(), taken_.end()); });
    for (const auto& h : all) {
        if (!h->ambiguous.load() && !h->lost.load()) hand_back(*h, std::chrono::nanoseconds(0));
        lose(h);
    }
}

void puller::settled(const std::shared_ptr<held>& h) noexcept {
    std::optional<cancellable> over;
    locked(mutex_, [&] {
        taken_.erase(h);
        over = std::exchange(h->ctx, std::nullopt);
    });
    if (over) over->cancel();
    pull();
}

void puller::hand_back(held& h, std::chrono::nanoseconds delay) noexcept {
    // the server adds it to its time, nanoseconds since 1970
    constexpr std::int64_t most = std::chrono::nanoseconds(std::chrono::hours(24) * 36'500).count();
    const std::int64_t ns = std::min<std::int64_t>(delay.count(), most);
    try {
        const std::string word = ns > 0 ? "-NAK {\"delay\":" + std::to_string(ns) + "}" : "-NAK";
        static_cast<void>(link_->publish(h.reply, "", word, {}, true));
    } catch (...) {
    }
}

context puller::context_of(held& h) {
    const auto trace = h.job.header("Dunlin-Trace");
    cancellable mine = with_cancel(trace ? with_value(options_.ctx, trace_id, *trace) : options_.ctx);
    const context result = locked(mutex_, [&]() -> context {
        if (!h.ctx) h.ctx.emplace(mine);
        return *h.ctx;
    });
    if (h.lost.load()) mine.cancel(error(errc::not_confirmed, "delivery", queue_, "lost"));
    return result;
}

// ---- prolonging -----------------------------------------------------------------------------------------------------

void puller::tick(std::int64_t now) {
    const std::int64_t ack_wait = ns_of(settings_.ack_wait);
    std::vector<std::shared_ptr<held>> due, late;
    bool silent = false;
    locked(mutex_, [&] {
        for (const auto& h : taken_) {
            if (h->lost.load()) continue;
            if (now - h->prolonged_ns.load() >= ack_wait) {
                late.push_back(h);
            } else if (now - h->asked_ns.load() >= ack_wait / 4) {
                due.push_back(h);
            }
        }
        if (requested_ > 0 && now - heard_ns_ >= silent_ns && !closed_) {
            requested_ = 0;
            silent = true;
        }
    });
    for (const auto& h : late) lose(h);
    for (const auto& h : due) prolong(h, now);
    end_pull();
    if (silent) {
        inspect();
    } else {
        pull();
    }
    if (options_.ctx.is_done()) stop({});
}

void puller::prolong(const std::shared_ptr<held>& h, std::int64_t now) {
    h->asked_ns.store(now);
    const auto c = std::make_shared<prolongation>();
    c->job = h;
    c->began_ns = now;
    link_->start(c, h->reply, "+WPI", {}, ns_of(settings_.ack_wait));
}

void puller::lose(const std::shared_ptr<held>& h) noexcept {
    if (h->lost.exchange(true)) return;
    link_->lost.fetch_add(1);
    std::optional<cancellable> ctx;
    locked(mutex_, [&] { ctx = h->ctx; });
    if (!ctx) return;
    try {
        ctx->cancel(
            error(errc::not_confirmed, "delivery", queue_, "lost: its deadline passed without being prolonged"));
    } catch (const std::bad_alloc&) {  // no memory for the reason
        ctx->cancel();
    }
}

// ---- dead letters ---------------------------------------------------------------------------------------------------

void puller::to_dead_letters(held& h, const std::string& reason, const context& ctx) {
    const bool made = locked(mutex_, [&] { return dead_made_; });
    if (!made) make_dead(*link_, queue_, settings_, ctx);
    locked(mutex_, [&] { dead_made_ = true; });
    // First the job is stored there under an id of its own, then it is removed here. After a crash in between it is not
    // stored twice, because of that id.
    headers all;
    for (auto& [name, value] : h.job.all_headers()) {
        if (!is_header_name(name)) continue;  // another client's: it cannot be sent on, and the job must go
        if (name == "Dunlin-History") all.emplace_back(name, value);
        if (name == "Dunlin-Trace" || (!name.starts_with("Dunlin-") && name != "Nats-Msg-Id"))
            all.emplace_back("Dunlin-Original-" + name, value);
    }
    const std::string by = link_->options().name.empty() ? link_->inbox().substr(7) : link_->options().name;
    all.emplace_back("Dunlin-Reason", one_line(reason));
    all.emplace_back("Dunlin-By", one_line(by));
    all.emplace_back("Dunlin-Deliveries", std::to_string(h.about.deliveries));
    all.emplace_back("Dunlin-Sequence", std::to_string(h.about.sequence));
    all.emplace_back("Dunlin-Stored", h.about.stored);
    all.emplace_back("Nats-Msg-Id", queue_ + "." + std::to_string(h.about.sequence) + "." + h.about.stored);
    send_confirmed(*link_, "reject", dead_name(queue_), h.job.data(), all, ctx);
    static_cast<void>(link_->ask("reject", h.reply, "+TERM", {}, ctx, true, true));
    link_->rejected.fetch_add(1);
}

dead_letter read_dead_letter(const nats::message& m) {
    const auto number = [&](const char* name) {
        const auto text = m.header(name);
        return text ? std::strtoull(text->c_str(), nullptr, 10) : 0;
    };
    dead_letter d{std::string(m.data()), m.header("Dunlin-Reason").value_or(""), m.header("Dunlin-By").value_or(""),
        number("Dunlin-Deliveries"), number("Dunlin-Sequence"), m.header("Dunlin-Stored").value_or(""), {}, {}};
    constexpr std::string_view original = "Dunlin-Original-";
    for (auto& [name, value] : m.all_headers()) {
        if (name == "Dunlin-History") d.history.push_back(value);
        if (name.starts_with(original)) d.original.emplace_back(name.substr(original.size()), value);
    }
    return d;
}

headers headers_of_again(const dead_letter& d) {
    headers all = d.original;
    for (const std::string& line : d.history) all.emplace_back("Dunlin-History", line);
    all.emplace_back("Dunlin-History", std::to_string(d.deliveries) + " " + d.by + " " + d.reason);
    return all;
}

// ---- what the templates call ----------------------------------------------------------------------------------------

const chan<std::shared_ptr<held>>& consuming::ready(const puller& p) noexcept { return p.ready(); }
void consuming::want(puller& p, int receivers) noexcept { p.want(receivers); }
void consuming::stop(puller& p) noexcept { p.stop({}); }
const context& consuming::ctx(const puller& p) noexcept { return p.options().ctx; }
void consuming::check(puller& p) {
    const failure f = p.why();
    if (f && !(f.is(errc::closed))) f.raise("consume", p.queue());
}

std::optional<delivery_base> consuming::take(puller& p, std::shared_ptr<held> h) {
    const int most = p.settings().max_deliveries;
    if (h->lost.load()) {  // it waited here for too long: the server gives it to another consumer
        p.settled(h);
        return std::nullopt;
    }
    delivery_base d = p.deliver(std::move(h));
    if (most > 0 && d.deliveries() > static_cast<std::uint64_t>(most)) {
        d.reject("delivered " + std::to_string(d.deliveries() - 1) + " times, and never done");
        return std::nullopt;
    }
    return d;
}

void consuming::undecodable(puller&, delivery_base d, const char* what) {
    d.reject(std::string("does not decode: ") + what);
}

}  // namespace dunlin::nats::detail

namespace dunlin::inline v0_1::nats {

delivery_base& delivery_base::operator=(delivery_base&& other) noexcept {
    if (this != &other) {
        delivery_base ended(std::move(*this));
        held_ = std::move(other.held_);
    }
    return *this;
}

delivery_base::~delivery_base() {
    if (!held_) return;
    const auto p = held_->from;
    if (!held_->lost.load() && !held_->ambiguous.load()) {
        p->hand_back(*held_, std::chrono::nanoseconds(0));
        p->link().handed_back.fetch_add(1);
    }
    p->settled(held_);
}

void delivery_base::done(const dunlin::context& ctx) {
    if (!held_) throw error(errc::closed, "done", "", "this delivery has ended already");
    detail::check_not_done(ctx, "done");
    held_->ambiguous.store(true);
    static_cast<void>(held_->from->link().ask("done", held_->reply, "+ACK", {}, ctx, true, true));
    const auto h = std::move(held_);
    h->from->settled(h);
}

void delivery_base::retry(std::chrono::nanoseconds delay) {
    if (!held_) throw error(errc::closed, "retry", "", "this delivery has ended already");
    const auto h = std::move(held_);
    if (!h->lost.load()) h->from->hand_back(*h, delay);
    h->from->settled(h);
}

void delivery_base::reject(const std::string& reason, const dunlin::context& ctx) {
    if (!held_) throw error(errc::closed, "reject", "", "this delivery has ended already");
    held_->from->to_dead_letters(*held_, reason, ctx);
    const auto h = std::move(held_);
    h->from->settled(h);
}

bool delivery_base::lost() const noexcept { return held_ && held_->lost.load(); }
dunlin::context delivery_base::context() const {
    if (held_) return held_->from->context_of(*held_);
    auto over = with_cancel(dunlin::context::background());
    over.cancel();
    return over;
}
std::uint64_t delivery_base::deliveries() const noexcept { return held_ ? held_->about.deliveries : 0; }
std::uint64_t delivery_base::sequence() const noexcept { return held_ ? held_->about.sequence : 0; }
const nats::message& delivery_base::message() const noexcept {
    static const nats::message none;
    return held_ ? held_->job : none;
}

}  // namespace dunlin::nats
