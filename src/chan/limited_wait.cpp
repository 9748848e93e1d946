#include "chan/limited_wait.h"

#include "chan/core.h"
#include "timer/timers.h"

namespace dunlin::inline v0_1::detail {

bool is_done(const chan_core* done) noexcept { return done->is_closed(); }

namespace {

// The context's part in a wait: a receiver on its done channel, on which nothing arrives but the close.
class done_watch {
public:
    done_watch(park::waiter& w, chan_core* done) noexcept : node_(&w), done_(done) { node_.several = true; }

    // False: it is closed already, and the waiter has been claimed for that.
    bool begin(park::waiter& w) noexcept {
        done_->lock.lock();
        const bool closed = done_->is_closed();
        const bool claimed = closed && w.decide(&node_);
        if (!closed) done_->enqueue_receiver(&node_);
        done_->lock.unlock();
        return !claimed;
    }
    void end() noexcept {
        park::runtime_section inside;
        done_->lock.lock();
        done_->forget_receiver(&node_);
        done_->lock.unlock();
    }
    bool won(const park::waiter& w) const noexcept { return w.decided() == &node_; }

private:
    chan_node node_;
    chan_core* done_;
};

end_of_wait wait_with_deadline(park::waiter& w, std::int64_t deadline_ns) noexcept {
    switch (timers::wait_until(w, deadline_ns)) {
    case timers::wake_cause::woken: return end_of_wait::served;
    case timers::wake_cause::deadline: return end_of_wait::timed_out;
    case timers::wake_cause::no_memory: break;
    }
    return end_of_wait::no_memory;
}

}  // namespace

end_of_wait wait_limited(park::waiter& w, const wait_limit& limit) noexcept {
    if (limit.done == nullptr) return wait_with_deadline(w, limit.deadline_ns);
    done_watch watch(w, limit.done);
    if (!watch.begin(w)) {
        w.withdraw();
        w.leave();
        return end_of_wait::cancelled;
    }
    const end_of_wait end = wait_with_deadline(w, limit.deadline_ns);
    watch.end();
    return end == end_of_wait::served && watch.won(w) ? end_of_wait::cancelled : end;
}

}  // namespace dunlin::detail
