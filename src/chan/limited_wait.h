// limited_wait.h - a wait for anything that a deadline or a context may end. Locks, sockets and channels wait through
// it; locks and sockets need not know what a channel is.
#pragma once

#include <dunlin/detail/wait.hpp>

#include "park/waiter.h"
#include "platform/clock.h"

namespace dunlin::inline v0_1::detail {

enum class end_of_wait : std::uint8_t { served, timed_out, cancelled, no_memory };

// Waits until a node of `w` is served, or until `limit` ends the wait. The waiter is prepared, all its nodes are
// queued, and no lock is held. After any end but `served` no waker will wake `w` any more, and the caller takes its
// nodes off their queues. Leaves the runtime.
end_of_wait wait_limited(park::waiter& w, const wait_limit& limit) noexcept;

// The rule for limits: a limit ends waits only; what is available at once is taken, even if the limit is past. So every
// wait tries first, and checks its limit here before it queues.
bool is_done(const chan_core* done) noexcept;  // a context's channel: it is closed
inline bool cancelled_already(const wait_limit* limit) noexcept {
    return limit != nullptr && limit->done != nullptr && is_done(limit->done);
}

inline bool is_past(const wait_limit* limit) noexcept {
    return limit != nullptr && limit->deadline_ns != wait_limit::never && limit->deadline_ns <= platform::now_ns();
}

// May a call with this limit wait, if it must?
inline bool may_wait(const wait_limit* limit) noexcept {
    return limit == nullptr || (!cancelled_already(limit) && !is_past(limit));
}

}  // namespace dunlin::detail
