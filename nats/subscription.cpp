// subscription.cpp - see inflow.h.
#include "inflow.h"

#include <utility>

namespace dunlin::inline v0_1::nats {

namespace detail {

void inflow::arrived(nats::message m) {
    bool overflow = false;
    try {
        locked(mutex, [&] {
            if (over) return;
            if (behind.empty() && ready.try_send(std::move(m)) == channel_status::ok) return;
            switch (options.when_slow) {
            case when_slow::drop_oldest:
                while (ready.try_send(std::move(m)) != channel_status::ok) {
                    if (ready.try_recv()) {
                        dropped.fetch_add(1);
                        link->dropped.fetch_add(1);
                    }
                }
                return;
            case when_slow::wait:
                bytes_behind += m.data().size() + 64;
                if (bytes_behind <= options.overflow_bytes) return behind.push_back(std::move(m));
                break;
            case when_slow::fail: break;
            }
            overflow = true;
        });
    } catch (const channel_closed&) {
        return;
    }
    if (overflow) end({errc::slow_consumer, std::to_string(options.buffer) + " messages wait"});
}

void inflow::taken() {
    locked(mutex, [&] {
        while (!behind.empty() && !closed) {
            const std::size_t size = behind.front().data().size() + 64;
            if (ready.try_send(std::move(behind.front())) != channel_status::ok) return;
            bytes_behind -= size;
            behind.pop_front();
        }
        if (over && !std::exchange(closed, true)) ready.close();
    });
}

void inflow::end(failure f) noexcept {
    std::shared_ptr<interest> mine;
    locked(mutex, [&] {
        if (over) return;
        over = true;
        why = std::move(f);
        mine = std::exchange(subscription, nullptr);
        if (behind.empty() && !std::exchange(closed, true)) ready.close();
    });
    link->unsubscribe(mine);
}

const chan<nats::message>& inflow_access::ready(const inflow& f) noexcept { return f.ready; }
void inflow_access::taken(inflow& f) noexcept { f.taken(); }
void inflow_access::check(inflow& f) {
    const failure why = locked(f.mutex, [&] { return f.why; });
    if (why && !why.is(errc::closed)) why.raise("subscription", "");
}

}  // namespace detail

subscription cluster::subscribe(const std::string& subject, const subscribe_options& o, const context& ctx) const {
    auto flow = std::make_shared<detail::inflow>(connection_, o);
    const auto s = connection_->subscribe(subject, o.group, flow);
    // If it is over by now, nothing would let go of it: the flow would own what owns the flow.
    detail::locked(flow->mutex, [&] {
        if (!flow->over) flow->subscription = s;
    });
    // The member lives as long as the flow.
    using both = std::pair<std::shared_ptr<detail::inflow>, std::shared_ptr<detail::inflow_member>>;
    const auto owner = std::make_shared<both>(flow, std::make_shared<detail::inflow_member>(flow));
    connection_->join(owner->second);
    subscription made(std::shared_ptr<detail::inflow>(owner, flow.get()));
    connection_->round_trip("subscribe", ctx);
    const auto why = [&] { return detail::locked(flow->mutex, [&] { return flow->why; }); };
    connection_->await_refusal(subject, o.group, ctx, [&] { return static_cast<bool>(why()); });
    if (const detail::failure f = why(); f.is(errc::not_permitted)) f.raise("subscribe", subject);
    return made;
}

subscription::~subscription() { close(); }

void subscription::close() noexcept {
    if (flow_) flow_->end({});
}

std::optional<message> subscription::recv(const context& ctx) const {
    auto m = flow_->ready.recv(ctx);
    if (m) {
        flow_->taken();
    } else {
        detail::inflow_access::check(*flow_);
    }
    return m;
}

std::uint64_t subscription::dropped() const noexcept { return flow_ ? flow_->dropped.load() : 0; }

}  // namespace dunlin::nats
