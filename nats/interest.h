// interest.h - a subject that something here wants to hear of, through all the connections to servers that come and go.
//
// Data      interest        subject, group, and the sink that takes what comes. In a table until it ends.
//           subscription    libnats' own, on one natsConnection: an interest has one after the other.
// Protocol  libnats calls drop() as its last word about a subscription: when it was ended, or its natsConnection
//           closed. An interest that ends says so (`ended`) and looks for a subscription that libnats has not dropped
//           yet; drop() takes the subscription away and looks for `ended`. Both under the interest's lock, so that one
//           of them, and only one, finds that nothing more can arrive: then the sink is told (over()), outside
//           undisturbed().
// Lifetime  A subscription is referred to by its interest and by libnats (closure) until drop(), and by the caller that
//           is ending it. The last of them gives it to event_loop::bury(): libnats looks it up without a reference of
//           its own (loop.h, "Graves").
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include <nats/nats.h>

#include "failure.h"
#include "loop.h"

namespace dunlin::inline v0_1::nats {
class message;
}

namespace dunlin::inline v0_1::nats::detail {

// Takes what arrives. On libnats' delivery thread: may not wait.
class sink {
public:
    virtual ~sink() = default;
    virtual void arrived(nats::message m) = 0;
    virtual void over() {}  // nothing more arrives
};

class interest : public std::enable_shared_from_this<interest> {
public:
    interest(std::string subject, std::string group, std::shared_ptr<sink> to)
        : subject_(std::move(subject)), group_(std::move(group)), to_(std::move(to)) {}

    // All of these in undisturbed(), and without a lock but for at().

    // On the wire `number`, unless it is at a later one already.
    failure subscribe(natsConnection* nc, std::uint64_t number, const std::shared_ptr<event_loop>& loop);
    // Nothing more is wanted. What has been sent already is dropped. True: nothing more can arrive, and the caller is
    // to tell to(); else drop() does.
    [[nodiscard]] bool unsubscribe() noexcept;
    // The same, but what the server has sent until it knows still arrives.
    [[nodiscard]] bool drain() noexcept;
    sink& to() const noexcept { return *to_; }
    // The number of the wire that it is subscribed at; 0: none.
    std::uint64_t at() const noexcept;

private:
    struct subscription;
    static void take(natsConnection*, natsSubscription*, natsMsg* m, void* closure);
    static void drop(void* closure);
    bool end(natsStatus (*how)(natsSubscription*)) noexcept;

    const std::string subject_, group_;
    const std::shared_ptr<sink> to_;
    mutable std::mutex mutex_;
    std::shared_ptr<subscription> now_;
    bool ended_ = false;
};

}  // namespace dunlin::nats::detail
