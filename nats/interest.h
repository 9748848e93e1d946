// interest.h - a subject to which this process listens, over all the connections to servers that come and go.
//
// Data      interest        subject, group, and the sink that takes the messages. In a table until it ends.
//           subscription    libnats' object, on one natsConnection: an interest has one after another.
// Protocol  drop() is libnats' last call for a subscription, after it was ended or its natsConnection closed. An
//           interest that ends sets ended_ and looks for a subscription that libnats has not dropped yet; drop()
//           removes the subscription and looks at ended_. Both happen under the interest's lock, so exactly one of them
//           finds that nothing more can arrive; that one tells the sink (over()), outside undisturbed().
// Lifetime  Until drop(), the interest and libnats (closure) hold a reference to a subscription; so does a caller that
//           is ending it. The last holder gives it to event_loop::bury(), because libnats looks it up without a
//           reference of its own (loop.h, "Graves").
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

// Takes the messages that arrive. Called on libnats' delivery thread: may not wait.
class sink {
public:
    virtual ~sink() = default;
    virtual void arrived(nats::message m) = 0;
    virtual void over() {}  // nothing more will arrive
    // The server does not permit it. True: the interest ends. On a thread of libnats', without a lock.
    virtual bool refused(const failure&) { return false; }
};

class interest : public std::enable_shared_from_this<interest> {
public:
    interest(std::string subject, std::string group, std::shared_ptr<sink> to)
        : subject_(std::move(subject)), group_(std::move(group)), to_(std::move(to)) {}

    // Call all of these in undisturbed(), and, except for at(), without a lock.

    // Subscribes on the wire `number`, unless it is on a later one already.
    failure subscribe(natsConnection* nc, std::uint64_t number, const std::shared_ptr<event_loop>& loop);
    // Ends the interest. Messages that are on their way are dropped. True: nothing more can arrive, and the caller must
    // tell to(); otherwise drop() does.
    [[nodiscard]] bool unsubscribe() noexcept;
    // The same, but what the server sends until it learns of this still arrives.
    [[nodiscard]] bool drain() noexcept;
    sink& to() const noexcept { return *to_; }
    const std::string& subject() const noexcept { return subject_; }
    const std::string& group() const noexcept { return group_; }
    // The number of the wire on which it is subscribed; 0: none.
    std::uint64_t at() const noexcept;

private:
    struct subscription;
    static void take(natsConnection*, natsSubscription*, natsMsg* m, void* closure);
    static void drop(void* closure);
    void dropped(const std::shared_ptr<subscription>& s);
    bool end(natsStatus (*how)(natsSubscription*)) noexcept;

    const std::string subject_, group_;
    const std::shared_ptr<sink> to_;
    mutable std::mutex mutex_;
    std::shared_ptr<subscription> now_;
    bool ended_ = false;
};

}  // namespace dunlin::nats::detail
