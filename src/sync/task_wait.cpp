// task_wait.cpp - waiting for a task with a deadline or a context, and letting go of it.
#include <dunlin/task.hpp>

#include "park/join.h"
#include "sync/lot_wait.h"

namespace dunlin::inline v0_1::detail {

// The end's exchange of `join` comes before its look at the bucket, our announcement before our look at `join` (all
// four seq_cst): one of the two sees the other.
wait_outcome join_limited(goroutine_handle* handle, const wait_limit& limit, std::source_location where) {
    auto* child = reinterpret_cast<sched::goroutine*>(handle);
    if (park::has_ended(child)) return wait_outcome::ok;
    if (cancelled_already(&limit)) return wait_outcome::cancelled;
    if (!park::announce_join_in_lot(child)) return wait_outcome::ok;
    return wait_until_arrived(park::join_address(child), park::lot_kind::event, 0, sched::wait_reason::task_join,
        &limit, where,
        [child]() noexcept { return park::has_ended_for_lot(child); });
}

bool leave_to_heir(goroutine_handle* handle, new_goroutine heir, void (*entry)(void*)) noexcept {
    auto* g = reinterpret_cast<sched::goroutine*>(heir.g);
    g->entry = entry;
    g->group.store(nullptr, std::memory_order_relaxed);
    return park::leave_to_heir(reinterpret_cast<sched::goroutine*>(handle), g);
}

}  // namespace dunlin::detail
