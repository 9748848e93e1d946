// once.cpp - something that happens once and can be waited for.
//
// Protocol   begin: CAS 0 -> 1. set: 2 (seq_cst), then the look into the parking lot (park/parking_lot.h, A1 to A3);
//            wait: B1 to B4. The waker looks at the object again only if there is a waiter at its address for an object
//            of this kind:
//            by then that may be another object, which has not happened yet.
// Source     Go 1.24 sync/once.go. Differs: waiters are in the parking lot, and wait for no mutex.
// Tests      tests/sync/once_future_pool_test.cpp
#include <dunlin/detail/one_shot.hpp>

#include <exception>
#include <future>
#include <stdexcept>
#include <string>

#include <dunlin/async.hpp>

#include "sync/lot_wait.h"

namespace dunlin::inline v0_1::detail {

static_assert(once_reason == static_cast<unsigned char>(sched::wait_reason::once));
static_assert(future_reason == static_cast<unsigned char>(sched::wait_reason::future_wait));

void one_shot::set() noexcept {
    const void* const here = this;
    word_.store(done, std::memory_order_seq_cst);
    wake_arrived(here, park::lot_kind::event,
        [here](const park::lot_node&) noexcept { return static_cast<const one_shot*>(here)->is_set(); });
}

wait_outcome one_shot::wait(unsigned char reason, const wait_limit* limit, const std::source_location& where) {
    return wait_until_arrived(this, park::lot_kind::event, 0, static_cast<sched::wait_reason>(reason), limit, where,
        [this]() noexcept { return word_.load(std::memory_order_seq_cst) == done; });
}

void throw_bad_policy(int policy) {
    throw std::invalid_argument("dunlin::async: the policy " + std::to_string(policy)
        + " is neither launch::async nor launch::deferred");
}

std::exception_ptr no_result() noexcept {
    if (this_goroutine::id() != 0) return std::make_exception_ptr(goroutine_exited());
    return std::make_exception_ptr(std::future_error(std::future_errc::broken_promise));
}

void one_shot::destroyed() noexcept {
    park::check_no_waiters(this, "a once_flag is destroyed while goroutines wait for it");
}

}  // namespace dunlin::detail
