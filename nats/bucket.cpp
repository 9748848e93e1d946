// bucket.cpp - keys and values in a stream KV_<name> with the subjects $KV.<name>.<key>, the layout of NATS' own tools.
//
// Watch     An ephemeral push consumer without acknowledgement, which begins with the last value of each key. Its
//           messages are numbered: when one is missing, or nothing (not even a heartbeat) has come for three
//           heartbeats, a new consumer is made that begins after the last message seen. Messages of an older consumer
//           are recognised by its name, and ignored.
#include <dunlin/nats/bucket.hpp>

#include "connection.h"
#include "inflow.h"
#include "puller.h"
#include "text.h"

namespace dunlin::inline v0_1::nats::detail {

namespace {

constexpr std::int64_t heartbeat_ns = 1'000 * millisecond;

void check_key(const std::string& key, bool pattern) {
    std::string_view allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=./*>";
    if (!pattern) allowed.remove_suffix(2);
    const bool good = !key.empty() && key.front() != '.' && key.back() != '.' && key.find("..") == key.npos &&
                      key.find_first_not_of(allowed) == key.npos;
    if (!good) throw error(errc::refused, "bucket", key, "not a key");
}

bool says_erased(const message& m) { return m.header("KV-Operation").has_value(); }

}  // namespace

raw_bucket::raw_bucket(std::shared_ptr<connection> c, std::string name, const bucket_options& o, const context& ctx)
    : connection_(std::move(c)), name_(std::move(name)) {
    check_key(name_, false);
    if (o.history < 1 || o.history > 64 || o.replicas < 1)
        throw error(errc::refused, "bucket", name_, "history is 1 to 64, replicas at least 1");
    const std::string stream = "KV_" + name_;
    failure f;
    const std::string body =
        "{\"name\":" + json_quoted(stream) + ",\"subjects\":[" + json_quoted("$KV." + name_ + ".>") +
        "],\"retention\":\"limits\",\"max_consumers\":-1,\"max_msgs\":-1,\"max_age\":" +
        std::to_string(ns_of(o.lifetime)) + ",\"max_bytes\":" + std::to_string(o.max_bytes) +
        ",\"max_msgs_per_subject\":" + std::to_string(o.history) +
        ",\"discard\":\"new\",\"storage\":" + (o.in_memory ? "\"memory\"" : "\"file\"") +
        ",\"num_replicas\":" + std::to_string(o.replicas) + ",\"duplicate_window\":" +
        std::to_string(o.lifetime.count() > 0 ? std::min<std::int64_t>(o.lifetime.count(), 120'000) * millisecond
                                              : 120'000 * millisecond) +
        ",\"deny_delete\":true,\"allow_rollup_hdrs\":true,\"allow_direct\":true}";
    std::string answer = connection_->api("STREAM.INFO." + stream, "", ctx, &f);
    if (f.is(errc::stream_missing)) answer = connection_->api("STREAM.CREATE." + stream, body, ctx, &f);
    if (f.is(errc::other_settings)) answer = connection_->api("STREAM.INFO." + stream, "", ctx, &f);
    f.check("bucket", name_);
    const auto compare = [&](const char* key, std::int64_t want) {
        const std::int64_t have = json_number(answer, {"config", key}).value_or(0);
        if (have == want) return;
        throw error(errc::other_settings, "bucket", name_,
            std::string(key) + " is " + std::to_string(have) + ", not " + std::to_string(want));
    };
    compare("num_replicas", o.replicas);
    compare("max_msgs_per_subject", o.history);
    compare("max_age", ns_of(o.lifetime));
}

raw_entry raw_bucket::get(const std::string& key, const context& ctx) const {
    check_key(key, false);
    message m = connection_->ask(
        "get", "$JS.API.DIRECT.GET.KV_" + name_ + ".$KV." + name_ + "." + key, "", {}, ctx, true, true);
    if (const auto status = m.header("Status")) {
        if (*status == "404") return {};
        throw error(errc::refused, "get", key, *status + " " + m.header("Description").value_or(""));
    }
    raw_entry e;
    e.key = key;
    e.revision = std::strtoull(m.header("Nats-Sequence").value_or("0").c_str(), nullptr, 10);
    e.erased = says_erased(m);
    e.message = std::move(m);
    return e;
}

std::uint64_t raw_bucket::write(const std::string& key, std::string_view data, std::optional<std::uint64_t> expected,
    const char* operation, const context& ctx) const {
    check_key(key, false);
    headers h{{"Nats-Msg-Id", unique_name()}};  // if it is sent again, it is not written twice
    if (expected) h.emplace_back("Nats-Expected-Last-Subject-Sequence", std::to_string(*expected));
    if (operation != nullptr) h.emplace_back("KV-Operation", operation);
    return send_confirmed(*connection_, "put", "$KV." + name_ + "." + key, data, h, ctx);
}

struct watch_state final : member, sink, std::enable_shared_from_this<watch_state> {
    watch_state(std::shared_ptr<connection> c, std::string b, std::string k)
        : link(std::move(c)),
          bucket(std::move(b)),
          keys(std::move(k)),
          flow(std::make_shared<inflow>(link, subscribe_options{})) {}
    ~watch_state() override { link->unsubscribe(subscription); }

    struct taker final : sink {
        explicit taker(std::weak_ptr<watch_state> w) : owner(std::move(w)) {}
        void arrived(message m) override {
            if (const auto w = owner.lock()) w->arrived(std::move(m));
        }
        std::weak_ptr<watch_state> owner;
    };
    struct making final : call {
        void finished(message_and_failure&& f) noexcept override {
            const auto w = owner.lock();
            if (!w) return;
            locked(w->mutex, [&] { w->under_way = false; });
            try {
                w->made(f.fault ? f.fault : failure_of_answer(f.answer.data()));
            } catch (const std::exception&) {
                // No memory. If there is no consumer, tick() makes the next one.
            }
        }
        std::weak_ptr<watch_state> owner;
    };

    void begin() {
        inbox = link->new_inbox();
        subscription = link->subscribe(inbox, "", std::make_shared<taker>(weak_from_this()));
        link->join(shared_from_this());
        make();
    }

    void make() {
        std::string body;
        const std::string stream = "KV_" + bucket;
        std::string name;
        const bool go_on = locked(mutex, [&] {
            if (over || under_way) return false;
            consumer = name = unique_name();
            next = 1;
            heard_ns = now_ns();
            body =
                "{\"stream_name\":" + json_quoted(stream) + ",\"config\":{\"name\":\"" + name +
                "\",\"deliver_subject\":\"" + inbox +
                "\",\"ack_policy\":\"none\",\"max_deliver\":1,\"replay_policy\":\"instant\",\"mem_storage\":true,\"num_replicas\":1,"
                "\"inactive_threshold\":10000000000,"
                "\"idle_heartbeat\":" +
                std::to_string(heartbeat_ns) + ",\"filter_subject\":" + json_quoted("$KV." + bucket + "." + keys);
            body +=
                seen == 0
                    ? ",\"deliver_policy\":\"last_per_subject\"}}"
                    : ",\"deliver_policy\":\"by_start_sequence\",\"opt_start_seq\":" + std::to_string(seen + 1) + "}}";
            under_way = true;
            return true;
        });
        if (!go_on) return;
        try {
            const auto c = std::make_shared<making>();
            c->owner = weak_from_this();
            c->jetstream = c->hurried = true;
            link->start(c, "$JS.API.CONSUMER.CREATE." + stream + "." + name, body, {}, 3'000 * millisecond);
        } catch (const std::exception&) {
            locked(mutex, [&] { under_way = false; });
            throw;
        }
    }

    void made(const failure& f) {
        if (f.is(errc::stream_missing) || f.is(errc::not_permitted)) flow->end(f);
        // Any other failure is temporary: tick() tries again.
    }

    void arrived(message m) override {
        bool again = false, mine = false;
        const auto about = read_ack_subject(m.reply());
        locked(mutex, [&] {
            if (!about) {
                heard_ns = now_ns();  // a heartbeat; at worst of an older consumer, which ends soon
                return;
            }
            if (about->consumer != consumer) return;
            heard_ns = now_ns();
            again = about->consumer_sequence != next;
            if (again) return;
            mine = true;
            ++next;
            seen = about->sequence;
        });
        if (mine) flow->arrived(std::move(m));
        if (again) make();
    }

    void tick(std::int64_t now) override {
        if (locked(mutex, [&] { return now - heard_ns >= 3 * heartbeat_ns; }) && link->up()) make();
    }
    void came_back() override {
        locked(mutex, [&] { heard_ns = now_ns() - 2 * heartbeat_ns; });
    }
    void ended(const failure& f) override { flow->end(f); }

    void stop() noexcept {
        std::string name;
        locked(mutex, [&] {
            over = true;
            name.swap(consumer);
        });
        flow->end({});
        try {
            static_cast<void>(link->publish("$JS.API.CONSUMER.DELETE.KV_" + bucket + "." + name, "", "", {}, true));
        } catch (...) {
            // The server ends the consumer by itself.
        }
    }

    const std::shared_ptr<connection> link;
    const std::string bucket, keys;
    const std::shared_ptr<inflow> flow;
    std::string inbox;
    std::shared_ptr<interest> subscription;

    std::mutex mutex;
    std::string consumer;
    std::uint64_t next = 1, seen = 0;
    std::int64_t heard_ns = 0;
    bool under_way = false, over = false;
};

std::shared_ptr<watch_state> raw_bucket::watch(const std::string& keys) const {
    check_key(keys, true);
    auto w = std::make_shared<watch_state>(connection_, name_, keys);
    w->begin();
    return w;
}

const chan<message>& watching::ready(const watch_state& w) noexcept { return w.flow->ready; }
void watching::taken(watch_state& w) noexcept { w.flow->taken(); }
void watching::check(watch_state& w) { inflow_access::check(*w.flow); }
void watching::stop(watch_state& w) noexcept { w.stop(); }

raw_entry watching::read(const watch_state& w, message m) {
    raw_entry e;
    e.key = m.subject().substr(std::min(m.subject().size(), 5 + w.bucket.size()));  // $KV.<bucket>.
    if (const auto about = read_ack_subject(m.reply())) e.revision = about->sequence;
    e.erased = says_erased(m);
    e.message = std::move(m);
    return e;
}

}  // namespace dunlin::nats::detail
