// interest.cpp - see interest.h.
#include "interest.h"

#include <utility>

#include <dunlin/nats/message.hpp>

namespace dunlin::inline v0_1::nats::detail {

struct interest::subscription {
    subscription(std::shared_ptr<interest> i, std::uint64_t number, std::shared_ptr<event_loop> l)
        : about(std::move(i)), at(number), loop(std::move(l)) {}
    ~subscription() {
        if (native != nullptr) loop->bury(native);
    }
    subscription(const subscription&) = delete;
    subscription& operator=(const subscription&) = delete;

    const std::shared_ptr<interest> about;
    const std::uint64_t at;
    const std::shared_ptr<event_loop> loop;
    natsSubscription* native = nullptr;
};

void interest::take(natsConnection*, natsSubscription*, natsMsg* m, void* closure) {
    (*static_cast<std::shared_ptr<subscription>*>(closure))->about->to_->arrived(nats::message(m));
}

void interest::drop(void* closure) {
    const std::unique_ptr<std::shared_ptr<subscription>> last(static_cast<std::shared_ptr<subscription>*>(closure));
    (*last)->about->dropped(*last);
}

void interest::dropped(const std::shared_ptr<subscription>& s) {
    bool over = false;
    {
        std::lock_guard guard(mutex_);
        if (now_ == s) {
            now_ = nullptr;
            over = ended_;
        }
    }
    if (over) to_->over();
}

failure interest::subscribe(natsConnection* nc, std::uint64_t number, const std::shared_ptr<event_loop>& loop) {
    const auto made = std::make_shared<subscription>(shared_from_this(), number, loop);
    auto closure = std::make_unique<std::shared_ptr<subscription>>(made);
    std::shared_ptr<subscription> before;
    {
        // Before libnats makes its subscription, which it may drop at once.
        std::lock_guard guard(mutex_);
        if (ended_ || (now_ && now_->at >= number)) return {};
        before = std::exchange(now_, made);
    }
    natsSubscription* s = nullptr;
    failure f = failure_of(
        group_.empty() ? natsConnection_Subscribe(&s, nc, subject_.c_str(), take, closure.get())
                       : natsConnection_QueueSubscribe(&s, nc, subject_.c_str(), group_.c_str(), take, closure.get()));
    bool late = false;
    {
        std::lock_guard guard(mutex_);
        made->native = s;
        late = ended_;
    }
    if (!f) {
        // the sinks take each message at once, and have limits of their own
        natsSubscription_SetPendingLimits(s, -1, -1);
        f = failure_of(natsSubscription_SetOnCompleteCB(s, drop, closure.get()));
    }
    if (f) {
        dropped(made);
        // Closed before drop() was set: the sink may be taking a message at this moment, so the closure is never freed.
        if (s != nullptr) static_cast<void>(closure.release());
        return f;
    }
    static_cast<void>(closure.release());
    if (late) natsSubscription_Unsubscribe(s);  // end() has not seen it
    return {};
}

bool interest::end(natsStatus (*how)(natsSubscription*)) noexcept {
    std::shared_ptr<subscription> mine;
    natsSubscription* native = nullptr;
    {
        std::lock_guard guard(mutex_);
        if (std::exchange(ended_, true)) return false;
        mine = now_;
        if (mine) native = mine->native;
    }
    if (native != nullptr) how(native);
    return !mine;
}

bool interest::unsubscribe() noexcept { return end(natsSubscription_Unsubscribe); }
bool interest::drain() noexcept {
    return end([](natsSubscription* s) { return natsSubscription_DrainTimeout(s, 5'000); });
}

std::uint64_t interest::at() const noexcept {
    std::lock_guard guard(mutex_);
    return now_ ? now_->at : 0;
}

}  // namespace dunlin::nats::detail
