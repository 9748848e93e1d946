// notify.cpp - wakes all that wait on a channel of nothing at once.
//
// notify is a channel with room for one permit: notify_one() is a send that does not wait, wait() a receive. Here is
// what a channel lacks. Under the channel's lock either the permit is in the buffer or goroutines wait (C1 in
// chan/core.h), so this never overlooks a permit. Select, deadlines and contexts are the channel's.
// Tests      tests/sync/notify_watch_broadcast_test.cpp
#include <dunlin/notify.hpp>

#include "chan/core.h"

namespace dunlin::inline v0_1::detail {

void serve_all_receivers(chan_core* c) noexcept {
    park::runtime_section inside;
    std::monostate nothing;
    c->lock.lock();
    park::wait_node* const woken = c->serve_all_receivers(&nothing);
    c->lock.unlock();
    park::wake_all(woken);
}

}  // namespace dunlin::detail
